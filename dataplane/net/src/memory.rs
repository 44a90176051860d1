//! Memory the kernel writes into: an anonymous mapping reached through raw pointers only, so that no Rust reference
//! is alive over bytes the kernel may be changing.

use std::io;
use std::ptr::{self, NonNull};

/// A page-aligned, zeroed, private mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

impl Region {
    /// Maps `len` bytes, at least one.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: no address is asked for, so the kernel chooses pages that nothing else uses.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Pointer to `len` bytes at `offset`; panics if they are not all inside, which only a wrong layout of ours can
    /// cause.
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside of the region");
        // SAFETY: the line above proves that the offset stays inside this mapping.
        unsafe { self.base.add(offset) }
    }

    /// Lends `len` bytes at `offset`.
    ///
    /// # Safety
    ///
    /// The kernel must not own those bytes while the slice lives.
    pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let start = self.pointer(offset, len);
        // SAFETY: `pointer` proved the range is inside the mapping, which is zeroed at birth and lives as long as
        // `self`; the caller keeps the kernel away from it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are exactly what `mmap` gave in `new`; nothing borrows from `self` any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_zeroed_and_page_aligned() {
        let region = Region::new(5000).unwrap();
        assert_eq!(region.pointer(0, 5000).as_ptr() as usize % 4096, 0);
        // SAFETY: no kernel operation knows this region.
        let bytes = unsafe { region.bytes(4000, 1000) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn refuses_a_range_that_leaves_it() {
        Region::new(100).unwrap().pointer(60, 41);
    }
}
