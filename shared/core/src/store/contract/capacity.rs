//! Ceilings and quotas: a typed refusal, never eviction, never a partial insert.

use super::full::{Scene, rows};
use super::time::batch;
use super::{
    Harness, JOINER, LEASE, LIFETIME, OPERATOR, OWNER, STRANGER, THIRD, World, description, is_waiting,
    refused, v4,
};
use crate::counter::Label;
use crate::id::PrincipalId;
use crate::limits::{LEASE_MIN, Limits, RECORD_GRACE, RESULT_LIFETIME, REVOCATION_MIN};
use crate::outcome::{OutcomeKind, Pool, QuotaScope, Refusal};
use crate::store::{Quotas, Reply, Revoke, Subject, Transition, TransitionKind};

/// At each ceiling: fills it, sees one more refused by name and all that was there intact.
fn listings_to_the_ceiling<H: Harness>(harness: &mut H, pool: Pool, limits: impl Fn(usize) -> Limits) {
    for ceiling in 0..=2 {
        let mut w = World::with_limits(harness, limits(ceiling));
        let ids: Vec<_> = (0..ceiling).map(|_| w.joinable(OWNER).view.id).collect();
        let before = w.stats();
        for caller in [OWNER, THIRD, STRANGER] {
            let request = w.registration(caller);
            assert_eq!(refused(&w.submit(&request)), Refusal::CapacityExceeded(pool), "at {ceiling}");
            assert_eq!(refused(&w.submit(&request)), Refusal::CapacityExceeded(pool), "not remembered");
        }
        assert_eq!(w.stats(), before, "a refusal changed something");
        assert!(ids.into_iter().all(|id| w.get_id(JOINER, id).is_ok()));
    }
}

/// "Exhaustion returns CapacityExceeded; it does not evict live state": listings.
pub fn a_full_pool_of_listings_refuses<H: Harness>(harness: &mut H) {
    listings_to_the_ceiling(harness, Pool::Listings, |listings| Limits { listings, ..Limits::DEFAULT });
}

/// The same of their idempotency records, which outlive them.
pub fn a_full_pool_of_listing_records_refuses<H: Harness>(harness: &mut H) {
    let limits = |listing_records| Limits { listing_records, ..Limits::DEFAULT };
    listings_to_the_ceiling(harness, Pool::ListingRecords, limits);
    let mut w = World::with_limits(harness, limits(1));
    let id = w.register(OWNER).view.id;
    assert_eq!(w.delete(OWNER, id), Reply::Deleted);
    let request = w.registration(OWNER);
    assert_eq!(refused(&w.submit(&request)), Refusal::CapacityExceeded(Pool::ListingRecords));
    w.sleep(LEASE + RECORD_GRACE);
    w.registered(&request);
}

fn attempts_to_the_ceiling<H: Harness>(harness: &mut H, pool: Pool, limits: impl Fn(usize) -> Limits) {
    for ceiling in 0..=2 {
        let mut w = World::with_limits(harness, limits(ceiling));
        let listing = w.joinable(OWNER).view.id;
        let attempts: Vec<_> = (0..ceiling).map(|_| w.attempt(listing)).collect();
        let before = w.stats();
        for caller in [OWNER, JOINER, THIRD] {
            let request = w.creation(caller, listing);
            assert_eq!(refused(&w.create(&request)), Refusal::CapacityExceeded(pool), "at {ceiling}");
            assert_eq!(refused(&w.create(&request)), Refusal::CapacityExceeded(pool), "not remembered");
        }
        assert_eq!(w.stats(), before, "a refusal changed something");
        for it in attempts {
            assert!(is_waiting(&w.bind(it.joiner_key, it.id, v4(2, 5000))));
        }
    }
}

/// Attempts.
pub fn a_full_pool_of_attempts_refuses<H: Harness>(harness: &mut H) {
    attempts_to_the_ceiling(harness, Pool::Attempts, |attempts| Limits { attempts, ..Limits::DEFAULT });
}

/// Their idempotency records.
pub fn a_full_pool_of_attempt_records_refuses<H: Harness>(harness: &mut H) {
    let limits = |attempt_records| Limits { attempt_records, ..Limits::DEFAULT };
    attempts_to_the_ceiling(harness, Pool::AttemptRecords, limits);
}

/// Results of finished attempts: the end of an attempt cannot be refused, so the newest is not kept, and counted.
pub fn a_full_pool_of_results_keeps_the_old<H: Harness>(harness: &mut H) {
    for ceiling in 0..=2 {
        let limits = Limits { attempt_results: ceiling, ..Limits::DEFAULT };
        let mut w = World::with_limits(harness, limits);
        let listing = w.joinable(OWNER).view.id;
        for ordinal in 0..3 {
            let attempt = w.attempt(listing).id;
            assert_eq!(w.cancel(JOINER, attempt), Reply::Cancelled);
            assert_eq!(w.view(JOINER, attempt).is_ok(), ordinal < ceiling);
        }
        assert_eq!(w.used(Pool::AttemptResults), ceiling);
        assert_eq!(w.stats().results_dropped, 3 - ceiling as u64);
        w.sleep(RESULT_LIFETIME);
        let listing = w.joinable(OWNER).view.id;
        for ordinal in 0..3 {
            let attempt = w.attempt(listing).id;
            assert_eq!(w.cancel(JOINER, attempt), Reply::Cancelled);
            assert_eq!(w.view(JOINER, attempt).is_ok(), ordinal < ceiling, "what is over gave its place");
        }
        assert_eq!(w.stats().results_dropped, 2 * (3 - ceiling as u64));
    }
}

/// "Per-owner listing quotas are evaluated inside the same creation transition."
pub fn an_owner_has_a_quota<H: Harness>(harness: &mut H) {
    for quota in 0..=2 {
        let mut w = World::new(harness);
        let quotas = Quotas { listings_per_owner: quota, ..super::NO_QUOTA };
        let register = |w: &mut World<'_, H>, caller| {
            let mut request = w.registration(caller);
            request.quotas = quotas;
            w.submit(&request)
        };
        for _ in 0..quota {
            assert!(matches!(register(&mut w, OWNER), Reply::Registered(_)));
        }
        let before = w.stats();
        assert_eq!(refused(&register(&mut w, OWNER)), Refusal::QuotaExceeded(QuotaScope::Owner));
        assert_eq!(w.stats(), before);
        assert_eq!(matches!(register(&mut w, THIRD), Reply::Registered(_)), quota > 0, "another's own quota");
        // What is over of somebody else makes no place.
        let mut fleeting = w.registration(JOINER);
        fleeting.lease = LEASE_MIN;
        w.registered(&fleeting);
        w.sleep(LEASE_MIN);
        assert_eq!(refused(&register(&mut w, OWNER)), Refusal::QuotaExceeded(QuotaScope::Owner));
    }
}

/// "Per-tenant quotas": of listings and of active attempts; another tenant's flood does not touch yours.
pub fn a_tenant_has_quotas<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let quotas = Quotas { listings_per_tenant: 2, attempts_per_tenant: 2, ..super::NO_QUOTA };
    let register = |w: &mut World<'_, H>, caller| {
        let mut request = w.registration(caller);
        request.quotas = quotas;
        w.submit(&request)
    };
    let host = w.joinable(OWNER);
    assert!(matches!(register(&mut w, THIRD), Reply::Registered(_)));
    assert_eq!(refused(&register(&mut w, JOINER)), Refusal::QuotaExceeded(QuotaScope::Tenant));
    assert!(matches!(register(&mut w, STRANGER), Reply::Registered(_)));
    let create = |w: &mut World<'_, H>| {
        let mut request = w.creation(JOINER, host.view.id);
        request.quotas = quotas;
        w.create(&request)
    };
    let first = create(&mut w);
    create(&mut w);
    assert_eq!(refused(&create(&mut w)), Refusal::QuotaExceeded(QuotaScope::Tenant));
    let Reply::AttemptCreated(first) = first else { panic!("not created") };
    assert_eq!(w.cancel(JOINER, first.id), Reply::Cancelled);
    assert!(matches!(create(&mut w), Reply::AttemptCreated(_)), "what ended is given back");
}

/// "Everything due is logically absent (visibility, quota and capacity)."
pub fn what_is_due_frees_its_place<H: Harness>(harness: &mut H) {
    let limits = Limits { listings: 1, attempts: 1, ..Limits::DEFAULT };
    let mut w = World::with_limits(harness, limits);
    let host = w.joinable(OWNER);
    w.attempt(host.view.id);
    w.sleep(LIFETIME);
    w.attempt(host.view.id);
    w.sleep(LEASE - LIFETIME);
    let quotas = Quotas { listings_per_owner: 1, listings_per_tenant: 1, attempts_per_tenant: 1 };
    let mut request = w.registration(OWNER);
    request.quotas = quotas;
    let host = w.registered(&request);
    // Until the record of the first attempt is over too: the tenant may hold two.
    w.sleep(LIFETIME);
    w.present(host.lease.presence_key, v4(1, 4000));
    let mut creation = w.creation(JOINER, host.view.id);
    creation.quotas = quotas;
    w.created(&creation);
    // An attempt is over with its listing, too, long before its own time.
    let mut w = World::with_limits(w.harness, Limits { attempts: 1, ..Limits::DEFAULT });
    for _ in 0..3 {
        let host = w.joinable(OWNER);
        let mut creation = w.creation(JOINER, host.view.id);
        creation.quotas = quotas;
        w.created(&creation);
        assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted);
    }
}

/// A take-over of a slot needs no second place in any pool or quota but that of records.
pub fn a_takeover_needs_no_second_place<H: Harness>(harness: &mut H) {
    let limits = Limits { listings: 1, listing_records: 2, ..Limits::DEFAULT };
    let mut w = World::with_limits(harness, limits);
    let mut request = w.registration(OWNER);
    request.quotas = Quotas { listings_per_owner: 1, listings_per_tenant: 1, attempts_per_tenant: 0 };
    request.description = description(|it| it.slot = Some("server-1".to_owned()));
    w.registered(&request);
    request.idempotency.key = [0xe1; 16];
    let live = w.registered(&request).view.id;
    request.idempotency.key = [0xe2; 16];
    assert_eq!(refused(&w.submit(&request)), Refusal::QuotaExceeded(QuotaScope::Tenant));
    request.quotas = super::NO_QUOTA;
    assert_eq!(refused(&w.submit(&request)), Refusal::CapacityExceeded(Pool::ListingRecords));
    assert!(w.get_id(OWNER, live).is_ok(), "a refused take-over removed the old listing");
}

/// A tenant holds at most two idempotency records for each listing and each attempt of its quotas: what it registers
/// and deletes in a loop fills no pool of all.
pub fn a_tenant_has_a_share_of_the_records<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    let quotas = Quotas { listings_per_owner: 1, listings_per_tenant: 1, attempts_per_tenant: 1 };
    let register = |w: &mut World<'_, H>, caller| {
        let mut request = w.registration(caller);
        request.quotas = quotas;
        w.submit(&request)
    };
    let create = |w: &mut World<'_, H>, caller, listing| {
        let mut request = w.creation(caller, listing);
        request.quotas = quotas;
        w.create(&request)
    };
    let share = Refusal::QuotaExceeded(QuotaScope::Tenant);
    for _ in 0..2 {
        let Reply::Registered(grant) = register(&mut w, OWNER) else { panic!("within its share") };
        assert_eq!(w.delete(OWNER, grant.view.id), Reply::Deleted);
    }
    let before = w.stats();
    for caller in [OWNER, THIRD] {
        assert_eq!(refused(&register(&mut w, caller)), share);
    }
    assert_eq!(w.stats(), before, "a refusal changed something");
    assert!(matches!(register(&mut w, STRANGER), Reply::Registered(_)), "another tenant's own share");
    w.sleep(LEASE + RECORD_GRACE);
    let Reply::Registered(host) = register(&mut w, OWNER) else {
        panic!("records that are over count no more")
    };
    w.present(host.lease.presence_key, v4(1, 4000));
    for _ in 0..4 {
        let Reply::AttemptCreated(grant) = create(&mut w, JOINER, host.view.id) else { panic!("its share") };
        assert_eq!(w.cancel(JOINER, grant.id), Reply::Cancelled);
    }
    let before = w.stats();
    for caller in [JOINER, THIRD] {
        assert_eq!(refused(&create(&mut w, caller, host.view.id)), share);
    }
    assert_eq!(w.stats(), before, "a refusal changed something");
    let other = w.joinable(STRANGER);
    assert!(matches!(create(&mut w, STRANGER, other.view.id), Reply::AttemptCreated(_)));
}

/// "Every collection has an independent configured ceiling. An operation checks all of the capacity it needs before
/// changing any collection": with one pool full, exactly the operations that need a place in it are refused, by its
/// name and without a trace; everything else goes on.
pub fn each_full_pool_refuses_exactly_its_operations<H: Harness>(harness: &mut H) {
    for &pool in Pool::ALL {
        let mut kinds = Vec::new();
        for row in rows::<H>() {
            let (mut w, scene) = Scene::full(harness, pool);
            for refusing in rows::<H>().into_iter().filter(|it| it.needs.contains(&pool)) {
                let asked = (refusing.ask)(&mut w, &scene);
                let before = w.harness.snapshot(&w.store);
                let reply = w.apply(asked);
                let what = refusing.what;
                assert_eq!(refused(&reply), Refusal::CapacityExceeded(pool), "{what}");
                assert!(w.harness.snapshot(&w.store) == before, "{what} left a trace, {pool:?} full");
            }
            let asked = (row.ask)(&mut w, &scene);
            kinds.push(asked.kind());
            if !row.needs.contains(&pool) {
                let reply = w.apply(asked);
                let done = matches!(reply.kind(), OutcomeKind::Applied | OutcomeKind::Replayed);
                assert!(done, "{} needs no place in {pool:?}: {reply:?}", row.what);
            }
        }
        assert!(TransitionKind::ALL.iter().all(|it| kinds.contains(it)), "a kind of transition is missing");
    }
}

/// "It does not grow a fallback queue": what was refused is over. It is not done once there is a place, and asked
/// again it is a new request.
pub fn what_was_refused_is_not_done_later<H: Harness>(harness: &mut H) {
    let mut w = World::with_limits(harness, Limits { listings: 1, attempts: 1, ..Limits::DEFAULT });
    let host = w.joinable(OWNER);
    let attempt = w.attempt(host.view.id);
    let (listing, creation) = (w.registration(THIRD), w.creation(THIRD, host.view.id));
    for _ in 0..10 {
        assert_eq!(refused(&w.submit(&listing)), Refusal::CapacityExceeded(Pool::Listings));
        assert_eq!(refused(&w.create(&creation)), Refusal::CapacityExceeded(Pool::Attempts));
    }
    assert_eq!((w.used(Pool::Listings), w.used(Pool::Attempts)), (1, 1));
    assert_eq!((w.used(Pool::ListingRecords), w.used(Pool::AttemptRecords)), (1, 1));
    assert_eq!(w.cancel(JOINER, attempt.id), Reply::Cancelled);
    assert_eq!(w.used(Pool::Attempts), 0);
    assert!(!w.created(&creation).replayed);
    assert_eq!(w.delete(OWNER, host.view.id), Reply::Deleted);
    assert_eq!((w.used(Pool::Listings), w.used(Pool::Attempts)), (0, 0));
    assert!(!w.registered(&listing).replayed);
}

/// "The most it ever held" of a pool stays what it was, however few come after.
pub fn a_peak_stays<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for count in [2, 1] {
        let hosts: Vec<_> = (0..count).map(|_| w.joinable(OWNER)).collect();
        let attempts: Vec<_> = (0..count).map(|_| w.attempt(hosts[0].view.id)).collect();
        for attempt in attempts {
            assert_eq!(w.cancel(JOINER, attempt.id), Reply::Cancelled);
        }
        for number in 0..count {
            let subject = Subject::Principal(PrincipalId(1_000 + number));
            let revoke = Revoke { caller: OPERATOR, subject, lifetime: REVOCATION_MIN };
            assert!(matches!(w.apply(Transition::Revoke(revoke)), Reply::Revoked(_)));
        }
        w.sleep(REVOCATION_MIN);
        let pools = w.stats().pools;
        assert!(pools.iter().all(|it| (it.used, it.high_water) == (0, 2)), "{pools:?}");
    }
}

/// "Evaluated inside the same creation transition, so concurrent requests cannot pass a check performed outside": of
/// those that come at once, just as many as the quota are served.
pub fn requests_side_by_side_pass_no_quota<H: Harness>(harness: &mut H) {
    let mut w = World::new(harness);
    for (owner, tenant) in [(2, 9), (9, 2)] {
        let quotas =
            Quotas { listings_per_owner: owner, listings_per_tenant: tenant, attempts_per_tenant: 3 };
        let registration = |w: &mut World<'_, H>| {
            let mut request = w.registration(OWNER);
            request.quotas = quotas;
            Transition::RegisterListing(Box::new(request))
        };
        let asked: Vec<_> = (0..6).map(|_| registration(&mut w)).collect();
        let replies = batch(&mut w, &asked);
        let made = |reply: &&Reply| matches!(reply, Reply::Registered(_) | Reply::AttemptCreated(_));
        assert_eq!(replies.iter().filter(made).count(), 2, "{replies:?}");
        let Reply::Registered(host) = &replies[0] else { panic!("the first is served") };
        w.present(host.lease.presence_key, v4(1, 4000));
        let creation = |w: &mut World<'_, H>| {
            let mut request = w.creation(JOINER, host.view.id);
            request.quotas = quotas;
            Transition::CreateAttempt(Box::new(request))
        };
        let asked: Vec<_> = (0..6).map(|_| creation(&mut w)).collect();
        let replies = batch(&mut w, &asked);
        assert_eq!(replies.iter().filter(made).count(), 3, "{replies:?}");
        w = World::new(w.harness);
    }
}
