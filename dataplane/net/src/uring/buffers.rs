//! Receive buffers: the ring they are offered in, and the queue of those that came back filled.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::BUFFER_LEN;
use crate::memory::Region;

/// The only group of buffers.
pub(super) const GROUP: u16 = 0;

const PAGE_LEN: usize = 4096;
const WAKE_LEN: usize = 8;

/// One mapping: the ring of entries, the buffers from the next page on, and the word the eventfd is read into.
pub(super) struct Buffers {
    region: Region,
    count: u16,
    buffers_offset: usize,
    /// Entries written; the kernel sees them when published. Counts modulo 2^16, as the kernel's does.
    tail: u16,
}

impl Buffers {
    /// Maps `count` buffers, rounded up to a power of two; the kernel's maximum is 32,768.
    pub(super) fn new(count: u16) -> io::Result<Self> {
        let count = count.clamp(1, 1 << 15).next_power_of_two();
        let entries_len = usize::from(count) * size_of::<BufRingEntry>();
        let buffers_offset = entries_len.next_multiple_of(PAGE_LEN);
        let region = Region::new(buffers_offset + usize::from(count) * BUFFER_LEN + WAKE_LEN)?;
        Ok(Self { region, count, buffers_offset, tail: 0 })
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Where the ring of entries starts, for registration.
    pub(super) fn ring_address(&self) -> u64 {
        self.entry(0) as u64
    }

    /// Where the eventfd's value may land.
    pub(super) fn wake_word(&self) -> *mut u8 {
        let offset = self.buffers_offset + usize::from(self.count) * BUFFER_LEN;
        self.region.pointer(offset, WAKE_LEN).as_ptr()
    }

    /// Offers every buffer, at the start.
    pub(super) fn give_all(&mut self) {
        for buffer in 0..self.count {
            self.give(buffer);
        }
        self.publish();
    }

    /// Offers one buffer; the kernel sees it after `publish`.
    pub(super) fn give(&mut self, buffer: u16) {
        let address = self.region.pointer(self.buffer_offset(buffer), BUFFER_LEN).as_ptr() as u64;
        let entry = self.entry(self.tail & (self.count - 1));
        // SAFETY: inside the region, aligned to 16, zeroed at birth; the kernel reads an entry only between
        // `publish` and the completion that names its buffer, and this one lies outside of that. The setters leave
        // the fourth field alone, which in entry 0 is the tail.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(BUFFER_LEN as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel every buffer given so far.
    pub(super) fn publish(&mut self) {
        // SAFETY: the base is that of a live ring of entries.
        let tail = unsafe { BufRingEntry::tail(self.entry(0)) };
        // SAFETY: inside the region, aligned to 2, and touched by us through this atomic only.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the entries are written before the kernel sees the tail.
        tail.store(self.tail, Ordering::Release);
    }

    /// Lends the first `len` bytes of a buffer.
    ///
    /// # Safety
    ///
    /// A completion must have named the buffer, and it must not have been given since.
    pub(super) unsafe fn bytes(&self, buffer: u16, len: u16) -> &[u8] {
        // SAFETY: the caller says that the buffer is not the kernel's.
        unsafe { self.region.bytes(self.buffer_offset(buffer), usize::from(len).min(BUFFER_LEN)) }
    }

    fn entry(&self, index: u16) -> *mut BufRingEntry {
        let len = size_of::<BufRingEntry>();
        self.region.pointer(usize::from(index) * len, len).as_ptr().cast()
    }

    fn buffer_offset(&self, buffer: u16) -> usize {
        self.buffers_offset + usize::from(buffer) * BUFFER_LEN
    }
}

/// Filled buffers in order of arrival. A buffer is in here at most once, so as many places as buffers are enough.
pub(super) struct Pending {
    places: Box<[(u16, u16)]>,
    head: usize,
    len: usize,
}

impl Pending {
    pub(super) fn new(count: u16) -> Self {
        Self { places: vec![(0, 0); usize::from(count)].into(), head: 0, len: 0 }
    }

    pub(super) fn push(&mut self, buffer: u16, len: u16) {
        assert!(!self.is_full(), "the kernel named a buffer it does not have");
        let index = (self.head + self.len) & (self.places.len() - 1);
        self.places[index] = (buffer, len);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(u16, u16)> {
        if self.len == 0 {
            return None;
        }
        let place = self.places[self.head];
        self.head = (self.head + 1) & (self.places.len() - 1);
        self.len -= 1;
        Some(place)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.places.len()
    }
}
