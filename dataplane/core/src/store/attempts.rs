//! Attempts: create, read, cancel, report, and taking one apart.

use std::sync::Arc;

use rendezvous_shared::id::{AttemptId, PrincipalId, Role};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    AttemptGrant, Caller, CancelAttempt, CreateAttempt, GetAttempt, ListPending, PendingAttempt, Reply,
    Report, Reporter,
};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::ends::{End, reported_reason};
use super::expiring::Scope;
use super::idempotency::RecordKey;
use super::lanes::{Holder, Link};
use super::records::{Attempt, Listing, Seconds};
use super::results::AttemptResult;
use super::slab::Slot;
use super::story::{Story, Times};

impl MemoryStore {
    pub(super) fn create_attempt(&mut self, now: Instant, request: &CreateAttempt) -> Result<Reply, Refusal> {
        let idempotency = request.idempotency;
        let record = RecordKey::new(request.caller, idempotency);
        if let Some(made) = self.attempt_records.find(now, record, idempotency.fingerprint)? {
            let slot = self.attempts.find(made).ok_or(Refusal::Expired)?;
            let id = self.attempts[slot].id(made);
            let slot = self.live_attempt(now, id).ok_or(Refusal::Expired)?;
            return Ok(Reply::AttemptCreated(Box::new(self.attempt_grant(slot, true))));
        }
        self.refuse_while_draining(now)?;
        let listing = self.joinable_listing(now, request)?;
        self.check_creation(now, request)?;
        let slot = self.insert_attempt(now, request, listing, record);
        Ok(Reply::AttemptCreated(Box::new(self.attempt_grant(slot, false))))
    }

    /// The listing to join. Only its owner and operators learn that it exists but cannot be joined now.
    fn joinable_listing(&self, now: Instant, request: &CreateAttempt) -> Result<Slot<Listing>, Refusal> {
        let (caller, id) = (request.caller, request.listing);
        let seen = self.live_listing(now, id).filter(|&it| self.may_see(now, caller, &self.listings[it]));
        let slot = seen.ok_or_else(|| self.absent(now, caller, id))?;
        if self.listings[slot].is_joinable(now) {
            Ok(slot)
        } else {
            Err(Refusal::Conflict(ConflictReason::NotJoinable))
        }
    }

    /// Every quota and capacity the attempt needs, before anything changes. Only what is over anyway is worked off.
    fn check_creation(&mut self, now: Instant, request: &CreateAttempt) -> Result<(), Refusal> {
        let (tenant, quota) = (request.caller.tenant, request.quotas.attempts_per_tenant);
        let share = self.attempt_records.share(quota, self.limits.attempts);
        let in_tenant = self.make_room(
            |it| it.attempts.count_of(tenant) < quota,
            |it| it.work_off_attempt_in(now, Scope::Tenant(tenant)),
        );
        if !in_tenant || !self.attempt_records.has_room_for(now, tenant, share) {
            return Err(Refusal::QuotaExceeded(QuotaScope::Tenant));
        }
        let in_pool =
            self.make_room(|it| !it.attempts.is_full(), |it| it.work_off_attempt_in(now, Scope::Pool));
        if !in_pool {
            return Err(Refusal::CapacityExceeded(Pool::Attempts));
        }
        let in_records = self.attempt_records.has_room(now);
        if in_records { Ok(()) } else { Err(Refusal::CapacityExceeded(Pool::AttemptRecords)) }
    }

    fn insert_attempt(
        &mut self,
        now: Instant,
        request: &CreateAttempt,
        listing: Slot<Listing>,
        key: RecordKey,
    ) -> Slot<Attempt> {
        let tag = self.next_tag();
        let lifetime = Seconds::granted(request.lifetime, limits::ATTEMPT_MIN, limits::ATTEMPT_MAX);
        let deadline = now.after(lifetime.duration());
        let fingerprint = request.idempotency.fingerprint;
        let handle = self.attempts.next_handle();
        let record = self.attempt_records.insert(key, fingerprint, handle, deadline, lifetime.lane());
        let note = request.note.as_ref().map(Arc::clone);
        let attempts = &mut self.attempts;
        let slot = attempts.insert(Attempt {
            tag,
            tenant: request.caller.tenant,
            joiner: request.caller.principal,
            listing,
            note,
            lifetime,
            deadline,
            host_side: None,
            joiner_side: None,
            host_report: None,
            joiner_report: None,
            end_reason: None,
            times: Times::new(now),
            record,
            lane: lifetime.lane(),
            in_pool: Link::ALONE,
            in_tenant: Link::ALONE,
            in_listing: Link::ALONE,
            in_joiner: Link::ALONE,
        });
        self.listings[listing].unbound.push(attempts, slot);
        let tenant = self.tenants.entry(request.caller.tenant).or_default();
        tenant.principal(request.caller.principal).joined.push(attempts, slot);
        slot
    }

    pub(super) fn get_attempt(&mut self, now: Instant, request: &GetAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let (tenant, host, joiner, view) = match self.live_attempt(now, request.attempt) {
            Some(slot) => {
                let attempt = &self.attempts[slot];
                let host = self.listings[attempt.listing].owner;
                let view = self.story(slot).view(attempt.phase(), attempt.deadline, None);
                (attempt.tenant, host, attempt.joiner, view)
            }
            None => {
                let it = self.results.get(now, request.attempt).ok_or(Refusal::NotFound)?;
                (it.tenant, it.host, it.joiner, it.view())
            }
        };
        let party = caller.principal == host || caller.principal == joiner || caller.operator;
        if tenant == caller.tenant && party {
            Ok(Reply::Attempt(Box::new(view)))
        } else {
            Err(Refusal::NotFound)
        }
    }

    fn story(&self, slot: Slot<Attempt>) -> Story {
        let attempt = &self.attempts[slot];
        let listing = &self.listings[attempt.listing];
        attempt.story(self.attempts.handle(slot), listing.id(self.listings.handle(attempt.listing)))
    }

    /// Those that wait for nobody but the host first.
    pub(super) fn list_pending(&self, now: Instant, request: &ListPending) -> Result<Reply, Refusal> {
        let listing = &self.listings[self.owned_listing(now, request.caller, request.listing)?];
        let all = listing.waiting.iter(&self.attempts).chain(listing.unbound.iter(&self.attempts));
        let pending = all
            .map(|slot| (slot, &self.attempts[slot]))
            .filter(|(_, attempt)| attempt.deadline > now)
            .take(limits::PENDING_ATTEMPTS_MAX)
            .map(|(slot, attempt)| PendingAttempt {
                id: attempt.id(self.attempts.handle(slot)),
                note: attempt.note.clone(),
                joiner_bound: attempt.joiner_side.is_some(),
                deadline: attempt.deadline,
            });
        Ok(Reply::Pending(pending.collect()))
    }

    pub(super) fn cancel_attempt(&mut self, now: Instant, request: &CancelAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let Some(slot) = self.live_attempt(now, request.attempt) else {
            return Err(self.gone(now, request.attempt, |it| {
                let party = it.host == caller.principal || it.joiner == caller.principal || caller.operator;
                it.tenant == caller.tenant && party
            }));
        };
        let attempt = &self.attempts[slot];
        let host = self.listings[attempt.listing].owner;
        let reason = match attempt {
            it if it.tenant != caller.tenant => return Err(Refusal::NotFound),
            it if it.joiner == caller.principal => AttemptReason::Cancelled,
            _ if host == caller.principal || caller.operator => AttemptReason::Declined,
            _ => return Err(Refusal::NotFound),
        };
        if attempt.times.introduced.get().is_some() {
            return Err(Refusal::Conflict(ConflictReason::AlreadyIntroduced));
        }
        self.finish_attempt(now, slot, End { at: now, reason });
        Ok(Reply::Cancelled)
    }

    pub(super) fn report(&mut self, now: Instant, request: &Report) -> Result<Reply, Refusal> {
        let Some(slot) = self.live_attempt(now, request.attempt) else {
            return self.report_late(now, request);
        };
        let role = self.reporting_role(slot, &request.reporter).ok_or(Refusal::NotFound)?;
        let attempt = &mut self.attempts[slot];
        if attempt.times.introduced.get().is_none() {
            return Err(Refusal::Conflict(ConflictReason::NotIntroduced));
        }
        match *attempt.report_mut(role) {
            Some(before) if before == request.result => return Ok(Reply::Reported),
            Some(_) => return Err(Refusal::Conflict(ConflictReason::AlreadyReported)),
            None => {}
        }
        *attempt.report_mut(role) = Some(request.result);
        if attempt.times.reported.get().is_none() {
            attempt.times.reported = now.into();
        }
        if attempt.host_report.is_some() && attempt.joiner_report.is_some() {
            let reason = reported_reason(attempt);
            self.finish_attempt(now, slot, End { at: now, reason });
        }
        Ok(Reply::Reported)
    }

    /// A report on an attempt that is over: the same one again is acknowledged again, so that a lost ACK does
    /// no harm.
    fn report_late(&self, now: Instant, request: &Report) -> Result<Reply, Refusal> {
        let result = self.results.get(now, request.attempt).ok_or(Refusal::NotFound)?;
        let role = match &request.reporter {
            Reporter::Caller(caller) if caller.tenant != result.tenant => None,
            Reporter::Caller(caller) => role_of(caller, result.host, result.joiner),
            Reporter::Datagram(proof) => proof.role().filter(|role| {
                // A host's key is as dead as its listing, or superseded; a joiner's was this attempt's only one.
                let (handle, live) = match role {
                    Role::Host => (result.story.listing(), self.authorise_host(now, proof).is_ok()),
                    Role::Joiner => (result.story.id().handle(), true),
                };
                live && proof.key_id.handle() == handle && proof.key_id.tenant() == result.tenant
            }),
        };
        match result.story.report(role.ok_or(Refusal::NotFound)?) {
            Some(before) if before == request.result => Ok(Reply::Reported),
            Some(_) => Err(Refusal::Conflict(ConflictReason::AlreadyReported)),
            None => Err(Refusal::Expired),
        }
    }

    fn reporting_role(&self, slot: Slot<Attempt>, reporter: &Reporter) -> Option<Role> {
        let attempt = &self.attempts[slot];
        match reporter {
            Reporter::Caller(caller) if caller.tenant != attempt.tenant => None,
            Reporter::Caller(caller) => role_of(caller, self.listings[attempt.listing].owner, attempt.joiner),
            Reporter::Datagram(proof) => {
                let role = proof.role()?;
                (self.role_key(slot, role) == proof.key_id).then_some(role)
            }
        }
    }

    /// Takes an attempt apart that ended, gives back its capacity and keeps its result for a while. A full pool of
    /// results keeps none: the end of an attempt cannot be refused, and no older result is evicted for it.
    pub(super) fn finish_attempt(&mut self, now: Instant, slot: Slot<Attempt>, end: End) {
        let story = self.story(slot);
        let Self { attempts, listings, tenants, .. } = self;
        let Attempt { tenant: id, joiner, listing, .. } = attempts[slot];
        let standing = attempts[slot].standing();
        listings[listing].attempts(standing).remove(attempts, slot);
        if let Some(tenant) = tenants.get_mut(&id) {
            tenant.take_from_principal(joiner, |it| it.joined.remove(attempts, slot));
            if tenant.is_unused() {
                tenants.remove(&id);
            }
        }
        attempts.remove(slot);
        let Listing { owner: host, is_retired, .. } = listings[listing];
        if is_retired && !listings[listing].holds_any() {
            listings.free(listing);
        }
        self.tallies.attempt_reasons.count(end.reason);
        if end.reason != AttemptReason::Drained {
            self.results.keep(now, end, (id, host, joiner), story);
        }
    }

    /// What to say of an attempt that is not active: `expired` to those who took part, `not_found` to others.
    pub(super) fn gone(
        &self,
        now: Instant,
        id: AttemptId,
        took_part: impl Fn(&AttemptResult) -> bool,
    ) -> Refusal {
        let known = self.results.get(now, id).is_some_and(took_part);
        if known { Refusal::Expired } else { Refusal::NotFound }
    }

    /// What the creation was answered: an introduction that prolonged the attempt since does not show.
    fn attempt_grant(&self, slot: Slot<Attempt>, replayed: bool) -> AttemptGrant {
        let attempt = &self.attempts[slot];
        AttemptGrant {
            id: attempt.id(self.attempts.handle(slot)),
            listing: self.listings[attempt.listing].id(self.listings.handle(attempt.listing)),
            joiner_key: self.joiner_key(slot),
            lifetime: attempt.lifetime.duration(),
            deadline: attempt.first_deadline(),
            replayed,
        }
    }
}

/// A caller that is both parties speaks as the joiner: the host has its datagrams.
fn role_of(caller: &Caller, host: PrincipalId, joiner: PrincipalId) -> Option<Role> {
    match caller.principal {
        principal if principal == joiner => Some(Role::Joiner),
        principal if principal == host => Some(Role::Host),
        _ => None,
    }
}
