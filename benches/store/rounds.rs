//! Rounds of measurements: medians with their range, each beside a floor measured in the same round.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

/// Rounds of each measurement.
pub(crate) const ROUNDS: usize = 7;

/// Seconds that `work` takes.
pub(crate) fn seconds(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}

/// Seconds that `work` keeps its core busy.
pub(crate) fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let started = now();
    work();
    now() - started
}

/// The median of some values, the smallest and the largest.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Sorts and summarises.
pub(crate) fn summary(mut values: Vec<f64>) -> Summary {
    values.sort_by(f64::total_cmp);
    Summary { median: values[values.len() / 2], min: values[0], max: values[values.len() - 1] }
}

/// The least that a store of `len` objects could do: find one by a hash, read it and write it. Its time per object is
/// the floor that figures are quoted beside.
pub(crate) struct Floor {
    map: HashMap<u64, [u64; 4], ahash::RandomState>,
    next: u64,
}

impl Floor {
    pub(crate) fn new(len: usize) -> Self {
        Self { map: (0..len as u64).map(|key| (key, [key; 4])).collect(), next: 1 }
    }

    /// Seconds for each of `count` objects in random order.
    pub(crate) fn measure(&mut self, count: usize) -> f64 {
        let len = self.map.len() as u64;
        let seconds = seconds(|| {
            for _ in 0..count {
                self.next =
                    self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if let Some(value) = self.map.get_mut(&((self.next >> 33) % len)) {
                    value[0] = black_box(value[1] + 1);
                }
            }
        });
        seconds / count as f64
    }
}

/// A permutation of `0..len`, the same each time.
pub(crate) fn shuffled(len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    let mut state = 0x9e37_79b9_u64;
    for at in (1..len).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}
