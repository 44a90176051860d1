//! The edge that reads clocks; everything else is handed `now`.

use std::time::Duration;

use rendezvous_shared::time::{Clock, Instant};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Monotonic time since the start of this instance, on `CLOCK_BOOTTIME`: a suspended machine does not keep leases
/// alive. Copies share the origin.
#[derive(Clone, Copy, Debug)]
pub struct BootClock {
    origin_nanos: u64,
}

impl BootClock {
    /// A clock that starts now, at [`Instant::ZERO`].
    #[must_use]
    pub fn start() -> Self {
        Self { origin_nanos: boot_nanos() }
    }
}

impl Clock for BootClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(boot_nanos().saturating_sub(self.origin_nanos))
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock authority lives by")]
fn boot_nanos() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    tv_sec.unsigned_abs() * 1_000_000_000 + tv_nsec.unsigned_abs()
}

/// Nanoseconds since 1970 by the wall clock; informational only.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall_nanos() -> i128 {
    let now = std::time::SystemTime::now();
    match now.duration_since(std::time::UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
    }
}

/// Stamps for latencies: cheap, and of no meaning to authority.
#[derive(Clone, Debug)]
pub struct Stopwatch(quanta::Clock);

/// A moment on a [`Stopwatch`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp(u64);

impl Stopwatch {
    /// A stopwatch; the first one of a process takes a moment to calibrate.
    #[must_use]
    pub fn new() -> Self {
        Self(quanta::Clock::new())
    }

    /// This moment.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "latency stamps are taken at the edge, once a batch")]
    pub fn stamp(&self) -> Stamp {
        Stamp(self.0.raw())
    }

    /// The time from `start` to `end`.
    #[must_use]
    pub fn between(&self, start: Stamp, end: Stamp) -> Duration {
        self.0.delta(start.0, end.0)
    }
}

impl Default for Stopwatch {
    fn default() -> Self {
        Self::new()
    }
}
