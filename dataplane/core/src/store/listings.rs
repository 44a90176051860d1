//! Listings: register, renew, delete, get, and the end of their lease.

use rendezvous_shared::id::{JoinCode, ListingId};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    Caller, DeleteListing, GetListing, LeaseGrant, ListingGrant, ListingLocator, ListingView,
    RegisterListing, RenewLease, Reply, Visibility,
};
use rendezvous_shared::time::Instant;

use super::due::Due;
use super::idempotency::RecordKey;
use super::records::Listing;
use super::{AttemptKey, ListingKey, MemoryStore, handle_of, key_at};

impl MemoryStore {
    pub(super) fn register(&mut self, now: Instant, request: &RegisterListing) -> Result<Reply, Refusal> {
        let record = RecordKey::new(request.caller, request.idempotency);
        if let Some(id) = self.listing_records.find(record, request.idempotency.fingerprint)? {
            let key = self.find_listing(id).ok_or(Refusal::Expired)?;
            return Ok(Reply::Registered(Box::new(self.grant(key, request.caller, true))));
        }
        self.refuse_while_draining(now)?;
        let replaced = self.slot_holder(request)?;
        self.check_registration(request, replaced)?;
        if let Some(key) = replaced {
            self.remove_listing(now, key, AttemptReason::ListingGone);
        }
        let key = self.insert_listing(now, request, record);
        Ok(Reply::Registered(Box::new(self.grant(key, request.caller, false))))
    }

    /// The listing that a registration under the same slot would replace.
    fn slot_holder(&self, request: &RegisterListing) -> Result<Option<ListingKey>, Refusal> {
        let Some(slot) = request.description.slot() else { return Ok(None) };
        let holder = self.slots.get(&(request.caller.tenant, slot.to_owned())).copied();
        match holder.and_then(|key| self.listings.get(key)) {
            Some(listing) if listing.owner != request.caller.principal => {
                Err(Refusal::Conflict(ConflictReason::SlotTaken))
            }
            _ => Ok(holder),
        }
    }

    /// Every quota and capacity the registration needs, before anything changes.
    fn check_registration(
        &self,
        request: &RegisterListing,
        replaced: Option<ListingKey>,
    ) -> Result<(), Refusal> {
        let freed = u32::from(replaced.is_some());
        let caller = request.caller;
        let owned =
            self.owned.get(&(caller.tenant, caller.principal)).map_or(0, |ids| ids.len() as u32) - freed;
        let in_tenant = self.tenant_use(caller.tenant);
        let share = self.listing_records.share(request.quotas.listings_per_tenant, self.limits.listings);
        if owned >= request.quotas.listings_per_owner {
            return Err(Refusal::QuotaExceeded(QuotaScope::Owner));
        }
        if in_tenant.listings - freed >= request.quotas.listings_per_tenant
            || in_tenant.listing_records >= share
        {
            return Err(Refusal::QuotaExceeded(QuotaScope::Tenant));
        }
        if self.listings.len() - freed as usize >= self.limits.listings {
            return Err(Refusal::CapacityExceeded(Pool::Listings));
        }
        if self.listing_records.is_full() {
            return Err(Refusal::CapacityExceeded(Pool::ListingRecords));
        }
        Ok(())
    }

    fn insert_listing(&mut self, now: Instant, request: &RegisterListing, record: RecordKey) -> ListingKey {
        let caller = request.caller;
        let description = &request.description;
        let tag = self.next_tag();
        let join_code =
            (description.visibility() == Visibility::Unlisted).then(|| self.unused_join_code(caller));
        let lease_deadline = now.after(request.lease);
        let key = self.listings.insert_with_key(|key| Listing {
            id: ListingId::new(tag, handle_of(key)),
            tenant: caller.tenant,
            owner: caller.principal,
            description: description.clone(),
            join_code,
            lease_version: 1,
            lease_lifetime: request.lease,
            lease_deadline,
            first_lease: (request.lease, lease_deadline),
            presence_key_expires: now.after(limits::PRESENCE_KEY_LIFETIME),
            presence: [None; 2],
            freshness: [None; 2],
            record,
            filed: lease_deadline,
        });
        let id = self.listings[key].id;
        self.due.file(lease_deadline, Due::Listing(key));
        if description.visibility() == Visibility::Public {
            self.public.entry((caller.tenant, description.protocol().into())).or_default().insert(id);
        }
        self.owned.entry((caller.tenant, caller.principal)).or_default().insert(id);
        if let Some(slot) = description.slot() {
            self.slots.insert((caller.tenant, slot.to_owned()), key);
        }
        if let Some(code) = join_code {
            self.join_codes.insert((caller.tenant, code), key);
        }
        let usage = self.tenants.entry(caller.tenant).or_default();
        usage.listings += 1;
        usage.listing_records += 1;
        let fingerprint = request.idempotency.fingerprint;
        self.listing_records.insert(
            record,
            fingerprint,
            id,
            lease_deadline,
            (&mut self.due, Due::ListingRecord),
        );
        self.tallies.listings_high_water = self.tallies.listings_high_water.max(self.listings.len());
        key
    }

    /// 40 bits with at most a million listings: a second try is rare, a third practically unheard of.
    fn unused_join_code(&mut self, caller: Caller) -> JoinCode {
        loop {
            let code = JoinCode::from_random(self.next_tag());
            if !self.join_codes.contains_key(&(caller.tenant, code)) {
                return code;
            }
        }
    }

    pub(super) fn renew(&mut self, now: Instant, request: &RenewLease) -> Result<Reply, Refusal> {
        self.refuse_while_draining(now)?;
        let key = self.owned_listing(request.caller, request.listing)?;
        let listing = &mut self.listings[key];
        if listing.lease_version != request.version {
            return Err(Refusal::StaleVersion { latest: listing.lease_version });
        }
        listing.lease_version += 1;
        listing.lease_lifetime = request.lease.unwrap_or(listing.lease_lifetime);
        listing.lease_deadline = now.after(listing.lease_lifetime);
        if listing.presence_key_expires.since(now) < limits::PRESENCE_KEY_LIFETIME / 2 {
            listing.presence_key_expires = now.after(limits::PRESENCE_KEY_LIFETIME);
        }
        let due = listing.due();
        self.due.hasten(&mut listing.filed, due, Due::Listing(key));
        self.listing_records.prolong(listing.record, listing.lease_deadline);
        Ok(Reply::Renewed(self.lease(key)))
    }

    pub(super) fn delete(&mut self, now: Instant, request: &DeleteListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let found = self.find_listing(request.listing).filter(|&key| {
            let listing = &self.listings[key];
            listing.tenant == caller.tenant && (listing.owner == caller.principal || caller.operator)
        });
        self.remove_listing(now, found.ok_or(Refusal::NotFound)?, AttemptReason::ListingGone);
        Ok(Reply::Deleted)
    }

    pub(super) fn get(&self, request: &GetListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let (key, by_code) = match request.locator {
            ListingLocator::Id(id) => (self.find_listing(id), false),
            ListingLocator::JoinCode(code) => (self.join_codes.get(&(caller.tenant, code)).copied(), true),
        };
        let key = key.filter(|&key| self.may_see(caller, &self.listings[key])).ok_or(Refusal::NotFound)?;
        let mut view = self.view(key, caller);
        if by_code {
            view.join_code = self.listings[key].join_code;
        }
        Ok(Reply::Listing(Box::new(view)))
    }

    /// What is due of the listing: its lease, or the presence of a family.
    pub(super) fn expire_listing(&mut self, now: Instant, key: ListingKey) {
        let Some(listing) = self.listings.get(key) else { return };
        if listing.lease_deadline <= now {
            self.remove_listing(now, key, AttemptReason::ListingGone);
            return;
        }
        self.drop_presence(key, |presence| presence.deadline <= now);
        let listing = &mut self.listings[key];
        listing.filed = listing.due();
        self.due.file(listing.filed, Due::Listing(key));
    }

    /// Removes a listing and, in the same step, its presence and every attempt at it. Its idempotency record
    /// stays until its own time, so that a late retry learns `expired`.
    pub(super) fn remove_listing(&mut self, now: Instant, key: ListingKey, reason: AttemptReason) {
        let linked = self.linked.range((key, key_at::<AttemptKey>(LOWEST))..);
        let attempts: Vec<_> =
            linked.take_while(|&&(of, _)| of == key).map(|&(_, attempt)| attempt).collect();
        for attempt in attempts {
            self.finish_attempt(now, attempt, reason);
        }
        self.drop_presence(key, |_| true);
        let Some(listing) = self.listings.remove(key) else { return };
        self.due.forget(listing.filed, Due::Listing(key));
        let description = &listing.description;
        remove_from(&mut self.public, &(listing.tenant, description.protocol().into()), listing.id);
        remove_from(&mut self.owned, &(listing.tenant, listing.owner), listing.id);
        if let Some(slot) = description.slot() {
            self.slots.remove(&(listing.tenant, slot.to_owned()));
        }
        if let Some(code) = listing.join_code {
            self.join_codes.remove(&(listing.tenant, code));
        }
        self.release_tenant(listing.tenant, |it| it.listings -= 1);
    }

    pub(super) fn find_listing(&self, id: ListingId) -> Option<ListingKey> {
        let key = key_at(id.handle());
        self.listings.get(key).filter(|it| it.id == id).map(|_| key)
    }

    /// The caller's own listing; somebody else's is not found.
    pub(super) fn owned_listing(&self, caller: Caller, id: ListingId) -> Result<ListingKey, Refusal> {
        let own = |key: &ListingKey| {
            let listing = &self.listings[*key];
            listing.tenant == caller.tenant && listing.owner == caller.principal
        };
        self.find_listing(id).filter(own).ok_or(Refusal::NotFound)
    }

    pub(super) fn may_see(&self, caller: Caller, listing: &Listing) -> bool {
        listing.tenant == caller.tenant
            && (listing.is_joinable() || listing.owner == caller.principal || caller.operator)
    }

    pub(super) fn view(&self, key: ListingKey, caller: Caller) -> ListingView {
        let listing = &self.listings[key];
        let owned = listing.owner == caller.principal && listing.tenant == caller.tenant;
        ListingView {
            id: listing.id,
            description: listing.description.clone(),
            join_code: listing.join_code.filter(|_| owned),
            visible: listing.is_joinable(),
            owned,
            lease: self.lease(key),
            presence_deadlines: listing.presence.map(|it| it.map(|it| it.deadline)),
        }
    }

    fn lease(&self, key: ListingKey) -> LeaseGrant {
        let listing = &self.listings[key];
        LeaseGrant {
            version: listing.lease_version,
            lifetime: listing.lease_lifetime,
            deadline: listing.lease_deadline,
            presence_key: self.presence_key(key, listing),
        }
    }

    /// What the registration was answered, whatever became of the listing since. Only the presence key is as it is
    /// now: one that was superseded opens nothing.
    fn grant(&self, key: ListingKey, caller: Caller, replayed: bool) -> ListingGrant {
        let (lifetime, deadline) = self.listings[key].first_lease;
        let lease = LeaseGrant { version: 1, lifetime, deadline, ..self.lease(key) };
        let view = self.view(key, caller);
        let view = ListingView { visible: false, lease, presence_deadlines: [None; 2], ..view };
        ListingGrant { view, lease, replayed }
    }
}

/// Sorts before every key there is.
pub(super) const LOWEST: rendezvous_shared::id::Handle = rendezvous_shared::id::Handle(0);

fn remove_from<K: Ord>(
    index: &mut std::collections::BTreeMap<K, std::collections::BTreeSet<ListingId>>,
    key: &K,
    id: ListingId,
) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
