//! Whether to look again for a moment before going to sleep.
//!
//! Going to sleep and being woken cost two system calls and some ten microseconds. While work comes closer together
//! than that, looking again is cheaper; otherwise it burns a core. It needs a core that nobody else waits for.

use std::time::Duration;

/// Work that comes further apart than this is waited for asleep; and nobody looks again for longer.
const PAUSE_MAX: Duration = Duration::from_micros(30);
/// Weight of the newest pause in the mean of pauses: one of so many.
const MEMORY: u32 = 8;

/// How close together work came lately, as one thread saw it.
#[derive(Debug)]
pub struct Spin {
    allowed: bool,
    /// Mean pause between two pieces of work.
    mean: Duration,
    /// Since the last piece of work.
    pause: Duration,
}

impl Spin {
    /// One that never spins unless it is `allowed` to.
    #[must_use]
    pub const fn new(allowed: bool) -> Self {
        Self { allowed, mean: Duration::MAX, pause: Duration::ZERO }
    }

    /// Takes note of a look that took `elapsed` since the one before, and whether there was work.
    pub fn looked(&mut self, elapsed: Duration, found: bool) {
        self.pause = self.pause.saturating_add(elapsed);
        if found {
            // A pause counts for no more than what ends the spinning: one long sleep must not outweigh what follows.
            let pause = self.pause.min(PAUSE_MAX * 2);
            let mean = self.mean.min(PAUSE_MAX * 2);
            self.mean = (mean * (MEMORY - 1) + pause) / MEMORY;
            self.pause = Duration::ZERO;
        }
    }

    /// Whether to look again instead of sleeping.
    #[must_use]
    pub fn again(&self) -> bool {
        self.allowed && self.mean < PAUSE_MAX && self.pause < PAUSE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_micros(1);

    /// How many looks it takes until it goes to sleep.
    fn looks(spin: &mut Spin) -> u32 {
        let mut looks = 0;
        while spin.again() {
            spin.looked(TICK, false);
            looks += 1;
        }
        looks
    }

    #[test]
    fn it_never_spins_when_idle_or_not_allowed() {
        assert!(!Spin::new(true).again());
        let mut spin = Spin::new(false);
        (0..100).for_each(|_| spin.looked(TICK, true));
        assert!(!spin.again());
    }

    #[test]
    fn it_spins_while_work_comes_fast_and_stops_soon() {
        let mut spin = Spin::new(true);
        (0..20).for_each(|_| spin.looked(TICK, true));
        assert_eq!(looks(&mut spin), 30);
        // After a long sleep one more piece of work does not bring it back to sleep at once, several do.
        spin.looked(Duration::from_secs(1), true);
        assert!(spin.again());
        (0..MEMORY * 2).for_each(|_| spin.looked(Duration::from_millis(1), true));
        assert_eq!(looks(&mut spin), 0);
    }

    #[test]
    fn slow_traffic_is_waited_for_asleep() {
        let mut spin = Spin::new(true);
        for _ in 0..1_000 {
            assert_eq!(looks(&mut spin), 0);
            spin.looked(Duration::from_micros(100), true);
        }
    }
}
