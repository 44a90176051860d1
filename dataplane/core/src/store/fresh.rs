//! How many presences are fresh, counted without an index: by the tick in which each will end.

use rendezvous_shared::limits::{GAUGE_LAG_MAX, PRESENCE_LIFETIME};
use rendezvous_shared::time::Instant;

/// Ticks kept: as many as a presence can lie ahead, and room.
const TICKS: usize = 256;
const TICK_NANOS: u64 = GAUGE_LAG_MAX.as_nanos() as u64;

const _: () = assert!(PRESENCE_LIFETIME.as_nanos() as u64 / TICK_NANOS + 2 < TICKS as u64);

/// A count of things that each end by themselves, exact to a tick. Whoever moves an end tells the old one and the new.
#[derive(Debug)]
pub(super) struct FreshCount {
    /// The present tick: whatever ends in an earlier one is not counted any more.
    tick: u64,
    count: usize,
    ends: [u32; TICKS],
}

impl FreshCount {
    pub(super) const fn new() -> Self {
        Self { tick: 0, count: 0, ends: [0; TICKS] }
    }

    pub(super) const fn get(&self) -> usize {
        self.count
    }

    /// Forgets what ended before the tick of `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        let tick = tick_of(now);
        if tick - self.tick.min(tick) >= TICKS as u64 {
            (self.count, self.ends) = (0, [0; TICKS]);
            self.tick = tick;
        }
        while self.tick < tick {
            self.count -= core::mem::take(&mut self.ends[self.tick as usize % TICKS]) as usize;
            self.tick += 1;
        }
    }

    /// One that was to end `before` now ends `after`; [`Instant::ZERO`] for none.
    pub(super) fn shift(&mut self, before: Instant, after: Instant) {
        if self.counts(before) {
            self.ends[tick_of(before) as usize % TICKS] -= 1;
            self.count -= 1;
        }
        if self.counts(after) {
            self.ends[tick_of(after) as usize % TICKS] += 1;
            self.count += 1;
        }
    }

    /// Whether something that ends then is counted now.
    pub(super) fn counts(&self, end: Instant) -> bool {
        end != Instant::ZERO && tick_of(end) >= self.tick
    }
}

const fn tick_of(instant: Instant) -> u64 {
    instant.as_nanos() / TICK_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_is_counted_until_its_tick_is_over() {
        let at = |tick: u64| Instant::from_nanos(1_000 * TICK_NANOS + tick * TICK_NANOS + 5);
        let mut fresh = FreshCount::new();
        fresh.advance(at(0));
        fresh.shift(Instant::ZERO, at(3));
        fresh.shift(Instant::ZERO, at(200));
        fresh.advance(at(3));
        assert_eq!(fresh.get(), 2);
        fresh.advance(at(4));
        assert_eq!(fresh.get(), 1);
        fresh.shift(at(200), at(220));
        fresh.advance(at(219));
        assert_eq!(fresh.get(), 1);
        fresh.shift(at(220), Instant::ZERO);
        assert_eq!(fresh.get(), 0);
        fresh.shift(Instant::ZERO, at(230));
        fresh.advance(at(100_000));
        assert_eq!(fresh.get(), 0, "a long sleep");
        fresh.shift(at(230), at(100_001));
        assert_eq!(fresh.get(), 1, "an end that was forgotten is not taken off again");
    }
}
