//! System calls of one thread, and of whatever it starts, taken out of its hands. For ever, since no filter can be
//! taken off again.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const NEW_LISTENER: libc::c_ulong = 1 << 3;

/// Makes the calls wait on this thread until the descriptor is closed, whereupon they fail with ENOSYS, or until
/// somebody answers for them there. A thread can have one such descriptor.
pub(crate) fn hold(calls: &[libc::c_long]) -> OwnedFd {
    let listener = restrict(calls, None, libc::SECCOMP_RET_USER_NOTIF, NEW_LISTENER);
    // SAFETY: the call gave a descriptor of its own, which nobody else has.
    unsafe { OwnedFd::from_raw_fd(listener) }
}

/// Answers `action` to the calls on this thread from now on, if the second argument is as said; anything else is
/// allowed. Returns the listener, if the flags ask for one.
pub(crate) fn restrict(
    calls: &[libc::c_long],
    second: Option<u32>,
    action: u32,
    flags: libc::c_ulong,
) -> libc::c_int {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let rest: u8 = if second.is_some() { 2 } else { 0 };
    // Of `struct seccomp_data`: the number at 0, the lower half of the second argument at 24 on a little endian.
    let mut program = vec![step(load, 0, 0, 0)];
    for (left, call) in (0..calls.len() as u8).rev().zip(calls) {
        let otherwise = if left == 0 { rest + 1 } else { 0 };
        program.push(step(equal, left, otherwise, *call as u32));
    }
    if let Some(second) = second {
        program.extend([step(load, 0, 0, 24), step(equal, 0, 1, second)]);
    }
    program.extend([step(end, 0, 0, action), step(end, 0, 0, libc::SECCOMP_RET_ALLOW)]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes no pointers; this thread only loses the chance of new privileges.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER);
    // SAFETY: the filter and its program outlive the call, which copies them.
    let outcome = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) };
    assert!(outcome >= 0, "{}", io::Error::last_os_error());
    outcome as libc::c_int
}
