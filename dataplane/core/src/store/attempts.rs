//! Attempts: create, read, cancel, report, and their end.

use std::sync::Arc;

use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    AttemptGrant, Caller, CancelAttempt, CreateAttempt, GetAttempt, ListPending, PendingAttempt, Phase,
    PhaseTimes, Reply, Report, Reporter,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::due::Due;
use super::idempotency::RecordKey;
use super::listings::LOWEST;
use super::records::{Attempt, AttemptResult};
use super::{AttemptKey, ListingKey, MemoryStore, handle_of, key_at};

impl MemoryStore {
    pub(super) fn create_attempt(&mut self, now: Instant, request: &CreateAttempt) -> Result<Reply, Refusal> {
        let record = RecordKey::new(request.caller, request.idempotency);
        if let Some(id) = self.attempt_records.find(record, request.idempotency.fingerprint)? {
            let key = self.find_attempt(id).ok_or(Refusal::Expired)?;
            return Ok(Reply::AttemptCreated(Box::new(self.attempt_grant(key, true))));
        }
        self.refuse_while_draining(now)?;
        let listing = self.joinable_listing(request)?;
        let in_tenant = self.tenant_use(request.caller.tenant);
        let share = self.attempt_records.share(request.quotas.attempts_per_tenant, self.limits.attempts);
        if in_tenant.attempts >= request.quotas.attempts_per_tenant || in_tenant.attempt_records >= share {
            return Err(Refusal::QuotaExceeded(QuotaScope::Tenant));
        }
        if self.attempts.len() >= self.limits.attempts {
            return Err(Refusal::CapacityExceeded(Pool::Attempts));
        }
        if self.attempt_records.is_full() {
            return Err(Refusal::CapacityExceeded(Pool::AttemptRecords));
        }
        let key = self.insert_attempt(now, request, listing, record);
        Ok(Reply::AttemptCreated(Box::new(self.attempt_grant(key, false))))
    }

    /// The listing to join. Only its owner learns that it exists but cannot be joined now.
    fn joinable_listing(&self, request: &CreateAttempt) -> Result<ListingKey, Refusal> {
        let key = self.find_listing(request.listing).ok_or(Refusal::NotFound)?;
        let listing = &self.listings[key];
        if !self.may_see(request.caller, listing) {
            return Err(Refusal::NotFound);
        }
        if listing.is_joinable() { Ok(key) } else { Err(Refusal::Conflict(ConflictReason::NotJoinable)) }
    }

    fn insert_attempt(
        &mut self,
        now: Instant,
        request: &CreateAttempt,
        listing: ListingKey,
        record: RecordKey,
    ) -> AttemptKey {
        let tag = self.next_tag();
        let deadline = now.after(request.lifetime);
        let host = self.listings[listing].owner;
        let key = self.attempts.insert_with_key(|key| Attempt {
            id: AttemptId::new(tag, handle_of(key)),
            tenant: request.caller.tenant,
            listing,
            listing_id: request.listing,
            host,
            joiner: request.caller.principal,
            note: request.note.as_ref().map(Arc::clone),
            lifetime: request.lifetime,
            deadline,
            // Outlives the longest life an introduction can give it.
            joiner_key_expires: deadline.after(2 * limits::INTRODUCED_LIFETIME_MIN),
            host_side: None,
            joiner_side: None,
            host_report: None,
            joiner_report: None,
            times: PhaseTimes {
                created: now,
                host_bound: None,
                joiner_bound: None,
                introduced: None,
                reported: None,
                ended: None,
            },
            record,
            filed: deadline,
        });
        let id = self.attempts[key].id;
        self.due.file(deadline, Due::Attempt(key));
        self.linked.insert((listing, key));
        let usage = self.tenants.entry(request.caller.tenant).or_default();
        usage.attempts += 1;
        usage.attempt_records += 1;
        let fingerprint = request.idempotency.fingerprint;
        self.attempt_records.insert(record, fingerprint, id, deadline, (&mut self.due, Due::AttemptRecord));
        self.tallies.attempts_high_water = self.tallies.attempts_high_water.max(self.attempts.len());
        key
    }

    pub(super) fn get_attempt(&self, request: &GetAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let (tenant, host, joiner, view) = match self.find_attempt(request.attempt) {
            Some(key) => {
                let it = &self.attempts[key];
                (it.tenant, it.host, it.joiner, it.view())
            }
            None => {
                let it = self.results.get(&request.attempt).ok_or(Refusal::NotFound)?;
                (it.tenant, it.host, it.joiner, it.view)
            }
        };
        let party = caller.principal == host || caller.principal == joiner || caller.operator;
        if tenant == caller.tenant && party {
            Ok(Reply::Attempt(Box::new(view)))
        } else {
            Err(Refusal::NotFound)
        }
    }

    pub(super) fn list_pending(&self, request: &ListPending) -> Result<Reply, Refusal> {
        let listing = self.owned_listing(request.caller, request.listing)?;
        let linked = self.linked.range((listing, key_at::<AttemptKey>(LOWEST))..);
        let pending = linked
            .take_while(|&&(of, _)| of == listing)
            .take(limits::PAGE_EXAMINED_MAX)
            .map(|&(_, key)| &self.attempts[key])
            .filter(|attempt| attempt.host_side.is_none())
            .take(limits::PENDING_ATTEMPTS_MAX)
            .map(|attempt| PendingAttempt {
                id: attempt.id,
                note: attempt.note.clone(),
                joiner_bound: attempt.joiner_side.is_some(),
                deadline: attempt.deadline,
            });
        Ok(Reply::Pending(pending.collect()))
    }

    pub(super) fn cancel_attempt(&mut self, now: Instant, request: &CancelAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let Some(key) = self.find_attempt(request.attempt) else {
            return Err(self.gone(request.attempt, |it| {
                let party = it.host == caller.principal || it.joiner == caller.principal || caller.operator;
                it.tenant == caller.tenant && party
            }));
        };
        let attempt = &self.attempts[key];
        let reason = match attempt {
            it if it.tenant != caller.tenant => return Err(Refusal::NotFound),
            it if it.joiner == caller.principal => AttemptReason::Cancelled,
            it if it.host == caller.principal || caller.operator => AttemptReason::Declined,
            _ => return Err(Refusal::NotFound),
        };
        if attempt.times.introduced.is_some() {
            return Err(Refusal::Conflict(ConflictReason::AlreadyIntroduced));
        }
        self.finish_attempt(now, key, reason);
        Ok(Reply::Cancelled)
    }

    pub(super) fn report(&mut self, now: Instant, request: &Report) -> Result<Reply, Refusal> {
        self.refuse_when_drained()?;
        let Some(key) = self.find_attempt(request.attempt) else { return self.report_late(request) };
        let role = self.reporting_role(key, &request.reporter).ok_or(Refusal::NotFound)?;
        let attempt = &mut self.attempts[key];
        if attempt.times.introduced.is_none() {
            return Err(Refusal::Conflict(ConflictReason::NotIntroduced));
        }
        match *attempt.report_mut(role) {
            Some(before) if before == request.result => return Ok(Reply::Reported),
            Some(_) => return Err(Refusal::Conflict(ConflictReason::AlreadyReported)),
            None => {}
        }
        if let Reporter::Datagram(proof) = &request.reporter
            && let Some(side) = attempt.side_mut(role)
        {
            side.freshness =
                Some(super::freshness::accept(side.freshness, proof).ok_or(Refusal::StaleSequence)?);
        }
        *attempt.report_mut(role) = Some(request.result);
        attempt.times.reported.get_or_insert(now);
        if let (Some(host), Some(joiner)) = (attempt.host_report, attempt.joiner_report) {
            self.finish_attempt(now, key, reported_reason([Some(host), Some(joiner)]));
        }
        Ok(Reply::Reported)
    }

    /// A report on an attempt that is over: the same one again is acknowledged again, so that a lost ACK does
    /// no harm.
    fn report_late(&self, request: &Report) -> Result<Reply, Refusal> {
        let result = self.results.get(&request.attempt).ok_or(Refusal::NotFound)?;
        let role = match &request.reporter {
            Reporter::Caller(caller) if caller.tenant != result.tenant => None,
            Reporter::Caller(caller) => role_of(caller, result.host, result.joiner),
            Reporter::Datagram(proof) => proof.role().filter(|role| {
                // A host's key is as dead as its listing, or superseded; a joiner's was this attempt's only one.
                let (handle, live) = match role {
                    Role::Host => (result.view.listing.handle(), self.authorise_host(proof).is_ok()),
                    Role::Joiner => (result.view.id.handle(), true),
                };
                live && proof.key_id.handle() == handle && proof.key_id.tenant() == result.tenant
            }),
        };
        let before = match role.ok_or(Refusal::NotFound)? {
            Role::Host => result.view.host_report,
            Role::Joiner => result.view.joiner_report,
        };
        match before {
            Some(before) if before == request.result => Ok(Reply::Reported),
            Some(_) => Err(Refusal::Conflict(ConflictReason::AlreadyReported)),
            None => Err(Refusal::Expired),
        }
    }

    fn reporting_role(&self, key: AttemptKey, reporter: &Reporter) -> Option<Role> {
        let attempt = &self.attempts[key];
        match reporter {
            Reporter::Caller(caller) if caller.tenant != attempt.tenant => None,
            Reporter::Caller(caller) => role_of(caller, attempt.host, attempt.joiner),
            Reporter::Datagram(proof) => {
                let role = proof.role()?;
                (self.role_key(key, role) == proof.key_id).then_some(role)
            }
        }
    }

    /// The attempt's time is over.
    pub(super) fn expire_attempt(&mut self, now: Instant, key: AttemptKey) {
        let Some(attempt) = self.attempts.get_mut(key) else { return };
        if attempt.deadline > now {
            attempt.filed = attempt.deadline;
            self.due.file(attempt.filed, Due::Attempt(key));
            return;
        }
        let joinable = self.listings.get(attempt.listing).is_some_and(|it| it.is_joinable());
        let reason = match (attempt.phase(), &attempt.host_side, &attempt.joiner_side) {
            (Phase::Introduced | Phase::Ended(_), ..) => {
                reported_reason([attempt.host_report, attempt.joiner_report])
            }
            _ if !joinable => AttemptReason::HostPresenceStale,
            (_, None, Some(_)) => AttemptReason::HostSilent,
            (_, Some(_), None) => AttemptReason::JoinerSilent,
            _ => AttemptReason::Expired,
        };
        self.finish_attempt(now, key, reason);
    }

    /// Ends an attempt, gives back its capacity and keeps its result for a while. A full pool of results keeps
    /// none: the end of an attempt cannot be refused, and no older result is evicted for it.
    pub(super) fn finish_attempt(&mut self, now: Instant, key: AttemptKey, reason: AttemptReason) {
        let Some(attempt) = self.attempts.remove(key) else { return };
        self.due.forget(attempt.filed, Due::Attempt(key));
        self.linked.remove(&(attempt.listing, key));
        self.waiting.remove(&(attempt.listing, key));
        self.release_tenant(attempt.tenant, |it| it.attempts -= 1);
        self.tallies.attempt_reasons.count(reason);
        if self.results.len() >= self.limits.attempt_results {
            self.tallies.results_dropped += 1;
            return;
        }
        let mut view = attempt.view();
        view.phase = Phase::Ended(reason);
        view.times.ended = Some(now);
        let Attempt { id, tenant, host, joiner, .. } = attempt;
        self.results.insert(id, AttemptResult { tenant, host, joiner, view });
        self.due.file(now.after(limits::RESULT_LIFETIME), Due::Result(id));
        self.tallies.results_high_water = self.tallies.results_high_water.max(self.results.len());
    }

    pub(super) fn find_attempt(&self, id: AttemptId) -> Option<AttemptKey> {
        let key = key_at(id.handle());
        self.attempts.get(key).filter(|it| it.id == id).map(|_| key)
    }

    /// What to say of an attempt that is not active: `expired` to those who took part, `not_found` to others.
    pub(super) fn gone(&self, id: AttemptId, took_part: impl Fn(&AttemptResult) -> bool) -> Refusal {
        let known = self.results.get(&id).is_some_and(took_part);
        if known { Refusal::Expired } else { Refusal::NotFound }
    }

    /// What the creation was answered: an introduction that prolonged the attempt since does not show.
    fn attempt_grant(&self, key: AttemptKey, replayed: bool) -> AttemptGrant {
        let attempt = &self.attempts[key];
        AttemptGrant {
            id: attempt.id,
            listing: attempt.listing_id,
            joiner_key: self.joiner_key(key, attempt),
            lifetime: attempt.lifetime,
            deadline: attempt.times.created.after(attempt.lifetime),
            replayed,
        }
    }
}

/// A caller that is both parties speaks as the joiner: the host has its datagrams.
fn role_of(
    caller: &Caller,
    host: rendezvous_shared::id::PrincipalId,
    joiner: rendezvous_shared::id::PrincipalId,
) -> Option<Role> {
    match caller.principal {
        principal if principal == joiner => Some(Role::Joiner),
        principal if principal == host => Some(Role::Host),
        _ => None,
    }
}

/// One that hears the other settles it: each direction was open.
fn reported_reason(reports: [Option<ReportResult>; 2]) -> AttemptReason {
    if reports.contains(&Some(ReportResult::Connected)) {
        AttemptReason::Connected
    } else if reports.iter().any(Option::is_some) {
        AttemptReason::ReportedFailed
    } else {
        AttemptReason::Unreported
    }
}
