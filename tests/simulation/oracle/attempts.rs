//! Attempts: what was acknowledged of them, and who was told of whom.

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::{Endpoint, Family, Mapping};
use rendezvous_shared::id::{AttemptId, ListingId, Role};
use rendezvous_shared::limits::{ATTEMPT_MAX, ATTEMPT_MIN};
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{
    AttemptGrant, Caller, CancelAttempt, Candidates, CreateAttempt, Introduction, ListPending, Reply, Report,
    Reporter,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::{Known, Oracle, Record, broken, conflict, granted, known, record_deadline, record_key};

/// A bound role.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideFact {
    pub(super) key: KeyId,
    pub(super) endpoint: Endpoint,
    pub(super) candidates: Candidates,
    pub(super) mapping: Mapping,
}

/// What is known of an attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptFact {
    pub(super) listing: ListingId,
    pub(super) host: Caller,
    pub(super) joiner: Caller,
    pub(super) key: KeyId,
    pub(super) created: Instant,
    pub(super) first_deadline: Instant,
    pub(super) deadline: Instant,
    pub(super) record: super::RecordKey,
    pub(super) sides: [Option<SideFact>; 2],
    /// What host and joiner were told.
    pub(super) introduced: Option<[Introduction; 2]>,
    pub(super) reports: [Option<ReportResult>; 2],
    /// Ended before its time, for this reason.
    pub(super) ended: Option<(Instant, AttemptReason)>,
    /// Whether its listing could be joined when its deadline came; not kept as long as the listing's facts tell.
    pub(super) joinable_at_deadline: Option<bool>,
    /// The reason that was told first.
    pub(super) told: Option<AttemptReason>,
}

pub(super) const fn place(role: Role) -> usize {
    match role {
        Role::Host => 0,
        Role::Joiner => 1,
    }
}

impl AttemptFact {
    pub(super) fn end(&mut self, now: Instant, reason: AttemptReason) {
        self.ended = Some((now, reason));
    }

    pub(super) fn role_of(&self, caller: Caller) -> Option<Role> {
        let is = |it: Caller| it.tenant == caller.tenant && it.principal == caller.principal;
        if is(self.joiner) { Some(Role::Joiner) } else { is(self.host).then_some(Role::Host) }
    }
}

impl Oracle {
    pub(super) fn live_attempt(&self, now: Instant, id: AttemptId) -> Option<&AttemptFact> {
        let there = |it: &&AttemptFact| {
            it.ended.is_none() && it.deadline > now && self.live_listing(now, it.listing).is_some()
        };
        self.attempts.get(&id).filter(there)
    }

    /// How many attempts live.
    pub(super) fn attempts_live(&self, now: Instant) -> usize {
        self.attempts.keys().filter(|id| self.live_attempt(now, **id).is_some()).count()
    }

    /// Every attempt not forgotten, with its joiner.
    pub(super) fn known_attempts(&self) -> Vec<(AttemptId, Caller)> {
        self.attempts.iter().map(|(id, it)| (*id, it.joiner)).collect()
    }

    /// Forgets what nobody can ask for any more.
    pub(super) fn forget_attempts(&mut self, now: Instant) {
        let drained = self.drained(now);
        self.attempt_records.retain(|_, it| it.deadline > now && !drained);
        self.attempts.retain(|_, it| now.since(it.deadline).as_secs() < 120);
    }

    /// Whether the joiner is bound, and the host is not, in a live attempt at this listing.
    pub(super) fn awaits_host(&self, now: Instant, attempt: AttemptId, listing: ListingId) -> bool {
        let waits = |it: &AttemptFact| it.listing == listing && matches!(it.sides, [None, Some(_)]);
        self.live_attempt(now, attempt).is_some_and(waits)
    }

    /// The family in which the joiner of `attempt` bound.
    pub(super) fn joiner_family(&self, attempt: AttemptId) -> Option<Family> {
        Some(self.attempts.get(&attempt)?.sides[1]?.endpoint.family())
    }

    /// Where the peer of `role` is, if the two were introduced.
    pub(crate) fn peer_told(&self, attempt: AttemptId, role: Role) -> Option<Introduction> {
        self.attempts.get(&attempt)?.introduced.map(|told| told[place(role)])
    }

    pub(super) fn on_create(&mut self, now: Instant, request: &CreateAttempt, reply: &Reply) {
        let key = record_key(request.caller, request.idempotency);
        let known = known(&self.attempt_records, &key, now, request.idempotency);
        match (known, reply) {
            (Known::Reused, _) if conflict(reply) == Some(ConflictReason::IdempotencyKeyReused) => {}
            (Known::Same(id), Reply::Refused(Refusal::Expired)) if self.live_attempt(now, id).is_none() => {}
            (Known::Same(id), Reply::AttemptCreated(grant)) if grant.replayed && grant.id == id => {
                let fact = self.live_attempt(now, id);
                if fact.is_none_or(|it| it.first_deadline != grant.deadline || it.key != grant.joiner_key) {
                    broken("a repeated creation has the first answer", format_args!("{grant:?} {fact:?}"));
                }
            }
            (Known::New, Reply::AttemptCreated(grant)) if !grant.replayed => {
                self.on_created(now, request, key, grant)
            }
            (Known::New, Reply::Refused(refusal)) => self.check_create_refused(now, request, *refusal),
            _ => {
                broken("a key is executed once while its record lives", format_args!("{request:?} {reply:?}"))
            }
        }
    }

    fn on_created(
        &mut self,
        now: Instant,
        request: &CreateAttempt,
        key: super::RecordKey,
        grant: &AttemptGrant,
    ) {
        let listing = self.live_listing(now, request.listing).filter(|it| it.visible(now));
        let Some(host) = listing.filter(|it| it.owner.tenant == request.caller.tenant).map(|it| it.owner)
        else {
            broken("only what is visible can be joined", format_args!("{request:?} {grant:?}"));
        };
        let room = self.attempts_live(now) < self.limits.attempts
            && self.attempt_records_live(now) < self.limits.attempt_records;
        let lifetime = granted(request.lifetime, ATTEMPT_MIN, ATTEMPT_MAX);
        let good = grant.lifetime == lifetime && grant.deadline == now.after(lifetime);
        if self.drain.is_some() || !room || !good {
            broken(
                "an attempt is granted as asked, within the ceilings, not while draining",
                format_args!("{grant:?}"),
            );
        }
        let fact = AttemptFact {
            listing: request.listing,
            host,
            joiner: request.caller,
            key: grant.joiner_key,
            created: now,
            first_deadline: grant.deadline,
            deadline: grant.deadline,
            record: key,
            sides: [None; 2],
            introduced: None,
            reports: [None; 2],
            ended: None,
            joinable_at_deadline: None,
            told: None,
        };
        self.attempts_created += 1;
        if self.attempts.insert(grant.id, fact).is_some() {
            broken("an id is given once", grant.id);
        }
        let (fingerprint, deadline) = (request.idempotency.fingerprint, record_deadline(grant.deadline));
        self.attempt_records.insert(key, Record { fingerprint, target: grant.id, deadline });
    }

    pub(super) fn attempt_records_live(&self, now: Instant) -> usize {
        self.attempt_records.values().filter(|it| it.deadline > now).count()
    }

    fn check_create_refused(&self, now: Instant, request: &CreateAttempt, refusal: Refusal) {
        let caller = request.caller;
        let listing = self.live_listing(now, request.listing).filter(|it| it.is_seen_by(now, caller));
        let in_tenant = |ids: &mut dyn Iterator<Item = bool>| ids.filter(|it| *it).count();
        let with_cause = match refusal {
            Refusal::Draining { .. } => self.refuses_new(now, refusal),
            Refusal::NotFound | Refusal::Revoked => {
                listing.is_none() && refusal == self.absent(now, caller, request.listing)
            }
            Refusal::Conflict(ConflictReason::NotJoinable) => listing.is_some_and(|it| !it.visible(now)),
            Refusal::CapacityExceeded(Pool::Attempts) => self.attempts_live(now) >= self.limits.attempts,
            Refusal::CapacityExceeded(Pool::AttemptRecords) => {
                self.attempt_records_live(now) >= self.limits.attempt_records
            }
            Refusal::QuotaExceeded(QuotaScope::Tenant) => {
                let live = in_tenant(&mut self.attempts.iter().map(|(id, it)| {
                    it.joiner.tenant == caller.tenant && self.live_attempt(now, *id).is_some()
                }));
                let records = in_tenant(
                    &mut self
                        .attempt_records
                        .iter()
                        .map(|(key, it)| key.0 == caller.tenant && it.deadline > now),
                );
                live.max(records) >= self.quotas.attempts_per_tenant as usize
            }
            _ => false,
        };
        if !with_cause {
            broken(
                "an attempt is not refused without cause",
                format_args!("{request:?} {refusal:?} {listing:?}"),
            );
        }
    }

    pub(super) fn on_report(&mut self, now: Instant, request: &Report, reply: &Reply) {
        let lives = self.live_attempt(now, request.attempt).is_some();
        let listing_key = |it: &AttemptFact| self.live_listing(now, it.listing).map(|it| it.key);
        let role = self.attempts.get(&request.attempt).and_then(|it| match &request.reporter {
            Reporter::Caller(caller) => it.role_of(*caller),
            Reporter::Datagram(proof) => {
                let host = listing_key(it) == Some(proof.key_id);
                if host { Some(Role::Host) } else { (it.key == proof.key_id).then_some(Role::Joiner) }
            }
        });
        let (Some(role), Some(fact)) = (role, self.attempts.get_mut(&request.attempt)) else {
            if !matches!(reply, Reply::Refused(Refusal::NotFound | Refusal::Expired)) {
                broken("nobody reports without a right", format_args!("{request:?} {reply:?}"));
            }
            return;
        };
        let before = &mut fact.reports[place(role)];
        match (lives, reply) {
            (true, Reply::Reported)
                if fact.introduced.is_some() && before.is_none_or(|it| it == request.result) =>
            {
                before.get_or_insert(request.result);
                if fact.reports.iter().all(Option::is_some) {
                    let reason = fact.reported_reason();
                    fact.end(now, reason);
                }
            }
            (false, Reply::Reported) if *before == Some(request.result) => {}
            (false, Reply::Refused(Refusal::NotFound | Refusal::Expired)) => {}
            (_, Reply::Refused(Refusal::Conflict(ConflictReason::AlreadyReported)))
                if before.is_some_and(|it| it != request.result) => {}
            (true, Reply::Refused(Refusal::Conflict(ConflictReason::NotIntroduced)))
                if fact.introduced.is_none() => {}
            _ => {
                broken("the first report of each role counts", format_args!("{request:?} {reply:?} {fact:?}"))
            }
        }
    }

    pub(super) fn on_cancel(&mut self, now: Instant, request: &CancelAttempt, reply: &Reply) {
        let lives = self.live_attempt(now, request.attempt).is_some();
        let Some(fact) = self.attempts.get_mut(&request.attempt) else { return };
        let role = fact.role_of(request.caller).or(request.caller.operator.then_some(Role::Host));
        match (lives, role, reply) {
            (true, Some(role), Reply::Cancelled) if fact.introduced.is_none() => {
                let reason =
                    if role == Role::Joiner { AttemptReason::Cancelled } else { AttemptReason::Declined };
                fact.end(now, reason);
            }
            (true, Some(_), _)
                if conflict(reply) == Some(ConflictReason::AlreadyIntroduced)
                    && fact.introduced.is_some() => {}
            (false, _, Reply::Refused(Refusal::NotFound | Refusal::Expired))
            | (_, None, Reply::Refused(Refusal::NotFound)) => {}
            _ => broken(
                "an attempt is cancelled by a party, before it is introduced",
                format_args!("{request:?} {reply:?} {fact:?}"),
            ),
        }
    }

    pub(super) fn on_pending(&self, now: Instant, request: &ListPending, reply: &Reply) {
        let owner = |it: &&super::ListingFact| {
            it.owner.principal == request.caller.principal && it.owner.tenant == request.caller.tenant
        };
        let own = self.live_listing(now, request.listing).filter(owner).is_some();
        match (own, reply) {
            (false, Reply::Refused(refusal))
                if *refusal == self.absent(now, request.caller, request.listing) => {}
            (true, Reply::Pending(pending)) => {
                let waits = |id: &AttemptId| {
                    self.live_attempt(now, *id)
                        .is_some_and(|it| it.listing == request.listing && it.sides[0].is_none())
                };
                let wanted: Vec<_> = self.attempts.keys().copied().filter(waits).collect();
                let mut told: Vec<_> = pending.iter().map(|it| it.id).collect();
                told.sort();
                if told != wanted {
                    broken(
                        "the host is shown every attempt it did not bind",
                        format_args!("{told:?} {wanted:?}"),
                    );
                }
            }
            _ => broken(
                "an acknowledged listing lives until its deadline",
                format_args!("{request:?} {reply:?}"),
            ),
        }
    }
}
