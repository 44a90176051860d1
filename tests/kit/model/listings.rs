//! Listings: register, renew, delete, get, browse.

use rendezvous_shared::id::{JoinCode, ListingId};
use rendezvous_shared::limits::{
    LEASE_MAX, LEASE_MIN, PAGE_EXAMINED_MAX, PAGE_LEN_MAX, PRESENCE_KEY_LIFETIME, RECORD_GRACE,
};
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    BrowseListings, Caller, DeleteListing, Filter, GetListing, LeaseGrant, ListingDescription, ListingGrant,
    ListingLocator, ListingView, Page, RegisterListing, RenewLease, Reply, Visibility,
};
use rendezvous_shared::time::Instant;

use super::records::{Listing, Record};
use super::{NaiveStore, granted};

impl NaiveStore {
    pub(super) fn register(&mut self, request: &RegisterListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        if let Some(record) = find(&self.listing_records, caller, request.idempotency.key) {
            if record.idempotency.fingerprint != request.idempotency.fingerprint {
                return Err(Refusal::Conflict(ConflictReason::IdempotencyKeyReused));
            }
            return match self.listing(record.target) {
                Some(listing) => Ok(self.grant(listing, caller, true)),
                None if self.is_barred_listing(caller, record.target) => Err(Refusal::Revoked),
                None => Err(Refusal::Expired),
            };
        }
        self.refuse_while_draining()?;
        let replaced = self.slot_holder(request)?;
        self.check_registration(request, replaced)?;
        if let Some(id) = replaced {
            self.remove_listing(id, self.now, AttemptReason::ListingGone);
        }
        let listing = self.new_listing(request);
        self.listing_records.push(Record {
            tenant: caller.tenant,
            owner: caller.principal,
            idempotency: request.idempotency,
            target: listing.id,
            deadline: listing.deadline.after(RECORD_GRACE),
        });
        let reply = self.grant(&listing, caller, false);
        self.listings.push(listing);
        Ok(reply)
    }

    /// The listing that the registration replaces: "registering it again as the same owner replaces the old listing".
    fn slot_holder(&self, request: &RegisterListing) -> Result<Option<ListingId>, Refusal> {
        let Some(slot) = request.description.slot() else { return Ok(None) };
        let of_tenant = self.listings.iter().filter(|it| it.tenant == request.caller.tenant);
        match of_tenant.into_iter().find(|it| it.description.slot() == Some(slot)) {
            None => Ok(None),
            Some(holder) if holder.owner == request.caller.principal => Ok(Some(holder.id)),
            Some(_) => Err(Refusal::Conflict(ConflictReason::SlotTaken)),
        }
    }

    /// "An operation checks all capacity it needs before it changes anything", without the listing it replaces.
    fn check_registration(
        &self,
        request: &RegisterListing,
        replaced: Option<ListingId>,
    ) -> Result<(), Refusal> {
        let (caller, quotas) = (request.caller, request.quotas);
        let others = || self.listings.iter().filter(|it| Some(it.id) != replaced);
        let of_owner = others().filter(|it| it.is_of(caller)).count();
        let of_tenant = others().filter(|it| it.tenant == caller.tenant).count();
        let records = self.listing_records.iter().filter(|it| it.tenant == caller.tenant).count();
        if of_owner as u64 >= u64::from(quotas.listings_per_owner) {
            return Err(Refusal::QuotaExceeded(QuotaScope::Owner));
        }
        let share = share(quotas.listings_per_tenant, self.limits.listing_records, self.limits.listings);
        if of_tenant as u64 >= u64::from(quotas.listings_per_tenant) || records as u64 >= share {
            return Err(Refusal::QuotaExceeded(QuotaScope::Tenant));
        }
        if others().count() >= self.limits.listings {
            return Err(Refusal::CapacityExceeded(Pool::Listings));
        }
        self.refuse_when_full(Pool::ListingRecords)
    }

    fn new_listing(&mut self, request: &RegisterListing) -> Listing {
        let (tag, handle) = self.next_id();
        let lifetime = granted(request.lease, LEASE_MIN, LEASE_MAX);
        let deadline = self.now.after(lifetime);
        let unlisted = request.description.visibility() == Visibility::Unlisted;
        Listing {
            id: ListingId::new(tag, handle),
            tenant: request.caller.tenant,
            owner: request.caller.principal,
            description: request.description.clone(),
            join_code: unlisted.then(|| JoinCode::from_random(handle.0)),
            version: 1,
            lifetime,
            deadline,
            first_lease: (lifetime, deadline),
            key_expires: self.now.after(PRESENCE_KEY_LIFETIME),
            presence: [None; 2],
            counted: [None; 2],
            left: None,
        }
    }

    pub(super) fn renew(&mut self, request: &RenewLease) -> Result<Reply, Refusal> {
        self.refuse_while_draining()?;
        self.own_listing(request.caller, request.listing)?;
        let now = self.now;
        let listing = self.listing_mut(request.listing).ok_or(Refusal::NotFound)?;
        if listing.version != request.version {
            return Err(Refusal::StaleVersion { latest: listing.version });
        }
        listing.version += 1;
        listing.lifetime = granted(request.lease.unwrap_or(listing.lifetime), LEASE_MIN, LEASE_MAX);
        listing.deadline = now.after(listing.lifetime);
        if listing.key_expires.since(now) < PRESENCE_KEY_LIFETIME / 2 {
            listing.key_expires = now.after(PRESENCE_KEY_LIFETIME);
        }
        let lease = listing.lease();
        for record in self.listing_records.iter_mut().filter(|it| it.target == request.listing) {
            record.deadline = record.deadline.max(lease.deadline.after(RECORD_GRACE));
        }
        Ok(Reply::Renewed(lease))
    }

    pub(super) fn delete(&mut self, request: &DeleteListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let may =
            |it: &Listing| it.tenant == caller.tenant && (it.owner == caller.principal || caller.operator);
        if !self.listing(request.listing).is_some_and(may) {
            return Err(self.absent(caller, request.listing));
        }
        self.remove_listing(request.listing, self.now, AttemptReason::ListingGone);
        Ok(Reply::Deleted)
    }

    pub(super) fn get(&self, request: &GetListing) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let found = match request.locator {
            ListingLocator::Id(id) => self.listing(id),
            ListingLocator::JoinCode(code) => {
                let of_tenant = self.listings.iter().filter(|it| it.tenant == caller.tenant);
                of_tenant.into_iter().find(|it| it.join_code == Some(code))
            }
        };
        let absent = match request.locator {
            ListingLocator::Id(id) => self.absent(caller, id),
            ListingLocator::JoinCode(_) => Refusal::NotFound,
        };
        let listing = found.filter(|it| self.may_see(caller, it)).ok_or(absent)?;
        let mut view = self.listing_view(listing, caller);
        if matches!(request.locator, ListingLocator::JoinCode(_)) {
            view.join_code = listing.join_code;
        }
        Ok(Reply::Listing(Box::new(view)))
    }

    pub(super) fn browse(&self, request: &BrowseListings) -> Reply {
        let caller = request.caller;
        let in_scope = |it: &Listing| match (&request.protocol, request.owned) {
            (_, true) => it.is_of(caller),
            (None, false) => false,
            (Some(protocol), false) => {
                it.tenant == caller.tenant
                    && it.description.visibility() == Visibility::Public
                    && it.description.protocol() == &**protocol
            }
        };
        let wanted = |it: &Listing| {
            (request.owned || it.is_joinable(self.now))
                && request.protocol.as_ref().is_none_or(|protocol| it.description.protocol() == &**protocol)
                && wants(&request.filter, &it.description)
        };
        let mut ordered: Vec<&Listing> = self.listings.iter().filter(|it| in_scope(it)).collect();
        ordered.sort_by_key(|it| it.id);
        ordered.retain(|it| request.after.is_none_or(|after| it.id > after));
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let mut page = Page { listings: Vec::new(), next_after: None };
        for (examined, listing) in ordered.iter().enumerate() {
            if page.listings.len() == limit || examined == PAGE_EXAMINED_MAX {
                page.next_after = examined.checked_sub(1).map(|last| ordered[last].id);
                break;
            }
            if wanted(listing) {
                page.listings.push(self.listing_view(listing, caller));
            }
        }
        Reply::Page(page)
    }

    /// The caller's own listing; somebody else's is not found.
    pub(super) fn own_listing(&self, caller: Caller, id: ListingId) -> Result<&Listing, Refusal> {
        self.listing(id).filter(|it| it.is_of(caller)).ok_or_else(|| self.absent(caller, id))
    }

    /// What to say of a listing that is not there for the caller.
    pub(super) fn absent(&self, caller: Caller, id: ListingId) -> Refusal {
        if self.is_barred_listing(caller, id) { Refusal::Revoked } else { Refusal::NotFound }
    }

    /// "Otherwise only its owner sees it", and an operator.
    pub(super) fn may_see(&self, caller: Caller, listing: &Listing) -> bool {
        listing.tenant == caller.tenant
            && (listing.is_joinable(self.now) || listing.owner == caller.principal || caller.operator)
    }

    fn listing_view(&self, listing: &Listing, caller: Caller) -> ListingView {
        let owned = listing.is_of(caller);
        ListingView {
            id: listing.id,
            description: listing.description.clone(),
            join_code: listing.join_code.filter(|_| owned),
            visible: listing.is_joinable(self.now),
            owned,
            lease: listing.lease(),
            presence_deadlines: listing.fresh(self.now).map(|it| it.map(|it| it.deadline)),
        }
    }

    /// "The same registration again has the same answer"; only the presence key is the current one.
    fn grant(&self, listing: &Listing, caller: Caller, replayed: bool) -> Reply {
        let (lifetime, deadline): (_, Instant) = listing.first_lease;
        let lease = LeaseGrant { version: 1, lifetime, deadline, presence_key: listing.key() };
        let view = self.listing_view(listing, caller);
        let view = ListingView { visible: false, lease, presence_deadlines: [None; 2], ..view };
        Reply::Registered(Box::new(ListingGrant { view, lease, replayed }))
    }
}

/// The record of the caller's `key`.
pub(super) fn find<Id>(records: &[Record<Id>], caller: Caller, key: [u8; 16]) -> Option<&Record<Id>> {
    let own = |it: &&Record<Id>| it.tenant == caller.tenant && it.owner == caller.principal;
    records.iter().filter(own).find(|it| it.idempotency.key == key)
}

/// "quota × record ceiling ÷ ceiling, at least the quota itself."
pub(super) fn share(quota: u32, records: usize, pool: usize) -> u64 {
    let share = u128::from(quota) * records as u128 / (pool as u128).max(1);
    u64::try_from(share).unwrap_or(u64::MAX).max(quota.into())
}

fn wants(filter: &Filter, description: &ListingDescription) -> bool {
    let has = |(key, value): &(String, String)| description.attribute(key) == Some(value);
    filter.name_prefix.as_ref().is_none_or(|it| description.name().starts_with(it.as_str()))
        && filter.player_capacity_min.is_none_or(|it| description.player_capacity() >= it)
        && filter.player_capacity_max.is_none_or(|it| description.player_capacity() <= it)
        && filter.attributes.iter().all(has)
}
