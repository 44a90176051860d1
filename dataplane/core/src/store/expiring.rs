//! A slab of things that end: what of it is due next, in the whole and for each tenant, and how much each tenant has.

use core::ops::{Deref, Index, IndexMut};
use std::collections::{BTreeSet, HashMap};

use rendezvous_shared::id::TenantId;
use rendezvous_shared::time::Instant;

use super::lanes::{Due, Holder, Lanes, Linked, List};
use super::records::{OfPool, OfTenant};
use super::slab::{Slab, Slot};

/// What a tenant has, until it ends.
pub(super) trait Held: Due + Linked<OfPool> + Linked<OfTenant> {
    fn tenant(&self) -> TenantId;
}

/// Whose things are looked at for one that is over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    Pool,
    Tenant(TenantId),
}

/// A slab whose objects are filed by their deadlines. Reads as the slab it holds, but counts what is filed only; deadlines
/// change by [`Expiring::refile`] only.
#[derive(Debug)]
pub(super) struct Expiring<T> {
    slab: Slab<T>,
    limit: usize,
    len: usize,
    high_water: usize,
    lanes: Lanes<T, OfPool>,
    /// Those that were retired, the longest ago first.
    retired: List<T, OfPool>,
    tenants: HashMap<TenantId, Holding<T>, ahash::RandomState>,
}

/// What one tenant has of it. What is over and not worked off counts; the lanes tell what that is.
#[derive(Debug)]
struct Holding<T> {
    count: u32,
    lanes: Lanes<T, OfTenant>,
    retired: List<T, OfTenant>,
}

impl<T> Holding<T> {
    const fn is_empty(&self) -> bool {
        self.count == 0 && self.retired.is_empty()
    }
}

impl<T> Expiring<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self::with_places_for_retired(limit, 0)
    }

    /// With `places` beyond its limit for those that are retired.
    pub(super) fn with_places_for_retired(limit: usize, places: usize) -> Self {
        Self {
            slab: Slab::new(limit + places),
            limit,
            len: 0,
            high_water: 0,
            lanes: Lanes::default(),
            retired: List::EMPTY,
            tenants: HashMap::default(),
        }
    }

    /// How many are filed.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// The most that ever were.
    pub(super) const fn high_water(&self) -> usize {
        self.high_water
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Whether one more can be retired.
    pub(super) const fn can_retire(&self) -> bool {
        self.slab.len() - self.len < self.slab.limit() - self.limit
    }

    /// The one that was retired the longest ago.
    pub(super) fn retired(&self, scope: Scope) -> Option<Slot<T>> {
        match scope {
            Scope::Pool => self.retired.first(),
            Scope::Tenant(id) => self.tenants.get(&id)?.retired.first(),
        }
    }

    /// Of those whose deadline has come, the one whose came first.
    pub(super) fn due(&self, now: Instant, scope: Scope) -> Option<Slot<T>> {
        match scope {
            Scope::Pool => self.lanes.due(now),
            Scope::Tenant(id) => self.tenants.get(&id)?.lanes.due(now),
        }
    }

    /// How many the tenant has.
    pub(super) fn count_of(&self, tenant: TenantId) -> u32 {
        self.tenants.get(&tenant).map_or(0, |it| it.count)
    }
}

impl<T: Held> Expiring<T> {
    /// The earliest deadline, or that of one that was retired.
    pub(super) fn soonest(&self) -> Option<Instant> {
        self.retired.first().map(|slot| self.slab[slot].deadline()).or(self.lanes.soonest())
    }

    /// All whose deadlines have come.
    pub(super) fn all_due(&self, now: Instant) -> impl Iterator<Item = Slot<T>> + '_ {
        let soonest = self.lanes.soonest().filter(|&at| at <= now);
        soonest.into_iter().flat_map(move |_| self.lanes.all_due(&self.slab, now))
    }

    /// Puts an object. The caller saw that there is room.
    #[inline]
    pub(super) fn insert(&mut self, object: T) -> Slot<T> {
        let slot = self.slab.insert(object);
        self.file(slot);
        slot
    }

    fn file(&mut self, slot: Slot<T>) {
        self.len += 1;
        self.high_water = self.high_water.max(self.len);
        let holding = self.tenants.entry(self.slab[slot].tenant());
        let holding =
            holding.or_insert_with(|| Holding { count: 0, lanes: Lanes::default(), retired: List::EMPTY });
        holding.count += 1;
        holding.lanes.file(&mut self.slab, slot);
        self.lanes.file(&mut self.slab, slot);
    }

    /// Drops the object at `slot`.
    pub(super) fn remove(&mut self, slot: Slot<T>) {
        self.take(slot, |_, _, _| ());
        self.slab.remove(slot);
    }

    /// Takes the object at `slot` out of its lanes and counts it no more. It keeps its place until [`Expiring::free`].
    /// The caller saw that one more can be retired.
    pub(super) fn retire(&mut self, slot: Slot<T>) {
        self.take(slot, |holding, slab, slot| holding.retired.push(slab, slot));
        self.retired.push(&mut self.slab, slot);
    }

    /// Drops an object that was retired.
    pub(super) fn free(&mut self, slot: Slot<T>) {
        let id = self.slab[slot].tenant();
        self.retired.remove(&mut self.slab, slot);
        if let Some(holding) = self.tenants.get_mut(&id) {
            holding.retired.remove(&mut self.slab, slot);
            if holding.is_empty() {
                self.tenants.remove(&id);
            }
        }
        self.slab.remove(slot);
    }

    fn take(&mut self, slot: Slot<T>, then: impl FnOnce(&mut Holding<T>, &mut Slab<T>, Slot<T>)) {
        self.len -= 1;
        let id = self.slab[slot].tenant();
        self.lanes.take(&mut self.slab, slot);
        if let Some(holding) = self.tenants.get_mut(&id) {
            holding.lanes.take(&mut self.slab, slot);
            holding.count -= 1;
            then(holding, &mut self.slab, slot);
            if holding.is_empty() {
                self.tenants.remove(&id);
            }
        }
    }

    /// Changes an object's deadline or lane, and files it accordingly.
    pub(super) fn refile(&mut self, slot: Slot<T>, change: impl FnOnce(&mut T)) {
        let Self { slab, lanes, tenants, .. } = self;
        let mut holding = tenants.get_mut(&slab[slot].tenant());
        lanes.take(slab, slot);
        if let Some(holding) = &mut holding {
            holding.lanes.take(slab, slot);
        }
        change(&mut slab[slot]);
        lanes.file(slab, slot);
        if let Some(holding) = holding {
            holding.lanes.file(slab, slot);
        }
    }

    /// Checks that everything is filed where it is looked for; for the invariants.
    pub(super) fn check(&self, what: &str) {
        assert!(self.len <= self.limit, "{what} over their ceiling");
        let retired: BTreeSet<_> = self.retired.iter(&self.slab).collect();
        assert_eq!(self.len + retired.len(), self.slab.len(), "{what}: neither filed nor retired");
        let filed = |slot| !retired.contains(&slot);
        super::invariants::check_lanes(what, &self.slab, &self.lanes, |slot, _| filed(slot));
        let counted: u32 = self.tenants.values().map(|it| it.count).sum();
        assert_eq!(counted as usize, self.len, "{what}: what all tenants have");
        for (&id, holding) in &self.tenants {
            let own = |slot, it: &T| it.tenant() == id && filed(slot);
            super::invariants::check_lanes(what, &self.slab, &holding.lanes, own);
            let count = self.slab.iter().filter(|&(slot, it)| own(slot, it)).count();
            assert_eq!(holding.count as usize, count, "{what}: a tenant's count");
            let own = retired.iter().copied().filter(|&slot| self.slab[slot].tenant() == id);
            let listed: BTreeSet<_> = holding.retired.iter(&self.slab).collect();
            assert_eq!(listed, own.collect(), "{what}: what a tenant had, retired");
            assert!(!holding.is_empty(), "{what}: a tenant that has nothing is kept");
        }
    }
}

impl<T: Held + Holder> Expiring<T> {
    /// Of those whose deadline has come, one on which something hangs. `now` is the time it is, never one ahead.
    pub(super) fn due_holder(&mut self, now: Instant, scope: Scope) -> Option<Slot<T>> {
        match scope {
            Scope::Pool => self.lanes.due_holder(&self.slab, now),
            Scope::Tenant(id) => self.tenants.get_mut(&id)?.lanes.due_holder(&self.slab, now),
        }
    }

    /// Checks that nothing was passed over wrongly; for the invariants.
    pub(super) fn check_passed(&self, now: Instant) {
        self.lanes.check_passed(&self.slab, now);
        self.tenants.values().for_each(|it| it.lanes.check_passed(&self.slab, now));
    }
}

impl<T> Deref for Expiring<T> {
    type Target = Slab<T>;

    fn deref(&self) -> &Slab<T> {
        &self.slab
    }
}

impl<T> Index<Slot<T>> for Expiring<T> {
    type Output = T;

    fn index(&self, slot: Slot<T>) -> &T {
        &self.slab[slot]
    }
}

impl<T> IndexMut<Slot<T>> for Expiring<T> {
    fn index_mut(&mut self, slot: Slot<T>) -> &mut T {
        &mut self.slab[slot]
    }
}
