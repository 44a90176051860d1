//! Lists in order of deadline: what is due next.
//!
//! What is made or renewed gets the same few lifetimes again and again, and time only goes forward: so among those
//! of one lifetime the newest deadline is the latest, and a plain list is in order. Each lifetime has its own list, a
//! *lane*. To file, move or take out an object is to change a few links, whatever the number of objects; and a list
//! never holds more entries than there are objects, because the links are in them.

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU32;
use core::ops::IndexMut;

use rendezvous_shared::time::Instant;

use super::slab::{Slab, Slot};

/// An object's neighbours in one list.
pub(super) struct Link<T> {
    prev: Option<Slot<T>>,
    next: Option<Slot<T>>,
}

impl<T> Link<T> {
    pub(super) const ALONE: Self = Self { prev: None, next: None };
}

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Link<T> {}

impl<T> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.prev, self.next)
    }
}

/// What can be in a list of kind `L`.
pub(super) trait Linked<L>: Sized {
    fn link(&self) -> &Link<Self>;
    fn link_mut(&mut self) -> &mut Link<Self>;
}

/// A doubly linked list through the objects of a slab.
pub(super) struct List<T, L> {
    first: Option<Slot<T>>,
    last: Option<Slot<T>>,
    kind: PhantomData<fn() -> L>,
}

impl<T, L> List<T, L> {
    pub(super) const EMPTY: Self = Self { first: None, last: None, kind: PhantomData };

    pub(super) fn first(&self) -> Option<Slot<T>> {
        self.first
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn last(&self) -> Option<Slot<T>> {
        self.last
    }
}

impl<T, L> fmt::Debug for List<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.first, self.last)
    }
}

impl<T: Linked<L>, L> List<T, L> {
    pub(super) fn push(&mut self, objects: &mut impl IndexMut<Slot<T>, Output = T>, slot: Slot<T>) {
        let prev = self.last.replace(slot);
        match prev {
            Some(prev) => objects[prev].link_mut().next = Some(slot),
            None => self.first = Some(slot),
        }
        *objects[slot].link_mut() = Link { prev, next: None };
    }

    pub(super) fn remove(&mut self, objects: &mut impl IndexMut<Slot<T>, Output = T>, slot: Slot<T>) {
        let Link { prev, next } = core::mem::replace(objects[slot].link_mut(), Link::ALONE);
        match prev {
            Some(prev) => objects[prev].link_mut().next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => objects[next].link_mut().prev = prev,
            None => self.last = prev,
        }
    }

    pub(super) fn iter<'a>(&self, slab: &'a Slab<T>) -> impl Iterator<Item = Slot<T>> + use<'a, T, L> {
        std::iter::successors(self.first, |&slot| slab[slot].link().next)
    }
}

/// Reads an object's link, so that a list finds it in the cache.
pub(super) fn read<T: Linked<L>, L>(slab: &Slab<T>, slot: Slot<T>) -> u64 {
    let word = |it: Option<Slot<T>>| it.map_or(0, |it| it.index() as u64);
    word(slab[slot].link().prev) ^ word(slab[slot].link().next)
}

/// Reads the links of an object's neighbours in a list, so that [`List::remove`] finds them in the cache.
pub(super) fn read_neighbours<T: Linked<L>, L>(slab: &Slab<T>, slot: Slot<T>) -> u64 {
    let Link { prev, next } = *slab[slot].link();
    let word = |it: Option<Slot<T>>| it.map_or(0, |it| read(slab, it));
    word(prev) ^ word(next)
}

/// The lane an object is filed in: its lifetime in seconds; 0 for what was ended before its time. (Never zero inside,
/// which leaves room to say that there is no object.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId(NonZeroU32);

impl LaneId {
    pub(super) const fn new(seconds: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(seconds))
    }
}

/// What has a deadline.
pub(super) trait Due {
    fn deadline(&self) -> Instant;
    fn lane(&self) -> LaneId;
}

/// What other things may hang on. Once it is over and nothing does, nothing ever will.
pub(super) trait Holder: Due {
    fn holds_any(&self) -> bool;
}

#[derive(Debug)]
struct Lane<T, L> {
    id: LaneId,
    /// The deadline of its first object.
    soonest: Instant,
    list: List<T, L>,
    /// The last of those that [`Lanes::due_holder`] passed over for good.
    passed: Option<Slot<T>>,
}

/// All objects of a scope, by lifetime and then by deadline.
#[derive(Debug)]
pub(super) struct Lanes<T, L> {
    /// Those that hold something, in the order of their ids.
    lanes: Vec<Lane<T, L>>,
    /// The earliest deadline of all; [`Instant::MAX`] when there is none.
    soonest: Instant,
}

impl<T, L> Default for Lanes<T, L> {
    fn default() -> Self {
        Self { lanes: Vec::new(), soonest: Instant::MAX }
    }
}

impl<T, L> Lanes<T, L> {
    /// The earliest deadline.
    pub(super) fn soonest(&self) -> Option<Instant> {
        (!self.lanes.is_empty()).then_some(self.soonest)
    }

    /// An object whose deadline has come: the one whose came first.
    pub(super) fn due(&self, now: Instant) -> Option<Slot<T>> {
        if self.soonest > now {
            return None;
        }
        self.lanes.iter().find(|lane| lane.soonest == self.soonest)?.list.first()
    }
}

impl<T: Linked<L> + Due, L> Lanes<T, L> {
    /// Files an object in its lane, where no deadline is later than its own.
    pub(super) fn file(&mut self, slab: &mut Slab<T>, slot: Slot<T>) {
        let (id, deadline) = (slab[slot].lane(), slab[slot].deadline());
        let at = self.lanes.binary_search_by_key(&id, |lane| lane.id).unwrap_or_else(|at| {
            self.lanes.insert(at, Lane { id, soonest: deadline, list: List::EMPTY, passed: None });
            self.soonest = self.soonest.min(deadline);
            at
        });
        self.lanes[at].list.push(slab, slot);
    }

    /// Takes an object out of the lane it was filed in; its lane and deadline are still as they were then.
    pub(super) fn take(&mut self, slab: &mut Slab<T>, slot: Slot<T>) {
        let id = slab[slot].lane();
        let Ok(at) = self.lanes.binary_search_by_key(&id, |lane| lane.id) else { return };
        let lane = &mut self.lanes[at];
        if lane.passed == Some(slot) {
            lane.passed = slab[slot].link().prev;
        }
        lane.list.remove(slab, slot);
        let before = lane.soonest;
        match lane.list.first() {
            Some(first) => lane.soonest = slab[first].deadline(),
            None => drop(self.lanes.remove(at)),
        }
        if before == self.soonest {
            self.soonest = self.lanes.iter().map(|lane| lane.soonest).min().unwrap_or(Instant::MAX);
        }
    }

    /// All whose deadlines have come, lane by lane.
    pub(super) fn all_due<'a>(
        &'a self,
        slab: &'a Slab<T>,
        now: Instant,
    ) -> impl Iterator<Item = Slot<T>> + 'a {
        let due = self.lanes.iter().filter(move |lane| lane.soonest <= now);
        due.flat_map(move |lane| lane.list.iter(slab).take_while(move |&slot| slab[slot].deadline() <= now))
    }

    /// Each lane knows the deadline of its first object; for the invariants.
    pub(super) fn check(&self, slab: &Slab<T>, what: &str) {
        assert_eq!(
            self.soonest(),
            self.lanes.iter().map(|lane| lane.soonest).min(),
            "{what}: the soonest deadline"
        );
        for lane in &self.lanes {
            let first = lane.list.first().map(|slot| slab[slot].deadline());
            assert_eq!(first, Some(lane.soonest), "{what}: the soonest deadline of a lane");
        }
    }

    /// Every object, lane by lane in order, with the lane it is filed in; for the invariants.
    pub(super) fn filed<'a>(&'a self, slab: &'a Slab<T>) -> impl Iterator<Item = (LaneId, Slot<T>)> + 'a {
        self.lanes.iter().flat_map(|lane| lane.list.iter(slab).map(|slot| (lane.id, slot)))
    }
}

impl<T: Linked<L> + Holder, L> Lanes<T, L> {
    /// An object on which something hangs though its deadline has come. One on which nothing does is looked at once,
    /// however often this is asked. `now` is the time it is, never one ahead.
    pub(super) fn due_holder(&mut self, slab: &Slab<T>, now: Instant) -> Option<Slot<T>> {
        if self.soonest > now {
            return None;
        }
        self.lanes.iter_mut().find_map(|lane| {
            loop {
                let next = lane.passed.map_or(lane.list.first(), |slot| slab[slot].link().next);
                let due = next.filter(|&slot| slab[slot].deadline() <= now)?;
                if slab[due].holds_any() {
                    return Some(due);
                }
                lane.passed = Some(due);
            }
        })
    }

    /// What was passed over is over, and nothing hangs on it; for the invariants.
    pub(super) fn check_passed(&self, slab: &Slab<T>, now: Instant) {
        for lane in self.lanes.iter().filter(|it| it.passed.is_some()) {
            let mut up_to = lane.list.iter(slab).skip_while(|&slot| {
                assert!(slab[slot].deadline() <= now && !slab[slot].holds_any(), "{slot:?} was passed over");
                lane.passed != Some(slot)
            });
            assert!(up_to.next().is_some(), "what was passed over is in another lane");
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    thread_local! {
        /// How often a deadline was looked at.
        static LOOKS: Cell<u32> = const { Cell::new(0) };
        /// The deadlines of those on which something hangs.
        static HOLDERS: Cell<&'static [u64]> = const { Cell::new(&[]) };
    }

    #[derive(Debug)]
    struct Anywhere;
    #[derive(Debug)]
    struct Thing {
        lane: u32,
        deadline: u64,
        link: Link<Thing>,
    }

    impl Linked<Anywhere> for Thing {
        fn link(&self) -> &Link<Self> {
            &self.link
        }

        fn link_mut(&mut self) -> &mut Link<Self> {
            &mut self.link
        }
    }

    impl Due for Thing {
        fn deadline(&self) -> Instant {
            LOOKS.set(LOOKS.get() + 1);
            Instant::from_nanos(self.deadline)
        }

        fn lane(&self) -> LaneId {
            LaneId::new(self.lane)
        }
    }

    impl Holder for Thing {
        fn holds_any(&self) -> bool {
            HOLDERS.get().contains(&self.deadline)
        }
    }

    #[test]
    fn objects_come_due_in_the_order_of_their_deadlines() {
        let mut slab = Slab::new(16);
        let mut lanes = Lanes::<Thing, Anywhere>::default();
        for (lane, deadline) in [(1, 10), (1, 12), (2, 5), (1, 20), (2, 15), (3, 40), (2, 15)] {
            let slot = slab.insert(Thing { lane, deadline, link: Link::ALONE });
            lanes.file(&mut slab, slot);
        }
        assert_eq!(lanes.due(Instant::from_nanos(4)), None);
        let mut order = Vec::new();
        while let Some(slot) = lanes.due(Instant::from_nanos(20)) {
            order.push(slab[slot].deadline);
            lanes.take(&mut slab, slot);
            slab.remove(slot);
        }
        assert_eq!(order, [5, 10, 12, 15, 15, 20]);
        assert_eq!(lanes.soonest(), Some(Instant::from_nanos(40)));
        assert_eq!(lanes.lanes.len(), 1, "an empty lane is given back");
    }

    #[test]
    fn what_ends_last_is_filed_without_looking_at_others() {
        let mut slab = Slab::new(1_000);
        let mut lanes = Lanes::<Thing, Anywhere>::default();
        for deadline in 0..1_000 {
            let slot = slab.insert(Thing { lane: 1, deadline, link: Link::ALONE });
            let before = LOOKS.get();
            lanes.file(&mut slab, slot);
            assert_eq!(LOOKS.get() - before, 1, "its own deadline");
        }
        while let Some(slot) = lanes.due(Instant::MAX) {
            let before = LOOKS.get();
            lanes.take(&mut slab, slot);
            assert!(LOOKS.get() - before <= 1, "that of the next");
        }
    }

    #[test]
    fn an_object_is_taken_from_anywhere() {
        let mut slab = Slab::new(4);
        let mut lanes = Lanes::<Thing, Anywhere>::default();
        let slots = [1, 2, 3].map(|deadline| {
            let slot = slab.insert(Thing { lane: 1, deadline, link: Link::ALONE });
            lanes.file(&mut slab, slot);
            slot
        });
        for (taken, soonest) in [(1, Some(1)), (0, Some(3)), (2, None)] {
            lanes.take(&mut slab, slots[taken]);
            assert_eq!(lanes.soonest().map(Instant::as_nanos), soonest);
        }
    }

    #[test]
    fn what_holds_nothing_is_looked_at_once() {
        let now = Instant::from_nanos(10);
        let mut slab = Slab::new(8);
        let mut lanes = Lanes::<Thing, Anywhere>::default();
        let slots = [1, 2, 3, 4, 11].map(|deadline| {
            let slot = slab.insert(Thing { lane: 1, deadline, link: Link::ALONE });
            lanes.file(&mut slab, slot);
            slot
        });
        HOLDERS.set(&[3]);
        let looks = |lanes: &mut Lanes<Thing, Anywhere>, slab: &Slab<Thing>, found: Option<u64>| {
            let before = LOOKS.get();
            let holder = lanes.due_holder(slab, now);
            assert_eq!(holder.map(|slot| slab[slot].deadline), found);
            let looks = LOOKS.get() - before;
            lanes.check_passed(slab, now);
            looks
        };
        assert_eq!(looks(&mut lanes, &slab, Some(3)), 3);
        assert_eq!(looks(&mut lanes, &slab, Some(3)), 1, "again, and no more than that one");
        lanes.take(&mut slab, slots[1]);
        assert_eq!(looks(&mut lanes, &slab, Some(3)), 1, "the last that was passed over is gone");
        lanes.take(&mut slab, slots[0]);
        assert_eq!(looks(&mut lanes, &slab, Some(3)), 1, "all that were passed over are");
        HOLDERS.set(&[]);
        assert_eq!(looks(&mut lanes, &slab, None), 3, "and that which is not over");
        assert_eq!(looks(&mut lanes, &slab, None), 1);
        lanes.take(&mut slab, slots[2]);
        lanes.take(&mut slab, slots[3]);
        let late = slab.insert(Thing { lane: 1, deadline: 12, link: Link::ALONE });
        lanes.file(&mut slab, late);
        HOLDERS.set(&[11]);
        assert_eq!(lanes.due_holder(&slab, Instant::from_nanos(11)), Some(slots[4]));
    }
}
