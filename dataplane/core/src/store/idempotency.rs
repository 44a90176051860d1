//! Idempotency records: which create a client's key stands for, for as long as its result lives and a while on.

use std::collections::HashMap;

use rendezvous_shared::id::{PrincipalId, TenantId};
use rendezvous_shared::limits::RECORD_GRACE;
use rendezvous_shared::outcome::{ConflictReason, Refusal};
use rendezvous_shared::store::{Caller, IdempotencyKey};
use rendezvous_shared::time::Instant;

use super::due::{Due, DueIndex};

/// A client's key within its tenant and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RecordKey {
    tenant: TenantId,
    owner: PrincipalId,
    key: [u8; 16],
}

impl RecordKey {
    pub(super) const fn new(caller: Caller, idempotency: IdempotencyKey) -> Self {
        Self { tenant: caller.tenant, owner: caller.principal, key: idempotency.key }
    }

    /// Whose share the record takes.
    pub(super) const fn tenant(&self) -> TenantId {
        self.tenant
    }
}

#[derive(Clone, Copy, Debug)]
struct Record<Id> {
    fingerprint: [u8; 16],
    target: Id,
    deadline: Instant,
    filed: Instant,
}

/// The records of one kind of create, bounded.
#[derive(Debug)]
pub(super) struct Records<Id> {
    limit: usize,
    high_water: usize,
    map: HashMap<RecordKey, Record<Id>, ahash::RandomState>,
}

impl<Id: Copy> Records<Id> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, high_water: 0, map: HashMap::default() }
    }

    /// What was made with this key before; nothing when the key is new.
    pub(super) fn find(&self, key: RecordKey, fingerprint: [u8; 16]) -> Result<Option<Id>, Refusal> {
        match self.map.get(&key) {
            None => Ok(None),
            Some(record) if record.fingerprint == fingerprint => Ok(Some(record.target)),
            Some(_) => Err(Refusal::Conflict(ConflictReason::IdempotencyKeyReused)),
        }
    }

    /// How many records a tenant may hold that may hold `quota` of the `pool` things they stand for: the same share of
    /// the records, and at least one for each. Records outlive what they stand for, so without a share one tenant that
    /// creates and deletes in a loop would fill the pool of all.
    pub(super) fn share(&self, quota: u32, pool: usize) -> u32 {
        let share = u64::from(quota).saturating_mul(self.limit as u64) / (pool as u64).max(1);
        u32::try_from(share).unwrap_or(u32::MAX).max(quota)
    }

    pub(super) fn is_full(&self) -> bool {
        self.map.len() >= self.limit
    }

    /// Remembers a create whose result lives until `resource_deadline`. The caller checked [`Self::is_full`].
    pub(super) fn insert(
        &mut self,
        key: RecordKey,
        fingerprint: [u8; 16],
        target: Id,
        resource_deadline: Instant,
        due: (&mut DueIndex, fn(RecordKey) -> Due),
    ) {
        let deadline = resource_deadline.after(RECORD_GRACE);
        let (index, kind) = due;
        index.file(deadline, kind(key));
        self.map.insert(key, Record { fingerprint, target, deadline, filed: deadline });
        self.high_water = self.high_water.max(self.map.len());
    }

    /// The result of `key` now lives until `resource_deadline`, which is not earlier than before.
    pub(super) fn prolong(&mut self, key: RecordKey, resource_deadline: Instant) {
        if let Some(record) = self.map.get_mut(&key) {
            record.deadline = record.deadline.max(resource_deadline.after(RECORD_GRACE));
        }
    }

    /// The entry of `key` surfaced: removes the record if its time is over, files it again if not. Returns whether
    /// it removed one.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        key: RecordKey,
        index: &mut DueIndex,
        kind: fn(RecordKey) -> Due,
    ) -> bool {
        let Some(record) = self.map.get_mut(&key) else { return false };
        if record.deadline > now {
            record.filed = record.deadline;
            index.file(record.deadline, kind(key));
            return false;
        }
        self.map.remove(&key).is_some()
    }

    /// Entries held, ceiling, most ever held.
    pub(super) fn usage(&self) -> (usize, usize, usize) {
        (self.map.len(), self.limit, self.high_water)
    }

    pub(super) fn clear(&mut self) {
        self.map.clear();
    }

    /// Every record with the time it is filed under and its deadline; in no order.
    pub(super) fn filings(&self) -> impl Iterator<Item = (RecordKey, Instant, Instant)> + '_ {
        self.map.iter().map(|(&key, record)| (key, record.filed, record.deadline))
    }
}
