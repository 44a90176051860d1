//! `msghdr` values for both engines.

use crate::outbox::Slot;

/// A header that names nothing.
pub(crate) fn empty() -> libc::msghdr {
    // SAFETY: `msghdr` is integers and pointers only; all zero is a valid value of it (null and 0).
    unsafe { std::mem::zeroed() }
}

/// The vector of one slot's payload. Sends only read it.
pub(crate) fn vector(slot: &Slot) -> libc::iovec {
    libc::iovec { iov_base: slot.payload().as_ptr().cast_mut().cast(), iov_len: slot.payload().len() }
}

/// The header of one slot's reply, over `vector`. The kernel reads all of it, writes none of it, and only during the
/// system call that carries it; the caller keeps slot and vector in place until then.
pub(crate) fn reply(slot: &Slot, vector: *mut libc::iovec) -> libc::msghdr {
    let mut header = empty();
    header.msg_name = slot.name().as_ptr().cast_mut().cast();
    header.msg_namelen = slot.name().len() as libc::socklen_t;
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    if !slot.control().is_empty() {
        header.msg_control = slot.control().as_ptr().cast_mut().cast();
        header.msg_controllen = slot.control().len();
    }
    header
}
