//! [`NaiveStore`]: the store of all authority, as stupid as it can be, to compare the real one with.
//!
//! Plain vectors in the order things were made, linear scans, no index, no count kept beside what it counts. What is
//! due is removed at the start of each call, in order of time, each at its own time. It is right if each function
//! reads like the sentence it stands for; how fast it is does not matter.
//!
//! At one instant presences end first, then leases, attempts, results, records, revocations, and the drain last.

mod attempts;
mod datagrams;
mod expiry;
mod introduction;
mod listings;
mod records;
mod revocations;

use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::id::{AttemptId, Handle, ListingId};
use rendezvous_shared::limits::Limits;
use rendezvous_shared::outcome::{Pool, Refusal};
use rendezvous_shared::store::{
    AttemptReasonCounters, Caller, DrainView, EphemeralRendezvousStore, PoolUsage, Reply, Reporter,
    StoreStats, Transition, Visibility,
};
use rendezvous_shared::time::Instant;

use records::{Attempt, Ended, Listing, Record, Revocation};

const POOLS: [Pool; 6] = [
    Pool::Listings,
    Pool::Attempts,
    Pool::ListingRecords,
    Pool::AttemptRecords,
    Pool::AttemptResults,
    Pool::Revocations,
];

/// The store as its description reads.
#[derive(Clone, Debug)]
pub struct NaiveStore {
    limits: Limits,
    /// The time of the call that is under way.
    now: Instant,
    /// Things made so far: the next handle, and the order of bindings.
    made: u64,
    drain: Drain,
    listings: Vec<Listing>,
    attempts: Vec<Attempt>,
    results: Vec<Ended>,
    listing_records: Vec<Record<ListingId>>,
    attempt_records: Vec<Record<AttemptId>>,
    revocations: Vec<Revocation>,
    high_water: [usize; 6],
    attempt_reasons: AttemptReasonCounters,
    introductions: u64,
    introductions_replayed: u64,
    results_dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    Serving,
    Until(Instant),
    Drained,
}

/// A listing that can be joined, for the gauges of the real store that may lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshListing {
    /// Its id.
    pub id: ListingId,
    /// Whether it can be browsed.
    pub public: bool,
    /// When it will be joinable no more, if nothing happens.
    pub until: Instant,
}

impl NaiveStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            now: Instant::ZERO,
            made: 0,
            drain: Drain::Serving,
            listings: Vec::new(),
            attempts: Vec::new(),
            results: Vec::new(),
            listing_records: Vec::new(),
            attempt_records: Vec::new(),
            revocations: Vec::new(),
            high_water: [0; 6],
            attempt_reasons: AttemptReasonCounters::new(),
            introductions: 0,
            introductions_replayed: 0,
            results_dropped: 0,
        }
    }

    /// The listings that can be joined at the time of the last call.
    #[must_use]
    pub fn fresh_listings(&self) -> Vec<FreshListing> {
        let fresh = self.listings.iter().filter(|it| it.is_joinable(self.now));
        let fresh = fresh.map(|it| FreshListing {
            id: it.id,
            public: it.description.visibility() == Visibility::Public,
            until: it
                .deadline
                .min(it.presence.iter().flatten().map(|it| it.deadline).max().unwrap_or(self.now)),
        });
        fresh.collect()
    }

    fn apply_one(&mut self, transition: &Transition) -> Reply {
        if caller_of(transition).is_some_and(|caller| self.is_barred(caller)) {
            return Reply::Refused(Refusal::Revoked);
        }
        let result = match transition {
            Transition::RefreshPresence(it) => self.refresh_presence(it),
            Transition::EndPresence(it) => self.end_presence(it),
            Transition::Bind(it) => self.bind(it),
            Transition::Remind(it) => Ok(Reply::Reminded(self.reminder(it))),
            Transition::Report(it) => self.report(it),
            Transition::RegisterListing(it) => self.register(it),
            Transition::RenewLease(it) => self.renew(it),
            Transition::DeleteListing(it) => self.delete(it),
            Transition::GetListing(it) => self.get(it),
            Transition::BrowseListings(it) => Ok(self.browse(it)),
            Transition::CreateAttempt(it) => self.create_attempt(it),
            Transition::GetAttempt(it) => self.get_attempt(it),
            Transition::ListPending(it) => self.list_pending(it),
            Transition::CancelAttempt(it) => self.cancel_attempt(it),
            Transition::Revoke(it) => self.revoke(it),
            Transition::ListRevocations(it) => self.list_revocations(it),
            Transition::LiftRevocation(it) => self.lift_revocation(it),
            Transition::BeginDrain(it) => Ok(self.begin_drain(it)),
            Transition::GetDrain => Ok(Reply::Drain(self.drain_view())),
        };
        self.note_high_water();
        result.unwrap_or_else(Reply::Refused)
    }

    /// A tag and a handle that were never used before. In the order of their ids things are not in order of age.
    fn next_id(&mut self) -> (u64, Handle) {
        self.made += 1;
        (self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15), Handle(self.made))
    }

    fn listing(&self, id: ListingId) -> Option<&Listing> {
        self.listings.iter().find(|it| it.id == id)
    }

    fn listing_mut(&mut self, id: ListingId) -> Option<&mut Listing> {
        self.listings.iter_mut().find(|it| it.id == id)
    }

    fn listing_of_key(&self, key: KeyId) -> Option<&Listing> {
        self.listings.iter().find(|it| it.key() == key)
    }

    fn attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.attempts.iter().find(|it| it.id == id)
    }

    fn attempt_mut(&mut self, id: AttemptId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|it| it.id == id)
    }

    fn result(&self, id: AttemptId) -> Option<&Ended> {
        self.results.iter().find(|it| it.view.id == id)
    }

    fn held(&self, pool: Pool) -> (usize, usize) {
        match pool {
            Pool::Listings => (self.listings.len(), self.limits.listings),
            Pool::Attempts => (self.attempts.len(), self.limits.attempts),
            Pool::ListingRecords => (self.listing_records.len(), self.limits.listing_records),
            Pool::AttemptRecords => (self.attempt_records.len(), self.limits.attempt_records),
            Pool::AttemptResults => (self.results.len(), self.limits.attempt_results),
            Pool::Revocations => (self.revocations.len(), self.limits.revocations),
        }
    }

    fn refuse_when_full(&self, pool: Pool) -> Result<(), Refusal> {
        let (used, limit) = self.held(pool);
        if used < limit { Ok(()) } else { Err(Refusal::CapacityExceeded(pool)) }
    }

    fn note_high_water(&mut self) {
        for (index, pool) in POOLS.into_iter().enumerate() {
            self.high_water[index] = self.high_water[index].max(self.held(pool).0);
        }
    }

    fn drain_view(&self) -> DrainView {
        match self.drain {
            Drain::Serving => DrainView::Serving,
            Drain::Until(deadline) => DrainView::Draining { deadline, attempts: self.attempts.len() },
            Drain::Drained => DrainView::Drained,
        }
    }

    /// Refuses what would begin something new.
    fn refuse_while_draining(&self) -> Result<(), Refusal> {
        match self.drain {
            Drain::Serving => Ok(()),
            Drain::Until(deadline) => Err(Refusal::Draining { remaining: deadline.since(self.now) }),
            Drain::Drained => Err(Refusal::Draining { remaining: Duration::ZERO }),
        }
    }

    fn refuse_when_drained(&self) -> Result<(), Refusal> {
        match self.drain {
            Drain::Drained => Err(Refusal::Draining { remaining: Duration::ZERO }),
            Drain::Serving | Drain::Until(_) => Ok(()),
        }
    }
}

/// The caller of a transition over HTTP.
fn caller_of(transition: &Transition) -> Option<Caller> {
    match transition {
        Transition::Report(it) => match it.reporter {
            Reporter::Caller(caller) => Some(caller),
            Reporter::Datagram(_) => None,
        },
        Transition::RegisterListing(it) => Some(it.caller),
        Transition::RenewLease(it) => Some(it.caller),
        Transition::DeleteListing(it) => Some(it.caller),
        Transition::GetListing(it) => Some(it.caller),
        Transition::BrowseListings(it) => Some(it.caller),
        Transition::CreateAttempt(it) => Some(it.caller),
        Transition::GetAttempt(it) => Some(it.caller),
        Transition::ListPending(it) => Some(it.caller),
        Transition::CancelAttempt(it) => Some(it.caller),
        Transition::Revoke(it) => Some(it.caller),
        Transition::ListRevocations(it) => Some(it.caller),
        Transition::LiftRevocation(it) => Some(it.caller),
        Transition::RefreshPresence(_)
        | Transition::EndPresence(_)
        | Transition::Bind(_)
        | Transition::Remind(_)
        | Transition::BeginDrain(_)
        | Transition::GetDrain => None,
    }
}

/// Whole seconds, not fewer than asked for, within `min..=max`.
fn granted(wanted: Duration, min: Duration, max: Duration) -> Duration {
    let seconds = wanted.as_secs().saturating_add(u64::from(wanted.subsec_nanos() > 0));
    Duration::from_secs(seconds).clamp(min, max)
}

impl EphemeralRendezvousStore for NaiveStore {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        self.expire(now);
        for transition in batch {
            let reply = self.apply_one(transition);
            replies.push(reply);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadlines().into_iter().min()
    }

    fn expire(&mut self, now: Instant) {
        self.now = now;
        self.remove_what_is_due();
    }

    fn stats(&self) -> StoreStats {
        let fresh = self.fresh_listings();
        let mut high_water = self.high_water.into_iter();
        StoreStats {
            pools: POOLS.map(|pool| {
                let (used, limit) = self.held(pool);
                PoolUsage { pool, used, limit, high_water: high_water.next().unwrap_or(0) }
            }),
            presence_fresh: fresh.len(),
            listings_visible: fresh.iter().filter(|it| it.public).count(),
            drain: self.drain_view(),
            attempt_reasons: self.attempt_reasons,
            introductions: self.introductions,
            introductions_replayed: self.introductions_replayed,
            results_dropped: self.results_dropped,
        }
    }
}
