//! Long random histories: whatever is asked in whatever order, the invariants hold, and simple truths with them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rendezvous_shared::counter::{Counters, Label};
use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, ListingId, PrincipalId, SessionId, TenantId};
use rendezvous_shared::limits::{self, Limits};
use rendezvous_shared::outcome::OutcomeKind;
use rendezvous_shared::store::contract::Harness;
use rendezvous_shared::store::{
    BeginDrain, Bind, BindAnswer, BrowseListings, Caller, CancelAttempt, Candidates, CreateAttempt,
    DatagramProof, DeleteListing, DescriptionParts, DrainView, EndPresence, EphemeralRendezvousStore, Filter,
    GetAttempt, GetListing, IdempotencyKey, ListPending, ListingDescription, ListingLocator, Quotas,
    RefreshPresence, RegisterListing, RenewLease, Reply, Report, Reporter, Transition, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::ByHand;
use crate::store::MemoryStore;

const LIMITS: Limits = Limits {
    listings: 4,
    attempts: 4,
    listing_records: 7,
    attempt_records: 9,
    attempt_results: 3,
    ..Limits::DEFAULT
};
const QUOTAS: Quotas = Quotas { listings_per_owner: 2, listings_per_tenant: 3, attempts_per_tenant: 3 };

/// A step: how long to wait, what to do, and raw choices to do it with.
#[derive(Clone, Copy, Debug)]
struct Step {
    wait: u8,
    what: u8,
    who: u8,
    a: u8,
    b: u8,
}

fn step() -> impl Strategy<Value = Step> {
    (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(wait, what, who, a, b)| Step { wait, what, who, a, b })
}

type Kinds = Counters<OutcomeKind, { <OutcomeKind as Label>::ALL.len() }>;

/// What a client that heard every answer knows.
struct History {
    now: Instant,
    store: MemoryStore,
    /// The same history, but its store is looked at in between: that must change nothing.
    twin: MemoryStore,
    listings: Vec<(ListingId, KeyId, u64)>,
    attempts: Vec<(AttemptId, KeyId, ListingId)>,
    introductions: BTreeMap<AttemptId, u32>,
    /// Listings a host may have made present and until when, at most.
    present_until: BTreeMap<ListingId, Instant>,
    removed: BTreeSet<ListingId>,
    sequence: u64,
    kinds: Kinds,
}

impl History {
    fn new() -> Self {
        let mut harness = ByHand::new();
        Self {
            now: harness.now(),
            store: harness.store(LIMITS),
            twin: harness.store(LIMITS),
            listings: Vec::new(),
            attempts: Vec::new(),
            introductions: BTreeMap::new(),
            present_until: BTreeMap::new(),
            removed: BTreeSet::new(),
            sequence: 0,
            kinds: Kinds::new(),
        }
    }

    /// Nothing, a nanosecond, a millisecond, seconds; or to just before, at or after the next deadline.
    fn wait(&mut self, wait: u8) {
        let before = self.now;
        let deadline = self.store.next_deadline().unwrap_or(before).max(before);
        self.now = match wait {
            0..=190 => before,
            191..=200 => before.after(Duration::from_nanos(1)),
            201..=215 => before.after(Duration::from_millis(1)),
            216..=235 => before.after(Duration::from_secs(u64::from(wait - 216) / 4)),
            236 => before.after(Duration::from_secs(200)),
            237..=241 => before.max(Instant::from_nanos(deadline.as_nanos() - 1)),
            242..=250 => deadline,
            _ => deadline.after(Duration::from_nanos(1)),
        };
        // Only the twin is woken on the way.
        let half = before.after(self.now.since(before) / 2);
        self.twin.expire(half);
        self.twin.check_invariants();
    }

    fn take(&mut self, step: Step) {
        self.wait(step.wait);
        let Some(transition) = self.transition(step) else { return };
        let (mut replies, mut twins) = (Vec::new(), Vec::new());
        self.store.apply(self.now, std::slice::from_ref(&transition), &mut replies);
        self.twin.apply(self.now, std::slice::from_ref(&transition), &mut twins);
        self.store.check_invariants();
        assert_eq!(replies.len(), 1, "one reply for each transition");
        assert_eq!(replies, twins, "being looked at changed what a store answers");
        assert_eq!(
            StatsWithoutPeaks::of(&self.store),
            StatsWithoutPeaks::of(&self.twin),
            "being looked at changed what a store holds"
        );
        for pool in self.store.stats().pools {
            assert!(pool.used <= pool.limit && pool.high_water <= pool.limit, "{pool:?}");
        }
        let limits = self.store.limits;
        let listing_share = self.store.listing_records.share(QUOTAS.listings_per_tenant, limits.listings);
        let attempt_share = self.store.attempt_records.share(QUOTAS.attempts_per_tenant, limits.attempts);
        for (tenant, usage) in &self.store.tenants {
            let within = usage.listings <= QUOTAS.listings_per_tenant
                && usage.attempts <= QUOTAS.attempts_per_tenant
                && usage.listing_records <= listing_share
                && usage.attempt_records <= attempt_share;
            assert!(within, "{tenant:?} over its quotas: {usage:?}");
        }
        let most = self.store.owned.values().map(BTreeSet::len).max();
        assert!(most <= Some(QUOTAS.listings_per_owner as usize), "an owner over its quota");
        assert!(self.store.next_deadline().is_none_or(|at| at > self.now), "something due is still there");
        self.kinds.count(replies[0].kind());
        self.learn(&transition, &replies[0]);
    }

    fn transition(&mut self, step: Step) -> Option<Transition> {
        let Step { what, who, a, b, .. } = step;
        let caller = caller(who);
        Some(match what % 32 {
            0..=3 => Transition::RegisterListing(Box::new(registration(caller, a, b))),
            4..=8 => Transition::RefreshPresence(RefreshPresence { proof: self.host_proof(a, b)? }),
            9 => Transition::EndPresence(EndPresence { proof: self.host_proof(a, b)? }),
            10..=13 => Transition::CreateAttempt(Box::new(self.creation(caller, a, b)?)),
            14..=20 => Transition::Bind(self.bind(a, b)?),
            21 | 22 => Transition::Report(self.report(caller, a, b)?),
            23 | 24 => {
                let (listing, _, version) = pick(&self.listings, a)?;
                let version = if b.is_multiple_of(4) { version.wrapping_sub(1) } else { version };
                let lease = b.is_multiple_of(3).then_some(limits::LEASE_MIN);
                Transition::RenewLease(RenewLease { caller, listing, version, lease })
            }
            25 => {
                let listing = pick(&self.listings, a)?.0;
                Transition::DeleteListing(DeleteListing { caller, listing })
            }
            26 => {
                let listing = pick(&self.listings, a)?.0;
                Transition::GetListing(GetListing { caller, locator: ListingLocator::Id(listing) })
            }
            27 => Transition::BrowseListings(Box::new(BrowseListings {
                caller,
                protocol: Some("game/1".into()),
                owned: b.is_multiple_of(4),
                filter: Filter::default(),
                after: None,
                limit: usize::from(a % 4),
            })),
            28 => Transition::GetAttempt(GetAttempt { caller, attempt: pick(&self.attempts, a)?.0 }),
            29 => Transition::CancelAttempt(CancelAttempt { caller, attempt: pick(&self.attempts, a)?.0 }),
            30 => Transition::ListPending(ListPending { caller, listing: pick(&self.listings, a)?.0 }),
            _ if a < 4 && self.sequence > 150 => {
                Transition::BeginDrain(BeginDrain { window: Duration::from_secs(u64::from(b % 40)) })
            }
            _ => Transition::GetDrain,
        })
    }

    fn proof(&mut self, key_id: KeyId, source: Endpoint, b: u8) -> DatagramProof {
        self.sequence += 1;
        // Mostly the next sequence; now and then an old one.
        let sequence = if b % 8 == 7 { self.sequence / 2 } else { self.sequence };
        let session = SessionId(u64::from(b % 16 == 6));
        let now = self.now;
        DatagramProof { key_id, source, local: None, arrived: now, cookie_issued: now, session, sequence }
    }

    fn host_proof(&mut self, a: u8, b: u8) -> Option<DatagramProof> {
        let key = pick(&self.listings, a)?.1;
        Some(self.proof(key, endpoint(1, b), b))
    }

    fn creation(&mut self, caller: Caller, a: u8, b: u8) -> Option<CreateAttempt> {
        Some(CreateAttempt {
            caller,
            quotas: QUOTAS,
            idempotency: IdempotencyKey { key: [b % 32; 16], fingerprint: [u8::from(b > 250); 16] },
            listing: pick(&self.listings, a)?.0,
            note: None,
            lifetime: if b.is_multiple_of(2) { limits::ATTEMPT_MIN } else { limits::ATTEMPT_MAX },
        })
    }

    fn bind(&mut self, a: u8, b: u8) -> Option<Bind> {
        let (attempt, joiner_key, listing) = pick(&self.attempts, a)?;
        let host_key = self.listings.iter().find(|it| it.0 == listing).map(|it| it.1);
        let as_host = b.is_multiple_of(2);
        let key = if as_host { host_key? } else { joiner_key };
        let source = if b > 240 { endpoint(9, b) } else { endpoint(if as_host { 1 } else { 2 }, a & 0xf0) };
        let second = (b % 16 < 4).then(|| endpoint(3, b | 1));
        let second = second.filter(|it| it.family() != source.family());
        let candidates = Candidates { second, ..Candidates::default() };
        let proof = self.proof(key, source, 0);
        Some(Bind { proof, attempt, candidates, round_trip: Duration::from_millis(b.into()) })
    }

    fn report(&mut self, caller: Caller, a: u8, b: u8) -> Option<Report> {
        let (attempt, joiner_key, _) = pick(&self.attempts, a)?;
        let reporter = if b.is_multiple_of(2) {
            Reporter::Caller(caller)
        } else {
            Reporter::Datagram(self.proof(joiner_key, endpoint(2, 0), 0))
        };
        let result = if b % 4 < 2 { ReportResult::Connected } else { ReportResult::PeerSilent };
        Some(Report { reporter, attempt, result })
    }

    fn learn(&mut self, transition: &Transition, reply: &Reply) {
        match (transition, reply) {
            (_, Reply::Registered(grant)) => {
                let known = self.listings.iter().any(|it| it.0 == grant.view.id);
                assert_eq!(known, grant.replayed, "a key was executed twice, or replayed what never was");
                if !known {
                    self.listings.push((grant.view.id, grant.lease.presence_key, 1));
                }
            }
            (Transition::RenewLease(it), Reply::Renewed(lease)) => {
                self.listings.iter_mut().filter(|entry| entry.0 == it.listing).for_each(|entry| {
                    assert_eq!(entry.2, it.version, "renewed from a version that is not current");
                    (entry.1, entry.2) = (lease.presence_key, lease.version);
                });
            }
            (Transition::DeleteListing(it), Reply::Deleted) => {
                self.removed.insert(it.listing);
            }
            (_, Reply::AttemptCreated(grant)) => {
                let known = self.attempts.iter().any(|it| it.0 == grant.id);
                assert_eq!(known, grant.replayed, "a key was executed twice, or replayed what never was");
                self.assert_may_be_visible(grant.listing, !grant.replayed);
                if !known {
                    self.attempts.push((grant.id, grant.joiner_key, grant.listing));
                }
            }
            (Transition::RefreshPresence(it), Reply::Presence(_)) => {
                let until = self.now.after(limits::PRESENCE_LIFETIME);
                let of = self.listings.iter().find(|entry| entry.1 == it.proof.key_id);
                self.present_until.extend(of.map(|entry| (entry.0, until)));
            }
            (Transition::EndPresence(it), Reply::Presence(_)) => {
                let of = self.listings.iter().find(|entry| entry.1 == it.proof.key_id).map(|entry| entry.0);
                self.present_until.retain(|id, _| Some(*id) != of);
            }
            (Transition::Bind(it), Reply::Bind(BindAnswer::Introduced { own, peer })) => {
                let count = self.introductions.entry(it.attempt).or_default();
                *count += 1;
                assert_eq!(*count, 1, "introduced twice");
                assert!(own.peer != it.proof.source && peer.introduction.peer != peer.endpoint, "to itself");
                let listing = self.attempts.iter().find(|entry| entry.0 == it.attempt).map(|entry| entry.2);
                listing.into_iter().for_each(|id| self.assert_may_be_visible(id, true));
            }
            (Transition::BrowseListings(it), Reply::Page(page)) if !it.owned => {
                for listing in &page.listings {
                    assert!(listing.visible && listing.description.visibility() == Visibility::Public);
                    self.assert_may_be_visible(listing.id, true);
                }
            }
            (_, Reply::Drain(DrainView::Drained)) => {
                assert!(self.store.stats().pools.iter().all(|it| it.used == 0));
            }
            _ => {}
        }
    }

    /// Nothing is visible or joinable without a presence no older than its lifetime.
    fn assert_may_be_visible(&self, listing: ListingId, now: bool) {
        let until = self.present_until.get(&listing);
        assert!(!now || until.is_some_and(|&until| until > self.now), "visible without presence");
        assert!(!now || !self.removed.contains(&listing), "visible though removed");
    }
}

/// What must not depend on how often a store was looked at; the peaks do.
#[derive(Debug, PartialEq)]
struct StatsWithoutPeaks(rendezvous_shared::store::StoreStats);

impl StatsWithoutPeaks {
    fn of(store: &MemoryStore) -> Self {
        let mut stats = store.stats();
        stats.pools.iter_mut().for_each(|pool| pool.high_water = 0);
        Self(stats)
    }
}

fn pick<T: Copy>(from: &[T], choice: u8) -> Option<T> {
    // The newest four: older ones are mostly over.
    let recent = &from[from.len().saturating_sub(4)..];
    (!recent.is_empty()).then(|| recent[usize::from(choice) % recent.len()])
}

fn caller(who: u8) -> Caller {
    let tenant = TenantId(u32::from(who % 4 == 3));
    Caller { tenant, principal: PrincipalId(u32::from(who / 16 % 2)), operator: who > 240 }
}

fn endpoint(host: u8, choice: u8) -> Endpoint {
    let port = 4_000 + u16::from(choice & 0x30);
    if choice % 4 == 1 {
        Endpoint::new([0x2600, 0, 0, 0, 0, 0, 0, u16::from(host)].into(), port)
    } else {
        Endpoint::new([9, 9, 9, host].into(), port)
    }
}

fn registration(caller: Caller, a: u8, b: u8) -> RegisterListing {
    let parts = DescriptionParts {
        protocol: "game/1".into(),
        name: String::new(),
        visibility: if a.is_multiple_of(4) { Visibility::Unlisted } else { Visibility::Public },
        player_capacity: 2,
        attributes: Vec::new(),
        slot: a.is_multiple_of(3).then(|| "slot".to_owned()),
    };
    let description = ListingDescription::new(&parts).unwrap();
    RegisterListing {
        caller,
        quotas: QUOTAS,
        idempotency: IdempotencyKey { key: [b % 32; 16], fingerprint: [u8::from(b > 250); 16] },
        description,
        lease: if a.is_multiple_of(2) { limits::LEASE_MIN } else { limits::LEASE_DEFAULT },
    }
}

/// The outcomes that no store in one process can have: there is nothing between it and its caller to fail.
const UNREACHABLE: &[OutcomeKind] = &[OutcomeKind::ServiceUnavailable, OutcomeKind::Abandoned];

#[test]
fn any_history_keeps_the_store_whole() {
    let seed: u64 = std::env::var("RENDEZVOUS_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    println!("RENDEZVOUS_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = proptest::test_runner::TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases: 150, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let reached = std::cell::RefCell::new((Kinds::new(), 0));
    let outcome = runner.run(&proptest::collection::vec(step(), 400..800), |steps| {
        let mut history = History::new();
        steps.into_iter().for_each(|step| history.take(step));
        let (kinds, introductions) = &mut *reached.borrow_mut();
        *introductions += history.introductions.len();
        for (kind, count) in history.kinds.iter().filter(|(_, count)| *count > 0) {
            (0..count).for_each(|_| kinds.count(kind));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("RENDEZVOUS_SEED={seed}: {failure}"));
    let (kinds, introductions) = reached.into_inner();
    println!("{introductions} introductions; {:?}", kinds.iter().collect::<Vec<_>>());
    assert!(introductions > 100, "{introductions} introductions are too few to mean anything");
    for (kind, count) in kinds.iter() {
        assert_eq!(count == 0, UNREACHABLE.contains(&kind), "{} came {count} times", kind.name());
    }
}
