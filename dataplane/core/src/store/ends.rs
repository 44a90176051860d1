//! How things end: what is over, working it off, and making room where a pool or quota looks full.

use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::{AttemptId, ListingId};
use rendezvous_shared::outcome::AttemptReason;
use rendezvous_shared::store::{Caller, Phase};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::MemoryStore;
use super::drain::DrainState;
use super::expiring::Scope;
use super::records::{Attempt, Listing};
use super::slab::Slot;

// ---- What is over

/// When and why an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at: Instant,
    pub(super) reason: AttemptReason,
}

impl MemoryStore {
    /// The listing of this id, unless it is over.
    pub(super) fn live_listing(&self, now: Instant, id: ListingId) -> Option<Slot<Listing>> {
        let slot = self.listings.find(id.handle())?;
        let listing = &self.listings[slot];
        (listing.id(id.handle()) == id && listing.lease_deadline > now).then_some(slot)
    }

    /// The attempt of this id, unless it is over: then it is worked off, so that its result is where results are.
    pub(super) fn live_attempt(&mut self, now: Instant, id: AttemptId) -> Option<Slot<Attempt>> {
        let slot = self.attempts.find(id.handle())?;
        if self.attempts[slot].id(id.handle()) != id {
            return None;
        }
        match self.end_of(now, slot) {
            None => Some(slot),
            Some(end) => {
                self.finish_attempt(now, slot, end);
                None
            }
        }
    }

    /// How an attempt ended by itself: its time was over, or its listing's, or the drain's.
    fn end_of(&self, now: Instant, slot: Slot<Attempt>) -> Option<End> {
        let attempt = &self.attempts[slot];
        let listing = &self.listings[attempt.listing];
        let drained = match self.drain {
            DrainState::Drained { at } => at,
            DrainState::Serving | DrainState::Draining { .. } => Instant::MAX,
        };
        let at = attempt.deadline.min(listing.lease_deadline).min(drained);
        if at > now {
            return None;
        }
        // Whoever ends a listing before its time finds what is due at that moment gone already.
        let outlived = listing.lease_deadline > at || listing.end_reason.is_some();
        let reason = if let Some(noted) = attempt.end_reason {
            noted
        } else if attempt.deadline == at && outlived {
            expiry_reason(attempt, listing.had_presence(at))
        } else if listing.lease_deadline == at {
            listing.end_reason.unwrap_or(AttemptReason::ListingGone)
        } else {
            AttemptReason::Drained
        };
        Some(End { at, reason })
    }

    /// When something is due next, or is over and not worked off.
    pub(super) fn next_deadline_of_all(&self) -> Option<Instant> {
        let due = [
            self.attempts.soonest(),
            self.listings.soonest(),
            self.results.soonest(),
            self.listing_records.all().soonest(),
            self.attempt_records.all().soonest(),
            self.revocations.soonest(),
        ];
        let first = due.into_iter().flatten().min();
        match self.drain {
            DrainState::Serving => first,
            DrainState::Draining { deadline } => Some(first.map_or(deadline, |at| at.min(deadline))),
            DrainState::Drained { .. } => first.map(|_| Instant::ZERO),
        }
    }
}

/// Why an attempt ended whose own deadline came.
fn expiry_reason(attempt: &Attempt, host_present: bool) -> AttemptReason {
    match (attempt.phase(), &attempt.host_side, &attempt.joiner_side) {
        (Phase::Introduced, ..) => reported_reason(attempt),
        _ if !host_present => AttemptReason::HostPresenceStale,
        (_, None, Some(_)) => AttemptReason::HostSilent,
        (_, Some(_), None) => AttemptReason::JoinerSilent,
        _ => AttemptReason::Expired,
    }
}

/// One that hears the other settles it: each direction was open. Otherwise the likeliest cause that is known is told.
pub(super) fn reported_reason(attempt: &Attempt) -> AttemptReason {
    let reports = [attempt.host_report, attempt.joiner_report];
    if reports.contains(&Some(ReportResult::Connected)) {
        AttemptReason::Connected
    } else if reports == [None, None] {
        AttemptReason::Unreported
    } else if attempt.mappings().contains(&Mapping::Varies) {
        AttemptReason::MappingVaries
    } else if reports.contains(&Some(ReportResult::PeerSilent)) {
        AttemptReason::PeerSilent
    } else {
        AttemptReason::ReportedFailed
    }
}

// ---- Working off

/// So many things that are over are read before the first of them is worked off.
const READ_TOGETHER: usize = 32;

impl MemoryStore {
    /// Works off up to `most` things that are over: attempts before listings, because a listing waits for its own.
    pub(super) fn work_off(&mut self, now: Instant, most: usize) {
        for step in 0..most {
            if step % READ_TOGETHER == 0 {
                self.look_ahead_at_ends(now, READ_TOGETHER.min(most - step));
            }
            if !self.work_off_one(now) {
                return;
            }
        }
    }

    fn work_off_one(&mut self, now: Instant) -> bool {
        let now = if self.is_drained() { Instant::MAX } else { now };
        let attempt = self.attempts.due(now, Scope::Pool).or_else(|| self.orphan(Scope::Pool));
        attempt.map(|slot| self.work_off_attempt(now, slot)).is_some()
            || self.clear_listing_in(now, Scope::Pool)
            || self.results.work_off_one(now)
            || self.listing_records.work_off_one(now, Scope::Pool)
            || self.attempt_records.work_off_one(now, Scope::Pool)
            || self.revocations.work_off_one(now)
    }

    fn work_off_attempt(&mut self, now: Instant, slot: Slot<Attempt>) {
        if let Some(end) = self.end_of(now, slot) {
            self.finish_attempt(now, slot, end);
        }
    }

    /// Takes a listing that is over out of everything. Only when its attempts cannot have its place for longer, since very
    /// many listings that have any are over, are these worked off at once.
    pub(super) fn clear_listing(&mut self, now: Instant, slot: Slot<Listing>) {
        while !self.listings.can_retire()
            && let Some(attempt) = self.listings[slot].first_attempt()
        {
            self.work_off_attempt(now, attempt);
        }
        self.remove_listing(slot);
    }

    /// Ends a listing before its time, and with it, in the same step, its presence and every attempt at it.
    pub(super) fn end_listing(&mut self, now: Instant, slot: Slot<Listing>, reason: AttemptReason) {
        self.move_lease(slot, |listing| {
            listing.lease_deadline = now;
            listing.end_reason = Some(reason);
        });
    }

    /// Notes why those of a listing's attempts ended that are over. That depends on whether the listing was joinable
    /// then, which is only known until its presence ends or begins anew. They are looked for only while attempts of
    /// anybody wait to be worked off, which is seldom and soon over; and once in a batch, in which no more come due.
    pub(super) fn settle_attempts(&mut self, now: Instant, slot: Slot<Listing>) {
        if self.attempts.due(now, Scope::Pool).is_none() || self.settled.contains(&slot) {
            return;
        }
        self.settled.push(slot);
        let all = self.listings[slot].all_attempts(&self.attempts);
        let over: Vec<_> = all.filter(|&it| self.attempts[it].deadline <= now).collect();
        for attempt in over {
            self.attempts[attempt].end_reason = self.end_of(now, attempt).map(|it| it.reason);
        }
    }
}

// ---- Making room

impl MemoryStore {
    /// Whether `room` is there, once what is over is worked off one by one as far as need be.
    pub(super) fn make_room(
        &mut self,
        room: impl Fn(&Self) -> bool,
        work_off: impl Fn(&mut Self) -> bool,
    ) -> bool {
        while !room(self) {
            if !work_off(self) {
                return false;
            }
        }
        true
    }

    /// Clears one listing that is over, if there is any.
    pub(super) fn clear_listing_in(&mut self, now: Instant, scope: Scope) -> bool {
        let due = self.listings.due(now, scope);
        due.map(|slot| self.clear_listing(now, slot)).is_some()
    }

    /// An attempt whose listing was cleared.
    fn orphan(&self, scope: Scope) -> Option<Slot<Attempt>> {
        self.listings[self.listings.retired(scope)?].first_attempt()
    }

    /// An attempt that is over: its own deadline came, or its listing's, which gets no new attempts then.
    pub(super) fn work_off_attempt_in(&mut self, now: Instant, scope: Scope) -> bool {
        let held = |it: &mut Self| {
            let listing = it.listings.due_holder(now, scope)?;
            it.listings[listing].first_attempt()
        };
        let over = self.attempts.due(now, scope).or_else(|| self.orphan(scope)).or_else(|| held(self));
        over.map(|slot| self.work_off_attempt(now, slot)).is_some()
    }

    /// Whether an owner may have one more listing, once what is over of its own is worked off.
    pub(super) fn has_room_for_owner(&mut self, now: Instant, caller: Caller, quota: u32) -> bool {
        let Some(tenant) = self.tenants.get(&caller.tenant) else { return quota > 0 };
        let Some(excess) = tenant.listings_of(caller.principal).checked_sub(quota) else { return true };
        if self.listings.due(now, Scope::Tenant(caller.tenant)).is_none() {
            return false;
        }
        let wanted = excess as usize + 1;
        let over = |slot: &Slot<Listing>| self.listings[*slot].lease_deadline <= now;
        let own = tenant.owned_by(caller.principal, None);
        let over: Vec<_> = own.map(|place| place.slot).filter(over).take(wanted).collect();
        let enough = over.len() == wanted;
        for slot in over {
            self.clear_listing(now, slot);
        }
        enough
    }
}
