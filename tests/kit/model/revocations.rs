//! Revocations: bars of a listing or a principal, for a while.

use rendezvous_shared::id::{AttemptId, ListingId, RevocationId};
use rendezvous_shared::limits::{PAGE_LEN_MAX, REVOCATION_MAX, REVOCATION_MIN};
use rendezvous_shared::outcome::{AttemptReason, Pool, Refusal};
use rendezvous_shared::store::{
    Caller, LiftRevocation, ListRevocations, Reply, RevocationPage, RevocationView, Revoke, Subject,
};

use super::records::Revocation;
use super::{NaiveStore, granted};

impl NaiveStore {
    /// Whether nothing is done for the caller any more.
    pub(super) fn is_barred(&self, caller: Caller) -> bool {
        let subject = Subject::Principal(caller.principal);
        self.revocations.iter().any(|it| it.tenant == caller.tenant && it.subject == subject)
    }

    /// Whether the listing was the caller's and is barred.
    pub(super) fn is_barred_listing(&self, caller: Caller, id: ListingId) -> bool {
        let own = |it: &&Revocation| it.tenant == caller.tenant && it.owner == Some(caller.principal);
        self.revocations.iter().filter(own).any(|it| it.subject == Subject::Listing(id))
    }

    pub(super) fn revoke(&mut self, request: &Revoke) -> Result<Reply, Refusal> {
        let caller = request.caller;
        refuse_others_than_operators(caller)?;
        self.refuse_when_drained()?;
        let deadline = self.now.after(granted(request.lifetime, REVOCATION_MIN, REVOCATION_MAX));
        let of_tenant = self.revocations.iter().filter(|it| it.tenant == caller.tenant);
        let known = of_tenant.into_iter().find(|it| it.subject == request.subject).map(|it| it.id);
        let id = match known {
            Some(id) => id,
            None => self.new_revocation(request)?,
        };
        let revocations = self.revocations.iter_mut().filter(|it| it.id == id);
        let mut view = RevocationView { id, subject: request.subject, deadline };
        for revocation in revocations {
            revocation.deadline = revocation.deadline.max(deadline);
            view.deadline = revocation.deadline;
        }
        self.remove_subject(request);
        Ok(Reply::Revoked(view))
    }

    /// "A revocation is inserted before removal; if the bounded revocation pool is full, the operation rejects without
    /// deleting anything."
    fn new_revocation(&mut self, request: &Revoke) -> Result<RevocationId, Refusal> {
        let tenant = request.caller.tenant;
        let owner = match request.subject {
            Subject::Principal(_) => None,
            Subject::Listing(id) => {
                let listing = self.listing(id).filter(|it| it.tenant == tenant);
                Some(listing.ok_or(Refusal::NotFound)?.owner)
            }
        };
        self.refuse_when_full(Pool::Revocations)?;
        let (tag, handle) = self.next_id();
        let id = RevocationId::new(tag, handle);
        let subject = request.subject;
        self.revocations.push(Revocation { id, tenant, subject, owner, deadline: self.now });
        Ok(id)
    }

    /// "Revoking a listing or principal removes every listing, presence, and attempt path in the same transition."
    fn remove_subject(&mut self, request: &Revoke) {
        let tenant = request.caller.tenant;
        match request.subject {
            Subject::Listing(id) => {
                if self.listing(id).is_some_and(|it| it.tenant == tenant) {
                    self.remove_listing(id, self.now, AttemptReason::ListingGone);
                }
            }
            Subject::Principal(principal) => {
                let owned = self.listings.iter().filter(|it| it.tenant == tenant && it.owner == principal);
                let owned: Vec<ListingId> = owned.map(|it| it.id).collect();
                for id in owned {
                    self.remove_listing(id, self.now, AttemptReason::Revoked);
                }
                let joins = self.attempts.iter().filter(|it| it.tenant == tenant && it.joiner == principal);
                let joins: Vec<AttemptId> = joins.map(|it| it.id).collect();
                for id in joins {
                    self.finish_attempt(id, self.now, AttemptReason::Revoked);
                }
            }
        }
    }

    pub(super) fn list_revocations(&self, request: &ListRevocations) -> Result<Reply, Refusal> {
        let caller = request.caller;
        refuse_others_than_operators(caller)?;
        let of_tenant = self.revocations.iter().filter(|it| it.tenant == caller.tenant);
        let after = of_tenant.filter(|it| request.after.is_none_or(|after| it.id > after));
        let mut revocations: Vec<RevocationView> = after
            .map(|it| RevocationView { id: it.id, subject: it.subject, deadline: it.deadline })
            .collect();
        revocations.sort_by_key(|it| it.id);
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let more = revocations.len() > limit;
        revocations.truncate(limit);
        let next_after = revocations.last().map(|it| it.id).filter(|_| more);
        Ok(Reply::Revocations(RevocationPage { revocations, next_after }))
    }

    pub(super) fn lift_revocation(&mut self, request: &LiftRevocation) -> Result<Reply, Refusal> {
        let caller = request.caller;
        refuse_others_than_operators(caller)?;
        let meant = |it: &Revocation| it.tenant == caller.tenant && it.id == request.revocation;
        if !self.revocations.iter().any(meant) {
            return Err(Refusal::NotFound);
        }
        self.revocations.retain(|it| !meant(it));
        Ok(Reply::Lifted)
    }
}

fn refuse_others_than_operators(caller: Caller) -> Result<(), Refusal> {
    if caller.operator { Ok(()) } else { Err(Refusal::NotFound) }
}
