//! A bounded slab: objects at small indices, found from outside by generation-checked handles.

use core::fmt;
use core::marker::PhantomData;
use core::mem::size_of;
use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

use rendezvous_shared::id::Handle;

/// Where the store keeps a `T`. Only the store holds slots, and follows none whose object may be gone: that of a record
/// is followed from what lives only, which its record outlives. Everybody else holds a [`Handle`].
///
/// Counted from 1, so that a slot or none takes no more space than a slot.
pub(super) struct Slot<T>(NonZeroU32, PhantomData<fn() -> T>);

impl<T> Slot<T> {
    /// Sorts before every other slot.
    pub(super) const LOWEST: Self = Self(NonZeroU32::MIN, PhantomData);
    /// Sorts after every slot there is.
    pub(super) const HIGHEST: Self = Self(NonZeroU32::MAX, PhantomData);

    /// That of the entry at `index`, of which there are at most four million by the ceilings of the configuration.
    const fn at(index: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index as u32), PhantomData)
    }

    pub(super) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<T> {}

impl<T> PartialEq for Slot<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Slot<T> {}

impl<T> PartialOrd for Slot<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Slot<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index())
    }
}

/// What tells whether there is an object, and whether a handle to it is good, is in the first eight bytes, before the
/// fields of the object that are most looked at. (An `Option` tells the former by any byte of the object that has a value
/// to spare, which may lie in a line of memory that nobody needs.)
#[derive(Debug)]
#[repr(u32)]
enum Entry<T> {
    Free { generation: u32, next: Option<Slot<T>> },
    Used { generation: u32, object: T },
}

impl<T> Entry<T> {
    /// Goes up each time an object leaves, so that handles to it find nothing. It comes round after four thousand
    /// million of them; an id has a random tag beside its handle for that day.
    const fn generation(&self) -> u32 {
        match *self {
            Self::Free { generation, .. } | Self::Used { generation, .. } => generation,
        }
    }

    const fn object(&self) -> Option<&T> {
        match self {
            Self::Used { object, .. } => Some(object),
            Self::Free { .. } => None,
        }
    }
}

const FIRST_GENERATION: u32 = 1;

/// At most `limit` objects. All its memory is reserved at the start, so that it never moves; the kernel provides a
/// page once it is used.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Option<Slot<T>>,
    len: usize,
    limit: usize,
    high_water: usize,
}

impl<T> Slab<T> {
    /// Bytes of one place.
    pub(super) const ENTRY_LEN: usize = size_of::<Entry<T>>();

    pub(super) fn new(limit: usize) -> Self {
        Self { entries: Vec::with_capacity(limit), free: None, len: 0, limit, high_water: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// The most it ever held.
    pub(super) const fn high_water(&self) -> usize {
        self.high_water
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Puts an object. The caller saw that the slab is not full.
    ///
    /// Inlined, because then an object is written where it is to lie, and not copied there.
    #[inline]
    pub(super) fn insert(&mut self, object: T) -> Slot<T> {
        assert!(!self.is_full(), "whoever inserts has looked for room first");
        self.len += 1;
        self.high_water = self.high_water.max(self.len);
        let Some(slot) = self.free else {
            let slot = Slot::at(self.entries.len());
            self.entries.push(Entry::Used { generation: FIRST_GENERATION, object });
            return slot;
        };
        let entry = &mut self.entries[slot.index()];
        if let Entry::Free { next, .. } = *entry {
            self.free = next;
        }
        *entry = Entry::Used { generation: entry.generation(), object };
        slot
    }

    /// What the object that is put next will be found by.
    pub(super) fn next_handle(&self) -> Handle {
        match self.free {
            Some(slot) => self.handle(slot),
            None => Self::handle_of(FIRST_GENERATION, self.entries.len()),
        }
    }

    /// Drops the object at `slot`, where it lies.
    pub(super) fn remove(&mut self, slot: Slot<T>) {
        let Some(entry) = self.entries.get_mut(slot.index()) else { return };
        if entry.object().is_none() {
            return;
        }
        let generation = entry.generation().wrapping_add(1).max(FIRST_GENERATION);
        *entry = Entry::Free { generation, next: self.free.replace(slot) };
        self.len -= 1;
    }

    /// What finds the object at `slot` for as long as it is there.
    pub(super) fn handle(&self, slot: Slot<T>) -> Handle {
        let generation = self.entries.get(slot.index()).map_or(0, Entry::generation);
        Self::handle_of(generation, slot.index())
    }

    const fn handle_of(generation: u32, index: usize) -> Handle {
        Handle((generation as u64) << 32 | index as u64)
    }

    /// The object that `handle` was made for, if it is still there.
    pub(super) fn find(&self, handle: Handle) -> Option<Slot<T>> {
        let (generation, index) = ((handle.0 >> 32) as u32, handle.0 as u32 as usize);
        let entry = self.entries.get(index)?;
        (entry.generation() == generation && entry.object().is_some()).then_some(Slot::at(index))
    }

    /// All objects in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot<T>, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((Slot::at(index), entry.object()?)))
    }
}

#[expect(clippy::expect_used, reason = "the store follows no slot whose object may be gone")]
impl<T> Index<Slot<T>> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot<T>) -> &T {
        self.entries[slot.index()].object().expect("a slot in use")
    }
}

#[expect(clippy::expect_used, reason = "the store follows no slot whose object may be gone")]
impl<T> IndexMut<Slot<T>> for Slab<T> {
    fn index_mut(&mut self, slot: Slot<T>) -> &mut T {
        match &mut self.entries[slot.index()] {
            Entry::Used { object, .. } => Some(object),
            Entry::Free { .. } => None,
        }
        .expect("a slot in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_own_object_only() {
        let mut slab = Slab::new(2);
        let first = slab.insert("first");
        let handle = slab.handle(first);
        assert_eq!(slab.find(handle), Some(first));
        slab.remove(first);
        slab.remove(first);
        assert_eq!((slab.find(handle), slab.len()), (None, 0));
        let second = slab.insert("second");
        assert_eq!(second, first, "a place is used again");
        assert_eq!(slab.find(handle), None, "and the old handle finds nothing there");
        assert_eq!(slab.find(Handle(0)), None);
        assert_eq!(slab.find(Handle(u64::MAX)), None);
    }

    #[test]
    fn it_holds_no_more_than_its_limit_and_never_moves() {
        let mut slab = Slab::new(3);
        let at = slab.entries.as_ptr();
        let slots: Vec<_> = (0..3).map(|it| slab.insert(it)).collect();
        assert!(slab.is_full());
        slab.remove(slots[1]);
        assert_eq!((slab.len(), slab.high_water(), slab.is_full()), (2, 3, false));
        assert_eq!(slab.insert(9), slots[1]);
        assert_eq!(slab.entries.as_ptr(), at);
    }
}
