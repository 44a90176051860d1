//! Batches and deadlines: one time for all of a batch, and each end to the nanosecond.

use core::time::Duration;

use super::{
    Harness, JOINER, LEASE, LIFETIME, NANO, OPERATOR, OWNER, SECOND, World, is_waiting, refused, v4,
};
use crate::endpoint::Mapping;
use crate::id::SessionId;
use crate::limits::{
    ATTEMPT_MAX, ATTEMPT_MIN, LEASE_MAX, LEASE_MIN, Limits, PRESENCE_LIFETIME, PROOF_AGE_MAX, RECORD_GRACE,
    RESULT_LIFETIME, REVOCATION_MIN,
};
use crate::outcome::{AttemptReason, Pool, Refusal};
use crate::store::{
    BeginDrain, Bind, BindAnswer, Candidates, CreateAttempt, DatagramProof, DeleteListing, DrainView,
    EphemeralRendezvousStore, GetListing, ListPending, ListingLocator, Phase, Quotas, RefreshPresence,
    RegisterListing, RenewLease, Reply, Revoke, Subject, Transition,
};

/// More than any store gives back in one call.
const MANY: usize = 300;

/// The answers to a batch, one each.
pub(super) fn batch<H: Harness>(w: &mut World<'_, H>, batch: &[Transition]) -> Vec<Reply> {
    let mut replies = Vec::new();
    w.store.apply(w.harness.now(), batch, &mut replies);
    w.harness.check(&w.store);
    assert_eq!(replies.len(), batch.len(), "one reply for each");
    replies
}

fn register(request: &RegisterListing) -> Transition {
    Transition::RegisterListing(Box::new(request.clone()))
}

fn create(request: &CreateAttempt) -> Transition {
    Transition::CreateAttempt(Box::new(request.clone()))
}

/// "Applies `batch` in order at `now`": each sees what those before it did, and nothing of those behind it.
pub fn a_batch_is_applied_in_order<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { listings: 1, ..Limits::DEFAULT });
    let id = w.joinable(OWNER).view.id;
    let (first, second) = (w.registration(OWNER), w.registration(JOINER));
    let get = Transition::GetListing(GetListing { caller: JOINER, locator: ListingLocator::Id(id) });
    let delete = Transition::DeleteListing(DeleteListing { caller: OWNER, listing: id });
    let drain = Transition::BeginDrain(BeginDrain { window: 10 * SECOND });
    let asked = [
        get.clone(),
        register(&first),
        delete.clone(),
        get,
        delete,
        register(&first),
        register(&second),
        register(&first),
        drain,
        register(&second),
        register(&first),
    ];
    let replies = batch(&mut w, &asked);
    let full = Refusal::CapacityExceeded(Pool::Listings);
    assert!(matches!(replies[0], Reply::Listing(_)));
    assert_eq!(refused(&replies[1]), full);
    assert_eq!(replies[2], Reply::Deleted);
    assert_eq!((refused(&replies[3]), refused(&replies[4])), (Refusal::NotFound, Refusal::NotFound));
    assert!(matches!(&replies[5], Reply::Registered(grant) if !grant.replayed));
    assert_eq!(refused(&replies[6]), full);
    assert!(matches!(&replies[7], Reply::Registered(grant) if grant.replayed));
    assert!(matches!(replies[8], Reply::Drain(DrainView::Draining { .. })));
    assert_eq!(refused(&replies[9]), Refusal::Draining { remaining: 10 * SECOND });
    assert!(matches!(&replies[10], Reply::Registered(grant) if grant.replayed));
}

/// "What is due at `now` is gone before the first transition of the batch is looked at", and nothing that the batch
/// makes is due in it, however short it was wanted.
pub fn nothing_made_in_a_batch_is_due_in_it<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { attempts: 2, ..Limits::DEFAULT });
    let host = w.joinable(OWNER);
    let id = host.view.id;
    let mut request = w.registration(OWNER);
    request.lease = Duration::ZERO;
    let creations: Vec<_> = (0..3)
        .map(|_| {
            let mut creation = w.creation(JOINER, id);
            creation.lifetime = Duration::ZERO;
            creation
        })
        .collect();
    let renew = RenewLease { caller: OWNER, listing: id, version: 1, lease: Some(Duration::ZERO) };
    let pending = Transition::ListPending(ListPending { caller: OWNER, listing: id });
    let asked = [
        register(&request),
        register(&request),
        create(&creations[0]),
        create(&creations[0]),
        Transition::RenewLease(renew),
        create(&creations[1]),
        create(&creations[2]),
        pending,
    ];
    let replies = batch(&mut w, &asked);
    assert!(matches!(&replies[1], Reply::Registered(grant) if grant.replayed), "{replies:?}");
    assert!(matches!(&replies[3], Reply::AttemptCreated(grant) if grant.replayed), "{replies:?}");
    assert!(matches!(&replies[4], Reply::Renewed(lease) if lease.lifetime == LEASE_MIN), "{replies:?}");
    assert!(matches!(&replies[5], Reply::AttemptCreated(_)), "{replies:?}");
    assert_eq!(refused(&replies[6]), Refusal::CapacityExceeded(Pool::Attempts), "a batch has one time");
    assert!(matches!(&replies[7], Reply::Pending(pending) if pending.len() == 2), "{replies:?}");
    w.sleep(ATTEMPT_MIN);
    let replies = batch(&mut w, &[create(&creations[2]), create(&creations[0])]);
    assert!(matches!(&replies[0], Reply::AttemptCreated(_)), "both are gone before the first is looked at");
    assert_eq!(refused(&replies[1]), Refusal::Expired);
}

/// "The store grants whole seconds, not fewer, from `LEASE_MIN` to `LEASE_MAX`."
pub fn leases_are_whole_seconds<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    w.sleep(Duration::from_nanos(123_456_789));
    for (wanted, granted) in grants(LEASE_MIN, LEASE_MAX) {
        let mut request = w.registration(OWNER);
        request.lease = wanted;
        let grant = w.registered(&request);
        assert_eq!(
            (grant.lease.lifetime, grant.lease.deadline),
            (granted, w.now().after(granted)),
            "{wanted:?}"
        );
        let (caller, listing) = (OWNER, w.register(OWNER).view.id);
        let renew = RenewLease { caller, listing, version: 1, lease: Some(wanted) };
        let Reply::Renewed(lease) = w.apply(Transition::RenewLease(renew)) else { panic!("not renewed") };
        assert_eq!((lease.lifetime, lease.deadline), (granted, w.now().after(granted)), "{wanted:?}");
        let Reply::Renewed(same) = w.renew(OWNER, listing, 2) else { panic!("not renewed") };
        assert_eq!(same.lifetime, granted, "for as long as last time");
    }
}

/// "The store grants whole seconds, not fewer, from `ATTEMPT_MIN` to `ATTEMPT_MAX`."
pub fn attempts_are_whole_seconds<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    w.sleep(Duration::from_nanos(123_456_789));
    let listing = w.joinable(OWNER).view.id;
    for (wanted, granted) in grants(ATTEMPT_MIN, ATTEMPT_MAX) {
        let mut request = w.creation(JOINER, listing);
        request.lifetime = wanted;
        let grant = w.created(&request);
        assert_eq!((grant.lifetime, grant.deadline), (granted, w.now().after(granted)), "{wanted:?}");
    }
}

fn grants(min: Duration, max: Duration) -> [(Duration, Duration); 8] {
    [
        (Duration::ZERO, min),
        (min - NANO, min),
        (min, min),
        (min + NANO, min + SECOND),
        (min + SECOND, min + SECOND),
        (max - NANO, max),
        (max + NANO, max),
        (Duration::MAX, max),
    ]
}

/// "Removes presence, attempts, listings, replay entries, idempotency records, and revocations at their deadline": there
/// a nanosecond before, gone at it, begun at whatever nanosecond.
pub fn each_deadline_is_exact<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    w.sleep(Duration::from_nanos(987_654_321));
    let request = w.registration(OWNER);
    let host = w.registered(&request);
    w.present(host.lease.presence_key, v4(1, 4000));
    let creation = w.creation(JOINER, host.view.id);
    let attempt = w.created(&creation).id;
    let start = w.now();
    // What is asked, whether it is still as it was, and when that ends.
    type Probe<'w, 'h, H> = &'w dyn Fn(&mut World<'h, H>) -> bool;
    let attempt_lives: Probe<'_, '_, H> =
        &|w| w.view(JOINER, attempt).is_ok_and(|it| it.times.ended.is_none());
    let present: Probe<'_, '_, H> = &|w| w.get_id(JOINER, host.view.id).is_ok();
    let leased: Probe<'_, '_, H> = &|w| w.get_id(OWNER, host.view.id).is_ok();
    let result_kept: Probe<'_, '_, H> = &|w| w.view(JOINER, attempt).is_ok();
    let attempt_recorded: Probe<'_, '_, H> = &|w| refused(&w.create(&creation)) == Refusal::Expired;
    let listing_recorded: Probe<'_, '_, H> =
        &|w| matches!(w.submit(&request), Reply::Refused(Refusal::Expired));
    let ends = [
        (LIFETIME, attempt_lives),
        (PRESENCE_LIFETIME, present),
        (LEASE, leased),
        (LIFETIME + RESULT_LIFETIME, result_kept),
        (LIFETIME + RECORD_GRACE, attempt_recorded),
        (LEASE + RECORD_GRACE, listing_recorded),
    ];
    for (ordinal, (after, is_there)) in ends.into_iter().enumerate() {
        let before = start.after(after - NANO);
        w.sleep(before.since(w.now()));
        if w.now() == before {
            assert!(is_there(&mut w), "end {ordinal} a nanosecond too early");
            w.sleep(NANO);
        }
        assert!(!is_there(&mut w), "end {ordinal} too late");
    }
}

/// "Age up to which an address counts as proved", and the life of a presence, begin when its datagram arrived, not when
/// the store came to it.
pub fn a_presence_lasts_from_its_arrival<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.register(OWNER);
    let proof = w.proof(host.lease.presence_key, v4(1, 4000));
    w.sleep(2 * SECOND + NANO);
    let Reply::Presence(grant) = w.refresh(proof) else { panic!("accepted, if late") };
    assert_eq!(grant.presence_remaining, PRESENCE_LIFETIME - 2 * SECOND - NANO);
    let deadline = proof.arrived.after(PRESENCE_LIFETIME);
    let view = w.get_id(OWNER, host.view.id);
    assert!(view.is_ok_and(|it| it.visible && it.presence_deadlines == [Some(deadline), None]));
    w.sleep(deadline.since(w.now()) - NANO);
    assert!(w.get_id(JOINER, host.view.id).is_ok());
    w.sleep(NANO);
    assert_eq!(w.get_id(JOINER, host.view.id), Err(Refusal::NotFound));
}

/// "Each role's address was proved no more than 30 s ago": at 30 s it may be introduced, a nanosecond later not.
pub fn a_proof_is_good_for_thirty_seconds<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for late in [false, true] {
        let host = w.joinable(OWNER);
        let mut request = w.creation(JOINER, host.view.id);
        request.lifetime = ATTEMPT_MAX;
        let attempt = w.created(&request);
        assert!(is_waiting(&w.bind(attempt.joiner_key, attempt.id, v4(2, 5000))));
        w.sleep(PROOF_AGE_MAX);
        if late {
            w.sleep(NANO);
        }
        w.present(host.lease.presence_key, v4(1, 4000));
        let reply = w.bind(host.lease.presence_key, attempt.id, v4(1, 4000));
        let met = matches!(reply, Reply::Bind(BindAnswer::Introduced { .. }));
        assert_eq!(met, !late, "{reply:?}");
    }
    // Of several, the one that arrived last counts, and that from its arrival.
    for (age, late) in [(20 * SECOND, false), (20 * SECOND + NANO, true)] {
        let host = w.joinable(OWNER);
        let mut request = w.creation(JOINER, host.view.id);
        request.lifetime = ATTEMPT_MAX;
        let attempt = w.created(&request);
        let (first, last) =
            (w.proof(attempt.joiner_key, v4(2, 5000)), w.proof(attempt.joiner_key, v4(2, 5000)));
        let first = DatagramProof { arrived: first.arrived.after(SECOND), ..first };
        w.sleep(11 * SECOND);
        for proof in [first, last] {
            let (attempt, candidates) = (attempt.id, Candidates::default());
            let bind =
                Bind { proof, attempt, candidates, round_trip: Duration::ZERO, mapping: Mapping::Unknown };
            assert!(is_waiting(&w.apply(Transition::Bind(bind))));
        }
        w.sleep(age);
        w.present(host.lease.presence_key, v4(1, 4000));
        let reply = w.bind(host.lease.presence_key, attempt.id, v4(1, 4000));
        let met = matches!(reply, Reply::Bind(BindAnswer::Introduced { .. }));
        assert_eq!(met, !late, "{reply:?}");
    }
}

/// "Everything due is logically absent (visibility, quota and capacity) before any caller can see the store again;
/// memory may be reclaimed in bounded steps": the place of each is free at once, however many are due together.
pub fn many_due_together_free_their_places_at_once<H: Harness>(harness: &mut H) {
    let limits = Limits {
        listings: MANY,
        attempts: MANY,
        listing_records: 2 * MANY,
        attempt_records: 2 * MANY,
        attempt_results: MANY,
        revocations: MANY,
        ..Limits::DEFAULT
    };
    let mut w = World::with_limits(harness, limits);
    let many = u32::try_from(MANY).unwrap_or(0);
    let quotas = Quotas { listings_per_owner: many, listings_per_tenant: many, attempts_per_tenant: many };
    for round in 0..4 {
        let requests: Vec<_> =
            (0..MANY).map(|_| RegisterListing { quotas, lease: LEASE, ..w.registration(OWNER) }).collect();
        let replies = batch(&mut w, &requests.iter().map(register).collect::<Vec<_>>());
        let made = replies.iter().filter(|it| matches!(it, Reply::Registered(_))).count();
        assert_eq!(made, MANY, "listings in round {round}: {:?}", replies.last());
        let one_more = RegisterListing { quotas, ..w.registration(OWNER) };
        assert!(matches!(w.submit(&one_more), Reply::Refused(Refusal::QuotaExceeded(_))));
        let Reply::Registered(host) = &replies[0] else { panic!("not registered") };
        w.present(host.lease.presence_key, v4(1, 4000));
        let creations: Vec<_> =
            (0..MANY).map(|_| CreateAttempt { quotas, ..w.creation(JOINER, host.view.id) }).collect();
        let replies = batch(&mut w, &creations.iter().map(create).collect::<Vec<_>>());
        let made = replies.iter().filter(|it| matches!(it, Reply::AttemptCreated(_))).count();
        assert_eq!(made, MANY, "attempts in round {round}: {:?}", replies.last());
        let one_more = CreateAttempt { quotas, ..w.creation(JOINER, host.view.id) };
        assert!(matches!(w.create(&one_more), Reply::Refused(Refusal::QuotaExceeded(_))));
        // The records of this round are the last but one: two rounds' worth of them fit.
        w.sleep(LEASE);
    }
}

/// The same of revocations.
pub fn many_revocations_end_together<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { revocations: MANY, ..Limits::DEFAULT });
    for round in 0..2_u32 {
        let number = |it: usize| u32::try_from(it).unwrap_or(0) + 1_000;
        let revoke = |it| {
            Transition::Revoke(Revoke {
                caller: OPERATOR,
                subject: Subject::Principal(crate::id::PrincipalId(number(it))),
                lifetime: REVOCATION_MIN,
            })
        };
        let replies = batch(&mut w, &(0..=MANY).map(revoke).collect::<Vec<_>>());
        let made = replies.iter().filter(|it| matches!(it, Reply::Revoked(_))).count();
        assert_eq!(made, MANY, "in round {round}");
        assert_eq!(refused(&replies[MANY]), Refusal::CapacityExceeded(Pool::Revocations));
        w.sleep(REVOCATION_MIN);
    }
}

/// "An attempt whose joiner waits for this host" is the one that has waited longest, and the host's list of pending
/// attempts begins with those, in the order in which their joiners bound; then the others, as they were created.
pub fn who_waits_longest_comes_first<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let host = w.joinable(OWNER);
    let id = host.view.id;
    // One that ends gives its place away: order is not that of places.
    let gone = w.attempt(id);
    let mut all: Vec<_> = (0..4).map(|_| w.attempt(id)).collect();
    assert_eq!(w.cancel(JOINER, gone.id), Reply::Cancelled);
    all.push(w.attempt(id));
    for ordinal in [3, 4, 1] {
        let it = &all[ordinal];
        let proof = DatagramProof { session: SessionId(2), ..w.proof(it.joiner_key, v4(2, 5000)) };
        let candidates = Candidates::default();
        let bind =
            Bind { proof, attempt: it.id, candidates, round_trip: Duration::ZERO, mapping: Mapping::Unknown };
        assert!(is_waiting(&w.apply(Transition::Bind(bind))));
    }
    let mut expected = vec![3, 4, 1, 0, 2];
    while !expected.is_empty() {
        let reply = w.apply(Transition::ListPending(ListPending { caller: OWNER, listing: id }));
        let Reply::Pending(pending) = reply else { panic!("no list: {reply:?}") };
        let ids: Vec<_> = pending.iter().map(|it| it.id).collect();
        assert_eq!(ids, expected.iter().map(|&it: &usize| all[it].id).collect::<Vec<_>>());
        let proof = w.proof(host.lease.presence_key, v4(1, 4000));
        let reply = w.apply(Transition::RefreshPresence(RefreshPresence { proof }));
        let Reply::Presence(grant) = reply else { panic!("not accepted: {reply:?}") };
        let waiting = expected.first().filter(|it| [3, 4, 1].contains(*it)).map(|&it| all[it].id);
        assert_eq!(grant.pending.map(|it| it.attempt), waiting);
        let first = expected.remove(0);
        w.bind(host.lease.presence_key, all[first].id, v4(1, 4000));
    }
}

/// "What is due at `now` is gone before the first transition is looked at": so attempts whose time was over ended by
/// themselves, however many there are, though their listing is ended at that very instant.
pub fn who_ends_a_listing_comes_after_what_was_over<H: Harness>(harness: &mut H) {
    for subject in [None, Some(false), Some(true)] {
        let mut w = World::new(harness);
        let host = w.joinable(OWNER);
        let id = host.view.id;
        let attempts: Vec<_> = (0..20).map(|_| w.attempt(id).id).collect();
        w.sleep(LIFETIME);
        let listing = Subject::Listing(id);
        let revoke = |subject| Revoke { caller: OPERATOR, subject, lifetime: REVOCATION_MIN };
        let end = match subject {
            None => Transition::DeleteListing(DeleteListing { caller: OWNER, listing: id }),
            Some(false) => Transition::Revoke(revoke(listing)),
            Some(true) => Transition::Revoke(revoke(Subject::Principal(OWNER.principal))),
        };
        let replies = batch(&mut w, &[end]);
        assert!(matches!(replies[0], Reply::Deleted | Reply::Revoked(_)), "{replies:?}");
        for attempt in attempts {
            let phase = w.view(JOINER, attempt).map(|it| it.phase);
            assert_eq!(phase, Ok(Phase::Ended(AttemptReason::Expired)));
        }
    }
}
