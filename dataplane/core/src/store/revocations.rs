//! Revocations: who and what is barred, for a while. They are few and rarely changed, so plain maps hold them.

use core::mem::size_of;
use std::collections::{BTreeMap, BTreeSet};

use rendezvous_shared::id::{Handle, ListingId, PrincipalId, RevocationId, TenantId};
use rendezvous_shared::limits::{PAGE_LEN_MAX, REVOCATION_MAX, REVOCATION_MIN};
use rendezvous_shared::outcome::{AttemptReason, Pool, Refusal};
use rendezvous_shared::store::{
    Caller, LiftRevocation, ListRevocations, Reply, RevocationPage, RevocationView, Revoke, Subject,
};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::ends::End;
use super::records::Seconds;
use super::tenants::Tenant;

/// What is barred. A listing's handle is never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Barred {
    Listing(Handle),
    Principal(PrincipalId),
}

impl From<Subject> for Barred {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::Listing(id) => Self::Listing(id.handle()),
            Subject::Principal(id) => Self::Principal(id),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Revocation {
    subject: Subject,
    /// Of a listing, whose it was; of a principal, itself.
    owner: PrincipalId,
    deadline: Instant,
}

/// Bytes of one in the three maps.
pub(super) const REVOCATION_LEN: usize = size_of::<(TenantId, RevocationId, Revocation)>()
    + size_of::<(TenantId, Barred, RevocationId)>()
    + size_of::<(Instant, TenantId, RevocationId)>();

/// All revocations, bounded.
#[derive(Debug)]
pub(super) struct Revocations {
    limit: usize,
    high_water: usize,
    made: u64,
    by_id: BTreeMap<(TenantId, RevocationId), Revocation>,
    by_subject: BTreeMap<(TenantId, Barred), RevocationId>,
    by_deadline: BTreeSet<(Instant, TenantId, RevocationId)>,
}

impl Revocations {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            limit,
            high_water: 0,
            made: 0,
            by_id: BTreeMap::new(),
            by_subject: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
        }
    }

    /// Entries held, ceiling, most ever held.
    pub(super) fn usage(&self) -> (usize, usize, usize) {
        (self.by_id.len(), self.limit, self.high_water)
    }

    /// Whether the caller itself is barred.
    pub(super) fn bars_principal(&self, now: Instant, caller: Caller) -> bool {
        self.live(now, caller.tenant, Barred::Principal(caller.principal)).is_some()
    }

    /// The listing that had this handle, if it was the caller's and is barred.
    pub(super) fn barred_listing(&self, now: Instant, caller: Caller, handle: Handle) -> Option<ListingId> {
        let (_, it) = self.live(now, caller.tenant, Barred::Listing(handle))?;
        match it.subject {
            Subject::Listing(id) if it.owner == caller.principal => Some(id),
            _ => None,
        }
    }

    fn live(&self, now: Instant, tenant: TenantId, barred: Barred) -> Option<(RevocationId, Revocation)> {
        if self.by_id.is_empty() {
            return None;
        }
        let id = *self.by_subject.get(&(tenant, barred))?;
        let revocation = *self.by_id.get(&(tenant, id))?;
        (revocation.deadline > now).then_some((id, revocation))
    }

    fn insert(&mut self, tenant: TenantId, id: RevocationId, revocation: Revocation) {
        self.by_id.insert((tenant, id), revocation);
        self.by_subject.insert((tenant, revocation.subject.into()), id);
        self.by_deadline.insert((revocation.deadline, tenant, id));
        self.high_water = self.high_water.max(self.by_id.len());
    }

    fn remove(&mut self, tenant: TenantId, id: RevocationId) {
        if let Some(revocation) = self.by_id.remove(&(tenant, id)) {
            self.by_subject.remove(&(tenant, revocation.subject.into()));
            self.by_deadline.remove(&(revocation.deadline, tenant, id));
        }
    }

    pub(super) fn soonest(&self) -> Option<Instant> {
        self.by_deadline.first().map(|&(at, ..)| at)
    }

    /// Forgets one that is over, if there is any.
    pub(super) fn work_off_one(&mut self, now: Instant) -> bool {
        let due = self.by_deadline.first().copied().filter(|&(at, ..)| at <= now);
        due.map(|(_, tenant, id)| self.remove(tenant, id)).is_some()
    }

    pub(super) fn check(&self) {
        let len = self.by_id.len();
        assert!(len <= self.limit, "revocations over their ceiling");
        assert_eq!((self.by_subject.len(), self.by_deadline.len()), (len, len), "an index of revocations");
        for (&(tenant, id), revocation) in &self.by_id {
            let found = self.by_subject.get(&(tenant, revocation.subject.into()));
            assert_eq!(found, Some(&id), "a revocation is not found by its subject");
            assert!(self.by_deadline.contains(&(revocation.deadline, tenant, id)), "nor by its deadline");
        }
    }
}

impl MemoryStore {
    /// The revocation is entered before anything is removed: with a full pool nothing is.
    pub(super) fn revoke(&mut self, now: Instant, request: &Revoke) -> Result<Reply, Refusal> {
        let caller = operator(request.caller)?;
        let lifetime = Seconds::granted(request.lifetime, REVOCATION_MIN, REVOCATION_MAX);
        let mut deadline = now.after(lifetime.duration());
        let known = self.known_revocation(now, caller.tenant, request.subject);
        let owner = match (known, request.subject) {
            (Some((_, before)), _) => before.owner,
            (None, Subject::Principal(id)) => id,
            (None, Subject::Listing(id)) => {
                let found = self.live_listing(now, id).map(|slot| &self.listings[slot]);
                found.filter(|it| it.tenant == caller.tenant).ok_or(Refusal::NotFound)?.owner
            }
        };
        let id = match known {
            Some((id, before)) => {
                deadline = deadline.max(before.deadline);
                id
            }
            None => {
                let in_pool = self.make_room(
                    |it| it.revocations.by_id.len() < it.revocations.limit,
                    |it| it.revocations.work_off_one(now),
                );
                if !in_pool {
                    return Err(Refusal::CapacityExceeded(Pool::Revocations));
                }
                self.revocations.made += 1;
                RevocationId::new(self.next_tag(), Handle(self.revocations.made))
            }
        };
        self.forget_revocation_of(caller.tenant, request.subject);
        self.revocations.insert(caller.tenant, id, Revocation { subject: request.subject, owner, deadline });
        match request.subject {
            Subject::Listing(listing) => {
                if let Some(slot) = self.live_listing(now, listing) {
                    self.end_listing(now, slot, AttemptReason::ListingGone);
                }
            }
            Subject::Principal(principal) => self.end_all_of(now, caller.tenant, principal),
        }
        Ok(Reply::Revoked(RevocationView { id, subject: request.subject, deadline }))
    }

    /// The live revocation of exactly this subject.
    fn known_revocation(
        &self,
        now: Instant,
        tenant: TenantId,
        subject: Subject,
    ) -> Option<(RevocationId, Revocation)> {
        self.revocations.live(now, tenant, subject.into()).filter(|(_, it)| it.subject == subject)
    }

    /// One that is prolonged, or is over and was not worked off, makes way for the new entry.
    fn forget_revocation_of(&mut self, tenant: TenantId, subject: Subject) {
        if let Some(&id) = self.revocations.by_subject.get(&(tenant, subject.into())) {
            self.revocations.remove(tenant, id);
        }
    }

    /// Ends all that a principal owns, and every attempt it takes part in.
    fn end_all_of(&mut self, now: Instant, id: TenantId, principal: PrincipalId) {
        let Some(tenant) = self.tenants.get(&id) else { return };
        let owned: Vec<_> = tenant.owned_by(principal, None).map(|place| place.slot).collect();
        let joined =
            |tenant: &Tenant| tenant.principals.get(&principal).map(|it| it.joined.iter(&self.attempts));
        let joined: Vec<_> = joined(tenant).into_iter().flatten().collect();
        for slot in joined {
            let attempt = self.attempts[slot].id(self.attempts.handle(slot));
            if let Some(slot) = self.live_attempt(now, attempt) {
                self.finish_attempt(now, slot, End { at: now, reason: AttemptReason::Revoked });
            }
        }
        for slot in owned {
            if self.listings[slot].lease_deadline > now {
                self.end_listing(now, slot, AttemptReason::Revoked);
            }
        }
    }

    pub(super) fn list_revocations(&self, now: Instant, request: &ListRevocations) -> Result<Reply, Refusal> {
        let tenant = operator(request.caller)?.tenant;
        let limit = request.limit.clamp(1, PAGE_LEN_MAX);
        let from = request.after.unwrap_or(RevocationId::from_bytes([0; 16]));
        let to = RevocationId::from_bytes([u8::MAX; 16]);
        let mut live = self
            .revocations
            .by_id
            .range((tenant, from)..=(tenant, to))
            .filter(|((_, id), it)| it.deadline > now && Some(*id) != request.after);
        let page = live.by_ref().take(limit);
        let revocations: Vec<_> = page
            .map(|(&(_, id), it)| RevocationView { id, subject: it.subject, deadline: it.deadline })
            .collect();
        let more = live.next().is_some();
        let next_after = revocations.last().map(|it| it.id).filter(|_| more);
        Ok(Reply::Revocations(RevocationPage { revocations, next_after }))
    }

    pub(super) fn lift_revocation(
        &mut self,
        now: Instant,
        request: &LiftRevocation,
    ) -> Result<Reply, Refusal> {
        let tenant = operator(request.caller)?.tenant;
        let found = self.revocations.by_id.get(&(tenant, request.revocation));
        found.filter(|it| it.deadline > now).ok_or(Refusal::NotFound)?;
        self.revocations.remove(tenant, request.revocation);
        Ok(Reply::Lifted)
    }
}

fn operator(caller: Caller) -> Result<Caller, Refusal> {
    if caller.operator { Ok(caller) } else { Err(Refusal::NotFound) }
}
