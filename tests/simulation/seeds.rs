//! Many seeds, each in a world of its own, on as many threads as there are processors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::reached::Reached;
use crate::world::World;

/// Lines of a failing seed's log that are shown.
const TAIL_LINES: usize = 60;
/// Failing seeds after which no other is tried.
const FAILURES_MAX: usize = 5;

/// What a seed came to.
pub(crate) struct Outcome {
    /// What it reached.
    pub(crate) reached: Reached,
    /// Of its log.
    pub(crate) hash: u64,
    /// The property it broke.
    pub(crate) failure: Option<String>,
    /// All it logged.
    pub(crate) world: World,
}

/// Runs `seed`.
pub(crate) fn run(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = result.err().map(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default()
    });
    Outcome { reached: world.reached.clone(), hash: world.log.hash(), failure, world }
}

/// Says what to do with a seed that failed.
pub(crate) fn describe(seed: u64, outcome: &Outcome) -> String {
    let failure = outcome.failure.as_deref().unwrap_or("nothing");
    format!(
        "seed {seed} failed: {failure}\n--- the last of its log\n{}--- replay it, with the whole log, by\n\
         RENDEZVOUS_SEED={seed} cargo test -p rendezvous-testkit --test simulation -- many_seeds --nocapture\n",
        outcome.world.log.tail(TAIL_LINES)
    )
}

/// Runs `count` seeds from `first` on; returns what all of them reached and the failures.
pub(crate) fn run_many(first: u64, count: u64) -> (Reached, Vec<String>) {
    let next = AtomicU64::new(first);
    let found = Mutex::new((Reached::new(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get().min(8));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let outcome = run(seed);
                    let mut found = found.lock().unwrap();
                    found.0.merge(&outcome.reached);
                    if outcome.failure.is_some() {
                        found.1.push(describe(seed, &outcome));
                    }
                    if found.1.len() >= FAILURES_MAX {
                        return;
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}
