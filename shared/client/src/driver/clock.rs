//! The one place of this crate that reads a clock.

use core::time::Duration;

use rendezvous_shared::time::{Clock, Instant};

/// Monotonic time since it was made. Copies share the same start, so their instants compare.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock that begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the edge: the clock every machine is driven by")]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// How long until `at`; an hour for what is later than that, also for never.
    pub(super) fn until(&self, at: Instant) -> Duration {
        at.since(self.now()).min(Duration::from_secs(3600))
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the edge: the clock every machine is driven by")]
    fn now(&self) -> Instant {
        Instant::ZERO.after(self.start.elapsed())
    }
}
