//! The flag a sleeper leaves for those who must wake it. The protocol stands in the module above.
//!
//! Nothing here but atomics, and those come from the module above: `tests/wake_orders.rs` compiles this file a second
//! time, with atomics that try out every order the memory model permits.

use super::atomic::{AtomicBool, Ordering, fence};

/// Whether one thread sleeps or is about to.
#[derive(Debug)]
pub(super) struct SleepFlag(AtomicBool);

impl SleepFlag {
    /// Of a thread that is awake.
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The sleeper's: it will block unless it finds something when it looks after this.
    pub(super) fn announce(&self) {
        self.0.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The sleeper's: it blocks no longer.
    pub(super) fn withdraw(&self) {
        // Relaxed: a waker that still sees `true` writes once for nothing.
        self.0.store(false, Ordering::Relaxed);
    }

    /// A waker's, after it has put something where the sleeper looks: whether the sleeper must be woken, and by this
    /// caller. True once at most for each announcement.
    pub(super) fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        // The load spares the busy case a locked instruction; the exchange lets one waker of many win. It writes only if
        // it wins: a swap that lost would be sound as well, but loom does not know that it cannot hide a later announcement.
        self.0.load(Ordering::Relaxed)
            && self.0.compare_exchange(true, false, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}
