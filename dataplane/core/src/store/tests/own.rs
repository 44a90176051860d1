//! What can be said of [`MemoryStore`] alone: of its instance, its key, and of more than the model bears.

use core::time::Duration;

use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::endpoint::{Endpoint, Mapping};
use rendezvous_shared::id::{AttemptId, InstanceId, ListingId, PrincipalId, SessionId, TenantId};
use rendezvous_shared::limits::{ATTEMPT_MAX, BATCH_LEN_MAX, INTRODUCED_LIFETIME_MIN, LEASE_MAX, Limits};
use rendezvous_shared::outcome::{Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    Bind, BindAnswer, Caller, Candidates, CreateAttempt, DatagramProof, DeleteListing, DescriptionParts,
    EphemeralRendezvousStore, GetAttempt, IdempotencyKey, ListingDescription, Quotas, RefreshPresence,
    RegisterListing, RenewLease, Reply, Transition, Visibility,
};
use rendezvous_shared::time::Instant;

use super::RELUCTANT;
use crate::store::lanes::{Due, LaneId};
use crate::store::records::ENDED;
use crate::store::{MemoryStore, Pace};

const NOW: Instant = Instant::from_millis(1_000_000);
pub(super) const QUOTAS: Quotas =
    Quotas { listings_per_owner: u32::MAX, listings_per_tenant: u32::MAX, attempts_per_tenant: u32::MAX };

fn store(instance: u64, key: u8) -> MemoryStore {
    MemoryStore::new(Limits::DEFAULT, InstanceId(instance), MasterKey::from_bytes([key; 32]))
}

/// One that works off only what it must.
fn reluctant() -> MemoryStore {
    MemoryStore::with_pace(Limits::DEFAULT, InstanceId(7), MasterKey::from_bytes([5; 32]), RELUCTANT)
}

pub(super) fn caller(principal: u32) -> Caller {
    Caller { tenant: TenantId(1), principal: PrincipalId(principal), operator: false }
}

pub(super) fn idempotency(number: usize) -> IdempotencyKey {
    IdempotencyKey { key: (number as u128).to_be_bytes(), fingerprint: [1; 16] }
}

pub(super) fn registrations(count: usize) -> Vec<Transition> {
    let description = ListingDescription::new(&DescriptionParts {
        protocol: "game/1".to_owned(),
        name: "a session".to_owned(),
        visibility: Visibility::Public,
        player_capacity: 8,
        attributes: Vec::new(),
        slot: None,
    })
    .unwrap();
    let registration = |number| RegisterListing {
        caller: caller(1),
        quotas: QUOTAS,
        idempotency: idempotency(number),
        description: description.clone(),
        lease: Duration::from_secs(60),
    };
    (0..count).map(|it| Transition::RegisterListing(Box::new(registration(it)))).collect()
}

pub(super) fn creations(listing: ListingId, count: usize) -> Vec<Transition> {
    let creation = |number| CreateAttempt {
        caller: caller(2),
        quotas: QUOTAS,
        idempotency: idempotency(number),
        listing,
        note: None,
        lifetime: Duration::from_secs(20),
    };
    (0..count).map(|it| Transition::CreateAttempt(Box::new(creation(it)))).collect()
}

pub(super) fn proof(key_id: KeyId, last: u8) -> DatagramProof {
    DatagramProof {
        key_id,
        source: Endpoint::new([9, 9, 9, last].into(), 4000),
        local: None,
        arrived: NOW,
        cookie_issued: NOW,
        session: SessionId(1),
        sequence: 1,
    }
}

pub(super) fn presence(key_id: KeyId) -> Transition {
    Transition::RefreshPresence(RefreshPresence { proof: proof(key_id, 1) })
}

fn bind(key_id: KeyId, attempt: AttemptId) -> Transition {
    let candidates = Candidates::default();
    let proof = proof(key_id, 2);
    Transition::Bind(Bind {
        proof,
        attempt,
        candidates,
        round_trip: Duration::ZERO,
        mapping: Mapping::Unknown,
    })
}

pub(super) fn answers(store: &mut MemoryStore, batch: &[Transition]) -> Vec<Reply> {
    answers_at(store, NOW, batch)
}

pub(super) fn answers_at(store: &mut MemoryStore, now: Instant, batch: &[Transition]) -> Vec<Reply> {
    let mut replies = Vec::new();
    store.apply(now, batch, &mut replies);
    store.check_invariants();
    replies
}

/// What pools hold, what is over and not worked off included.
pub(super) fn used<const N: usize>(store: &MemoryStore, pools: [Pool; N]) -> [usize; N] {
    let held = store.stats().pools;
    pools.map(|pool| held.iter().find(|it| it.pool == pool).unwrap().used)
}

/// A present listing and an attempt at it: the presence key, the joiner's key, and both ids.
fn pair(store: &mut MemoryStore) -> (KeyId, KeyId, ListingId, AttemptId) {
    let registered = answers(store, &registrations(1));
    let [Reply::Registered(host)] = registered.as_slice() else { panic!("{registered:?}") };
    let (key, listing) = (host.lease.presence_key, host.view.id);
    let replies = answers(store, &[&[presence(key)], creations(listing, 1).as_slice()].concat());
    let [Reply::Presence(_), Reply::AttemptCreated(attempt)] = replies.as_slice() else {
        panic!("{replies:?}")
    };
    (key, attempt.joiner_key, listing, attempt.id)
}

/// "The initial 25,000-listing/10,000-attempt ceiling": so many are held at once, and not one more.
#[test]
fn the_default_ceilings_are_held() {
    let mut store = store(7, 5);
    let replies = answers(&mut store, &registrations(25_001));
    assert!(replies[..25_000].iter().all(|it| matches!(it, Reply::Registered(_))));
    assert_eq!(replies[25_000], Reply::Refused(Refusal::CapacityExceeded(Pool::Listings)));
    let Reply::Registered(host) = &replies[0] else { panic!("not registered") };
    answers(&mut store, &[presence(host.lease.presence_key)]);
    let replies = answers(&mut store, &creations(host.view.id, 10_001));
    assert!(replies[..10_000].iter().all(|it| matches!(it, Reply::AttemptCreated(_))));
    assert_eq!(replies[10_000], Reply::Refused(Refusal::CapacityExceeded(Pool::Attempts)));
}

/// "A process restart creates a new store instance ID": what the instance before has issued is refused, even where the
/// new one has something at the same place under the same name.
#[test]
fn a_key_of_another_instance_opens_nothing() {
    let (mut before, mut after) = (store(7, 5), store(8, 5));
    let (old_host, old_joiner, old_listing, old_attempt) = pair(&mut before);
    let (host, joiner, listing, attempt) = pair(&mut after);
    assert_eq!((old_listing, old_attempt), (listing, attempt), "one key gives one history of ids");
    for (old, new) in [(old_host, host), (old_joiner, joiner)] {
        let stale = answers(&mut after, &[bind(old, attempt)]);
        assert_eq!(stale, [Reply::Refused(Refusal::NotFound)]);
        assert_ne!(old, new);
    }
    let stale = answers(&mut after, &[presence(old_host)]);
    assert_eq!(stale, [Reply::Refused(Refusal::NotFound)]);
    let current = answers(&mut after, &[bind(joiner, attempt)]);
    assert!(matches!(current.as_slice(), [Reply::Bind(_)]), "{current:?}");
}

/// "Old listing and attempt state is not recovered": an id of the instance before names nothing, even where the new one
/// has something at the same place.
#[test]
fn an_id_of_another_instance_names_nothing() {
    let (mut before, mut after) = (store(7, 5), store(8, 6));
    let (_, _, old_listing, old_attempt) = pair(&mut before);
    let (_, _, listing, attempt) = pair(&mut after);
    assert_eq!((old_listing.handle(), old_attempt.handle()), (listing.handle(), attempt.handle()));
    let (owner, joiner) = (caller(1), caller(2));
    let delete = |listing| Transition::DeleteListing(DeleteListing { caller: owner, listing });
    let look = |attempt| Transition::GetAttempt(GetAttempt { caller: joiner, attempt });
    let [create] = creations(old_listing, 1).try_into().unwrap();
    let create = match create {
        Transition::CreateAttempt(it) => {
            Transition::CreateAttempt(Box::new(CreateAttempt { idempotency: idempotency(9), ..*it }))
        }
        other => panic!("{other:?}"),
    };
    let old = answers(&mut after, &[create, look(old_attempt), delete(old_listing)]);
    assert!(old.iter().all(|it| *it == Reply::Refused(Refusal::NotFound)), "{old:?}");
    let current = answers(&mut after, &[look(attempt), delete(listing)]);
    assert!(matches!(current.as_slice(), [Reply::Attempt(_), Reply::Deleted]), "{current:?}");
}

/// Limits by which a tenant that may have one listing and one attempt has a share of one record of each.
const TIGHT: Limits =
    Limits { listings: 200, listing_records: 200, attempts: 200, attempt_records: 200, ..Limits::DEFAULT };
const ONE_EACH: Quotas = Quotas { listings_per_owner: 1, listings_per_tenant: 1, attempts_per_tenant: 1 };

/// A store that works off only what it must.
pub(super) fn idle(limits: Limits) -> MemoryStore {
    let pace = Pace { per_transition: 0, per_call: 0 };
    MemoryStore::with_pace(limits, InstanceId(7), MasterKey::from_bytes([5; 32]), pace)
}

/// As the first of `of`, by tenant 2, which may have one.
fn of_second(of: Vec<Transition>, number: usize, lifetime: Duration) -> Transition {
    let (tenant, idempotency) = (TenantId(2), idempotency(number));
    match of.into_iter().next() {
        Some(Transition::RegisterListing(it)) => {
            let caller = Caller { tenant, ..it.caller };
            let it = RegisterListing { caller, quotas: ONE_EACH, idempotency, lease: lifetime, ..*it };
            Transition::RegisterListing(Box::new(it))
        }
        Some(Transition::CreateAttempt(it)) => {
            let caller = Caller { tenant, ..it.caller };
            Transition::CreateAttempt(Box::new(CreateAttempt {
                caller,
                quotas: ONE_EACH,
                idempotency,
                lifetime,
                ..*it
            }))
        }
        other => panic!("{other:?}"),
    }
}

/// To find that a tenant is at its share, nothing of others is taken apart that is over: however much it is, the
/// request is no pause of the store.
#[test]
fn a_tenant_at_its_share_takes_only_its_own_apart() {
    let mut store = idle(TIGHT);
    answers(&mut store, &registrations(100));
    let own = |number| of_second(registrations(1), number, LEASE_MAX);
    let registered = answers(&mut store, &[own(1)]);
    let [Reply::Registered(grant)] = registered.as_slice() else { panic!("{registered:?}") };
    let delete =
        DeleteListing { caller: Caller { tenant: TenantId(2), ..caller(1) }, listing: grant.view.id };
    // Behind all others, which end after a minute.
    let later = NOW.after(Duration::from_secs(61));
    assert_eq!(answers_at(&mut store, later, &[Transition::DeleteListing(delete)]), [Reply::Deleted]);
    let records_over = NOW.after(Duration::from_secs(121));
    let refused = answers_at(&mut store, records_over, &[own(2)]);
    assert_eq!(refused, [Reply::Refused(Refusal::QuotaExceeded(QuotaScope::Tenant))]);
    assert_eq!(used(&store, [Pool::Listings, Pool::ListingRecords]), [100, 101]);
}

/// The same of attempts.
#[test]
fn a_joining_tenant_at_its_share_takes_only_its_own_apart() {
    let mut store = idle(TIGHT);
    let (_, _, listing, _) = pair(&mut store);
    answers(&mut store, &creations(listing, 50)[1..]);
    let registered = answers(&mut store, &[of_second(registrations(1), 1, LEASE_MAX)]);
    let [Reply::Registered(grant)] = registered.as_slice() else { panic!("{registered:?}") };
    let key = grant.lease.presence_key;
    let own = |number| of_second(creations(grant.view.id, 1), number, ATTEMPT_MAX);
    let made = answers(&mut store, &[presence(key), own(1)]);
    assert!(matches!(made.as_slice(), [Reply::Presence(_), Reply::AttemptCreated(_)]), "{made:?}");
    // All attempts are over, and the records of others.
    let later = NOW.after(Duration::from_secs(81));
    let again = DatagramProof { sequence: 2, arrived: later, ..proof(key, 1) };
    let again = Transition::RefreshPresence(RefreshPresence { proof: again });
    let refused = answers_at(&mut store, later, &[again, own(2)]);
    assert_eq!(refused[1], Reply::Refused(Refusal::QuotaExceeded(QuotaScope::Tenant)));
    assert_eq!(used(&store, [Pool::Attempts, Pool::AttemptRecords]), [50, 51]);
}

/// Each attempt of a listing that was ended gives its place when it is needed, and then there is one that is not there.
#[test]
fn a_full_pool_of_attempts_finds_all_orphans() {
    let mut store = idle(Limits { attempt_records: 500, ..TIGHT });
    let hosts = answers(&mut store, &registrations(3));
    let listings = hosts.iter().map(|it| match it {
        Reply::Registered(it) => (it.view.id, it.lease.presence_key),
        other => panic!("{other:?}"),
    });
    let [(first, one), (second, two), (third, three)] = listings.collect::<Vec<_>>().try_into().unwrap();
    answers(&mut store, &[presence(one), presence(two), presence(three)]);
    let mut made = creations(first, 200);
    let delete = |listing| Transition::DeleteListing(DeleteListing { caller: caller(1), listing });
    let numbered = |listing, from: usize, count: usize| creations(listing, from + count).split_off(from);
    made.truncate(90);
    made.extend(numbered(second, 90, 110));
    assert!(answers(&mut store, &made).iter().all(|it| matches!(it, Reply::AttemptCreated(_))));
    answers(&mut store, &[delete(second), delete(first)]);
    let replies = answers(&mut store, &numbered(third, 200, 201));
    assert!(replies[..200].iter().all(|it| matches!(it, Reply::AttemptCreated(_))), "{replies:?}");
    assert_eq!(replies[200], Reply::Refused(Refusal::CapacityExceeded(Pool::Attempts)));
    assert_eq!(used(&store, [Pool::Listings, Pool::Attempts]), [3, 200]);
}

/// Where attempts look full, listings that are over are looked at for attempts and left where they are.
#[test]
fn a_full_pool_of_attempts_takes_no_listing_apart() {
    let mut store = idle(TIGHT);
    let hosts = answers(&mut store, &registrations(100));
    let Reply::Registered(host) = &hosts[0] else { panic!("{hosts:?}") };
    let renewed = RenewLease { caller: caller(1), listing: host.view.id, version: 1, lease: Some(LEASE_MAX) };
    answers(&mut store, &[Transition::RenewLease(renewed)]);
    let later = NOW.after(Duration::from_secs(61));
    let again = DatagramProof { arrived: later, ..proof(host.lease.presence_key, 1) };
    let again = Transition::RefreshPresence(RefreshPresence { proof: again });
    let made = answers_at(&mut store, later, &[vec![again], creations(host.view.id, 201)].concat());
    assert_eq!(made[201], Reply::Refused(Refusal::CapacityExceeded(Pool::Attempts)));
    assert_eq!(used(&store, [Pool::Listings, Pool::Attempts]), [100, 200]);
}

/// "Cleanup runs deterministically", and so does all else: the same history has the same answers, ids and keys included.
#[test]
fn one_seed_gives_one_history() {
    let told = || {
        let mut store = store(7, 5);
        let pair = pair(&mut store);
        let mut replies = answers(&mut store, &registrations(300));
        store.expire(NOW.after(Duration::from_secs(20)));
        let later = [registrations(302), creations(pair.2, 9)].concat();
        store.apply(NOW.after(Duration::from_secs(61)), &later, &mut replies);
        (pair, replies, store.stats())
    };
    assert_eq!(told(), told());
}

/// "It retains opaque credential fingerprints", no secret: what can be seen of a store does not depend on its key.
#[test]
fn it_shows_no_secret() {
    assert_eq!(format!("{:?}", store(7, 5)), format!("{:?}", store(7, 6)));
    let mut store = store(7, 5);
    pair(&mut store);
    assert!(!format!("{store:?}").contains("5, 5, 5, 5"), "the key that ids are made with");
}

/// "Work per transition must not grow with the number of objects": what is to live on is filed with what lives as long.
/// In the lane where it was, whatever is made after it would have to be filed in front of it.
#[test]
fn what_lives_on_changes_its_lane() {
    let mut store = store(7, 5);
    let (key, joiner, listing, attempt) = pair(&mut store);
    let now = NOW.after(Duration::from_secs(19));
    let renew = RenewLease { caller: caller(1), listing, version: 1, lease: Some(LEASE_MAX) };
    let bind = |key, last| {
        let proof = DatagramProof { arrived: now, sequence: 2, ..proof(key, last) };
        Transition::Bind(Bind {
            proof,
            attempt,
            candidates: Candidates::default(),
            round_trip: Duration::ZERO,
            mapping: Mapping::Unknown,
        })
    };
    let replies =
        answers_at(&mut store, now, &[Transition::RenewLease(renew), bind(joiner, 2), bind(key, 1)]);
    assert!(matches!(replies[2], Reply::Bind(BindAnswer::Introduced { .. })), "{replies:?}");
    let lane = |lifetime: Duration| LaneId::new(u32::try_from(lifetime.as_secs()).unwrap());
    let lanes_of_listing = (store.listings.iter().map(|it| it.1.lane()))
        .chain(store.listing_records.all().iter().map(|it| it.1.lane()));
    assert_eq!(lanes_of_listing.collect::<Vec<_>>(), [lane(LEASE_MAX); 2]);
    let lanes_of_attempt = (store.attempts.iter().map(|it| it.1.lane()))
        .chain(store.attempt_records.all().iter().map(|it| it.1.lane()));
    assert_eq!(lanes_of_attempt.collect::<Vec<_>>(), [lane(INTRODUCED_LIFETIME_MIN); 2]);
    let delete = Transition::DeleteListing(DeleteListing { caller: caller(1), listing });
    assert_eq!(answers_at(&mut store, now, &[delete]), [Reply::Deleted]);
    assert!(store.listings.iter().all(|it| it.1.lane() == ENDED));
}

/// The same: a host that refreshes in time leaves its attempts alone, those that are over too.
#[test]
fn a_refresh_in_time_looks_at_no_attempt() {
    let mut store = reluctant();
    let (key, _, listing, _) = pair(&mut store);
    answers(&mut store, &creations(listing, 5));
    for seconds in [10, 20, 29] {
        let now = NOW.after(Duration::from_secs(seconds));
        let proof = DatagramProof { arrived: now, sequence: 1 + seconds, ..proof(key, 1) };
        let reply = answers_at(&mut store, now, &[Transition::RefreshPresence(RefreshPresence { proof })]);
        assert!(matches!(reply.as_slice(), [Reply::Presence(_)]), "{reply:?}");
        assert_eq!(used(&store, [Pool::Attempts]), [5]);
        assert!(store.attempts.iter().all(|it| it.1.end_reason.is_none()), "none was looked at");
    }
}

/// "What is over in exactly that pool or quota is worked off first, one by one, until there is room": nothing of
/// others, and nothing beyond.
#[test]
fn a_quota_works_off_no_more_than_it_must() {
    let mut store = reluctant();
    let (_, _, listing, _) = pair(&mut store);
    answers(&mut store, &creations(listing, 4));
    let other = Caller { tenant: TenantId(2), ..caller(1) };
    let of_other = |it: &Transition| match it {
        Transition::RegisterListing(it) => {
            Transition::RegisterListing(Box::new(RegisterListing { caller: other, ..(**it).clone() }))
        }
        it => it.clone(),
    };
    let registered = answers(&mut store, &[of_other(&registrations(1)[0])]);
    let [Reply::Registered(host)] = registered.as_slice() else { panic!("{registered:?}") };
    answers(&mut store, &[presence(host.lease.presence_key)]);
    let create = |number| {
        Transition::CreateAttempt(Box::new(CreateAttempt {
            caller: other,
            quotas: Quotas { attempts_per_tenant: 2, ..QUOTAS },
            idempotency: idempotency(number),
            listing: host.view.id,
            note: None,
            lifetime: Duration::from_secs(20),
        }))
    };
    let made = |replies: &[Reply]| replies.iter().all(|it| matches!(it, Reply::AttemptCreated(_)));
    assert!(made(&answers(&mut store, &[create(1), create(2)])));
    let later = NOW.after(Duration::from_secs(20));
    assert!(made(&answers_at(&mut store, later, &[create(3)])));
    assert_eq!(used(&store, [Pool::Attempts]), [4 + 2], "one made way for one");
    let mut store = reluctant();
    answers(&mut store, &registrations(3));
    let [_, _, _, register] = registrations(4).try_into().unwrap();
    let Transition::RegisterListing(register) = register else { panic!("{register:?}") };
    let quotas = Quotas { listings_per_owner: 3, ..QUOTAS };
    let register = Transition::RegisterListing(Box::new(RegisterListing { quotas, ..*register }));
    let reply = answers_at(&mut store, NOW.after(Duration::from_secs(60)), &[register]);
    assert!(matches!(reply.as_slice(), [Reply::Registered(_)]), "{reply:?}");
    assert_eq!(used(&store, [Pool::Listings]), [3], "one made way for one");
}

/// "More for each transition than one can make, so that what is over never piles up": a batch works off all that one
/// before it made.
#[test]
fn what_is_over_never_piles_up() {
    let mut store = store(7, 5);
    let (_, _, listing, _) = pair(&mut store);
    answers(&mut store, &creations(listing, BATCH_LEN_MAX));
    let look = [const { Transition::GetDrain }; BATCH_LEN_MAX];
    answers_at(&mut store, NOW.after(Duration::from_secs(20)), &look);
    assert_eq!(used(&store, [Pool::Attempts, Pool::AttemptResults]), [0, BATCH_LEN_MAX]);
    answers_at(&mut store, NOW.after(Duration::from_secs(80)), &look);
    assert_eq!(used(&store, [Pool::Listings, Pool::AttemptResults, Pool::AttemptRecords]), [0; 3]);
}
