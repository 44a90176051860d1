//! Budgets in four bytes: so much a second, and so much at once.

use core::time::Duration;

use rendezvous_shared::time::Instant;

/// Bits of a nanosecond count that a tick leaves out: a tick is 65.536 µs, so 32 bits of them last 78 hours.
const TICK_SHIFT: u32 = 16;

/// A rate with a burst. What was used up is kept by the caller as one [`Debt`] for each who shares the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    cost: u32,
    /// The highest debt that still lets one more through.
    tolerance: u32,
}

/// When all that was taken is earned back, in ticks that wrap; the generic cell rate algorithm's arrival time. Zeroed
/// memory owes nothing, but for the first moment after a wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt(u32);

impl Budget {
    /// `per_second` of them, and `burst` at once after a pause.
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        let cost = ((1_000_000_000_u64 / per_second as u64) >> TICK_SHIFT) as u32;
        let cost = if cost == 0 { 1 } else { cost };
        Self { cost, tolerance: cost * (burst - 1) }
    }

    /// Whether one more is within the budget.
    pub(crate) fn allows(self, now: Instant, debt: Debt) -> bool {
        self.owed(now, debt) <= self.tolerance
    }

    /// Takes one; when none is left nothing is taken.
    pub(crate) fn take(self, now: Instant, debt: &mut Debt) -> bool {
        let owed = self.owed(now, *debt);
        if owed > self.tolerance {
            return false;
        }
        *debt = Debt(ticks(now).wrapping_add(owed + self.cost));
        true
    }

    /// Ticks until the debt is paid. One that lies further ahead than any can is older than a wrap.
    fn owed(self, now: Instant, debt: Debt) -> u32 {
        let ahead = debt.0.wrapping_sub(ticks(now));
        if ahead <= self.tolerance + self.cost { ahead } else { 0 }
    }
}

impl Debt {
    /// How long nobody has owed anything here, as far as ticks tell.
    pub(crate) fn idle(self, now: Instant) -> Duration {
        let behind = ticks(now).wrapping_sub(self.0);
        if behind > u32::MAX / 2 {
            Duration::ZERO
        } else {
            Duration::from_nanos(u64::from(behind) << TICK_SHIFT)
        }
    }
}

/// Wraps, by intention.
#[expect(clippy::cast_possible_truncation, reason = "ticks wrap")]
pub(crate) fn ticks(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of those asked for, one each `every`, were let through from `start` on.
    fn let_through(budget: Budget, debt: &mut Debt, start: Instant, every: Duration, asked: u32) -> u32 {
        (0..asked).filter(|i| budget.take(start.after(every * *i), debt)).count() as u32
    }

    #[test]
    fn a_burst_then_the_rate() {
        let budget = Budget::new(20, 40);
        let mut debt = Debt::default();
        let start = Instant::from_millis(5_000);
        assert_eq!(let_through(budget, &mut debt, start, Duration::ZERO, 1_000), 40);
        let second = let_through(budget, &mut debt, start, Duration::from_millis(1), 1_000);
        assert!((19..=21).contains(&second), "{second}");
        // After two seconds of rest the burst is there again, and no more than that.
        let rested = start.after(Duration::from_secs(60));
        assert_eq!(let_through(budget, &mut debt, rested, Duration::ZERO, 1_000), 40);
    }

    #[test]
    fn a_refusal_costs_nothing() {
        let budget = Budget::new(10, 1);
        let mut debt = Debt::default();
        let start = Instant::from_millis(1_000);
        assert!(budget.take(start, &mut debt));
        for millis in 0..99 {
            assert!(!budget.take(start.after(Duration::from_millis(millis)), &mut debt), "{millis}");
        }
        assert!(budget.take(start.after(Duration::from_millis(100)), &mut debt));
    }

    #[test]
    fn an_old_debt_is_forgotten_across_the_wrap() {
        let budget = Budget::new(20, 40);
        let wrap = (1_u64 << 32) << TICK_SHIFT;
        for age_hours in [1, 20, 39, 40, 60, 77] {
            for start in [1_000_000_000, wrap - 1_000_000_000, 5 * wrap + 7] {
                let mut debt = Debt::default();
                let start = Instant::from_nanos(start);
                let_through(budget, &mut debt, start, Duration::ZERO, 40);
                let later = start.after(Duration::from_secs(age_hours * 3600));
                assert_eq!(let_through(budget, &mut debt, later, Duration::ZERO, 100), 40, "{age_hours} h");
            }
        }
    }

    #[test]
    fn high_rates_are_kept_to_a_tick() {
        let budget = Budget::new(1_000, 100);
        let mut debt = Debt::default();
        let start = Instant::from_millis(1_000);
        let_through(budget, &mut debt, start, Duration::ZERO, 1_000);
        let passed = let_through(budget, &mut debt, start, Duration::from_micros(100), 10_000);
        assert!((980..=1_040).contains(&passed), "{passed}");
    }
}
