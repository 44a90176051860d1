//! Attempts: create, read, cancel, report.

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::id::{AttemptId, PrincipalId, Role};
use rendezvous_shared::limits::{
    ATTEMPT_MAX, ATTEMPT_MIN, INTRODUCED_LIFETIME_MIN, PENDING_ATTEMPTS_MAX, RECORD_GRACE,
};
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    AttemptGrant, Caller, CancelAttempt, CreateAttempt, GetAttempt, ListPending, PendingAttempt, PhaseTimes,
    Reply, Report, Reporter,
};

use super::expiry::reported_reason;
use super::listings::{find, share};
use super::records::{Attempt, Ended, INSTANCE, Record};
use super::{NaiveStore, granted};

impl NaiveStore {
    pub(super) fn create_attempt(&mut self, request: &CreateAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        if let Some(record) = find(&self.attempt_records, caller, request.idempotency.key) {
            if record.idempotency.fingerprint != request.idempotency.fingerprint {
                return Err(Refusal::Conflict(ConflictReason::IdempotencyKeyReused));
            }
            let attempt = self.attempt(record.target).ok_or(Refusal::Expired)?;
            return Ok(attempt_grant(attempt, true));
        }
        self.refuse_while_draining()?;
        let host = self.joinable_listing(request)?;
        let of_tenant = self.attempts.iter().filter(|it| it.tenant == caller.tenant).count();
        let records = self.attempt_records.iter().filter(|it| it.tenant == caller.tenant).count();
        let quota = request.quotas.attempts_per_tenant;
        let share = share(quota, self.limits.attempt_records, self.limits.attempts);
        if of_tenant as u64 >= u64::from(quota) || records as u64 >= share {
            return Err(Refusal::QuotaExceeded(QuotaScope::Tenant));
        }
        self.refuse_when_full(Pool::Attempts)?;
        self.refuse_when_full(Pool::AttemptRecords)?;
        let attempt = self.new_attempt(request, host);
        self.attempt_records.push(Record {
            tenant: caller.tenant,
            owner: caller.principal,
            idempotency: request.idempotency,
            target: attempt.id,
            deadline: attempt.deadline.after(RECORD_GRACE),
        });
        let reply = attempt_grant(&attempt, false);
        self.attempts.push(attempt);
        Ok(reply)
    }

    /// The owner of the listing to join. Only its owner, or an operator, learns that it cannot be joined now.
    fn joinable_listing(&self, request: &CreateAttempt) -> Result<PrincipalId, Refusal> {
        let listing = self.listing(request.listing).filter(|it| self.may_see(request.caller, it));
        let listing = listing.ok_or_else(|| self.absent(request.caller, request.listing))?;
        if listing.is_joinable(self.now) {
            Ok(listing.owner)
        } else {
            Err(Refusal::Conflict(ConflictReason::NotJoinable))
        }
    }

    fn new_attempt(&mut self, request: &CreateAttempt, host: PrincipalId) -> Attempt {
        let (tag, handle) = self.next_id();
        let lifetime = granted(request.lifetime, ATTEMPT_MIN, ATTEMPT_MAX);
        let deadline = self.now.after(lifetime);
        let tenant = request.caller.tenant;
        // Outlives the longest life that an introduction can give it.
        let key_expires = deadline.after(2 * INTRODUCED_LIFETIME_MIN);
        Attempt {
            id: AttemptId::new(tag, handle),
            tenant,
            listing: request.listing,
            host,
            joiner: request.caller.principal,
            note: request.note.clone(),
            lifetime,
            deadline,
            joiner_key: KeyId::new(Role::Joiner, tenant, INSTANCE, handle, key_expires),
            host_side: None,
            joiner_side: None,
            host_report: None,
            joiner_report: None,
            times: PhaseTimes {
                created: self.now,
                host_bound: None,
                joiner_bound: None,
                introduced: None,
                reported: None,
                ended: None,
            },
        }
    }

    /// "Both parties and operators", of a live attempt or of its result.
    pub(super) fn get_attempt(&self, request: &GetAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let live = self.attempt(request.attempt).map(|it| (it.tenant, it.host, it.joiner, it.view()));
        let ended = self.result(request.attempt).map(|it| (it.tenant, it.host, it.joiner, it.view));
        let (tenant, host, joiner, view) = live.or(ended).ok_or(Refusal::NotFound)?;
        let party = [host, joiner].contains(&caller.principal) || caller.operator;
        if tenant == caller.tenant && party {
            Ok(Reply::Attempt(Box::new(view)))
        } else {
            Err(Refusal::NotFound)
        }
    }

    /// Those whose joiner waits, longest first; then those nobody is bound in, as they were created.
    pub(super) fn list_pending(&self, request: &ListPending) -> Result<Reply, Refusal> {
        self.own_listing(request.caller, request.listing)?;
        let of_listing = self.attempts.iter().filter(|it| it.listing == request.listing);
        let mut pending: Vec<&Attempt> = of_listing.filter(|it| it.host_side.is_none()).collect();
        pending.sort_by_key(|it| it.joiner_side.map_or(u64::MAX, |side| side.order));
        pending.truncate(PENDING_ATTEMPTS_MAX);
        let pending = pending.into_iter().map(|it| PendingAttempt {
            id: it.id,
            note: it.note.clone(),
            joiner_bound: it.joiner_side.is_some(),
            deadline: it.deadline,
        });
        Ok(Reply::Pending(pending.collect()))
    }

    pub(super) fn cancel_attempt(&mut self, request: &CancelAttempt) -> Result<Reply, Refusal> {
        let caller = request.caller;
        let Some(attempt) = self.attempt(request.attempt) else {
            let took_part = |it: &Ended| {
                it.tenant == caller.tenant
                    && ([it.host, it.joiner].contains(&caller.principal) || caller.operator)
            };
            return Err(self.gone(request.attempt, took_part));
        };
        if attempt.tenant != caller.tenant {
            return Err(Refusal::NotFound);
        }
        let reason = if attempt.joiner == caller.principal {
            AttemptReason::Cancelled
        } else if attempt.host == caller.principal || caller.operator {
            AttemptReason::Declined
        } else {
            return Err(Refusal::NotFound);
        };
        if attempt.times.introduced.is_some() {
            return Err(Refusal::Conflict(ConflictReason::AlreadyIntroduced));
        }
        self.finish_attempt(request.attempt, self.now, reason);
        Ok(Reply::Cancelled)
    }

    pub(super) fn report(&mut self, request: &Report) -> Result<Reply, Refusal> {
        self.refuse_when_drained()?;
        let now = self.now;
        let Some(attempt) = self.attempt(request.attempt) else { return self.report_late(request) };
        let role = match &request.reporter {
            Reporter::Caller(caller) if caller.tenant != attempt.tenant => None,
            Reporter::Caller(caller) => role_of(*caller, attempt.host, attempt.joiner),
            Reporter::Datagram(proof) => self.role_in(attempt, proof.key_id),
        };
        let role = role.ok_or(Refusal::NotFound)?;
        let attempt = self.attempt_mut(request.attempt).ok_or(Refusal::NotFound)?;
        if attempt.times.introduced.is_none() {
            return Err(Refusal::Conflict(ConflictReason::NotIntroduced));
        }
        match *attempt.report_mut(role) {
            Some(before) if before == request.result => return Ok(Reply::Reported),
            Some(_) => return Err(Refusal::Conflict(ConflictReason::AlreadyReported)),
            None => {}
        }
        *attempt.report_mut(role) = Some(request.result);
        attempt.times.reported.get_or_insert(now);
        if attempt.reports().iter().all(Option::is_some) {
            let reason = reported_reason(attempt);
            self.finish_attempt(request.attempt, now, reason);
        }
        Ok(Reply::Reported)
    }

    /// "A repeated REPORT is acknowledged" from the result; there is nothing new to say of what is over.
    fn report_late(&self, request: &Report) -> Result<Reply, Refusal> {
        let result = self.result(request.attempt).ok_or(Refusal::NotFound)?;
        let role = match &request.reporter {
            Reporter::Caller(caller) if caller.tenant != result.tenant => None,
            Reporter::Caller(caller) => role_of(*caller, result.host, result.joiner),
            Reporter::Datagram(proof) if proof.key_id == result.joiner_key => Some(Role::Joiner),
            Reporter::Datagram(proof) => {
                let host = self.listing_of_key(proof.key_id).filter(|it| it.id == result.view.listing);
                host.map(|_| Role::Host)
            }
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

    /// The role whose right in the attempt `key` is.
    pub(super) fn role_in(&self, attempt: &Attempt, key: KeyId) -> Option<Role> {
        if key == attempt.joiner_key {
            return Some(Role::Joiner);
        }
        let host = self.listing(attempt.listing).is_some_and(|it| it.key() == key);
        host.then_some(Role::Host)
    }

    /// What to say of an attempt that is not live: `expired` to those who took part, `not_found` to others.
    pub(super) fn gone(&self, id: AttemptId, took_part: impl Fn(&Ended) -> bool) -> Refusal {
        if self.result(id).is_some_and(took_part) { Refusal::Expired } else { Refusal::NotFound }
    }
}

/// "The same creation again has the same answer", whatever became of the attempt since.
fn attempt_grant(attempt: &Attempt, replayed: bool) -> Reply {
    Reply::AttemptCreated(Box::new(AttemptGrant {
        id: attempt.id,
        listing: attempt.listing,
        joiner_key: attempt.joiner_key,
        lifetime: attempt.lifetime,
        deadline: attempt.times.created.after(attempt.lifetime),
        replayed,
    }))
}

/// A caller that is both parties speaks as the joiner.
fn role_of(caller: Caller, host: PrincipalId, joiner: PrincipalId) -> Option<Role> {
    if caller.principal == joiner {
        Some(Role::Joiner)
    } else if caller.principal == host {
        Some(Role::Host)
    } else {
        None
    }
}
