//! The tests' clock: deadlines of waiting, nothing else.

use std::time::{Duration, Instant};

/// A bound on waiting.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// `within` from now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "tests wait in real time for real processes")]
    pub fn after(within: Duration) -> Self {
        Self(Instant::now() + within)
    }

    /// What remains; zero when it passed.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "tests wait in real time for real processes")]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }
}

/// Runs `body`, and returns how long it took.
#[expect(clippy::disallowed_methods, reason = "tests that bound how long a restart may take")]
pub fn timed<T>(body: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = body();
    (result, start.elapsed())
}

/// Asks again every 20 ms until `probe` has something, and panics with `what` when it never does.
pub fn wait_for<T>(within: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(within);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(!deadline.has_passed(), "within {within:?} there was no {what}");
        pause(Duration::from_millis(20));
    }
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "a test has nothing else to do meanwhile")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
