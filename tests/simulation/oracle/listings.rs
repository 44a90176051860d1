//! Listings and leases: what was acknowledged of them.

use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::ListingId;
use rendezvous_shared::limits::{GAUGE_LAG_MAX, LEASE_MAX, LEASE_MIN};
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    BrowseListings, Caller, DeleteListing, GetListing, LeaseGrant, ListingGrant, ListingLocator, ListingView,
    Page, RegisterListing, RenewLease, Reply, Visibility,
};
use rendezvous_shared::time::Instant;

use super::{Known, Oracle, Record, broken, conflict, granted, known, record_deadline, record_key};

/// What is known of a listing.
#[derive(Clone, Debug)]
pub(super) struct ListingFact {
    pub(super) owner: Caller,
    pub(super) slot: Option<String>,
    pub(super) protocol: String,
    pub(super) public: bool,
    pub(super) key: KeyId,
    version: u64,
    first: (Duration, Instant),
    lifetime: Duration,
    deadline: Instant,
    record: super::RecordKey,
    /// Removed before its time, and what its attempts ended for.
    gone: Option<(Instant, AttemptReason)>,
    /// IPv4, IPv6: where, and until when.
    pub(super) presence: [Option<(Endpoint, Instant)>; 2],
}

impl ListingFact {
    /// Whether it is there at `now`, a drain apart.
    pub(super) fn lives(&self, now: Instant) -> bool {
        self.gone.is_none() && self.deadline > now
    }

    /// When it was, or will be, gone.
    pub(super) fn ends(&self) -> Instant {
        self.gone.map_or(self.deadline, |(at, _)| at.min(self.deadline))
    }

    /// Whether it ends before an attempt whose deadline this is: at one instant a lease does, and who removes it does
    /// not.
    pub(super) fn ends_before(&self, deadline: Instant) -> bool {
        self.ends() < deadline || (self.gone.is_none() && self.ends() == deadline)
    }

    /// What its attempts end for when it does.
    pub(super) fn end_reason(&self) -> AttemptReason {
        self.gone.map_or(AttemptReason::ListingGone, |(_, reason)| reason)
    }

    pub(super) const fn lease_ends(&self) -> Instant {
        self.deadline
    }

    /// Whether it could be joined at `at`, when it was still there, by the presence it had since.
    pub(super) fn was_joinable(&self, at: Instant) -> bool {
        self.presence.iter().flatten().any(|(_, until)| *until > at)
    }

    /// Whether `caller` may know of it.
    pub(super) fn is_seen_by(&self, now: Instant, caller: Caller) -> bool {
        self.owner.tenant == caller.tenant && (self.visible(now) || self.is_of(caller) || caller.operator)
    }

    /// Whether it can be joined at `now`.
    pub(super) fn visible(&self, now: Instant) -> bool {
        self.lives(now) && self.presence.iter().flatten().any(|(_, until)| *until > now)
    }

    fn is_of(&self, caller: Caller) -> bool {
        self.owner.tenant == caller.tenant && self.owner.principal == caller.principal
    }
}

impl Oracle {
    pub(super) fn live_listing(&self, now: Instant, id: ListingId) -> Option<&ListingFact> {
        self.listings.get(&id).filter(|it| it.lives(now) && !self.drained(now))
    }

    fn live_listings(&self, now: Instant) -> impl Iterator<Item = (&ListingId, &ListingFact)> {
        let drained = self.drained(now);
        self.listings.iter().filter(move |(_, it)| it.lives(now) && !drained)
    }

    /// The listing whose current key this is.
    pub(super) fn listing_of(&self, now: Instant, key: &KeyId) -> Option<ListingId> {
        self.live_listings(now).find(|(_, it)| it.key == *key).map(|(id, _)| *id)
    }

    /// Whether the listing whose key this is can be joined, by its owner's presence.
    pub(crate) fn is_visible(&self, now: Instant, id: ListingId) -> bool {
        self.live_listing(now, id).is_some_and(|it| it.visible(now))
    }

    /// How many listings can be joined; and how many could a moment ago.
    pub(super) fn joinable(&self, now: Instant) -> [usize; 2] {
        if self.drained(now) {
            return [0; 2];
        }
        let until = |it: &ListingFact| {
            let latest = it.presence.iter().flatten().map(|(_, until)| *until).max();
            latest.map_or(Instant::ZERO, |at| at.min(it.ends()))
        };
        [Duration::ZERO, GAUGE_LAG_MAX]
            .map(|lag| self.listings.values().filter(|it| until(it).after(lag) > now).count())
    }

    /// How many listings live.
    pub(super) fn listings_live(&self, now: Instant) -> usize {
        self.live_listings(now).count()
    }

    /// The public ones that can be joined, in the order of their ids.
    pub(super) fn visible_public<'a>(
        &'a self,
        now: Instant,
        caller: Caller,
        protocol: &'a str,
    ) -> impl Iterator<Item = ListingId> + 'a {
        self.live_listings(now)
            .filter(move |(_, it)| {
                it.public && it.owner.tenant == caller.tenant && it.protocol == protocol && it.visible(now)
            })
            .map(|(id, _)| *id)
    }

    /// Every listing ever acknowledged and not forgotten, with its owner.
    pub(super) fn known_listings(&self) -> Vec<(ListingId, Caller)> {
        self.listings.iter().map(|(id, it)| (*id, it.owner)).collect()
    }

    /// Forgets what nobody can ask for any more.
    pub(super) fn forget_listings(&mut self, now: Instant) {
        let drained = self.drained(now);
        self.listing_records.retain(|_, it| it.deadline > now && !drained);
        self.listings.retain(|_, it| now.since(it.ends()).as_secs() < 120);
    }

    pub(super) fn on_register(&mut self, now: Instant, request: &RegisterListing, reply: &Reply) {
        let key = record_key(request.caller, request.idempotency);
        let known = known(&self.listing_records, &key, now, request.idempotency);
        match (known, reply) {
            (Known::Reused, _) if conflict(reply) == Some(ConflictReason::IdempotencyKeyReused) => {}
            (Known::Same(id), Reply::Refused(refusal)) if self.live_listing(now, id).is_none() => {
                let revoked = self.absent(now, request.caller, id) == Refusal::Revoked;
                if *refusal != (if revoked { Refusal::Revoked } else { Refusal::Expired }) {
                    broken("a registration that is over says why", format_args!("{request:?} {reply:?}"));
                }
            }
            (Known::Same(id), Reply::Registered(grant)) if grant.replayed && grant.view.id == id => {
                let fact = self.live_listing(now, id);
                let same = fact.is_some_and(|it| {
                    it.first == (grant.lease.lifetime, grant.lease.deadline)
                        && it.key == grant.lease.presence_key
                });
                if !same {
                    broken(
                        "a repeated registration has the first answer",
                        format_args!("{grant:?} {fact:?}"),
                    );
                }
            }
            (Known::New, Reply::Registered(grant)) if !grant.replayed => {
                self.on_registered(now, request, key, grant)
            }
            (Known::New, Reply::Refused(refusal)) => self.check_register_refused(now, request, *refusal),
            _ => {
                broken("a key is executed once while its record lives", format_args!("{request:?} {reply:?}"))
            }
        }
    }

    fn on_registered(
        &mut self,
        now: Instant,
        request: &RegisterListing,
        record: super::RecordKey,
        grant: &ListingGrant,
    ) {
        let description = &request.description;
        let slot = description.slot().map(str::to_owned);
        let held = self.slot_holder(now, request);
        if held.is_some_and(|(_, own)| !own) {
            broken("a slot belongs to its owner", format_args!("{request:?}"));
        }
        if let Some((id, _)) = held
            && let Some(fact) = self.listings.get_mut(&id)
        {
            fact.take_away(now, AttemptReason::ListingGone);
        }
        let room = self.listings_live(now) < self.limits.listings
            && self.listing_records_live(now) < self.limits.listing_records;
        let lifetime = granted(request.lease, LEASE_MIN, LEASE_MAX);
        let good = grant.lease.deadline == now.after(lifetime) && grant.lease.lifetime == lifetime;
        if self.drain.is_some() || !room || !good || self.listings.contains_key(&grant.view.id) {
            broken(
                "a registration is granted as asked, within the ceilings, and not while draining",
                format_args!("{grant:?}"),
            );
        }
        self.listings.insert(
            grant.view.id,
            ListingFact {
                owner: request.caller,
                slot,
                protocol: description.protocol().to_owned(),
                public: description.visibility() == Visibility::Public,
                key: grant.lease.presence_key,
                version: grant.lease.version,
                first: (grant.lease.lifetime, grant.lease.deadline),
                lifetime,
                deadline: grant.lease.deadline,
                record,
                gone: None,
                presence: [None; 2],
            },
        );
        let fingerprint = request.idempotency.fingerprint;
        let deadline = record_deadline(grant.lease.deadline);
        self.listing_records.insert(record, Record { fingerprint, target: grant.view.id, deadline });
    }

    /// The live listing in the slot asked for, and whether it is the caller's.
    fn slot_holder(&self, now: Instant, request: &RegisterListing) -> Option<(ListingId, bool)> {
        let slot = request.description.slot()?;
        let (id, fact) = self
            .live_listings(now)
            .find(|(_, it)| it.slot.as_deref() == Some(slot) && it.owner.tenant == request.caller.tenant)?;
        Some((*id, fact.is_of(request.caller)))
    }

    pub(super) fn listing_records_live(&self, now: Instant) -> usize {
        self.listing_records.values().filter(|it| it.deadline > now).count()
    }

    fn check_register_refused(&self, now: Instant, request: &RegisterListing, refusal: Refusal) {
        let held = self.slot_holder(now, request);
        let freed = usize::from(held.is_some_and(|(_, own)| own));
        let tenant = request.caller.tenant;
        let in_tenant = self.live_listings(now).filter(|(_, it)| it.owner.tenant == tenant).count() - freed;
        let own = self.live_listings(now).filter(|(_, it)| it.is_of(request.caller)).count() - freed;
        let with_cause = match refusal {
            Refusal::Draining { .. } => self.refuses_new(now, refusal),
            Refusal::Conflict(ConflictReason::SlotTaken) => held.is_some_and(|(_, own)| !own),
            Refusal::CapacityExceeded(Pool::Listings) => {
                self.listings_live(now) - freed >= self.limits.listings
            }
            Refusal::CapacityExceeded(Pool::ListingRecords) => {
                self.listing_records_live(now) >= self.limits.listing_records
            }
            Refusal::QuotaExceeded(QuotaScope::Owner) => own >= self.quotas.listings_per_owner as usize,
            Refusal::QuotaExceeded(QuotaScope::Tenant) => {
                let records = self
                    .listing_records
                    .iter()
                    .filter(|(key, it)| key.0 == tenant && it.deadline > now)
                    .count();
                in_tenant.max(records) >= self.quotas.listings_per_tenant as usize
            }
            _ => false,
        };
        if !with_cause {
            broken("a registration is not refused without cause", format_args!("{request:?} {refusal:?}"));
        }
    }

    pub(super) fn on_renew(&mut self, now: Instant, request: &RenewLease, reply: &Reply) {
        let drain = self.drain.is_some();
        let fact = self.live_listing(now, request.listing).filter(|it| it.is_of(request.caller)).cloned();
        match (fact, reply) {
            (_, Reply::Refused(refusal @ Refusal::Draining { .. })) if self.refuses_new(now, *refusal) => {}
            (None, Reply::Refused(refusal))
                if !drain && *refusal == self.absent(now, request.caller, request.listing) => {}
            (Some(fact), Reply::Refused(Refusal::StaleVersion { latest }))
                if !drain && *latest == fact.version && request.version != fact.version => {}
            (Some(mut fact), Reply::Renewed(grant)) if !drain && request.version == fact.version => {
                fact.check_renewed(now, request, grant);
                if let Some(record) = self.listing_records.get_mut(&fact.record) {
                    record.deadline = record.deadline.max(record_deadline(fact.deadline));
                }
                self.listings.insert(request.listing, fact);
            }
            (fact, _) => broken(
                "a renewal is by compare-and-swap on what was acknowledged",
                format_args!("{request:?} {reply:?} {fact:?}"),
            ),
        }
    }

    pub(super) fn on_delete(&mut self, now: Instant, request: &DeleteListing, reply: &Reply) {
        let caller = request.caller;
        let may =
            |it: &&ListingFact| it.is_of(caller) || (caller.operator && it.owner.tenant == caller.tenant);
        let there = self.live_listing(now, request.listing).filter(may).is_some();
        match (there, reply) {
            (true, Reply::Deleted) => {
                if let Some(fact) = self.listings.get_mut(&request.listing) {
                    fact.take_away(now, AttemptReason::ListingGone);
                }
            }
            (false, Reply::Refused(refusal)) if *refusal == self.absent(now, caller, request.listing) => {}
            _ => broken(
                "an acknowledged listing lives until its deadline",
                format_args!("{request:?} {reply:?}"),
            ),
        }
    }

    pub(super) fn on_get_listing(&self, now: Instant, request: &GetListing, reply: &Reply) {
        let ListingLocator::Id(id) = request.locator else { return };
        let caller = request.caller;
        let listing = self.live_listing(now, id).filter(|it| it.is_seen_by(now, caller));
        match (listing, reply) {
            (Some(fact), Reply::Listing(view)) => fact.check_view(now, view),
            (None, Reply::Refused(refusal)) if *refusal == self.absent(now, caller, id) => {}
            (fact, _) => broken(
                "an acknowledged listing lives until its deadline",
                format_args!("{request:?} {reply:?} {fact:?}"),
            ),
        }
    }

    pub(super) fn on_page(&self, now: Instant, request: &BrowseListings, page: &Page) {
        if !page.listings.is_sorted_by(|one, next| one.id < next.id) || page.listings.len() > request.limit {
            broken("a page is in the order of ids and not too long", format_args!("{page:?}"));
        }
        for view in &page.listings {
            let Some(fact) = self.live_listing(now, view.id) else {
                broken("browsing shows only what lives", format_args!("{view:?}"));
            };
            let shown =
                if request.owned { fact.is_of(request.caller) } else { fact.public && fact.visible(now) };
            if !shown
                || fact.owner.tenant != request.caller.tenant
                || request.after.is_some_and(|after| view.id <= after)
            {
                broken("browsing shows only what can be joined", format_args!("{view:?} {fact:?}"));
            }
            fact.check_view(now, view);
        }
    }
}

impl ListingFact {
    /// It is removed, whoever owns it.
    pub(super) fn take_away(&mut self, now: Instant, reason: AttemptReason) {
        if self.lives(now) {
            self.gone = Some((now, reason));
        }
    }

    fn check_renewed(&mut self, now: Instant, request: &RenewLease, grant: &LeaseGrant) {
        let asked = request.lease.map_or(self.lifetime, |wanted| granted(wanted, LEASE_MIN, LEASE_MAX));
        let good = grant.version == self.version + 1
            && grant.deadline == now.after(grant.lifetime)
            && grant.lifetime == asked;
        if !good || grant.presence_key != self.key {
            broken("a renewal moves version and deadline on", format_args!("{grant:?} {self:?}"));
        }
        self.version = grant.version;
        self.lifetime = grant.lifetime;
        self.deadline = grant.deadline;
    }

    fn check_view(&self, now: Instant, view: &ListingView) {
        let presence = self.presence.map(|it| it.map(|(_, until)| until).filter(|until| *until > now));
        let lease = view.lease.deadline == self.deadline && view.lease.version == self.version;
        if !lease || view.visible != self.visible(now) || view.presence_deadlines != presence {
            broken("a listing is shown as it was acknowledged", format_args!("{view:?} {self:?} at {now:?}"));
        }
    }
}
