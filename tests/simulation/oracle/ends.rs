//! How attempts end: when, for which reason, and what is shown of them.

use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::{ListingId, PrincipalId, TenantId};
use rendezvous_shared::limits::RESULT_LIFETIME;
use rendezvous_shared::outcome::{AttemptReason, Refusal};
use rendezvous_shared::store::{AttemptView, GetAttempt, Phase, Reply};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::attempts::AttemptFact;
use super::listings::ListingFact;
use super::{Oracle, broken};

/// More results than all the attempts here have.
const RESULTS_OF_ALL: usize = 1_000;

impl Oracle {
    /// A principal was revoked: every attempt in which it joined ends.
    pub(super) fn end_joined_by(&mut self, now: Instant, tenant: TenantId, principal: PrincipalId) {
        let joined = |it: &AttemptFact| it.joiner.tenant == tenant && it.joiner.principal == principal;
        let joined: Vec<_> = self.attempts.iter().filter(|(_, it)| joined(it)).map(|(id, _)| *id).collect();
        for id in joined {
            if self.live_attempt(now, id).is_some()
                && let Some(fact) = self.attempts.get_mut(&id)
            {
                fact.end(now, AttemptReason::Revoked);
            }
        }
    }

    /// The presence of a listing changes: what it was when its attempts' deadlines came is kept.
    pub(super) fn settle_attempts(&mut self, now: Instant, id: ListingId) {
        let Some(listing) = self.listings.get(&id) else { return };
        let over = |it: &&mut AttemptFact| it.listing == id && it.deadline <= now;
        for fact in self.attempts.values_mut().filter(over) {
            fact.joinable_at_deadline.get_or_insert(listing.was_joinable(fact.deadline));
        }
    }

    pub(super) fn on_get_attempt(&mut self, now: Instant, request: &GetAttempt, reply: &Reply) {
        let lives = self.live_attempt(now, request.attempt).is_some();
        let Some(fact) = self.attempts.get_mut(&request.attempt) else { return };
        let listing = self.listings.get(&fact.listing);
        let caller = request.caller;
        let party =
            fact.role_of(caller).is_some() || (caller.operator && caller.tenant == fact.joiner.tenant);
        match reply {
            Reply::Attempt(view) if party => fact.check_view(now, lives, listing, view),
            Reply::Refused(Refusal::NotFound) if !party => {}
            Reply::Refused(Refusal::NotFound) if !lives => {
                let (ended, reason) = fact.ended.unwrap_or_else(|| fact.end_by_itself(listing));
                let over = now.since(ended) >= RESULT_LIFETIME;
                if !over && self.limits.attempt_results >= RESULTS_OF_ALL {
                    broken("a result is kept for its time", format_args!("{fact:?} {reason:?} at {now:?}"));
                }
            }
            _ => broken(
                "an acknowledged attempt lives until its deadline",
                format_args!("{request:?} {reply:?} {fact:?}"),
            ),
        }
    }
}

impl AttemptFact {
    pub(super) fn reported_reason(&self) -> AttemptReason {
        match self.reports {
            [None, None] => AttemptReason::Unreported,
            reports if reports.contains(&Some(ReportResult::Connected)) => AttemptReason::Connected,
            _ if self.sides.iter().flatten().any(|it| it.mapping == Mapping::Varies) => {
                AttemptReason::MappingVaries
            }
            reports if reports.contains(&Some(ReportResult::PeerSilent)) => AttemptReason::PeerSilent,
            _ => AttemptReason::ReportedFailed,
        }
    }

    /// When and why it ended by itself: its time was over, or its listing's. A listing that is forgotten here was over
    /// long before its attempts are.
    fn end_by_itself(&self, listing: Option<&ListingFact>) -> (Instant, AttemptReason) {
        if let Some(listing) = listing.filter(|it| it.ends_before(self.deadline)) {
            return (listing.ends(), listing.end_reason());
        }
        let joinable = self
            .joinable_at_deadline
            .unwrap_or_else(|| listing.is_some_and(|it| it.was_joinable(self.deadline)));
        let reason = match (self.introduced, self.sides) {
            (Some(_), _) => self.reported_reason(),
            _ if !joinable => AttemptReason::HostPresenceStale,
            (None, [Some(_), None]) => AttemptReason::JoinerSilent,
            (None, [None, Some(_)]) => AttemptReason::HostSilent,
            (None, _) => AttemptReason::Expired,
        };
        (self.deadline, reason)
    }

    fn check_view(&mut self, now: Instant, lives: bool, listing: Option<&ListingFact>, view: &AttemptView) {
        let bound = self.sides.iter().any(Option::is_some);
        let phase = match (self.introduced, bound) {
            (Some(_), _) => Phase::Introduced,
            (None, true) => Phase::Bound,
            (None, false) => Phase::Created,
        };
        let Phase::Ended(reason) = view.phase else {
            if !lives
                || view.phase != phase
                || view.deadline != self.deadline
                || view.times.created != self.created
            {
                broken(
                    "an attempt is shown as it was acknowledged",
                    format_args!("{view:?} {self:?} at {now:?}"),
                );
            }
            return;
        };
        let (ended, right) = self.ended.unwrap_or_else(|| self.end_by_itself(listing));
        let kept = view.times.ended == Some(ended) && now.since(ended) < RESULT_LIFETIME;
        if lives || reason != right || !kept || self.told.is_some_and(|told| told != reason) {
            broken(
                "an attempt ends once, for the right reason",
                format_args!("{view:?} {self:?} {listing:?} at {now:?}"),
            );
        }
        self.told = Some(reason);
    }
}
