//! Many seeds, each in a world of its own, on as many threads as there are processors.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};

use crate::reached::Reached;
use crate::world::World;

/// Lines of a failing seed's log that are shown.
const TAIL_LINES: usize = 60;
/// Failing seeds after which no other is tried.
const FAILURES_MAX: usize = 5;
/// How often it is looked whether a seed goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Looks without a step after which a seed hangs: something that it called does not come back.
const LOOKS_MAX: u32 = 600;

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

/// Of a thread that is done.
const NO_SEED: u64 = u64::MAX;

/// How far the seed is that a thread runs.
#[derive(Default)]
struct Pulse {
    seed: AtomicU64,
    steps: Arc<AtomicU64>,
}

/// Runs `seed`.
pub(crate) fn run(seed: u64) -> Outcome {
    run_watched(seed, &Pulse::default())
}

fn run_watched(seed: u64, pulse: &Pulse) -> Outcome {
    pulse.seed.store(seed, Ordering::Relaxed);
    let mut world = World::new(seed, Arc::clone(&pulse.steps));
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
    let pulses: Vec<Pulse> = (0..threads).map(|_| Pulse::default()).collect();
    let (runs, over) = sync_channel(0);
    let work = |pulse: &Pulse| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            let outcome = run_watched(seed, pulse);
            let mut found = found.lock().unwrap();
            found.0.merge(&outcome.reached);
            if outcome.failure.is_some() {
                found.1.push(describe(seed, &outcome));
            }
            if found.1.len() >= FAILURES_MAX {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for pulse in &pulses {
            let (runs, work) = (runs.clone(), &work);
            scope.spawn(move || {
                work(pulse);
                pulse.seed.store(NO_SEED, Ordering::Relaxed);
                drop(runs);
            });
        }
        drop(runs);
        watch(&pulses, &over);
    });
    found.into_inner().unwrap()
}

/// Returns once nobody runs any more. A seed that makes no step for a minute ends it all: no thread can be stopped.
fn watch(pulses: &[Pulse], over: &Receiver<()>) {
    let mut seen = vec![(u64::MAX, 0); pulses.len()];
    while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        for (pulse, (steps, looks)) in pulses.iter().zip(&mut seen) {
            let now = pulse.steps.load(Ordering::Relaxed);
            *looks = if now == *steps { *looks + 1 } else { 0 };
            *steps = now;
            let seed = pulse.seed.load(Ordering::Relaxed);
            if *looks >= LOOKS_MAX && seed != NO_SEED {
                eprintln!("PROPERTY BROKEN: every call comes back: seed {seed} makes no step any more");
                std::process::abort();
            }
        }
    }
}
