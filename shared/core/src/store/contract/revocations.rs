//! Revocations: bars of a listing or a principal.

use core::time::Duration;

use super::{
    Harness, JOINER, NANO, OPERATOR, OWNER, SECOND, STRANGER, THIRD, World, is_waiting, refused, v4,
};
use crate::id::{Handle, ListingId, RevocationId};
use crate::limits::{Limits, PAGE_LEN_MAX, PRESENCE_KEY_LIFETIME, REVOCATION_MAX, REVOCATION_MIN};
use crate::outcome::{AttemptReason, Pool, Refusal};
use crate::store::{
    BeginDrain, Caller, EphemeralRendezvousStore, GetListing, LiftRevocation, ListPending, ListRevocations,
    ListingLocator, Phase, RefreshPresence, Reply, Report, Reporter, RevocationPage, RevocationView, Revoke,
    Subject, Transition,
};
use crate::wire::ReportResult;

const LIFETIME: Duration = REVOCATION_MIN;

/// An operator of the other tenant.
const FOREIGN_OPERATOR: Caller = Caller { operator: true, ..STRANGER };

fn revoke_for<H: Harness>(w: &mut World<'_, H>, by: Caller, subject: Subject, lifetime: Duration) -> Reply {
    w.apply(Transition::Revoke(Revoke { caller: by, subject, lifetime }))
}

fn revoked<H: Harness>(w: &mut World<'_, H>, subject: Subject) -> RevocationView {
    match revoke_for(w, OPERATOR, subject, LIFETIME) {
        Reply::Revoked(view) => view,
        other => panic!("should be revoked: {other:?}"),
    }
}

fn lift<H: Harness>(w: &mut World<'_, H>, by: Caller, revocation: RevocationId) -> Reply {
    w.apply(Transition::LiftRevocation(LiftRevocation { caller: by, revocation }))
}

fn list<H: Harness>(
    w: &mut World<'_, H>,
    by: Caller,
    after: Option<RevocationId>,
    limit: usize,
) -> RevocationPage {
    match w.apply(Transition::ListRevocations(ListRevocations { caller: by, after, limit })) {
        Reply::Revocations(page) => page,
        other => panic!("no page: {other:?}"),
    }
}

fn principal(caller: Caller) -> Subject {
    Subject::Principal(caller.principal)
}

/// "A revocation is inserted before removal; if the bounded revocation pool is full, the operation rejects without
/// deleting anything."
pub fn a_full_pool_deletes_nothing<H: Harness>(harness: &mut H) {
    for ceiling in 0..=2 {
        let mut w = World::with_limits(harness, Limits { revocations: ceiling, ..Limits::DEFAULT });
        let host = w.joinable(OWNER);
        let attempt = w.attempt(host.view.id);
        for _ in 0..ceiling {
            let id = w.register(THIRD).view.id;
            revoked(&mut w, Subject::Listing(id));
        }
        let before = w.stats();
        for subject in [Subject::Listing(host.view.id), principal(OWNER), principal(JOINER)] {
            let reply = revoke_for(&mut w, OPERATOR, subject, LIFETIME);
            assert_eq!(refused(&reply), Refusal::CapacityExceeded(Pool::Revocations), "at {ceiling}");
        }
        assert_eq!(w.stats(), before, "a refusal changed something");
        assert!(w.get_id(OWNER, host.view.id).is_ok_and(|it| it.visible));
        assert!(is_waiting(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))));
        assert_eq!(list(&mut w, OPERATOR, None, usize::MAX).revocations.len(), ceiling);
    }
}

/// "Revoking a listing or principal removes every listing, presence, and attempt path in the same transition": seen by
/// whatever comes next in the same batch.
pub fn a_listing_goes_with_presence_and_attempts<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let (kept, attempt) = (w.joinable(OWNER), w.attempt(host.view.id));
    let (bound, id) = (w.attempt(host.view.id), host.view.id);
    w.bind(bound.joiner_key, bound.id, v4(2, 5000));
    let proof = w.proof(host.lease.presence_key, v4(1, 4000));
    let batch = [
        Transition::Revoke(Revoke { caller: OPERATOR, subject: Subject::Listing(id), lifetime: LIFETIME }),
        Transition::GetListing(GetListing { caller: JOINER, locator: ListingLocator::Id(id) }),
        Transition::RefreshPresence(RefreshPresence { proof }),
        Transition::GetListing(GetListing { caller: JOINER, locator: ListingLocator::Id(kept.view.id) }),
    ];
    let mut replies = Vec::new();
    let now = w.now();
    w.store.apply(now, &batch, &mut replies);
    assert!(
        matches!(replies[0], Reply::Revoked(view) if view.deadline == now.after(LIFETIME)),
        "{replies:?}"
    );
    assert_eq!((refused(&replies[1]), refused(&replies[2])), (Refusal::NotFound, Refusal::NotFound));
    assert!(matches!(replies[3], Reply::Listing(_)), "another listing of the same owner stays");
    assert_eq!(w.used(Pool::Attempts), 0);
    for it in [attempt, bound] {
        let view = w.view(JOINER, it.id).map(|view| (view.phase, view.times.ended));
        assert_eq!(view, Ok((Phase::Ended(AttemptReason::ListingGone), Some(now))));
        assert_eq!(refused(&w.bind(it.joiner_key, it.id, v4(2, 5000))), Refusal::Expired);
    }
    assert!(w.browse(JOINER, |_| ()).listings.iter().all(|it| it.id == kept.view.id));
}

/// The same of a principal: all it owns, every attempt there, and every attempt of its own elsewhere.
pub fn a_principal_goes_with_all_it_owns_and_joins<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let own: Vec<_> = (0..3).map(|_| w.joinable(OWNER)).collect();
    let elsewhere = w.joinable(THIRD);
    let joined = w.attempt(own[0].view.id);
    let creation = w.creation(OWNER, elsewhere.view.id);
    let joining = w.created(&creation);
    let untouched = w.attempt(elsewhere.view.id);
    w.bind(joining.joiner_key, joining.id, v4(1, 5000));
    revoked(&mut w, principal(OWNER));
    assert_eq!((w.used(Pool::Listings), w.used(Pool::Attempts)), (1, 1));
    for host in &own {
        assert_eq!(w.get_id(OPERATOR, host.view.id), Err(Refusal::NotFound));
        let proof = w.proof(host.lease.presence_key, v4(1, 4000));
        assert_eq!(refused(&w.refresh(proof)), Refusal::NotFound);
    }
    for (caller, id) in [(JOINER, joined.id), (THIRD, joining.id)] {
        let phase = w.view(caller, id).map(|it| it.phase);
        assert_eq!(phase, Ok(Phase::Ended(AttemptReason::Revoked)));
    }
    assert_eq!(w.stats().attempt_reasons.get(AttemptReason::Revoked), 2);
    assert_eq!(refused(&w.bind(joining.joiner_key, joining.id, v4(1, 5000))), Refusal::Expired);
    assert!(is_waiting(&w.bind(untouched.joiner_key, untouched.id, v4(2, 5000))), "another's attempt stays");
}

/// "Bars one listing: it is removed, and its owner learns why"; to everybody else it is as absent as any.
pub fn an_owner_learns_why_and_nobody_else<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let request = w.registration(OWNER);
    let host = w.registered(&request);
    w.present(host.lease.presence_key, v4(1, 4000));
    let id = host.view.id;
    revoked(&mut w, Subject::Listing(id));
    let owning_operator = Caller { operator: true, ..OWNER };
    let asked = [
        (OWNER, Refusal::Revoked),
        (owning_operator, Refusal::Revoked),
        (JOINER, Refusal::NotFound),
        (OPERATOR, Refusal::NotFound),
        (STRANGER, Refusal::NotFound),
        (FOREIGN_OPERATOR, Refusal::NotFound),
    ];
    for (caller, expected) in asked {
        assert_eq!(w.get_id(caller, id), Err(expected), "{caller:?}");
        assert_eq!(refused(&w.renew(caller, id, 1)), expected, "{caller:?}");
        assert_eq!(refused(&w.delete(caller, id)), expected, "{caller:?}");
        let pending = w.apply(Transition::ListPending(ListPending { caller, listing: id }));
        assert_eq!(refused(&pending), expected, "{caller:?}");
        let creation = w.creation(caller, id);
        assert_eq!(refused(&w.create(&creation)), expected, "{caller:?}");
    }
    assert_eq!(refused(&w.submit(&request)), Refusal::Revoked, "nor is it made again by a retry");
    assert!(w.browse(OWNER, |it| it.owned = true).listings.is_empty());
    w.register(OWNER);
}

/// An id that has the handle of what was revoked, but is not its id, is absent: it is of an instance before this one,
/// and its owner shall register again.
pub fn another_instances_listing_is_not_revoked<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.register(OWNER).view.id;
    revoked(&mut w, Subject::Listing(id));
    let earlier = ListingId::new(id.tag() ^ 1, id.handle());
    assert_eq!(w.get_id(OWNER, earlier), Err(Refusal::NotFound));
    assert_eq!(refused(&w.renew(OWNER, earlier, 1)), Refusal::NotFound);
    assert_eq!(refused(&w.delete(OWNER, earlier)), Refusal::NotFound);
    let pending = w.apply(Transition::ListPending(ListPending { caller: OWNER, listing: earlier }));
    assert_eq!(refused(&pending), Refusal::NotFound);
    let creation = w.creation(OWNER, earlier);
    assert_eq!(refused(&w.create(&creation)), Refusal::NotFound);
    let again = revoke_for(&mut w, OPERATOR, Subject::Listing(earlier), LIFETIME);
    assert_eq!(refused(&again), Refusal::NotFound, "nor is it revoked again by that");
    assert_eq!(w.get_id(OWNER, id), Err(Refusal::Revoked));
}

/// "A revoked caller gets 403 `revoked`", whatever it asks, of whatever is or is not there.
pub fn a_revoked_caller_is_told_so_first<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let caller = Caller { operator: true, ..OWNER };
    let host = w.joinable(THIRD);
    let (id, attempt) = (host.view.id, w.attempt(host.view.id));
    let retry = w.registration(caller);
    w.registered(&retry);
    let revocation = revoked(&mut w, principal(caller)).id;
    let (registration, creation) = (w.registration(caller), w.creation(caller, id));
    let report =
        Report { reporter: Reporter::Caller(caller), attempt: attempt.id, result: ReportResult::Connected };
    let replies = [
        w.submit(&registration),
        w.submit(&retry),
        w.renew(caller, id, 1),
        w.delete(caller, id),
        w.create(&creation),
        w.cancel(caller, attempt.id),
        w.apply(Transition::ListPending(ListPending { caller, listing: ListingId::new(3, Handle(5)) })),
        w.apply(Transition::Report(report)),
        revoke_for(&mut w, caller, principal(JOINER), LIFETIME),
        w.apply(Transition::ListRevocations(ListRevocations { caller, after: None, limit: 1 })),
        lift(&mut w, caller, revocation),
    ];
    for (ordinal, reply) in replies.iter().enumerate() {
        assert_eq!(refused(reply), Refusal::Revoked, "answer {ordinal}");
    }
    assert_eq!(w.get_id(caller, id), Err(Refusal::Revoked));
    assert_eq!(w.view(caller, attempt.id), Err(Refusal::Revoked));
    let mut browse = crate::store::BrowseListings {
        caller,
        protocol: Some("game/1".into()),
        owned: false,
        filter: crate::store::Filter::default(),
        after: None,
        limit: 1,
    };
    for owned in [false, true] {
        browse.owned = owned;
        let reply = w.apply(Transition::BrowseListings(Box::new(browse.clone())));
        assert_eq!(refused(&reply), Refusal::Revoked);
    }
    assert!(w.get_id(JOINER, id).is_ok(), "others are served");
    let namesake = Caller { tenant: STRANGER.tenant, ..caller };
    w.register(namesake);
}

/// "Barring it again prolongs what there is": the same id until the later deadline, and no second place.
pub fn barring_again_prolongs<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { revocations: 2, ..Limits::DEFAULT });
    let id = w.register(OWNER).view.id;
    let firsts = [Subject::Listing(id), principal(THIRD)].map(|it| revoked(&mut w, it));
    w.sleep(SECOND);
    for first in firsts {
        let longer = Reply::Revoked(RevocationView { deadline: w.now().after(2 * LIFETIME), ..first });
        assert_eq!(revoke_for(&mut w, OPERATOR, first.subject, 2 * LIFETIME), longer);
        assert_eq!(revoke_for(&mut w, OPERATOR, first.subject, LIFETIME), longer, "never to an earlier time");
    }
    assert_eq!(w.used(Pool::Revocations), 2);
    w.sleep(2 * LIFETIME - NANO);
    assert_eq!(w.get_id(OWNER, id), Err(Refusal::Revoked));
    assert_eq!(w.get_id(THIRD, id), Err(Refusal::Revoked));
    w.sleep(NANO);
    assert_eq!(w.get_id(OWNER, id), Err(Refusal::NotFound));
}

/// "Cleanup removes revocations at their deadline": to the nanosecond, and then its place is free.
pub fn ends_at_its_deadline<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { revocations: 1, ..Limits::DEFAULT });
    w.sleep(Duration::from_nanos(123_456_789));
    let id = w.register(OWNER).view.id;
    for subject in [Subject::Listing(id), principal(OWNER)] {
        let view = revoked(&mut w, subject);
        assert_eq!(view.deadline, w.now().after(LIFETIME));
        w.sleep(LIFETIME - NANO);
        assert_eq!(w.get_id(OWNER, id), Err(Refusal::Revoked));
        let full = revoke_for(&mut w, OPERATOR, principal(JOINER), LIFETIME);
        assert_eq!(refused(&full), Refusal::CapacityExceeded(Pool::Revocations));
        w.sleep(NANO);
        assert_eq!(w.get_id(OWNER, id), Err(Refusal::NotFound));
        assert_eq!(refused(&lift(&mut w, OPERATOR, view.id)), Refusal::NotFound);
        assert_eq!(refused(&revoke_for(&mut w, OPERATOR, Subject::Listing(id), LIFETIME)), Refusal::NotFound);
    }
    assert_eq!(w.used(Pool::Revocations), 0);
    w.register(OWNER);
}

/// "Lifts a revocation before its time. What was removed stays removed."
pub fn lifting_brings_nothing_back<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { revocations: 1, ..Limits::DEFAULT });
    let request = w.registration(OWNER);
    let id = w.registered(&request).view.id;
    for subject in [Subject::Listing(id), principal(OWNER)] {
        let revocation = revoked(&mut w, subject).id;
        assert_eq!(w.get_id(OWNER, id), Err(Refusal::Revoked));
        assert_eq!(lift(&mut w, OPERATOR, revocation), Reply::Lifted);
        assert_eq!(refused(&lift(&mut w, OPERATOR, revocation)), Refusal::NotFound);
        assert_eq!(w.get_id(OWNER, id), Err(Refusal::NotFound));
        assert_eq!(refused(&w.submit(&request)), Refusal::Expired);
    }
    w.register(OWNER);
}

/// "A page of the tenant's revocations in the order of their ids", each once, none of another tenant's.
pub fn are_listed_in_order<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    assert_eq!(list(&mut w, OPERATOR, None, 1), RevocationPage { revocations: Vec::new(), next_after: None });
    let mut all: Vec<_> = (0..=PAGE_LEN_MAX)
        .map(|_| {
            let id = w.register(OWNER).view.id;
            revoked(&mut w, Subject::Listing(id))
        })
        .collect();
    all.sort_by_key(|it| it.id);
    revoke_for(&mut w, FOREIGN_OPERATOR, principal(JOINER), LIFETIME);
    assert_eq!(list(&mut w, FOREIGN_OPERATOR, None, usize::MAX).revocations.len(), 1);
    for limit in [0, 1, 7, PAGE_LEN_MAX, usize::MAX] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = list(&mut w, OPERATOR, after, limit);
            let left = all.len() - seen.len();
            assert_eq!(page.revocations.len(), limit.clamp(1, PAGE_LEN_MAX).min(left), "at {limit}");
            let last = page.revocations.last().map(|it| it.id);
            seen.extend(page.revocations);
            assert_eq!(page.next_after, last.filter(|_| seen.len() < all.len()), "at {limit}");
            after = page.next_after;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
    }
}

/// "Operator scope", within the tenant: to others there are no revocations, and what is not there cannot be barred.
pub fn are_for_operators_of_the_tenant<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.joinable(OWNER).view.id;
    let barred = w.register(OWNER).view.id;
    let revocation = revoked(&mut w, Subject::Listing(barred)).id;
    for caller in [OWNER, JOINER, STRANGER] {
        for subject in [Subject::Listing(id), principal(JOINER), Subject::Listing(barred)] {
            assert_eq!(refused(&revoke_for(&mut w, caller, subject, LIFETIME)), Refusal::NotFound);
        }
        let listed = w.apply(Transition::ListRevocations(ListRevocations { caller, after: None, limit: 1 }));
        assert_eq!(refused(&listed), Refusal::NotFound);
        assert_eq!(refused(&lift(&mut w, caller, revocation)), Refusal::NotFound);
    }
    for subject in [Subject::Listing(id), Subject::Listing(barred)] {
        let foreign = revoke_for(&mut w, FOREIGN_OPERATOR, subject, LIFETIME);
        assert_eq!(refused(&foreign), Refusal::NotFound, "another tenant's listing");
    }
    assert_eq!(refused(&lift(&mut w, FOREIGN_OPERATOR, revocation)), Refusal::NotFound);
    let never = Subject::Listing(ListingId::new(3, Handle(5)));
    assert_eq!(refused(&revoke_for(&mut w, OPERATOR, never, LIFETIME)), Refusal::NotFound);
    assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    assert_eq!(refused(&revoke_for(&mut w, OPERATOR, Subject::Listing(id), LIFETIME)), Refusal::NotFound);
    assert_eq!(w.used(Pool::Revocations), 1);
}

/// "The store grants whole seconds, not fewer, from `REVOCATION_MIN` to `REVOCATION_MAX`": never less than a key lives.
pub fn grants_whole_seconds<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let grants = [
        (Duration::ZERO, PRESENCE_KEY_LIFETIME),
        (REVOCATION_MIN - NANO, REVOCATION_MIN),
        (REVOCATION_MIN + NANO, REVOCATION_MIN + SECOND),
        (REVOCATION_MIN + SECOND, REVOCATION_MIN + SECOND),
        (REVOCATION_MAX - NANO, REVOCATION_MAX),
        (REVOCATION_MAX + NANO, REVOCATION_MAX),
        (Duration::MAX, REVOCATION_MAX),
    ];
    for (wanted, granted) in grants {
        let id = w.register(OWNER).view.id;
        let reply = revoke_for(&mut w, OPERATOR, Subject::Listing(id), wanted);
        let Reply::Revoked(view) = reply else { panic!("not revoked: {reply:?}") };
        assert_eq!(view.deadline, w.now().after(granted), "for {wanted:?}");
    }
}

/// "At the deadline all active state is cleared atomically", revocations too; until then a drain stops no revocation.
pub fn are_possible_while_draining<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let id = w.joinable(OWNER).view.id;
    w.apply(Transition::BeginDrain(BeginDrain { window: 10 * SECOND }));
    revoked(&mut w, Subject::Listing(id));
    assert_eq!(w.get_id(OWNER, id), Err(Refusal::Revoked));
    revoked(&mut w, principal(OWNER));
    w.sleep(10 * SECOND);
    assert_eq!(w.get_id(OWNER, id), Err(Refusal::NotFound));
    let over = Refusal::Draining { remaining: Duration::ZERO };
    assert_eq!(refused(&revoke_for(&mut w, OPERATOR, principal(JOINER), LIFETIME)), over);
    assert_eq!(refused(&revoke_for(&mut w, OWNER, principal(JOINER), LIFETIME)), Refusal::NotFound);
    assert!(list(&mut w, OPERATOR, None, 1).revocations.is_empty());
    assert_eq!(w.used(Pool::Revocations), 0);
}
