//! Idempotency records: which create a client's key stands for, for as long as its result lives and a while on.

use core::marker::PhantomData;

use hashbrown::HashTable;
use rendezvous_shared::id::{Handle, PrincipalId, TenantId};
use rendezvous_shared::limits::RECORD_GRACE;
use rendezvous_shared::outcome::{ConflictReason, Refusal};
use rendezvous_shared::store::{Caller, IdempotencyKey};
use rendezvous_shared::time::Instant;

use super::expiring::{Expiring, Held, Scope};
use super::lanes::{Due, LaneId, Link, Linked, read_neighbours};
use super::records::{Attempt, Listing, OfPool, OfTenant, linked};
use super::slab::Slot;

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
    in_tenant: Link<Self>,
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

linked! {
    Record<T>, OfPool: in_pool;
    Record<T>, OfTenant: in_tenant;
}

impl<T> Held for Record<T> {
    fn tenant(&self) -> TenantId {
        self.key.tenant
    }
}

/// The records of one kind of create, bounded.
#[derive(Debug)]
pub(super) struct Records<T> {
    all: Expiring<Record<T>>,
    by_key: HashTable<Slot<Record<T>>>,
    hasher: ahash::RandomState,
}

impl<T> Records<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            all: Expiring::new(limit),
            by_key: HashTable::with_capacity(roomy(limit)),
            hasher: ahash::RandomState::new(),
        }
    }

    /// All of them.
    pub(super) const fn all(&self) -> &Expiring<Record<T>> {
        &self.all
    }

    /// What was made with this key before; nothing when the key is new.
    pub(super) fn find(
        &self,
        now: Instant,
        key: RecordKey,
        fingerprint: [u8; 16],
    ) -> Result<Option<Handle>, Refusal> {
        match self.slot(key).map(|slot| &self.all[slot]) {
            Some(record) if record.deadline <= now => Ok(None),
            Some(record) if record.fingerprint == fingerprint => Ok(Some(record.target)),
            Some(_) => Err(Refusal::Conflict(ConflictReason::IdempotencyKeyReused)),
            None => Ok(None),
        }
    }

    fn slot(&self, key: RecordKey) -> Option<Slot<Record<T>>> {
        self.by_key.find(self.hasher.hash_one(key), |&slot| self.all[slot].key == key).copied()
    }

    /// Reads where the record of a key is, or would be.
    pub(super) fn read(&self, key: RecordKey) -> u64 {
        self.slot(key).map_or(0, |slot| slot.index() as u64)
    }

    /// Reads those that are forgotten next, and where they are looked for.
    pub(super) fn read_due(&self, now: Instant) -> impl Iterator<Item = u64> + '_ {
        let due = self.all.all_due(now);
        due.map(|slot| read_neighbours::<_, OfTenant>(&self.all, slot) ^ self.read(self.all[slot].key))
    }

    /// How many records a tenant may hold that may hold `quota` of the `pool` things they stand for: the same share of
    /// the records, and at least one for each. Records outlive what they stand for, so without a share one tenant that
    /// creates and deletes in a loop would fill the pool of all.
    pub(super) fn share(&self, quota: u32, pool: usize) -> u32 {
        let share = u64::from(quota).saturating_mul(self.all.limit() as u64) / (pool as u64).max(1);
        u32::try_from(share).unwrap_or(u32::MAX).max(quota)
    }

    /// Remembers a create whose result lives until `resource_deadline`, in `lane`. The caller made room, and found no
    /// record of the key, or one whose time was over: that one gives way.
    pub(super) fn insert(
        &mut self,
        key: RecordKey,
        fingerprint: [u8; 16],
        target: Handle,
        resource_deadline: Instant,
        lane: LaneId,
    ) -> Slot<Record<T>> {
        if let Some(over) = self.slot(key) {
            self.remove(over);
        }
        let deadline = resource_deadline.after(RECORD_GRACE);
        let (in_pool, in_tenant) = (Link::ALONE, Link::ALONE);
        let record =
            Record { key, fingerprint, target, deadline, lane, in_pool, in_tenant, made: PhantomData };
        let slot = self.all.insert(record);
        let Self { all, by_key, hasher } = self;
        by_key.insert_unique(hasher.hash_one(key), slot, |&slot| hasher.hash_one(all[slot].key));
        slot
    }

    /// The result of the record now lives until `resource_deadline`, in `lane`.
    pub(super) fn prolong(&mut self, slot: Slot<Record<T>>, resource_deadline: Instant, lane: LaneId) {
        let deadline = resource_deadline.after(RECORD_GRACE);
        if deadline > self.all[slot].deadline {
            self.all.refile(slot, |record| (record.deadline, record.lane) = (deadline, lane));
        }
    }

    /// Whether a tenant that may hold `share` may hold one more, once what is over of its own is forgotten.
    pub(super) fn has_room_for(&mut self, now: Instant, tenant: TenantId, share: u32) -> bool {
        while self.all.count_of(tenant) >= share {
            if !self.work_off_one(now, Scope::Tenant(tenant)) {
                return false;
            }
        }
        true
    }

    /// Whether there is a place, once one that is over is forgotten.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        !self.all.is_full() || self.work_off_one(now, Scope::Pool)
    }

    /// Forgets one whose time is over, if there is any.
    pub(super) fn work_off_one(&mut self, now: Instant, scope: Scope) -> bool {
        self.all.due(now, scope).map(|slot| self.remove(slot)).is_some()
    }

    fn remove(&mut self, slot: Slot<Record<T>>) {
        let hash = self.hasher.hash_one(self.all[slot].key);
        if let Ok(entry) = self.by_key.find_entry(hash, |&it| it == slot) {
            entry.remove();
        }
        self.all.remove(slot);
    }

    pub(super) fn check(&self) {
        self.all.check("records");
        assert_eq!(self.by_key.len(), self.all.len(), "the index of records");
        for (slot, record) in self.all.iter() {
            assert_eq!(self.slot(record.key), Some(slot), "a record is not found by its key");
        }
    }
}

/// Room for a table that is to hold `limit` entries for ever: so much that what was removed never makes it grow, and
/// practically never makes it tidy up, which would be a pause of the store.
pub(super) const fn roomy(limit: usize) -> usize {
    limit + limit / 2
}
