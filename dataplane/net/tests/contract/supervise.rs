//! System calls of this thread that fail when a test says so.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use crate::seccomp::hold;

const CONTINUE: u32 = 1;
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Puts `calls` of this thread into the hands of another, which lets each through unless it was told to let it fail.
pub(crate) fn supervise<const N: usize>(calls: [libc::c_long; N]) -> [Supervised; N] {
    let listener = hold(&calls);
    let supervised = calls.map(|call| Supervised { call, errno: Arc::new(AtomicI32::new(0)) });
    let calls = supervised.clone();
    // Ends when the thread that is supervised does.
    thread::spawn(move || while answer(&listener, &calls).is_ok() {});
    supervised
}

/// A system call that can be made to fail.
#[derive(Clone)]
pub(crate) struct Supervised {
    call: libc::c_long,
    errno: Arc<AtomicI32>,
}

impl Supervised {
    /// The next call fails so.
    pub(crate) fn fail_once(&self, errno: i32) {
        self.errno.store(errno, Ordering::SeqCst);
    }

    /// Whether that call has come.
    pub(crate) fn has_failed(&self) -> bool {
        self.errno.load(Ordering::SeqCst) == 0
    }
}

/// `struct seccomp_notif`, as far as it is of interest.
#[repr(C, align(8))]
struct Notification {
    id: u64,
    process: u32,
    flags: u32,
    call: i32,
    rest: [u8; 60],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Notification>() == 80 && size_of::<Response>() == 24);

fn answer(listener: &OwnedFd, calls: &[Supervised]) -> io::Result<()> {
    let mut notification = Notification { id: 0, process: 0, flags: 0, call: 0, rest: [0; 60] };
    // SAFETY: the number says `struct seccomp_notif`, 80 bytes, as this is, zeroed as the call wants it.
    let outcome = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notification) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let call = calls.iter().find(|it| it.call == libc::c_long::from(notification.call));
    let errno = call.map_or(0, |it| it.errno.swap(0, Ordering::SeqCst));
    let flags = if errno == 0 { CONTINUE } else { 0 };
    let mut response = Response { id: notification.id, value: 0, error: -errno, flags };
    // SAFETY: the number says `struct seccomp_notif_resp`, 24 bytes, as this is.
    let outcome = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut response) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
