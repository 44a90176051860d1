//! Attempts: creation, idempotency, end.

use super::{
    Harness, JOINER, LIFETIME, NANO, OPERATOR, OWNER, SECOND, STRANGER, THIRD, World, conflict, refused, v4,
};
use crate::limits::{
    PAGE_EXAMINED_MAX, PENDING_ATTEMPTS_MAX, PRESENCE_LIFETIME, RECORD_GRACE, RESULT_LIFETIME,
};
use crate::outcome::{AttemptReason, ConflictReason, Refusal};
use crate::store::{AttemptGrant, ListPending, PendingAttempt, Phase, Reply, Transition};

/// "Joinable only when lease and presence are both fresh": its owner learns why, others find nothing.
pub fn need_a_joinable_listing<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.register(OWNER);
    let request = w.creation(JOINER, host.view.id);
    assert_eq!(refused(&w.create(&request)), Refusal::NotFound);
    let own = w.creation(OWNER, host.view.id);
    assert_eq!(refused(&w.create(&own)), conflict(ConflictReason::NotJoinable));
    w.present(host.lease.presence_key, v4(1, 4000));
    let grant = w.created(&request);
    assert_eq!((grant.lifetime, grant.replayed), (LIFETIME, false));
    assert_eq!(grant.deadline, w.now().after(LIFETIME));
    w.sleep(PRESENCE_LIFETIME);
    let late = w.creation(JOINER, host.view.id);
    assert_eq!(refused(&w.create(&late)), Refusal::NotFound);
}

/// "An exact duplicate returns the original live result."
pub fn a_duplicate_returns_the_live_attempt<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let request = w.creation(JOINER, host.view.id);
    let first = w.created(&request);
    w.sleep(LIFETIME - NANO);
    let again = w.created(&request);
    assert!(again.replayed);
    assert_eq!(AttemptGrant { replayed: false, ..again }, first);
    assert_eq!(w.used(crate::outcome::Pool::Attempts), 1);
}

/// "Reuse with different input returns Conflict"; the key is scoped to its owner.
pub fn a_key_reused_otherwise_conflicts<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let mut request = w.creation(JOINER, host.view.id);
    w.created(&request);
    request.idempotency.fingerprint = [7; 16];
    assert_eq!(refused(&w.create(&request)), conflict(ConflictReason::IdempotencyKeyReused));
    request.caller = THIRD;
    assert!(!w.created(&request).replayed);
}

/// "Replay after the resource has expired returns Expired until the bounded record itself expires."
pub fn a_record_outlives_its_attempt<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.register(OWNER);
    let key = host.lease.presence_key;
    w.present(key, v4(1, 4000));
    let request = w.creation(JOINER, host.view.id);
    w.created(&request);
    w.sleep(LIFETIME);
    assert_eq!(refused(&w.create(&request)), Refusal::Expired, "its time is over, and nobody looked");
    w.present(key, v4(1, 4000));
    let request = w.creation(JOINER, host.view.id);
    let first = w.created(&request).id;
    assert_eq!(w.cancel(JOINER, first), Reply::Cancelled);
    assert_eq!(refused(&w.create(&request)), Refusal::Expired);
    for version in 1..=3 {
        w.sleep((LIFETIME + RECORD_GRACE - NANO) / 3);
        assert!(matches!(w.renew(OWNER, host.view.id, version), Reply::Renewed(_)));
        w.present(key, v4(1, 4000));
        assert_eq!(refused(&w.create(&request)), Refusal::Expired);
    }
    w.sleep(2 * NANO);
    assert_ne!(w.created(&request).id, first);
}

/// "Retention covers every attempt lifetime": an introduction that prolongs the attempt moves its record.
pub fn introduction_moves_the_record<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let request = w.creation(JOINER, host.view.id);
    let attempt = w.created(&request);
    w.sleep(LIFETIME - NANO);
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    super::introduced(&w.bind(host.lease.presence_key, attempt.id, v4(1, 4000)));
    let deadline = w.now().after(crate::limits::INTRODUCED_LIFETIME_MIN);
    assert!(w.view(JOINER, attempt.id).is_ok_and(|it| it.deadline == deadline));
    let again = w.created(&request);
    assert!(again.replayed);
    assert_eq!(AttemptGrant { replayed: false, ..again }, attempt, "the first answer, not a later deadline");
    w.sleep(5 * SECOND + RECORD_GRACE - NANO);
    assert_eq!(refused(&w.create(&request)), Refusal::Expired);
    w.sleep(NANO);
    assert_eq!(refused(&w.create(&request)), Refusal::NotFound, "the key is free, the listing is gone");
}

/// "Attempt ends in bounded time with its own reason, never a silent timeout."
pub fn ends_at_its_deadline_with_a_reason<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let key = host.lease.presence_key;
    let attempts: Vec<_> = (0..3).map(|_| w.attempt(host.view.id)).collect();
    w.bind(attempts[1].joiner_key, attempts[1].id, v4(2, 5000));
    w.bind(key, attempts[2].id, v4(1, 4000));
    let deadline = w.now().after(LIFETIME);
    w.sleep(LIFETIME - NANO);
    assert_eq!(w.used(crate::outcome::Pool::Attempts), 3);
    w.sleep(NANO);
    let expected = [AttemptReason::Expired, AttemptReason::HostSilent, AttemptReason::JoinerSilent];
    for (attempt, reason) in attempts.iter().zip(expected) {
        let Ok(view) = w.view(JOINER, attempt.id) else { panic!("its result is kept") };
        assert_eq!((view.phase, view.times.ended), (Phase::Ended(reason), Some(deadline)));
        let late = w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
        assert_eq!(refused(&late), Refusal::Expired);
    }
    w.present(key, v4(1, 4000));
    w.sleep(20 * SECOND);
    let stale = w.attempt(host.view.id);
    w.sleep(LIFETIME - NANO);
    assert!(w.view(JOINER, stale.id).is_ok_and(|it| it.phase == Phase::Created));
    w.sleep(NANO);
    // The lease of 60 s ends here too; whatever comes first in time decides, and presence ended at 50 s.
    let phase = w.view(JOINER, stale.id).map(|it| it.phase);
    assert!(
        matches!(phase, Ok(Phase::Ended(AttemptReason::HostPresenceStale | AttemptReason::ListingGone))),
        "{phase:?}"
    );
}

/// The reason is that of the moment at which it ended, whenever somebody looks: its host was present then.
pub fn its_reason_is_of_its_end<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    let deadline = attempt.deadline;
    w.sleep(PRESENCE_LIFETIME + SECOND);
    let view = w.view(JOINER, attempt.id).map(|it| (it.phase, it.times.ended));
    assert_eq!(view, Ok((Phase::Ended(AttemptReason::Expired), Some(deadline))));
}

/// "Cancel (joiner) or decline (host)."
pub fn the_joiner_cancels_and_the_host_declines<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let table = [
        (JOINER, AttemptReason::Cancelled),
        (OWNER, AttemptReason::Declined),
        (OPERATOR, AttemptReason::Declined),
    ];
    for (caller, reason) in table {
        let attempt = w.attempt(host.view.id);
        w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
        assert_eq!(refused(&w.cancel(THIRD, attempt.id)), Refusal::NotFound);
        assert_eq!(w.cancel(caller, attempt.id), Reply::Cancelled);
        assert_eq!(w.used(crate::outcome::Pool::Attempts), 0, "its place is free at once");
        let phase = w.view(JOINER, attempt.id).map(|it| it.phase);
        assert_eq!(phase, Ok(Phase::Ended(reason)));
        assert_eq!(refused(&w.cancel(caller, attempt.id)), Refusal::Expired);
        let late = w.bind(host.lease.presence_key, attempt.id, v4(1, 4000));
        assert_eq!(refused(&late), Refusal::Expired);
        assert_eq!(w.stats().attempt_reasons.get(reason), if caller == OPERATOR { 2 } else { 1 });
    }
    let own = w.creation(OWNER, host.view.id);
    let own = w.created(&own).id;
    assert_eq!(w.cancel(OWNER, own), Reply::Cancelled);
    let phase = w.view(OWNER, own).map(|it| it.phase);
    assert_eq!(phase, Ok(Phase::Ended(AttemptReason::Cancelled)), "who is both speaks as the joiner");
}

/// "Introduction is consumed once": what was handed over cannot be withdrawn.
pub fn an_introduced_attempt_is_not_cancelled<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let (_, attempt) = w.introduced_pair();
    for caller in [JOINER, OWNER, OPERATOR] {
        assert_eq!(refused(&w.cancel(caller, attempt.id)), conflict(ConflictReason::AlreadyIntroduced));
    }
    super::replayed(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000)));
}

/// "Host's pending attempts": its owner's alone, until the host is bound.
pub fn pending_attempts_are_the_hosts<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let mut request = w.creation(JOINER, host.view.id);
    request.note = Some("let me in".into());
    let attempt = w.created(&request);
    let pending = |w: &mut World<'_, H>, caller| {
        w.apply(Transition::ListPending(ListPending { caller, listing: host.view.id }))
    };
    let expected = |joiner_bound| {
        let (id, note, deadline) = (attempt.id, request.note.clone(), attempt.deadline);
        Reply::Pending(vec![PendingAttempt { id, note, joiner_bound, deadline }])
    };
    assert_eq!(pending(&mut w, OWNER), expected(false));
    assert_eq!(refused(&pending(&mut w, JOINER)), Refusal::NotFound);
    w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
    assert_eq!(pending(&mut w, OWNER), expected(true));
    w.bind(host.lease.presence_key, attempt.id, v4(1, 4000));
    assert_eq!(pending(&mut w, OWNER), Reply::Pending(Vec::new()));
    for bound in [false, true] {
        let attempt = w.attempt(host.view.id);
        if bound {
            w.bind(attempt.joiner_key, attempt.id, v4(2, 5000));
        }
    }
    w.sleep(LIFETIME);
    assert_eq!(pending(&mut w, OWNER), Reply::Pending(Vec::new()), "what is over is pending no more");
}

/// A page of "host's pending attempts" holds up to 100, and those that the host is bound in take no place on it, however
/// many they are.
pub fn a_page_of_pending_attempts_is_full<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let bound: Vec<_> = (0..=PAGE_EXAMINED_MAX).map(|_| w.attempt(host.view.id)).collect();
    let pending: Vec<_> = (0..=PENDING_ATTEMPTS_MAX).map(|_| w.attempt(host.view.id).id).collect();
    for it in &bound {
        assert!(super::is_waiting(&w.bind(host.lease.presence_key, it.id, v4(1, 4000))));
    }
    let reply = w.apply(Transition::ListPending(ListPending { caller: OWNER, listing: host.view.id }));
    let Reply::Pending(page) = reply else { panic!("no list: {reply:?}") };
    let ids: Vec<_> = page.iter().map(|it| it.id).collect();
    assert_eq!(ids, pending[..PENDING_ATTEMPTS_MAX], "the first to be created");
}

/// "Both parties and operators" read an attempt; nobody else learns of it.
pub fn strangers_find_no_attempt<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    for caller in [JOINER, OWNER, OPERATOR] {
        assert!(w.view(caller, attempt.id).is_ok_and(|it| it.phase == Phase::Created));
    }
    assert_eq!(w.view(THIRD, attempt.id), Err(Refusal::NotFound));
    assert_eq!(w.cancel(JOINER, attempt.id), Reply::Cancelled);
    assert_eq!(w.view(THIRD, attempt.id), Err(Refusal::NotFound));
}

/// "Finished-attempt results for 60 s (phases and reason only)."
pub fn results_are_kept_a_while<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    w.sleep(LIFETIME + RESULT_LIFETIME - NANO);
    assert!(w.view(JOINER, attempt.id).is_ok(), "kept from its end, whenever somebody looked");
    w.sleep(NANO);
    assert_eq!(w.view(JOINER, attempt.id), Err(Refusal::NotFound));
    assert_eq!(w.used(crate::outcome::Pool::AttemptResults), 0);
}

/// "Join-attempt creation uses a tenant-and-owner-scoped idempotency key": somebody else's key of the same bytes is
/// another key, and hands over nothing of this one's.
pub fn keys_are_scoped_to_tenant_and_owner<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let here = w.joinable(OWNER).view.id;
    let there = w.joinable(STRANGER).view.id;
    let first = w.creation(JOINER, here);
    let mut made = vec![w.created(&first).id];
    // The same principal's number in another tenant, and another principal of the same tenant.
    let namesake = crate::store::Caller { tenant: STRANGER.tenant, ..JOINER };
    for (caller, listing) in [(THIRD, here), (namesake, there)] {
        let request = crate::store::CreateAttempt { caller, listing, ..first.clone() };
        let grant = w.created(&request);
        assert!(!grant.replayed && !made.contains(&grant.id), "{caller:?}");
        made.push(grant.id);
    }
    assert!(w.created(&first).replayed);
}
