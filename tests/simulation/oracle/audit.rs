//! Looking at the whole store at once: everything that was acknowledged is there, nothing else is, nothing is over a
//! ceiling.

use rendezvous_shared::id::PrincipalId;
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{
    BrowseListings, Caller, DrainView, EphemeralRendezvousStore, Filter, GetAttempt, GetListing,
    ListRevocations, ListingLocator, Reply, StoreStats, Transition,
};
use rendezvous_shared::time::Instant;

use super::{Oracle, broken};

/// Nobody's principal: a stranger who browses.
const STRANGER: PrincipalId = PrincipalId(9_999);

impl Oracle {
    /// After each round of the store: no pool is over its ceiling. Once the store has nothing more to give back at
    /// `now`, it is settled, and a drained one is empty.
    pub(crate) fn check_stats(&self, now: Instant, stats: &StoreStats, settled: bool) {
        for pool in &stats.pools {
            if pool.used > pool.limit || pool.high_water > pool.limit || pool.used > pool.high_water {
                broken("no pool grows over its ceiling", format_args!("{pool:?}"));
            }
        }
        if stats.introductions != self.introductions {
            broken("every introduction is counted once", format_args!("{stats:?} {}", self.introductions));
        }
        let [least, most] = self.joinable(now);
        if stats.presence_fresh < least || stats.presence_fresh > most {
            broken("the gauge of presences lags a tick", format_args!("{least} to {most} {stats:?}"));
        }
        if self.drained(now) != (stats.drain == DrainView::Drained) {
            broken("a drain ends at its deadline", format_args!("{:?} {stats:?}", self.drain));
        }
        if settled && self.drained(now) && stats.pools.iter().any(|it| it.used > 0) {
            broken("a drained store is empty", format_args!("{stats:?}"));
        }
    }

    /// Asks the store for everything there should be.
    pub(crate) fn audit(&mut self, now: Instant, store: &mut impl EphemeralRendezvousStore) {
        self.forget_listings(now);
        self.forget_attempts(now);
        let mut ask = |oracle: &mut Self, transition: Transition| {
            let mut replies = Vec::new();
            store.apply(now, core::slice::from_ref(&transition), &mut replies);
            let Some(reply) = replies.pop().filter(|_| replies.is_empty()) else {
                broken("one reply for each transition", format_args!("{transition:?}"));
            };
            oracle.on_reply(now, &transition, &reply);
            reply
        };
        let mut tenants = Vec::new();
        for (id, caller) in self.known_listings() {
            let caller = self.unbarred(now, caller);
            ask(self, Transition::GetListing(GetListing { caller, locator: ListingLocator::Id(id) }));
            tenants.push(caller.tenant);
        }
        for (attempt, caller) in self.known_attempts() {
            let caller = self.unbarred(now, caller);
            ask(self, Transition::GetAttempt(GetAttempt { caller, attempt }));
        }
        tenants.sort();
        tenants.dedup();
        for tenant in tenants {
            let caller = Caller { tenant, principal: STRANGER, operator: false };
            let wanted: Vec<_> = self.visible_public(now, caller, crate::world::PROTOCOL).collect();
            let mut shown = Vec::new();
            let mut after = None;
            loop {
                let browse = browse(caller, after, 2);
                let Reply::Page(page) = ask(self, browse) else { break };
                shown.extend(page.listings.iter().map(|it| it.id));
                after = page.next_after;
                if after.is_none() {
                    break;
                }
            }
            if shown != wanted {
                broken("browsing shows all that can be joined", format_args!("{shown:?} {wanted:?}"));
            }
            let caller = Caller { operator: true, ..caller };
            ask(self, Transition::ListRevocations(ListRevocations { caller, after: None, limit: 2 }));
        }
        if store.next_deadline().is_none_or(|at| at > now) {
            self.check_counts(now, &store.stats());
        }
    }

    /// Who may ask for all that `caller` may, though it be barred.
    fn unbarred(&self, now: Instant, caller: Caller) -> Caller {
        let operator = Caller { principal: STRANGER, operator: true, ..caller };
        if self.is_barred(now, caller) { operator } else { caller }
    }

    /// With all memory given back, the pools hold what lives, and every attempt ended once.
    fn check_counts(&self, now: Instant, stats: &StoreStats) {
        let used = |pool: Pool| stats.pools.iter().find(|it| it.pool == pool).map_or(0, |it| it.used);
        let attempts = self.attempts_live(now);
        // A drained store's records are those of nobody.
        let records = |count: usize| if self.drained(now) { 0 } else { count };
        for (pool, live) in [
            (Pool::Listings, self.listings_live(now)),
            (Pool::Attempts, attempts),
            (Pool::ListingRecords, records(self.listing_records_live(now))),
            (Pool::AttemptRecords, records(self.attempt_records_live(now))),
            (Pool::Revocations, self.revocations_live(now)),
        ] {
            if used(pool) != live {
                broken("pools hold what lives", format_args!("{pool:?} {live} {stats:?}"));
            }
        }
        let ended = stats.attempt_reasons.total();
        if ended + attempts as u64 != self.attempts_created {
            broken(
                "every attempt ends for one reason",
                format_args!("{} created {stats:?}", self.attempts_created),
            );
        }
    }
}

/// A page of what a stranger sees.
pub(crate) fn browse(
    caller: Caller,
    after: Option<rendezvous_shared::id::ListingId>,
    limit: usize,
) -> Transition {
    Transition::BrowseListings(Box::new(BrowseListings {
        caller,
        protocol: Some(crate::world::PROTOCOL.into()),
        owned: false,
        filter: Filter::default(),
        after,
        limit,
    }))
}
