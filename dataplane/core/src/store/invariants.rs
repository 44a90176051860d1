//! What must hold of the store between any two transitions; for tests, never on the serving path.

use std::collections::{BTreeMap, BTreeSet};

use rendezvous_shared::id::TenantId;
use rendezvous_shared::store::Visibility;
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::lanes::{Due, Lanes, Linked};
use super::records::{Listing, Standing};
use super::slab::{Slab, Slot};
use super::tenants::{Owned, Place, Published, Tenant};

impl MemoryStore {
    /// Checks every relation between the collections. Walks everything: for tests.
    ///
    /// # Panics
    /// Naming the relation that is broken.
    pub fn check_invariants(&self) {
        self.listings.check("listings");
        self.listings.check_passed(self.now);
        self.attempts.check("attempts");
        self.listing_records.check();
        self.attempt_records.check();
        self.results.check();
        self.revocations.check();
        self.check_listings();
        self.check_attempts();
        self.check_tenants();
        self.check_records();
        self.check_gauges();
    }

    fn check_listings(&self) {
        for (_, listing) in self.listings.iter().filter(|(_, it)| it.is_retired) {
            let over = listing.lease_deadline <= self.now || self.is_drained();
            assert!(over && listing.first_attempt().is_some(), "a listing was retired for nothing");
            assert_eq!(listing.joinable_until, Instant::ZERO, "a listing that was retired is joinable");
        }
        for (slot, listing) in self.filed_listings() {
            let tenant = &self.tenants[&listing.tenant];
            let place = Place::new(listing.tag, slot);
            assert!(tenant.owned.contains(&Owned { owner: listing.owner, place }), "owner index");
            let public = tenant.public.contains(&Published { protocol: listing.protocol, place });
            let visibility = listing.description.visibility();
            assert_eq!(public, visibility == Visibility::Public, "browse index");
            let number = tenant.protocols.get(listing.description.protocol()).map(|it| it.number);
            assert_eq!(number, Some(listing.protocol), "protocol number");
            let by_code = listing.join_code.map(|code| tenant.join_codes.get(&code) == Some(&slot));
            assert_eq!(by_code, (visibility == Visibility::Unlisted).then_some(true), "join code index");
            // A slot may have been taken over from a listing that is over.
            let holder = listing.description.slot().map(|name| tenant.slots.get(name).copied());
            let held_by_other = holder.flatten() != Some(slot);
            assert!(holder.is_none() || !held_by_other || listing.lease_deadline <= self.now, "slot index");
        }
        for (slot, listing) in self.listings.iter() {
            let lists = [
                (&listing.waiting, Standing::Waiting),
                (&listing.unbound, Standing::Unbound),
                (&listing.answered, Standing::Answered),
            ];
            for (list, standing) in lists {
                for attempt in list.iter(&self.attempts).map(|it| &self.attempts[it]) {
                    assert_eq!(attempt.listing, slot, "an attempt is in a strange list");
                    assert_eq!(attempt.standing(), standing, "an attempt is in the wrong list");
                }
            }
        }
    }

    /// Those that were not retired.
    fn filed_listings(&self) -> impl Iterator<Item = (Slot<Listing>, &Listing)> {
        self.listings.iter().filter(|(_, it)| !it.is_retired)
    }

    fn check_attempts(&self) {
        let linked = self.listings.iter().map(|(_, it)| it.all_attempts(&self.attempts).count());
        assert_eq!(linked.sum::<usize>(), self.attempts.len(), "an attempt is not linked to its listing");
        for (_, attempt) in self.attempts.iter() {
            assert!(
                self.listings.iter().any(|(slot, _)| slot == attempt.listing),
                "an attempt has no listing"
            );
            let both = attempt.host_side.is_some() && attempt.joiner_side.is_some();
            assert!(attempt.times.introduced.get().is_none() || both, "introduced without both roles bound");
        }
    }

    fn check_tenants(&self) {
        let used: BTreeSet<_> = self.listings.iter().map(|(_, it)| it.tenant).collect();
        let filed = self.filed_listings().count();
        assert_eq!(filed, self.listings.len(), "what was retired does not say so, or others do");
        let kept: BTreeSet<_> = self.tenants.keys().copied().collect();
        assert_eq!(kept, used, "names of a tenant that has nothing are kept, or others are not");
        for (&id, tenant) in &self.tenants {
            self.check_names(id, tenant);
        }
    }

    /// No index of a tenant holds more than its listings and attempts account for.
    fn check_names(&self, id: TenantId, tenant: &Tenant) {
        let of_tenant = || self.filed_listings().filter(|(_, it)| it.tenant == id);
        let public = of_tenant().filter(|(_, it)| it.description.visibility() == Visibility::Public);
        let public = public.count();
        assert_eq!(tenant.owned.len(), of_tenant().count(), "owner index");
        assert_eq!(tenant.public.len(), public, "browse index");
        assert_eq!(tenant.join_codes.len(), tenant.owned.len() - public, "join code index");
        for (name, &slot) in &tenant.slots {
            let holder = of_tenant().find(|&(it, _)| it == slot).and_then(|(_, it)| it.description.slot());
            assert_eq!(holder, Some(&**name), "a slot is held by nobody");
        }
        let mut protocols = BTreeMap::<_, u32>::new();
        of_tenant().for_each(|(_, it)| *protocols.entry(it.description.protocol()).or_default() += 1);
        assert_eq!(tenant.protocol_use(), protocols, "protocols are miscounted");
        let mut principals = BTreeMap::<_, (u32, BTreeSet<Slot<_>>)>::new();
        of_tenant().for_each(|(_, it)| principals.entry(it.owner).or_default().0 += 1);
        for (slot, attempt) in self.attempts.iter().filter(|(_, it)| it.tenant == id) {
            principals.entry(attempt.joiner).or_default().1.insert(slot);
        }
        let kept = tenant.principals.iter();
        let kept = kept.map(|(&id, it)| (id, (it.listings, it.joined.iter(&self.attempts).collect())));
        assert_eq!(kept.collect::<BTreeMap<_, _>>(), principals, "what principals have is miscounted");
    }

    /// A record outlives what it stands for, or a retry could be executed twice. It may go before what is over and
    /// not worked off.
    fn check_records(&self) {
        let now = self.now;
        let of_listings = self.listing_records.all();
        for (slot, listing) in self.listings.iter().filter(|(_, it)| it.lease_deadline > now) {
            let record = &of_listings[listing.record];
            assert_eq!(record.target(), self.listings.handle(slot), "a listing's record is another's");
            assert!(record.deadline() > listing.lease_deadline, "a listing outlives its record");
        }
        let of_attempts = self.attempt_records.all();
        let live = |listing: Slot<_>| self.listings[listing].lease_deadline > now;
        let attempts = self.attempts.iter().filter(|(_, it)| it.deadline > now && live(it.listing));
        for (slot, attempt) in attempts {
            let record = &of_attempts[attempt.record];
            assert_eq!(record.target(), self.attempts.handle(slot), "an attempt's record is another's");
            assert!(record.deadline() > attempt.deadline, "an attempt outlives its record");
        }
    }

    fn check_gauges(&self) {
        for (_, listing) in self.filed_listings() {
            assert_eq!(listing.joinable_until, listing.joinable_until(), "joinable for another time");
        }
        let present = self.listings.iter().filter(|(_, it)| self.present.counts(it.joinable_until));
        assert_eq!(self.present.get(), present.count(), "presence_fresh is miscounted");
        let visible = self.listings.iter().filter(|(_, it)| {
            it.description.visibility() == Visibility::Public && self.visible.counts(it.joinable_until)
        });
        assert_eq!(self.visible.get(), visible.count(), "listings_visible is miscounted");
    }
}

/// Each object of `slab` that is `wanted` is filed exactly once, in its own lane, and each lane is in order.
pub(super) fn check_lanes<T: Due + Linked<L>, L>(
    what: &str,
    slab: &Slab<T>,
    lanes: &Lanes<T, L>,
    wanted: impl Fn(Slot<T>, &T) -> bool,
) {
    let mut filed = BTreeSet::new();
    let mut before = None;
    for (lane, slot) in lanes.filed(slab) {
        assert_eq!(slab[slot].lane(), lane, "{what}: filed in another lane");
        assert!(filed.insert(slot), "{what}: filed twice");
        let deadline = slab[slot].deadline();
        assert!(before.is_none_or(|(of, at)| of != lane || at <= deadline), "{what}: a lane is out of order");
        before = Some((lane, deadline));
    }
    let all: BTreeSet<_> = slab.iter().filter(|&(slot, it)| wanted(slot, it)).map(|(slot, _)| slot).collect();
    assert_eq!(filed, all, "{what}: not all are filed, or others are");
    lanes.check(slab, what);
}
