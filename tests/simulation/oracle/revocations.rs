//! Revocations: whom and what is barred, and that nothing is done for them.
//!
//! Ready for the store that knows them; see [`REVOCATIONS`](crate::reached::REVOCATIONS).

use rendezvous_shared::id::{RevocationId, TenantId};
use rendezvous_shared::outcome::{AttemptReason, Refusal};
use rendezvous_shared::store::{
    Caller, ListingLocator, Reply, Reporter, RevocationView, Revoke, Subject, Transition,
};
use rendezvous_shared::time::Instant;

use super::{Oracle, broken};

/// What is known of a revocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevocationFact {
    tenant: TenantId,
    subject: Subject,
    deadline: Instant,
}

impl Oracle {
    /// The revocations that hold, with their tenants.
    pub(crate) fn revocations(&self, now: Instant) -> Vec<(RevocationId, TenantId)> {
        let live = self.revocations.iter().filter(|(_, it)| it.deadline > now && !self.drained(now));
        live.map(|(id, it)| (*id, it.tenant)).collect()
    }

    fn holds(&self, now: Instant, tenant: TenantId, subject: Subject) -> bool {
        let same = |it: &RevocationFact| it.tenant == tenant && it.subject == subject && it.deadline > now;
        self.revocations.values().any(same) && !self.drained(now)
    }

    /// A barred caller learns so and gets nothing else; nobody else is told that.
    pub(super) fn check_barred(&self, now: Instant, transition: &Transition, reply: &Reply) {
        let refused = matches!(reply, Reply::Refused(Refusal::Revoked));
        let Some(caller) = caller_of(transition) else {
            // A datagram whose key is of something that was revoked.
            if refused && self.revocations.is_empty() {
                broken("revoked is not said without cause", format_args!("{transition:?}"));
            }
            return;
        };
        let barred = self.holds(now, caller.tenant, Subject::Principal(caller.principal));
        let listing = listing_of(transition).is_some_and(|it| self.holds(now, caller.tenant, it));
        if barred && !matches!(reply, Reply::Refused(_)) {
            broken("nothing is done for who is revoked", format_args!("{transition:?} {reply:?}"));
        }
        if refused && !barred && !listing {
            broken("revoked is not said without cause", format_args!("{transition:?}"));
        }
    }

    pub(super) fn on_revoke(&mut self, now: Instant, request: &Revoke, view: &RevocationView) {
        let tenant = request.caller.tenant;
        if view.subject != request.subject || !request.caller.operator {
            broken("an operator revokes what it asked for", format_args!("{request:?} {view:?}"));
        }
        let fact = RevocationFact { tenant, subject: request.subject, deadline: view.deadline };
        self.revocations.insert(view.id, fact);
        for (id, listing) in &mut self.listings {
            let hit = match request.subject {
                Subject::Listing(revoked) => revoked == *id,
                Subject::Principal(principal) => principal == listing.owner.principal,
            };
            if hit && listing.owner.tenant == tenant {
                listing.take_away(now);
            }
        }
        let Subject::Principal(principal) = request.subject else { return };
        for attempt in self.attempts.values_mut() {
            attempt.end_if_joined_by(now, tenant, principal, AttemptReason::Revoked);
        }
    }

    pub(super) fn on_lift(&mut self, id: RevocationId, reply: &Reply) {
        match (self.revocations.remove(&id), reply) {
            (Some(_), Reply::Lifted) | (None, Reply::Refused(Refusal::NotFound)) => {}
            (fact, _) => broken("a revocation is lifted once", format_args!("{fact:?} {reply:?}")),
        }
    }
}

/// The authenticated caller of a transition; a datagram has none.
fn caller_of(transition: &Transition) -> Option<Caller> {
    match transition {
        Transition::RegisterListing(it) => Some(it.caller),
        Transition::RenewLease(it) => Some(it.caller),
        Transition::DeleteListing(it) => Some(it.caller),
        Transition::GetListing(it) => Some(it.caller),
        Transition::BrowseListings(it) => Some(it.caller),
        Transition::CreateAttempt(it) => Some(it.caller),
        Transition::GetAttempt(it) => Some(it.caller),
        Transition::ListPending(it) => Some(it.caller),
        Transition::CancelAttempt(it) => Some(it.caller),
        Transition::Revoke(it) => Some(it.caller),
        Transition::ListRevocations(it) => Some(it.caller),
        Transition::LiftRevocation(it) => Some(it.caller),
        Transition::Report(it) => match it.reporter {
            Reporter::Caller(caller) => Some(caller),
            Reporter::Datagram(_) => None,
        },
        _ => None,
    }
}

/// The listing a transition names.
fn listing_of(transition: &Transition) -> Option<Subject> {
    Some(Subject::Listing(match transition {
        Transition::RenewLease(it) => it.listing,
        Transition::DeleteListing(it) => it.listing,
        Transition::CreateAttempt(it) => it.listing,
        Transition::ListPending(it) => it.listing,
        Transition::GetListing(it) => match it.locator {
            ListingLocator::Id(id) => id,
            ListingLocator::JoinCode(_) => return None,
        },
        _ => return None,
    }))
}
