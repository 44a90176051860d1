//! What must hold of the store between any two transitions; for tests, never on the serving path.

use std::collections::{BTreeMap, BTreeSet};

use rendezvous_shared::store::Visibility;
use rendezvous_shared::time::Instant;

use super::due::Due;
use super::idempotency::RecordKey;
use super::{MemoryStore, TenantUse};

impl MemoryStore {
    /// Checks every relation between the collections. Walks everything: for tests.
    ///
    /// # Panics
    /// Naming the relation that is broken.
    pub fn check_invariants(&self) {
        self.check_pools();
        self.check_listings();
        self.check_attempts();
        self.check_due();
        self.check_records();
    }

    fn check_pools(&self) {
        assert!(self.listings.len() <= self.limits.listings, "listings over their ceiling");
        assert!(self.attempts.len() <= self.limits.attempts, "attempts over their ceiling");
        assert!(self.results.len() <= self.limits.attempt_results, "results over their ceiling");
        for (used, limit, _) in [self.listing_records.usage(), self.attempt_records.usage()] {
            assert!(used <= limit, "idempotency records over their ceiling");
        }
        let mut tenants = BTreeMap::<_, TenantUse>::new();
        self.listings.values().for_each(|it| tenants.entry(it.tenant).or_default().listings += 1);
        self.attempts.values().for_each(|it| tenants.entry(it.tenant).or_default().attempts += 1);
        for (key, ..) in self.listing_records.filings() {
            tenants.entry(key.tenant()).or_default().listing_records += 1;
        }
        for (key, ..) in self.attempt_records.filings() {
            tenants.entry(key.tenant()).or_default().attempt_records += 1;
        }
        let kept: BTreeMap<_, _> = self.tenants.iter().map(|(&tenant, &usage)| (tenant, usage)).collect();
        assert_eq!(kept, tenants, "what tenants use is miscounted");
    }

    fn check_listings(&self) {
        let ids = |index: &BTreeSet<_>| index.len();
        let public = self.listings.values().filter(|it| it.description.visibility() == Visibility::Public);
        assert_eq!(self.public.values().map(ids).sum::<usize>(), public.clone().count(), "browse index");
        assert_eq!(self.owned.values().map(ids).sum::<usize>(), self.listings.len(), "owner index");
        let slotted = self.listings.values().filter(|it| it.description.slot().is_some()).count();
        assert_eq!(self.slots.len(), slotted, "slot index");
        let unlisted = self.listings.len() - public.clone().count();
        assert_eq!(self.join_codes.len(), unlisted, "join code index");
        let fresh = self.listings.values().filter(|it| it.is_joinable()).count();
        assert_eq!(self.tallies.presence_fresh, fresh, "presence_fresh is miscounted");
        let visible = public.filter(|it| it.is_joinable()).count();
        assert_eq!(self.tallies.listings_visible, visible, "listings_visible is miscounted");
        for (key, listing) in &self.listings {
            assert_eq!(self.find_listing(listing.id), Some(key), "a listing's id does not find it");
        }
    }

    fn check_attempts(&self) {
        assert_eq!(self.linked.len(), self.attempts.len(), "an attempt is not linked, or a dead one is");
        for (key, attempt) in &self.attempts {
            let pair = (attempt.listing, key);
            assert!(self.listings.contains_key(attempt.listing), "an attempt outlives its listing");
            assert!(self.linked.contains(&pair), "an attempt is not linked to its listing");
            let waits = attempt.joiner_side.is_some() && attempt.host_side.is_none();
            assert_eq!(self.waiting.contains(&pair), waits, "the waiting index is wrong");
            let both = attempt.host_side.is_some() && attempt.joiner_side.is_some();
            assert!(attempt.times.introduced.is_none() || both, "introduced without both roles bound");
        }
        assert!(self.waiting.is_subset(&self.linked), "a dead attempt waits");
    }

    fn check_due(&self) {
        let records = self.listing_records.usage().0 + self.attempt_records.usage().0;
        let objects = self.listings.len() + self.attempts.len() + self.results.len() + records;
        assert_eq!(self.due.len(), objects, "each object is filed exactly once");
        for (key, listing) in &self.listings {
            assert!(self.due.contains(listing.filed, Due::Listing(key)), "a listing is filed elsewhere");
            assert!(listing.filed <= listing.due(), "a listing surfaces too late");
        }
        for (key, attempt) in &self.attempts {
            assert!(self.due.contains(attempt.filed, Due::Attempt(key)), "an attempt is filed elsewhere");
            assert!(attempt.filed <= attempt.deadline, "an attempt surfaces too late");
        }
        for (key, filed, deadline) in self.listing_records.filings() {
            assert!(self.due.contains(filed, Due::ListingRecord(key)) && filed <= deadline, "listing record");
        }
        for (key, filed, deadline) in self.attempt_records.filings() {
            assert!(self.due.contains(filed, Due::AttemptRecord(key)) && filed <= deadline, "attempt record");
        }
    }

    /// A record outlives what it stands for, or a retry could be executed twice.
    fn check_records(&self) {
        let deadlines = |filings: &mut dyn Iterator<Item = (RecordKey, Instant, Instant)>| {
            filings.map(|(key, _, deadline)| (key, deadline)).collect::<BTreeMap<_, _>>()
        };
        let of_listings = deadlines(&mut self.listing_records.filings());
        for listing in self.listings.values() {
            let outlived = of_listings.get(&listing.record).is_some_and(|&it| it > listing.lease_deadline);
            assert!(outlived, "a listing outlives its record");
        }
        let of_attempts = deadlines(&mut self.attempt_records.filings());
        for attempt in self.attempts.values() {
            let outlived = of_attempts.get(&attempt.record).is_some_and(|&it| it > attempt.deadline);
            assert!(outlived, "an attempt outlives its record");
        }
    }
}
