//! Listings: register, renew, delete, get, and taking one apart.

use rendezvous_shared::id::{JoinCode, ListingId};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    Caller, DeleteListing, GetListing, LeaseGrant, ListingGrant, ListingLocator, ListingView,
    RegisterListing, RenewLease, Reply, Visibility,
};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::expiring::Scope;
use super::idempotency::RecordKey;
use super::lanes::{Holder, Link, List};
use super::records::{Listing, Seconds};
use super::slab::Slot;
use super::tenants::{Owned, Place, Published};

impl MemoryStore {
    pub(super) fn register(&mut self, now: Instant, request: &RegisterListing) -> Result<Reply, Refusal> {
        let (caller, idempotency) = (request.caller, request.idempotency);
        let record = RecordKey::new(caller, idempotency);
        if let Some(made) = self.listing_records.find(now, record, idempotency.fingerprint)? {
            let live = self.listings.find(made).filter(|&slot| self.listings[slot].lease_deadline > now);
            return match live {
                Some(slot) => Ok(Reply::Registered(Box::new(self.grant(now, slot, caller, true)))),
                None if self.revocations.barred_listing(now, caller, made).is_some() => Err(Refusal::Revoked),
                None => Err(Refusal::Expired),
            };
        }
        self.refuse_while_draining(now)?;
        let replaced = self.slot_holder(now, request)?;
        self.check_registration(now, request, replaced)?;
        if let Some(slot) = replaced {
            self.end_listing(now, slot, AttemptReason::ListingGone);
            self.clear_listing(now, slot);
        }
        let slot = self.insert_listing(now, request, record);
        Ok(Reply::Registered(Box::new(self.grant(now, slot, caller, false))))
    }

    /// The listing that a registration under the same slot would replace.
    fn slot_holder(&self, now: Instant, request: &RegisterListing) -> Result<Option<Slot<Listing>>, Refusal> {
        let tenant = self.tenants.get(&request.caller.tenant);
        let holder = request.description.slot().and_then(|name| tenant?.slots.get(name).copied());
        let holder = holder.filter(|&slot| self.listings[slot].lease_deadline > now);
        match holder {
            Some(slot) if self.listings[slot].owner != request.caller.principal => {
                Err(Refusal::Conflict(ConflictReason::SlotTaken))
            }
            holder => Ok(holder),
        }
    }

    /// Every quota and capacity the registration needs, before anything changes. Only what is over anyway is worked
    /// off.
    fn check_registration(
        &mut self,
        now: Instant,
        request: &RegisterListing,
        replaced: Option<Slot<Listing>>,
    ) -> Result<(), Refusal> {
        // The one replaced gives its place.
        let freed = u32::from(replaced.is_some());
        let (caller, quotas) = (request.caller, request.quotas);
        let tenant = caller.tenant;
        let quota = quotas.listings_per_owner.saturating_add(freed);
        if !self.has_room_for_owner(now, caller, quota) {
            return Err(Refusal::QuotaExceeded(QuotaScope::Owner));
        }
        let quota = quotas.listings_per_tenant.saturating_add(freed);
        let in_tenant = self.make_room(
            |it| it.listings.count_of(tenant) < quota,
            |it| it.clear_listing_in(now, Scope::Tenant(tenant)),
        );
        let share = self.listing_records.share(quotas.listings_per_tenant, self.limits.listings);
        if !in_tenant || !self.listing_records.has_room_for(now, tenant, share) {
            return Err(Refusal::QuotaExceeded(QuotaScope::Tenant));
        }
        let in_pool = self.make_room(
            |it| it.listings.len() < it.listings.limit() + freed as usize,
            |it| it.clear_listing_in(now, Scope::Pool),
        );
        if !in_pool {
            return Err(Refusal::CapacityExceeded(Pool::Listings));
        }
        let in_records = self.listing_records.has_room(now);
        if in_records { Ok(()) } else { Err(Refusal::CapacityExceeded(Pool::ListingRecords)) }
    }

    fn insert_listing(&mut self, now: Instant, request: &RegisterListing, key: RecordKey) -> Slot<Listing> {
        let caller = request.caller;
        let tag = self.next_tag();
        let unlisted = request.description.visibility() == Visibility::Unlisted;
        let join_code = unlisted.then(|| self.unused_join_code(caller));
        let lifetime = Seconds::granted(request.lease, limits::LEASE_MIN, limits::LEASE_MAX);
        let deadline = now.after(lifetime.duration());
        let protocol =
            self.tenants.entry(caller.tenant).or_default().use_protocol(request.description.protocol());
        let fingerprint = request.idempotency.fingerprint;
        let handle = self.listings.next_handle();
        let record = self.listing_records.insert(key, fingerprint, handle, deadline, lifetime.lane());
        let slot = self.listings.insert(Listing {
            tag,
            tenant: caller.tenant,
            owner: caller.principal,
            description: request.description.clone(),
            protocol,
            join_code,
            lease_version: 1,
            lease_lifetime: lifetime,
            lease_deadline: deadline,
            joinable_until: Instant::ZERO,
            first_lifetime: lifetime,
            first_deadline: deadline,
            presence_key_expires: now.after(limits::PRESENCE_KEY_LIFETIME),
            presence: [None; 2],
            freshness: Default::default(),
            record,
            end_reason: None,
            is_retired: false,
            in_pool: Link::ALONE,
            in_tenant: Link::ALONE,
            waiting: List::EMPTY,
            unbound: List::EMPTY,
            answered: List::EMPTY,
        });
        self.file_listing(slot);
        slot
    }

    /// Enters a new listing wherever it is looked for.
    fn file_listing(&mut self, slot: Slot<Listing>) {
        let listing = &self.listings[slot];
        let tenant = self.tenants.entry(listing.tenant).or_default();
        let place = Place::new(listing.tag, slot);
        tenant.principal(listing.owner).listings += 1;
        tenant.owned.insert(Owned { owner: listing.owner, place });
        if listing.description.visibility() == Visibility::Public {
            tenant.public.insert(Published { protocol: listing.protocol, place });
        }
        if let Some(name) = listing.description.slot() {
            tenant.slots.insert(name.into(), slot);
        }
        if let Some(code) = listing.join_code {
            tenant.join_codes.insert(code, slot);
        }
    }

    /// 40 bits with at most a million listings: a second try is rare, a third practically unheard of.
    fn unused_join_code(&mut self, caller: Caller) -> JoinCode {
        loop {
            let code = JoinCode::from_random(self.next_tag());
            let taken = self.tenants.get(&caller.tenant).is_some_and(|it| it.join_codes.contains_key(&code));
            if !taken {
                return code;
            }
        }
    }

    pub(super) fn renew(&mut self, now: Instant, request: &RenewLease) -> Result<Reply, Refusal> {
        self.refuse_while_draining(now)?;
        let slot = self.owned_listing(now, request.caller, request.listing)?;
        let listing = &self.listings[slot];
        if listing.lease_version != request.version {
            return Err(Refusal::StaleVersion { latest: listing.lease_version });
        }
        let lifetime = match request.lease {
            Some(wanted) => Seconds::granted(wanted, limits::LEASE_MIN, limits::LEASE_MAX),
            None => listing.lease_lifetime,
        };
        self.move_lease(slot, |listing| {
            listing.lease_version += 1;
            listing.lease_lifetime = lifetime;
            listing.lease_deadline = now.after(lifetime.duration());
            if listing.presence_key_expires.since(now) < limits::PRESENCE_KEY_LIFETIME / 2 {
                listing.presence_key_expires = now.after(limits::PRESENCE_KEY_LIFETIME);
            }
        });
        let Listing { record, lease_deadline, .. } = self.listings[slot];
        self.listing_records.prolong(record, lease_deadline, lifetime.lane());
        Ok(Reply::Renewed(self.lease(slot)))
    }

    pub(super) fn delete(&mut self, now: Instant, request: &DeleteListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let found = self.live_listing(now, request.listing).filter(|&slot| {
            let listing = &self.listings[slot];
            listing.tenant == caller.tenant && (listing.owner == caller.principal || caller.operator)
        });
        let slot = found.ok_or_else(|| self.absent(now, caller, request.listing))?;
        self.end_listing(now, slot, AttemptReason::ListingGone);
        Ok(Reply::Deleted)
    }

    pub(super) fn get(&self, now: Instant, request: &GetListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let tenant = self.tenants.get(&caller.tenant);
        let (slot, by_code, absent) = match request.locator {
            ListingLocator::Id(id) => (self.live_listing(now, id), false, self.absent(now, caller, id)),
            ListingLocator::JoinCode(code) => {
                let slot = tenant.and_then(|it| it.join_codes.get(&code).copied());
                let live = slot.filter(|&slot| self.listings[slot].lease_deadline > now);
                (live, true, Refusal::NotFound)
            }
        };
        let slot = slot.filter(|&slot| self.may_see(now, caller, &self.listings[slot])).ok_or(absent)?;
        let mut view = self.view(now, slot, caller);
        if by_code {
            view.join_code = self.listings[slot].join_code;
        }
        Ok(Reply::Listing(Box::new(view)))
    }

    /// Takes a listing that is over out of everything. While it has attempts, its place is kept for them. Its idempotency
    /// record stays until its own time, so that a late retry learns `expired`.
    pub(super) fn remove_listing(&mut self, slot: Slot<Listing>) {
        self.forget_names(slot);
        self.leave_gauges(slot);
        let listing = &mut self.listings[slot];
        listing.is_retired = listing.holds_any();
        if listing.is_retired {
            self.listings.retire(slot);
        } else {
            self.listings.remove(slot);
        }
    }

    fn forget_names(&mut self, slot: Slot<Listing>) {
        let listing = &self.listings[slot];
        let id = listing.tenant;
        if let Some(tenant) = self.tenants.get_mut(&id) {
            let place = Place::new(listing.tag, slot);
            tenant.take_from_principal(listing.owner, |it| it.listings -= 1);
            tenant.owned.remove(&Owned { owner: listing.owner, place });
            tenant.public.remove(&Published { protocol: listing.protocol, place });
            tenant.release_protocol(listing.description.protocol());
            if let Some(name) = listing.description.slot()
                && tenant.slots.get(name) == Some(&slot)
            {
                tenant.slots.remove(name);
            }
            if let Some(code) = listing.join_code {
                tenant.join_codes.remove(&code);
            }
            if tenant.is_unused() {
                self.tenants.remove(&id);
            }
        }
    }

    /// Changes a listing's lease, and with it where it is filed.
    pub(super) fn move_lease(&mut self, slot: Slot<Listing>, change: impl FnOnce(&mut Listing)) {
        self.listings.refile(slot, change);
        self.note_joinable(slot);
    }

    /// The caller's own listing; somebody else's is not found.
    pub(super) fn owned_listing(
        &self,
        now: Instant,
        caller: Caller,
        id: ListingId,
    ) -> Result<Slot<Listing>, Refusal> {
        let own = |slot: &Slot<Listing>| {
            let listing = &self.listings[*slot];
            listing.tenant == caller.tenant && listing.owner == caller.principal
        };
        self.live_listing(now, id).filter(own).ok_or_else(|| self.absent(now, caller, id))
    }

    /// What to say of a listing that is not there for the caller: its owner learns that it was revoked. An id of an
    /// instance before this one may have the same handle, and is another listing's.
    pub(super) fn absent(&self, now: Instant, caller: Caller, id: ListingId) -> Refusal {
        if self.revocations.barred_listing(now, caller, id.handle()) == Some(id) {
            Refusal::Revoked
        } else {
            Refusal::NotFound
        }
    }

    pub(super) fn may_see(&self, now: Instant, caller: Caller, listing: &Listing) -> bool {
        listing.tenant == caller.tenant
            && (listing.is_joinable(now) || listing.owner == caller.principal || caller.operator)
    }

    pub(super) fn view(&self, now: Instant, slot: Slot<Listing>, caller: Caller) -> ListingView {
        let listing = &self.listings[slot];
        let owned = listing.owner == caller.principal && listing.tenant == caller.tenant;
        ListingView {
            id: listing.id(self.listings.handle(slot)),
            description: listing.description.clone(),
            join_code: listing.join_code.filter(|_| owned),
            visible: listing.is_joinable(now),
            owned,
            lease: self.lease(slot),
            presence_deadlines: [0, 1].map(|family| listing.presence(now, family).map(|it| it.deadline())),
        }
    }

    fn lease(&self, slot: Slot<Listing>) -> LeaseGrant {
        let listing = &self.listings[slot];
        LeaseGrant {
            version: listing.lease_version,
            lifetime: listing.lease_lifetime.duration(),
            deadline: listing.lease_deadline,
            presence_key: self.presence_key(slot),
        }
    }

    /// What the registration was answered, whatever became of the listing since. Only the presence key is as it is
    /// now: one that was superseded opens nothing.
    fn grant(&self, now: Instant, slot: Slot<Listing>, caller: Caller, replayed: bool) -> ListingGrant {
        let Listing { first_lifetime, first_deadline, .. } = self.listings[slot];
        let lifetime = first_lifetime.duration();
        let lease = LeaseGrant { version: 1, lifetime, deadline: first_deadline, ..self.lease(slot) };
        let view = self.view(now, slot, caller);
        let view = ListingView { visible: false, lease, presence_deadlines: [None; 2], ..view };
        ListingGrant { view, lease, replayed }
    }
}
