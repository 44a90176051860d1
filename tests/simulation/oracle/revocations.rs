//! Revocations: whom and what is barred, and that nothing is done for them.

use rendezvous_shared::id::{ListingId, PrincipalId, RevocationId, TenantId};
use rendezvous_shared::limits::{PAGE_LEN_MAX, REVOCATION_MAX, REVOCATION_MIN};
use rendezvous_shared::outcome::{AttemptReason, Pool, Refusal};
use rendezvous_shared::store::{
    Caller, LiftRevocation, ListRevocations, Reply, RevocationPage, RevocationView, Revoke, Subject,
    Transition,
};
use rendezvous_shared::time::Instant;

use super::{Oracle, broken, granted};

/// What is known of a revocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevocationFact {
    tenant: TenantId,
    subject: Subject,
    /// Whose listing it was; of a principal, itself.
    owner: PrincipalId,
    deadline: Instant,
}

impl Oracle {
    /// The revocations that hold, with their tenants.
    pub(crate) fn revocations(&self, now: Instant) -> Vec<(RevocationId, TenantId)> {
        self.live_revocations(now).map(|(id, it)| (*id, it.tenant)).collect()
    }

    fn live_revocations(&self, now: Instant) -> impl Iterator<Item = (&RevocationId, &RevocationFact)> {
        let drained = self.drained(now);
        self.revocations.iter().filter(move |(_, it)| it.deadline > now && !drained)
    }

    fn find_revocation(
        &self,
        now: Instant,
        tenant: TenantId,
        subject: Subject,
    ) -> Option<(RevocationId, RevocationFact)> {
        let same = |(_, it): &(&RevocationId, &RevocationFact)| it.tenant == tenant && it.subject == subject;
        self.live_revocations(now).find(same).map(|(id, it)| (*id, *it))
    }

    /// Whether nothing is done for this caller.
    pub(super) fn is_barred(&self, now: Instant, caller: Caller) -> bool {
        self.find_revocation(now, caller.tenant, Subject::Principal(caller.principal)).is_some()
    }

    /// What a caller is told of a listing that is not there for it: why, if it was its own and was revoked.
    pub(super) fn absent(&self, now: Instant, caller: Caller, listing: ListingId) -> Refusal {
        let found = self.find_revocation(now, caller.tenant, Subject::Listing(listing));
        let own = found.is_some_and(|(_, it)| it.owner == caller.principal);
        if own { Refusal::Revoked } else { Refusal::NotFound }
    }

    /// Whether the caller is barred; then it must have been told just that.
    pub(super) fn check_barred(&self, now: Instant, transition: &Transition, reply: &Reply) -> bool {
        let barred = transition.caller().is_some_and(|caller| self.is_barred(now, caller));
        if barred && *reply != Reply::Refused(Refusal::Revoked) {
            broken("nothing is done for who is revoked", format_args!("{transition:?} {reply:?}"));
        }
        barred
    }

    pub(super) fn on_revoke(&mut self, now: Instant, request: &Revoke, reply: &Reply) {
        let tenant = request.caller.tenant;
        let known = self.find_revocation(now, tenant, request.subject);
        let owner = match (known, request.subject) {
            (Some((_, it)), _) => Some(it.owner),
            (None, Subject::Principal(principal)) => Some(principal),
            (None, Subject::Listing(id)) => {
                let listing = self.live_listing(now, id).filter(|it| it.owner.tenant == tenant);
                listing.map(|it| it.owner.principal)
            }
        };
        let owner = owner.filter(|_| request.caller.operator);
        let room = known.is_some() || self.revocations_live(now) < self.limits.revocations;
        match (owner, reply) {
            (None, Reply::Refused(Refusal::NotFound)) => {}
            (Some(_), Reply::Refused(Refusal::CapacityExceeded(Pool::Revocations))) if !room => {}
            (Some(owner), Reply::Revoked(view)) if room => {
                let lifetime = granted(request.lifetime, REVOCATION_MIN, REVOCATION_MAX);
                let least = known.map_or(Instant::ZERO, |(_, it)| it.deadline);
                let deadline = now.after(lifetime).max(least);
                let same_id = known.map_or(!self.revocations.contains_key(&view.id), |(id, _)| id == view.id);
                if view.subject != request.subject || view.deadline != deadline || !same_id {
                    broken("revoking again prolongs what there is", format_args!("{request:?} {view:?}"));
                }
                let fact = RevocationFact { tenant, subject: request.subject, owner, deadline };
                self.revocations.insert(view.id, fact);
                self.end_what_is_of(now, tenant, request.subject);
            }
            _ => broken(
                "an operator revokes what is there, within the ceiling",
                format_args!("{request:?} {reply:?} {known:?}"),
            ),
        }
    }

    fn end_what_is_of(&mut self, now: Instant, tenant: TenantId, subject: Subject) {
        if let Subject::Principal(principal) = subject {
            self.end_joined_by(now, tenant, principal);
        }
        for (id, listing) in &mut self.listings {
            let (hit, reason) = match subject {
                Subject::Listing(revoked) => (revoked == *id, AttemptReason::ListingGone),
                Subject::Principal(principal) => {
                    (principal == listing.owner.principal, AttemptReason::Revoked)
                }
            };
            if hit && listing.owner.tenant == tenant {
                listing.take_away(now, reason);
            }
        }
    }

    pub(super) fn revocations_live(&self, now: Instant) -> usize {
        self.live_revocations(now).count()
    }

    pub(super) fn on_lift(&mut self, now: Instant, request: &LiftRevocation, reply: &Reply) {
        let Caller { tenant, operator, .. } = request.caller;
        let there =
            self.live_revocations(now).any(|(id, it)| *id == request.revocation && it.tenant == tenant);
        match (there && operator, reply) {
            (true, Reply::Lifted) => {
                self.revocations.remove(&request.revocation);
            }
            (false, Reply::Refused(Refusal::NotFound)) => {}
            _ => broken("an operator lifts a revocation once", format_args!("{request:?} {reply:?}")),
        }
    }

    pub(super) fn on_list_revocations(&self, now: Instant, request: &ListRevocations, reply: &Reply) {
        let Caller { tenant, operator, .. } = request.caller;
        let of_tenant = self.live_revocations(now).filter(|(_, it)| it.tenant == tenant);
        let mut wanted: Vec<_> = of_tenant
            .filter(|(id, _)| request.after.is_none_or(|after| **id > after))
            .map(|(id, it)| RevocationView { id: *id, subject: it.subject, deadline: it.deadline })
            .collect();
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let more = wanted.len() > limit;
        wanted.truncate(limit);
        let next_after = wanted.last().map(|it| it.id).filter(|_| more);
        let right = match reply {
            Reply::Revocations(page) => {
                operator && *page == RevocationPage { revocations: wanted, next_after }
            }
            Reply::Refused(Refusal::NotFound) => !operator,
            _ => false,
        };
        if !right {
            broken("operators are shown what is revoked", format_args!("{request:?} {reply:?}"));
        }
    }
}
