//! Drain.

use core::time::Duration;

use super::{Harness, JOINER, NANO, OWNER, SECOND, World, introduced, is_waiting, refused, replayed, v4};
use crate::limits::{ATTEMPT_MIN, DRAIN_MAX};
use crate::outcome::{AttemptReason, Refusal};
use crate::store::{BeginDrain, DrainView, EphemeralRendezvousStore, Reply, Transition};
use crate::time::Instant;

fn begin<H: Harness>(w: &mut World<'_, H>, window: Duration) -> DrainView {
    match w.apply(Transition::BeginDrain(BeginDrain { window })) {
        Reply::Drain(view) => view,
        other => panic!("no drain: {other:?}"),
    }
}

fn deadline(view: DrainView) -> Instant {
    let DrainView::Draining { deadline, .. } = view else { panic!("not draining: {view:?}") };
    deadline
}

/// "Drain is idempotent"; the earlier deadline wins.
pub fn is_idempotent_and_the_earlier_deadline_wins<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    assert_eq!(w.apply(Transition::GetDrain), Reply::Drain(DrainView::Serving));
    // Its lease ends after the drain: whoever sleeps until something is due wakes up for the drain.
    w.register(OWNER);
    let first = deadline(begin(&mut w, 20 * SECOND));
    assert_eq!(first, w.now().after(20 * SECOND));
    w.sleep(SECOND);
    assert_eq!(deadline(begin(&mut w, 20 * SECOND)), first);
    let earlier = deadline(begin(&mut w, 5 * SECOND));
    assert_eq!(earlier, w.now().after(5 * SECOND));
    assert_eq!(deadline(begin(&mut w, 20 * SECOND)), earlier);
    assert_eq!(w.next_deadline(), Some(earlier));
    w.sleep(5 * SECOND);
    assert_eq!(w.apply(Transition::GetDrain), Reply::Drain(DrainView::Drained));
    assert_eq!(begin(&mut w, 20 * SECOND), DrainView::Drained);
}

/// "It immediately rejects new registrations, attempts, and lease extensions."
pub fn rejects_what_is_new<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let host = w.registered(&request);
    w.present(host.lease.presence_key, v4(1, 4000));
    let creation = w.creation(JOINER, host.view.id);
    w.created(&creation);
    begin(&mut w, 10 * SECOND);
    w.sleep(4 * SECOND);
    let draining = Refusal::Draining { remaining: 6 * SECOND };
    let (new, attempt) = (w.registration(OWNER), w.creation(JOINER, host.view.id));
    assert_eq!(refused(&w.submit(&new)), draining);
    assert_eq!(refused(&w.create(&attempt)), draining);
    assert_eq!(refused(&w.renew(OWNER, host.view.id, 1)), draining);
    assert!(w.registered(&request).replayed, "a lost answer can still be asked for");
    assert!(w.created(&creation).replayed);
}

/// "Already-created attempts may bind endpoints and consume their introduction"; presence stays accepted.
pub fn finishes_what_was_begun<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    begin(&mut w, 10 * SECOND);
    let proof = w.proof(host.lease.presence_key, v4(1, 4000));
    let reply = w.refresh(proof);
    assert!(matches!(reply, Reply::Presence(grant) if grant.draining), "{reply:?}");
    assert!(is_waiting(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))));
    w.sleep(10 * SECOND - NANO);
    introduced(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
    replayed(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000)));
}

/// "How many attempts are left" to wait for: none that is over, by itself or with its listing.
pub fn tells_how_many_are_left<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (host, other) = (w.joinable(OWNER), w.joinable(OWNER));
    for listing in [host.view.id, host.view.id, other.view.id] {
        w.attempt(listing);
    }
    let mut short = w.creation(JOINER, host.view.id);
    short.lifetime = ATTEMPT_MIN;
    w.created(&short);
    let left = |view: Reply| match view {
        Reply::Drain(DrainView::Draining { attempts, .. }) => attempts,
        other => panic!("not draining: {other:?}"),
    };
    assert_eq!(left(w.apply(Transition::BeginDrain(BeginDrain { window: 10 * SECOND }))), 4);
    w.sleep(ATTEMPT_MIN);
    assert_eq!(left(w.apply(Transition::GetDrain)), 3);
    assert_eq!(w.delete(OWNER, other.view.id), Reply::Deleted);
    assert_eq!(left(w.apply(Transition::GetDrain)), 2);
    assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted);
    assert_eq!(left(w.apply(Transition::GetDrain)), 0);
}

/// "At the deadline all active state is cleared atomically."
pub fn clears_everything_at_the_deadline<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let host = w.registered(&request);
    w.present(host.lease.presence_key, v4(1, 4000));
    let attempt = w.attempt(host.view.id);
    let ended = w.attempt(host.view.id);
    assert_eq!(w.cancel(JOINER, ended.id), Reply::Cancelled);
    begin(&mut w, 10 * SECOND);
    w.sleep(10 * SECOND);
    assert_eq!(w.apply(Transition::GetDrain), Reply::Drain(DrainView::Drained));
    let at_once = w.store.stats();
    assert_eq!((at_once.presence_fresh, at_once.listings_visible), (0, 0), "taken apart or not");
    let stats = w.stats();
    assert!(stats.pools.iter().all(|it| it.used == 0), "{stats:?}");
    assert_eq!(stats.attempt_reasons.get(AttemptReason::Drained), 1);
    assert_eq!(w.next_deadline(), None);
    let over = Refusal::Draining { remaining: Duration::ZERO };
    assert_eq!(w.get_id(OWNER, host.view.id), Err(Refusal::NotFound));
    assert_eq!(refused(&w.renew(OWNER, host.view.id, 1)), over);
    assert_eq!(refused(&w.submit(&request)), over);
    assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))), over);
    let proof = w.proof(host.lease.presence_key, v4(1, 4000));
    assert_eq!(refused(&w.refresh(proof)), over);
}

/// The same whenever the store comes to it: what was left ended at that deadline, though its own came since.
pub fn ends_what_is_left_at_its_deadline<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    w.attempt(host.view.id);
    begin(&mut w, 10 * SECOND);
    w.sleep(300 * SECOND);
    assert_eq!(w.stats().attempt_reasons.get(AttemptReason::Drained), 1);
}

/// "A process restart creates a new store instance and starts empty. Old listing, lease, attempt, endpoint, idempotency,
/// and consumption state is not recovered."
pub fn a_new_store_knows_nothing_of_the_old<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let host = w.registered(&request);
    w.present(host.lease.presence_key, v4(1, 4000));
    let creation = w.creation(JOINER, host.view.id);
    let attempt = w.created(&creation);
    let mut w = World::new(w.harness);
    assert!(w.stats().pools.iter().all(|it| it.used == 0 && it.high_water == 0));
    assert_eq!((w.next_deadline(), w.apply(Transition::GetDrain)), (None, Reply::Drain(DrainView::Serving)));
    assert_eq!(w.get_id(OWNER, host.view.id), Err(Refusal::NotFound));
    assert_eq!(refused(&w.renew(OWNER, host.view.id, 1)), Refusal::NotFound);
    let proof = w.proof(host.lease.presence_key, v4(1, 4000));
    assert_eq!(refused(&w.refresh(proof)), Refusal::NotFound);
    assert_eq!(refused(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))), Refusal::NotFound);
    assert_eq!(w.view(JOINER, attempt.id), Err(Refusal::NotFound));
    assert_eq!(refused(&w.create(&creation)), Refusal::NotFound);
    assert!(!w.registered(&request).replayed, "publishers register again");
}

/// "The configured window, at most 30 seconds"; one of nothing clears at once.
pub fn has_a_longest_window<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    assert_eq!(deadline(begin(&mut w, Duration::MAX)), w.now().after(DRAIN_MAX));
    let mut w = World::new(w.harness);
    w.joinable(OWNER);
    assert_eq!(begin(&mut w, Duration::ZERO), DrainView::Drained);
    assert_eq!(w.used(crate::outcome::Pool::Listings), 0);
}
