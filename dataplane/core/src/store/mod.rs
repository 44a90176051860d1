//! [`MemoryStore`]: every listing, presence, attempt and record in one place, changed by one caller at a time.
//!
//! **A thing is over from its deadline on**, whether or not it was taken apart yet: everybody who looks one up
//! compares its deadline with now, and to end it early is to move its deadline to now. Taking it apart is *working
//! off*: a bounded number of things in each call, so that ten thousand that end in one instant are no pause. Where a
//! pool or quota looks full, what is over in just that pool or quota is worked off first; the lanes name it.
//!
//! Objects lie in slabs with generation-checked handles; an id contains its handle, so nothing a stranger chose is
//! hashed to find an object.

mod ahead;
mod attempts;
mod bind;
mod browse;
mod drain;
mod ends;
mod expiring;
mod footprint;
mod fresh;
mod freshness;
mod idempotency;
mod invariants;
mod lanes;
mod listings;
mod presence;
mod records;
mod reminders;
mod results;
mod revocations;
mod slab;
mod story;
mod tenants;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::HashMap;

use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::id::{InstanceId, Role, TenantId};
use rendezvous_shared::limits::{BATCH_LEN_MAX, Limits};
use rendezvous_shared::outcome::{Pool, Refusal};
use rendezvous_shared::store::{
    AttemptReasonCounters, EphemeralRendezvousStore, PoolUsage, Reply, StoreStats, Transition,
};
use rendezvous_shared::time::Instant;
use siphasher::sip::SipHasher24;

pub use footprint::{Footprint, footprint};

use drain::DrainState;
use expiring::Expiring;
use fresh::FreshCount;
use idempotency::Records;
use records::{Attempt, Listing};
use results::Results;
use revocations::Revocations;
use slab::Slot;
use tenants::Tenant;

/// How much of what is over is worked off along with other work. What the store answers does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Things for each transition of a batch.
    pub per_transition: usize,
    /// Things for each call of [`EphemeralRendezvousStore::expire`].
    pub per_call: usize,
}

impl Pace {
    /// More for each transition than one can make (an object and its record), so that what is over never piles up; and
    /// in each call what takes as long as a few batches of datagrams.
    pub const DEFAULT: Self = Self { per_transition: 4, per_call: 2 * BATCH_LEN_MAX };
}

/// Listings that are over and are kept for their attempts, beyond the ceiling of listings. As many as four batches that
/// ask for nothing but places for new ones can make, in which the attempts of most are worked off.
const RETIRED_MAX: usize = 4 * BATCH_LEN_MAX;

/// The in-memory store of all authority.
#[derive(Debug)]
pub struct MemoryStore {
    limits: Limits,
    pace: Pace,
    instance: InstanceId,
    /// Makes ids nobody can guess: a keyed hash of a counter, so that one seed gives one history.
    tags: Tags,
    ids_made: u64,
    /// The latest time it was told.
    now: Instant,
    drain: DrainState,
    tenants: HashMap<TenantId, Box<Tenant>, ahash::RandomState>,
    listings: Expiring<Listing>,
    attempts: Expiring<Attempt>,
    /// Listings whose attempts were settled in this batch.
    settled: Vec<Slot<Listing>>,
    results: Results,
    listing_records: Records<Listing>,
    attempt_records: Records<Attempt>,
    revocations: Revocations,
    /// Listings with a fresh presence, and public ones among them.
    present: FreshCount,
    visible: FreshCount,
    tallies: Tallies,
}

/// A keyed hash.
struct Tags(SipHasher24);

impl Tags {
    fn new(key: &MasterKey) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&key.subkey("id", 0)[..16]);
        Self(SipHasher24::new_with_key(&half))
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        self.0.hash(bytes)
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tags(..)")
    }
}

/// Counts kept along the way.
#[derive(Debug, Default)]
struct Tallies {
    introductions: u64,
    introductions_replayed: u64,
    attempt_reasons: AttemptReasonCounters,
}

impl MemoryStore {
    /// An empty store. `id_key` must be random for each instance: ids are unguessable by it.
    #[must_use]
    pub fn new(limits: Limits, instance: InstanceId, id_key: MasterKey) -> Self {
        Self::with_pace(limits, instance, id_key, Pace::DEFAULT)
    }

    /// An empty store that works off at another pace.
    #[must_use]
    pub fn with_pace(limits: Limits, instance: InstanceId, id_key: MasterKey, pace: Pace) -> Self {
        Self {
            limits,
            pace,
            instance,
            tags: Tags::new(&id_key),
            ids_made: 0,
            now: Instant::ZERO,
            drain: DrainState::Serving,
            tenants: HashMap::default(),
            listings: Expiring::with_places_for_retired(limits.listings, RETIRED_MAX),
            attempts: Expiring::new(limits.attempts),
            settled: Vec::with_capacity(BATCH_LEN_MAX),
            results: Results::new(limits.attempt_results),
            listing_records: Records::new(limits.listing_records),
            attempt_records: Records::new(limits.attempt_records),
            revocations: Revocations::new(limits.revocations),
            present: FreshCount::new(),
            visible: FreshCount::new(),
            tallies: Tallies::default(),
        }
    }

    fn apply_one(&mut self, now: Instant, transition: &Transition) -> Reply {
        if self.is_drained() {
            return drain::when_drained(transition);
        }
        if let Some(caller) = transition.caller()
            && self.revocations.bars_principal(now, caller)
        {
            return Reply::Refused(Refusal::Revoked);
        }
        let result = match transition {
            Transition::RefreshPresence(it) => self.refresh_presence(now, it),
            Transition::EndPresence(it) => self.end_presence(now, it),
            Transition::Bind(it) => self.bind(now, it),
            Transition::Remind(it) => Ok(self.remind(now, it)),
            Transition::Report(it) => self.report(now, it),
            Transition::RegisterListing(it) => self.register(now, it),
            Transition::RenewLease(it) => self.renew(now, it),
            Transition::DeleteListing(it) => self.delete(now, it),
            Transition::GetListing(it) => self.get(now, it),
            Transition::BrowseListings(it) => Ok(self.browse(now, it)),
            Transition::CreateAttempt(it) => self.create_attempt(now, it),
            Transition::GetAttempt(it) => self.get_attempt(now, it),
            Transition::ListPending(it) => self.list_pending(now, it),
            Transition::CancelAttempt(it) => self.cancel_attempt(now, it),
            Transition::Revoke(it) => self.revoke(now, it),
            Transition::ListRevocations(it) => self.list_revocations(now, it),
            Transition::LiftRevocation(it) => self.lift_revocation(now, it),
            Transition::BeginDrain(it) => Ok(self.begin_drain(now, it)),
            Transition::GetDrain => Ok(Reply::Drain(self.drain_view())),
        };
        result.unwrap_or_else(Reply::Refused)
    }

    /// A tag nobody can guess, the next of this instance.
    fn next_tag(&mut self) -> u64 {
        self.ids_made += 1;
        self.tags.hash(&self.ids_made.to_be_bytes())
    }

    fn presence_key(&self, slot: Slot<Listing>) -> KeyId {
        let listing = &self.listings[slot];
        let handle = self.listings.handle(slot);
        KeyId::new(Role::Host, listing.tenant, self.instance, handle, listing.presence_key_expires)
    }

    fn joiner_key(&self, slot: Slot<Attempt>) -> KeyId {
        let attempt = &self.attempts[slot];
        let handle = self.attempts.handle(slot);
        KeyId::new(Role::Joiner, attempt.tenant, self.instance, handle, attempt.joiner_key_expires())
    }

    /// Does what must be done before anybody is served at `now`; returns the time that counts, which never goes back.
    fn advance(&mut self, now: Instant) -> Instant {
        let now = now.max(self.now);
        self.now = now;
        self.present.advance(now);
        self.visible.advance(now);
        self.drain_when_due(now);
        now
    }

    /// What each pool holds; what is over and not worked off is counted.
    fn pool(&self, pool: Pool) -> PoolUsage {
        fn usage<T>(it: &Expiring<T>) -> (usize, usize, usize) {
            (it.len(), it.limit(), it.high_water())
        }
        let (used, limit, high_water) = match pool {
            Pool::Listings => usage(&self.listings),
            Pool::Attempts => usage(&self.attempts),
            Pool::ListingRecords => usage(self.listing_records.all()),
            Pool::AttemptRecords => usage(self.attempt_records.all()),
            Pool::AttemptResults => self.results.usage(),
            Pool::Revocations => self.revocations.usage(),
        };
        PoolUsage { pool, used, limit, high_water }
    }
}

impl EphemeralRendezvousStore for MemoryStore {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        let now = self.advance(now);
        self.work_off(now, self.pace.per_transition * batch.len());
        self.look_ahead(batch);
        self.settled.clear();
        for transition in batch {
            let reply = self.apply_one(now, transition);
            replies.push(reply);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline_of_all()
    }

    fn expire(&mut self, now: Instant) {
        let now = self.advance(now);
        self.work_off(now, self.pace.per_call);
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
            presence_fresh: if self.is_drained() { 0 } else { self.present.get() },
            listings_visible: if self.is_drained() { 0 } else { self.visible.get() },
            drain: self.drain_view(),
            attempt_reasons: self.tallies.attempt_reasons,
            introductions: self.tallies.introductions,
            introductions_replayed: self.tallies.introductions_replayed,
            results_dropped: self.results.dropped,
        }
    }
}
