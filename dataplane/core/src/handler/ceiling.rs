//! The ceiling on answers to addresses that proved nothing: two buckets, one reserved for senders whose MAC is
//! good, so that a flood of forged HELLOs cannot keep known hosts out.

use rendezvous_shared::time::Instant;

/// Nanoseconds of credit a bucket may save up: short bursts pass, a second's worth does not come at once.
const BURST_NANOS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Ceiling {
    general: Bucket,
    reserved: Bucket,
}

impl Ceiling {
    pub(super) fn new(per_second: u32) -> Self {
        let half = u64::from(per_second / 2).max(1);
        Self { general: Bucket::new(half), reserved: Bucket::new(half) }
    }

    /// Whether one more answer may be sent; a known sender uses the reserved half first.
    pub(super) fn allow(&mut self, now: Instant, known: bool) -> bool {
        (known && self.reserved.take(now)) || self.general.take(now)
    }
}

/// Credit in nanoseconds: one answer costs a second divided by the rate.
#[derive(Debug)]
struct Bucket {
    cost_nanos: u64,
    credit_nanos: u64,
    at: Instant,
}

impl Bucket {
    fn new(per_second: u64) -> Self {
        let cost_nanos = 1_000_000_000 / per_second;
        Self { cost_nanos, credit_nanos: BURST_NANOS.max(cost_nanos), at: Instant::ZERO }
    }

    fn take(&mut self, now: Instant) -> bool {
        let earned = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.at = self.at.max(now);
        self.credit_nanos = self.credit_nanos.saturating_add(earned).min(BURST_NANOS.max(self.cost_nanos));
        match self.credit_nanos.checked_sub(self.cost_nanos) {
            Some(rest) => {
                self.credit_nanos = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_the_reserved_half_alone() {
        let mut ceiling = Ceiling::new(2_000);
        let now = Instant::from_millis(10);
        let strangers = (0..10_000).filter(|_| ceiling.allow(now, false)).count();
        assert_eq!(strangers, 100, "a burst is a tenth of a second's worth of its half");
        assert!(ceiling.allow(now, true));
        let later = Instant::from_millis(1_010);
        let strangers = (0..10_000).filter(|_| ceiling.allow(later, false)).count();
        assert_eq!(strangers, 100);
    }

    #[test]
    fn the_rate_holds_over_a_second() {
        let mut ceiling = Ceiling::new(2_000);
        let allowed = (0..100_000u64)
            .filter(|i| ceiling.allow(Instant::from_nanos(1_000_000_000 + i * 10_000), false))
            .count();
        assert!((1_000..=1_101).contains(&allowed), "{allowed}");
    }
}
