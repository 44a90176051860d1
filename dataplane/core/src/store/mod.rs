//! [`MemoryStore`]: every listing, presence, attempt and record in one place, changed by one caller at a time.
//!
//! Collections are slot maps with generation-checked handles; an id contains its handle, so nothing a stranger
//! chose is hashed to find an object. `due` files each object once under a deadline and moves it only when it
//! surfaces too early, so that a refresh or renewal touches no index at all.

mod attempts;
mod bind;
mod browse;
mod drain;
mod due;
mod footprint;
mod freshness;
mod idempotency;
mod invariants;
mod listings;
mod presence;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::id::{
    AttemptId, Handle, InstanceId, JoinCode, ListingId, PrincipalId, Role, TenantId,
};
use rendezvous_shared::limits::Limits;
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{
    AttemptReasonCounters, EphemeralRendezvousStore, PoolUsage, Reply, StoreStats, Transition,
};
use rendezvous_shared::time::Instant;
use slotmap::{Key, KeyData, SlotMap, new_key_type};

pub use footprint::{Footprint, footprint};

use due::{Due, DueIndex};
use idempotency::Records;
use records::{Attempt, AttemptResult, Listing};

new_key_type! {
    /// Where a listing is kept.
    struct ListingKey;
    /// Where an attempt is kept.
    struct AttemptKey;
}

fn handle_of(key: impl Key) -> Handle {
    Handle(key.data().as_ffi())
}

fn key_at<K: From<KeyData>>(handle: Handle) -> K {
    KeyData::from_ffi(handle.0).into()
}

/// Listings and active attempts of one tenant and the records of both, for its quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TenantUse {
    listings: u32,
    attempts: u32,
    listing_records: u32,
    attempt_records: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    Serving,
    Draining { deadline: Instant },
    Drained,
}

/// The in-memory store of all authority.
pub struct MemoryStore {
    limits: Limits,
    instance: InstanceId,
    /// Makes ids nobody can guess: a keyed hash of a counter, so that one seed gives one history.
    id_key: MasterKey,
    ids_made: u64,
    drain: DrainState,
    listings: SlotMap<ListingKey, Listing>,
    attempts: SlotMap<AttemptKey, Attempt>,
    /// Public listings by tenant and protocol, browsed in the order of their ids.
    public: BTreeMap<(TenantId, Arc<str>), BTreeSet<ListingId>>,
    owned: BTreeMap<(TenantId, PrincipalId), BTreeSet<ListingId>>,
    slots: HashMap<(TenantId, String), ListingKey, ahash::RandomState>,
    join_codes: HashMap<(TenantId, JoinCode), ListingKey, ahash::RandomState>,
    tenants: HashMap<TenantId, TenantUse, ahash::RandomState>,
    /// Every active attempt under its listing.
    linked: BTreeSet<(ListingKey, AttemptKey)>,
    /// Those whose joiner is bound and whose host is not.
    waiting: BTreeSet<(ListingKey, AttemptKey)>,
    results: HashMap<AttemptId, AttemptResult, ahash::RandomState>,
    listing_records: Records<ListingId>,
    attempt_records: Records<AttemptId>,
    due: DueIndex,
    tallies: Tallies,
}

/// Gauges and counts kept along the way, so that nothing is scanned for them.
#[derive(Debug, Default)]
struct Tallies {
    presence_fresh: usize,
    listings_visible: usize,
    introductions: u64,
    introductions_replayed: u64,
    results_dropped: u64,
    attempt_reasons: AttemptReasonCounters,
    listings_high_water: usize,
    attempts_high_water: usize,
    results_high_water: usize,
}

impl MemoryStore {
    /// An empty store. `id_key` must be random for each instance: ids are unguessable by it.
    #[must_use]
    pub fn new(limits: Limits, instance: InstanceId, id_key: MasterKey) -> Self {
        Self {
            limits,
            instance,
            id_key,
            ids_made: 0,
            drain: DrainState::Serving,
            listings: SlotMap::with_key(),
            attempts: SlotMap::with_key(),
            public: BTreeMap::new(),
            owned: BTreeMap::new(),
            slots: HashMap::default(),
            join_codes: HashMap::default(),
            tenants: HashMap::default(),
            linked: BTreeSet::new(),
            waiting: BTreeSet::new(),
            results: HashMap::default(),
            listing_records: Records::new(limits.listing_records),
            attempt_records: Records::new(limits.attempt_records),
            due: DueIndex::default(),
            tallies: Tallies::default(),
        }
    }

    fn apply_one(&mut self, now: Instant, transition: &Transition) -> Reply {
        let result = match transition {
            Transition::RefreshPresence(it) => self.refresh_presence(now, it),
            Transition::EndPresence(it) => self.end_presence(now, it),
            Transition::Bind(it) => self.bind(now, it),
            Transition::Report(it) => self.report(now, it),
            Transition::RegisterListing(it) => self.register(now, it),
            Transition::RenewLease(it) => self.renew(now, it),
            Transition::DeleteListing(it) => self.delete(now, it),
            Transition::GetListing(it) => self.get(it),
            Transition::BrowseListings(it) => Ok(self.browse(it)),
            Transition::CreateAttempt(it) => self.create_attempt(now, it),
            Transition::GetAttempt(it) => self.get_attempt(it),
            Transition::ListPending(it) => self.list_pending(it),
            Transition::CancelAttempt(it) => self.cancel_attempt(now, it),
            Transition::Revoke(_) | Transition::ListRevocations(_) | Transition::LiftRevocation(_) => {
                Err(rendezvous_shared::outcome::Refusal::ServiceUnavailable)
            }
            Transition::BeginDrain(it) => Ok(self.begin_drain(now, it)),
            Transition::GetDrain => Ok(Reply::Drain(self.drain_view())),
        };
        result.unwrap_or_else(Reply::Refused)
    }

    /// A tag nobody can guess, the next of this instance.
    fn next_tag(&mut self) -> u64 {
        self.ids_made += 1;
        let [a, b, c, d, e, f, g, h, ..] = self.id_key.subkey("id", self.ids_made);
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    fn presence_key(&self, key: ListingKey, listing: &Listing) -> KeyId {
        KeyId::new(Role::Host, listing.tenant, self.instance, handle_of(key), listing.presence_key_expires)
    }

    fn joiner_key(&self, key: AttemptKey, attempt: &Attempt) -> KeyId {
        KeyId::new(Role::Joiner, attempt.tenant, self.instance, handle_of(key), attempt.joiner_key_expires)
    }

    fn tenant_use(&self, tenant: TenantId) -> TenantUse {
        self.tenants.get(&tenant).copied().unwrap_or_default()
    }

    fn pool(&self, pool: Pool) -> PoolUsage {
        let (used, limit, high_water) = match pool {
            Pool::Listings => (self.listings.len(), self.limits.listings, self.tallies.listings_high_water),
            Pool::Attempts => (self.attempts.len(), self.limits.attempts, self.tallies.attempts_high_water),
            Pool::ListingRecords => self.listing_records.usage(),
            Pool::AttemptRecords => self.attempt_records.usage(),
            Pool::Revocations => (0, self.limits.revocations, 0),
            Pool::AttemptResults => {
                (self.results.len(), self.limits.attempt_results, self.tallies.results_high_water)
            }
        };
        PoolUsage { pool, used, limit, high_water }
    }

    fn expire_one(&mut self, now: Instant, due: Due) {
        match due {
            Due::Listing(key) => self.expire_listing(now, key),
            Due::Attempt(key) => self.expire_attempt(now, key),
            Due::Result(id) => {
                self.results.remove(&id);
            }
            Due::ListingRecord(key) => {
                if self.listing_records.expire(now, key, &mut self.due, Due::ListingRecord) {
                    self.release_tenant(key.tenant(), |it| it.listing_records -= 1);
                }
            }
            Due::AttemptRecord(key) => {
                if self.attempt_records.expire(now, key, &mut self.due, Due::AttemptRecord) {
                    self.release_tenant(key.tenant(), |it| it.attempt_records -= 1);
                }
            }
        }
    }
}

impl EphemeralRendezvousStore for MemoryStore {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        self.expire(now);
        for transition in batch {
            let reply = self.apply_one(now, transition);
            replies.push(reply);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let drain = match self.drain {
            DrainState::Draining { deadline } => Some(deadline),
            DrainState::Serving | DrainState::Drained => None,
        };
        [drain, self.due.first()].into_iter().flatten().min()
    }

    fn expire(&mut self, now: Instant) {
        let drain_ends = match self.drain {
            DrainState::Draining { deadline } if deadline <= now => Some(deadline),
            _ => None,
        };
        // Each end happens at its own time, in order: what the store then holds does not depend on how often
        // it was looked at.
        while let Some((at, due)) = self.due.pop(drain_ends.unwrap_or(now)) {
            self.expire_one(at, due);
        }
        if drain_ends.is_some() {
            self.finish_drain();
        }
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            pools: [
                Pool::Listings,
                Pool::Attempts,
                Pool::ListingRecords,
                Pool::AttemptRecords,
                Pool::AttemptResults,
                Pool::Revocations,
            ]
            .map(|pool| self.pool(pool)),
            presence_fresh: self.tallies.presence_fresh,
            listings_visible: self.tallies.listings_visible,
            drain: self.drain_view(),
            attempt_reasons: self.tallies.attempt_reasons,
            introductions: self.tallies.introductions,
            introductions_replayed: self.tallies.introductions_replayed,
            results_dropped: self.tallies.results_dropped,
        }
    }
}
