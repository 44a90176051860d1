//! Listings on which much hangs: to be rid of one is not to take apart all of it.

use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::id::{AttemptId, ListingId, TenantId};
use rendezvous_shared::limits::Limits;
use rendezvous_shared::outcome::{AttemptReason, Pool};
use rendezvous_shared::store::{
    BeginDrain, Caller, CreateAttempt, DatagramProof, EndPresence, EphemeralRendezvousStore, GetAttempt,
    Phase, Quotas, RefreshPresence, RegisterListing, Reply, Transition,
};
use rendezvous_shared::time::Instant;

use super::own::{
    QUOTAS, answers, answers_at, caller, creations, idempotency, idle, presence, proof, registrations, used,
};
use crate::store::{MemoryStore, RETIRED_MAX};

/// When attempts are made, for a minute.
const JOINED: Instant = Instant::from_millis(1_020_000);
/// When the leases of [`registrations`] end, and with them those attempts.
const OVER: Instant = Instant::from_millis(1_060_000);

/// Present listings, each with `crowd` attempts that would last longer than its lease; with their presence keys.
fn crowded(store: &mut MemoryStore, listings: usize, crowd: usize) -> Vec<(ListingId, KeyId)> {
    let hosts: Vec<_> = answers(store, &registrations(listings))
        .into_iter()
        .map(|it| match it {
            Reply::Registered(it) => (it.view.id, it.lease.presence_key),
            other => panic!("{other:?}"),
        })
        .collect();
    answers(store, &hosts.iter().map(|&(_, key)| presence(key)).collect::<Vec<_>>());
    let at_each = |(at, &(listing, _)): (usize, &(ListingId, KeyId))| {
        (0..crowd).map(|it| creation(listing, at * crowd + it, 60)).collect::<Vec<_>>()
    };
    let made = answers_at(store, JOINED, &hosts.iter().enumerate().flat_map(at_each).collect::<Vec<_>>());
    assert!(made.iter().all(|it| matches!(it, Reply::AttemptCreated(_))), "{made:?}");
    hosts
}

fn creation(listing: ListingId, number: usize, seconds: u64) -> Transition {
    match creations(listing, 1).remove(0) {
        Transition::CreateAttempt(it) => Transition::CreateAttempt(Box::new(CreateAttempt {
            idempotency: idempotency(number),
            lifetime: Duration::from_secs(seconds),
            ..*it
        })),
        other => panic!("{other:?}"),
    }
}

/// More registrations, with keys that [`crowded`] did not use.
fn more(count: usize, quotas: Quotas) -> Vec<Transition> {
    let registrations = registrations(100_000 + count).split_off(100_000);
    let registrations = registrations.into_iter().map(|it| match it {
        Transition::RegisterListing(it) => {
            Transition::RegisterListing(Box::new(RegisterListing { quotas, ..*it }))
        }
        other => panic!("{other:?}"),
    });
    registrations.collect()
}

fn registered(replies: &[Reply]) -> bool {
    replies.iter().all(|it| matches!(it, Reply::Registered(_)))
}

fn work_off_all(store: &mut MemoryStore, now: Instant) {
    while store.next_deadline().is_some_and(|at| at <= now) {
        store.apply(now, &[const { Transition::GetDrain }; 8], &mut Vec::new());
        store.check_invariants();
    }
}

/// Where a pool, a tenant's quota or an owner's looks full, a listing that is over gives its place; its attempts stay
/// until their turn comes, and then it is gone for good.
#[test]
fn a_place_is_free_at_once_whatever_hangs_on_it() {
    let full = [
        (1, QUOTAS),
        (2, Quotas { listings_per_tenant: 1, ..QUOTAS }),
        (2, Quotas { listings_per_owner: 1, ..QUOTAS }),
    ];
    for (listings, quotas) in full {
        let mut store = idle(Limits { listings, ..Limits::DEFAULT });
        crowded(&mut store, 1, 50);
        assert!(registered(&answers_at(&mut store, OVER, &more(1, quotas))));
        assert_eq!(used(&store, [Pool::Listings, Pool::Attempts]), [1, 50], "{quotas:?}");
        let seen = store.stats();
        assert_eq!((seen.presence_fresh, seen.listings_visible), (0, 0));
        assert_eq!(store.next_deadline(), Some(OVER), "there is work left");
        // At a pace, what is over goes by itself.
        store.pace = crate::store::Pace::DEFAULT;
        work_off_all(&mut store, OVER);
        assert_eq!(used(&store, [Pool::Listings, Pool::Attempts, Pool::AttemptResults]), [1, 0, 50]);
        assert_eq!(store.listings.iter().count(), 1, "nothing is kept of the other");
    }
}

/// A creation at a full pool or quota of attempts finds those whose listing is gone from everything else.
#[test]
fn attempts_of_a_listing_that_went_give_their_places() {
    let full = [(50, QUOTAS), (51, Quotas { attempts_per_tenant: 50, ..QUOTAS })];
    for (attempts, quotas) in full {
        let mut store = idle(Limits { listings: 1, attempts, ..Limits::DEFAULT });
        crowded(&mut store, 1, 50);
        let host = answers_at(&mut store, OVER, &more(1, QUOTAS));
        let [Reply::Registered(host)] = host.as_slice() else { panic!("{host:?}") };
        let proof = DatagramProof { arrived: OVER, ..proof(host.lease.presence_key, 1) };
        let create = match creation(host.view.id, 1_000, 60) {
            Transition::CreateAttempt(it) => {
                Transition::CreateAttempt(Box::new(CreateAttempt { quotas, ..*it }))
            }
            other => panic!("{other:?}"),
        };
        let refresh = Transition::RefreshPresence(RefreshPresence { proof });
        let made = answers_at(&mut store, OVER, &[refresh, create]);
        assert!(matches!(made[1], Reply::AttemptCreated(_)), "{made:?}");
        assert_eq!(used(&store, [Pool::Attempts]), [50], "one made way for one");
    }
}

/// So many listings wait for their attempts beyond the ceiling, and no more: then attempts are worked off for them.
#[test]
fn no_more_wait_for_their_attempts_than_there_are_places() {
    let listings = RETIRED_MAX + 3;
    let mut store = idle(Limits { listings, ..Limits::DEFAULT });
    crowded(&mut store, listings, 2);
    assert!(registered(&answers_at(&mut store, OVER, &more(listings, QUOTAS))));
    assert_eq!(used(&store, [Pool::Listings, Pool::Attempts]), [listings, 2 * RETIRED_MAX]);
    store.pace = crate::store::Pace::DEFAULT;
    work_off_all(&mut store, OVER);
    assert_eq!(used(&store, [Pool::Listings, Pool::Attempts]), [listings, 0]);
}

/// What waits for its attempts is nobody's any more either when a drain ends; and nothing is left of its tenant, who has
/// nothing else.
#[test]
fn a_drain_ends_what_waits_for_its_attempts() {
    let mut store = idle(Limits { listings: 1, ..Limits::DEFAULT });
    crowded(&mut store, 1, 5);
    let Transition::RegisterListing(it) = more(1, QUOTAS).remove(0) else { panic!("not a registration") };
    let caller = Caller { tenant: TenantId(2), ..it.caller };
    let by_another = Transition::RegisterListing(Box::new(RegisterListing { caller, ..*it }));
    assert!(registered(&answers_at(&mut store, OVER, &[by_another])));
    let begin = Transition::BeginDrain(BeginDrain { window: Duration::from_secs(5) });
    answers_at(&mut store, OVER, &[begin]);
    let deadline = OVER.after(Duration::from_secs(5));
    store.pace = crate::store::Pace::DEFAULT;
    work_off_all(&mut store, deadline);
    assert_eq!(store.next_deadline(), None);
    assert_eq!(store.listings.iter().count() + store.attempts.iter().count() + store.tenants.len(), 0);
}

/// Presence that ends or comes back takes no attempt apart, and why each ended is what it was at its deadline.
#[test]
fn presence_takes_no_attempt_apart() {
    let mut store = idle(Limits::DEFAULT);
    let [(listing, key)] = crowded(&mut store, 1, 0).try_into().unwrap();
    let at = |seconds| JOINED.after(Duration::from_secs(seconds));
    let mut sequence = 1;
    let mut told = |store: &mut MemoryStore, seconds, leaves: bool| {
        sequence += 1;
        let proof =
            DatagramProof { arrived: at(seconds), cookie_issued: at(seconds), sequence, ..proof(key, 1) };
        let told = if leaves {
            Transition::EndPresence(EndPresence { proof })
        } else {
            Transition::RefreshPresence(RefreshPresence { proof })
        };
        let replies = answers_at(store, at(seconds), &[told]);
        assert!(matches!(replies.as_slice(), [Reply::Presence(_)]), "{replies:?}");
    };
    let create = |store: &mut MemoryStore, from: u64, number, lifetime| -> AttemptId {
        let made = answers_at(store, at(from), &[creation(listing, number, lifetime)]);
        let [Reply::AttemptCreated(made)] = made.as_slice() else { panic!("{made:?}") };
        made.id
    };
    told(&mut store, 0, false);
    let present = [create(&mut store, 0, 1, 10), create(&mut store, 0, 2, 12)];
    told(&mut store, 12, true);
    told(&mut store, 13, false);
    let again = create(&mut store, 13, 3, 10);
    let absent = create(&mut store, 13, 4, 12);
    told(&mut store, 24, true);
    told(&mut store, 26, false);
    assert_eq!(used(&store, [Pool::Attempts]), [4], "none was taken apart");
    let why = |store: &mut MemoryStore, attempt| {
        let look = Transition::GetAttempt(GetAttempt { caller: caller(2), attempt });
        match answers_at(store, at(26), &[look]).remove(0) {
            Reply::Attempt(it) => it.phase,
            other => panic!("{other:?}"),
        }
    };
    for attempt in [present[0], present[1], again] {
        assert_eq!(why(&mut store, attempt), Phase::Ended(AttemptReason::Expired));
    }
    assert_eq!(why(&mut store, absent), Phase::Ended(AttemptReason::HostPresenceStale));
}
