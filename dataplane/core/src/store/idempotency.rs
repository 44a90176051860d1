//! Idempotency records: which create a client's key stands for, for as long as its result lives and a while on.

use core::marker::PhantomData;

use hashbrown::HashTable;
use rendezvous_shared::id::{Handle, PrincipalId, TenantId};
use rendezvous_shared::limits::RECORD_GRACE;
use rendezvous_shared::outcome::{ConflictReason, Refusal};
use rendezvous_shared::store::{Caller, IdempotencyKey};
use rendezvous_shared::time::Instant;

use super::lanes::{Due, LaneId, Lanes, Link, Linked};
use super::records::{Attempt, Listing, OfPool};
use super::slab::{Slab, Slot};

/// A client's key within its tenant and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RecordKey {
    pub(super) tenant: TenantId,
    pub(super) owner: PrincipalId,
    pub(super) key: [u8; 16],
}

impl RecordKey {
    pub(super) const fn new(caller: Caller, idempotency: IdempotencyKey) -> Self {
        Self { tenant: caller.tenant, owner: caller.principal, key: idempotency.key }
    }
}

/// The record of the creation of a `T`.
#[derive(Debug)]
pub(super) struct Record<T> {
    pub(super) key: RecordKey,
    fingerprint: [u8; 16],
    /// What was made; it may be gone.
    target: Handle,
    deadline: Instant,
    lane: LaneId,
    in_pool: Link<Self>,
    made: PhantomData<fn() -> T>,
}

pub(super) type ListingRecord = Record<Listing>;
pub(super) type AttemptRecord = Record<Attempt>;

impl<T> Record<T> {
    /// The handle of what was made.
    pub(super) const fn target(&self) -> Handle {
        self.target
    }
}

impl<T> Due for Record<T> {
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn lane(&self) -> LaneId {
        self.lane
    }
}

impl<T> Linked<OfPool> for Record<T> {
    fn link(&self) -> &Link<Self> {
        &self.in_pool
    }

    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.in_pool
    }
}

/// The records of one kind of create, bounded.
#[derive(Debug)]
pub(super) struct Records<T> {
    slab: Slab<Record<T>>,
    lanes: Lanes<Record<T>, OfPool>,
    by_key: HashTable<Slot<Record<T>>>,
    hasher: ahash::RandomState,
}

impl<T> Records<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slab: Slab::new(limit),
            lanes: Lanes::default(),
            by_key: HashTable::with_capacity(roomy(limit)),
            hasher: ahash::RandomState::new(),
        }
    }

    pub(super) const fn slab(&self) -> &Slab<Record<T>> {
        &self.slab
    }

    /// What was made with this key before; nothing when the key is new.
    pub(super) fn find(
        &self,
        now: Instant,
        key: RecordKey,
        fingerprint: [u8; 16],
    ) -> Result<Option<Handle>, Refusal> {
        match self.slot(key).map(|slot| &self.slab[slot]) {
            Some(record) if record.deadline <= now => Ok(None),
            Some(record) if record.fingerprint == fingerprint => Ok(Some(record.target)),
            Some(_) => Err(Refusal::Conflict(ConflictReason::IdempotencyKeyReused)),
            None => Ok(None),
        }
    }

    fn slot(&self, key: RecordKey) -> Option<Slot<Record<T>>> {
        self.by_key.find(self.hasher.hash_one(key), |&slot| self.slab[slot].key == key).copied()
    }

    /// How many records a tenant may hold that may hold `quota` of the `pool` things they stand for: the same share of
    /// the records, and at least one for each. Records outlive what they stand for, so without a share one tenant that
    /// creates and deletes in a loop would fill the pool of all.
    pub(super) fn share(&self, quota: u32, pool: usize) -> u32 {
        let share = u64::from(quota).saturating_mul(self.slab.limit() as u64) / (pool as u64).max(1);
        u32::try_from(share).unwrap_or(u32::MAX).max(quota)
    }

    /// Remembers a create whose result lives until `resource_deadline`, in `lane`. The caller made room, and found no
    /// record of the key, or one whose time was over: that one is returned.
    pub(super) fn insert(
        &mut self,
        key: RecordKey,
        fingerprint: [u8; 16],
        target: Handle,
        resource_deadline: Instant,
        lane: LaneId,
    ) -> Slot<Record<T>> {
        let deadline = resource_deadline.after(RECORD_GRACE);
        let record =
            Record { key, fingerprint, target, deadline, lane, in_pool: Link::ALONE, made: PhantomData };
        let slot = self.slab.insert(|_| record);
        self.lanes.file(&mut self.slab, slot);
        let Self { slab, by_key, hasher, .. } = self;
        by_key.insert_unique(hasher.hash_one(key), slot, |&slot| hasher.hash_one(slab[slot].key));
        slot
    }

    /// The result of the record now lives until `resource_deadline`, in `lane`.
    pub(super) fn prolong(&mut self, slot: Slot<Record<T>>, resource_deadline: Instant, lane: LaneId) {
        let deadline = resource_deadline.after(RECORD_GRACE);
        if deadline > self.slab[slot].deadline {
            self.lanes.take(&mut self.slab, slot);
            (self.slab[slot].deadline, self.slab[slot].lane) = (deadline, lane);
            self.lanes.file(&mut self.slab, slot);
        }
    }

    /// A record whose time is over, if there is any.
    pub(super) fn due(&self, now: Instant) -> Option<Slot<Record<T>>> {
        self.lanes.due(now)
    }

    /// The record of `key` when its time is over.
    pub(super) fn due_of(&self, now: Instant, key: RecordKey) -> Option<Slot<Record<T>>> {
        self.slot(key).filter(|&slot| self.slab[slot].deadline <= now)
    }

    pub(super) fn soonest(&self) -> Option<Instant> {
        self.lanes.soonest()
    }

    /// Forgets a record; returns whose it was.
    pub(super) fn remove(&mut self, slot: Slot<Record<T>>) -> RecordKey {
        self.lanes.take(&mut self.slab, slot);
        let key = self.slab[slot].key;
        if let Ok(entry) = self.by_key.find_entry(self.hasher.hash_one(key), |&it| it == slot) {
            entry.remove();
        }
        self.slab.remove(slot);
        key
    }

    /// Each record's key and deadline, and whether everything that finds it does; for the invariants.
    pub(super) fn check(&self) -> impl Iterator<Item = (RecordKey, Instant)> + '_ {
        assert_eq!(self.by_key.len(), self.slab.len(), "the index of records");
        super::invariants::check_lanes("records", &self.slab, &self.lanes, |_| true);
        self.slab.iter().map(|(slot, record)| {
            assert_eq!(self.slot(record.key), Some(slot), "a record is not found by its key");
            (record.key, record.deadline)
        })
    }
}

/// Room for a table that is to hold `limit` entries for ever: so much that what was removed never makes it grow, and
/// practically never makes it tidy up, which would be a pause of the store.
pub(super) const fn roomy(limit: usize) -> usize {
    limit + limit / 2
}
