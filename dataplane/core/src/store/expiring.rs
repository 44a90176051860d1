//! A slab of things that end: what of it is due next, in the whole and for each tenant, and how much each tenant has.

use core::ops::{Deref, Index, IndexMut};
use std::collections::HashMap;

use rendezvous_shared::id::TenantId;
use rendezvous_shared::time::Instant;

use super::lanes::{Due, Holder, Lanes, Linked};
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

/// A slab whose objects are filed by their deadlines. Reads as the slab it holds; deadlines change by
/// [`Expiring::refile`] only.
#[derive(Debug)]
pub(super) struct Expiring<T> {
    slab: Slab<T>,
    lanes: Lanes<T, OfPool>,
    tenants: HashMap<TenantId, Holding<T>, ahash::RandomState>,
}

/// What one tenant has of it. What is over and not worked off counts; the lanes tell what that is.
#[derive(Debug)]
struct Holding<T> {
    count: u32,
    lanes: Lanes<T, OfTenant>,
}

impl<T> Expiring<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { slab: Slab::new(limit), lanes: Lanes::default(), tenants: HashMap::default() }
    }

    /// The earliest deadline.
    pub(super) fn soonest(&self) -> Option<Instant> {
        self.lanes.soonest()
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
        let holding = self.tenants.entry(self.slab[slot].tenant());
        let holding = holding.or_insert_with(|| Holding { count: 0, lanes: Lanes::default() });
        holding.count += 1;
        holding.lanes.file(&mut self.slab, slot);
        self.lanes.file(&mut self.slab, slot);
    }

    /// Drops the object at `slot`.
    pub(super) fn remove(&mut self, slot: Slot<T>) {
        let id = self.slab[slot].tenant();
        self.lanes.take(&mut self.slab, slot);
        if let Some(holding) = self.tenants.get_mut(&id) {
            holding.lanes.take(&mut self.slab, slot);
            holding.count -= 1;
            if holding.count == 0 {
                self.tenants.remove(&id);
            }
        }
        self.slab.remove(slot);
    }

    /// Changes an object's deadline or lane, and files it accordingly.
    pub(super) fn refile(&mut self, slot: Slot<T>, change: impl FnOnce(&mut T)) {
        let Self { slab, lanes, tenants } = self;
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
        super::invariants::check_lanes(what, &self.slab, &self.lanes, |_| true);
        let counted: u32 = self.tenants.values().map(|it| it.count).sum();
        assert_eq!(counted as usize, self.slab.len(), "{what}: what all tenants have");
        for (&id, holding) in &self.tenants {
            let own = |it: &T| it.tenant() == id;
            super::invariants::check_lanes(what, &self.slab, &holding.lanes, own);
            let count = self.slab.iter().filter(|(_, it)| own(it)).count();
            assert_eq!((holding.count as usize, count > 0), (count, true), "{what}: a tenant's count");
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
