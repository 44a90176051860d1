//! The store against a stupid model of itself: the model passes the store's contract, and over long random histories
//! the real store answers exactly what the model answers.
//!
//! `RENDEZVOUS_SEED` chooses the histories and is printed first; `RENDEZVOUS_CASES` how many there are. What it cannot
//! show: which results are kept when their pool is full (a clause of the contract does), and how long anything takes.
#![cfg(test)]

#[path = "store_model/contract.rs"]
mod contract;
#[path = "store_model/machine.rs"]
mod machine;
#[path = "store_model/normal.rs"]
mod normal;
#[path = "store_model/planted.rs"]
mod planted;
#[path = "store_model/reached.rs"]
mod reached;
#[path = "store_model/resolve.rs"]
mod resolve;
#[path = "store_model/scenes.rs"]
mod scenes;
#[path = "store_model/setups.rs"]
mod setups;
#[path = "store_model/side.rs"]
mod side;
#[path = "store_model/steps.rs"]
mod steps;
#[path = "store_model/strategies.rs"]
mod strategies;

use std::cell::Cell;
use std::panic;
use std::sync::LazyLock;

use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use rendezvous_core::store::MemoryStore;
use rendezvous_testkit::model::NaiveStore;

use machine::{Compared, Model, Real, Reluctant};

/// Whether revocations are tried.
const REVOCATIONS: bool = true;

/// Histories, and their steps.
const CASES: u32 = 2_500;
const STEPS: core::ops::Range<usize> = 40..300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|it| it.parse().expect("a number"))
}

thread_local! {
    /// Whether this thread's panics are told by the runner, once the history is as short as it gets.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Silences the panics of threads that are to be quiet, and no others'.
static HOOK: LazyLock<()> = LazyLock::new(|| {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            before(info);
        }
    }));
});

/// Runs `cases` histories on `S` and the model; tells how the two first differ, with the shortest history.
fn compare<S: Real>(cases: u32) -> Result<(), String> {
    let seed = number("RENDEZVOUS_SEED").unwrap_or(1);
    println!("RENDEZVOUS_SEED={seed} RENDEZVOUS_CASES={cases}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config.clone(), rng);
    LazyLock::force(&HOOK);
    QUIET.set(true);
    let outcome = runner.run(&Model::sequential_strategy(STEPS), |(model, steps, seen)| {
        Compared::<S>::test_sequential(config.clone(), model, steps, seen);
        Ok(())
    });
    QUIET.set(false);
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, (model, steps, _))) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}\n")).collect();
            Err(format!(
                "RENDEZVOUS_SEED={seed}: {reason}\nin this history:\n  {model:?}\n{}",
                steps.concat()
            ))
        }
        Err(TestError::Abort(reason)) => Err(format!("RENDEZVOUS_SEED={seed}: {reason}")),
    }
}

#[test]
fn the_store_answers_what_the_model_answers() {
    let cases = number("RENDEZVOUS_CASES").map_or(CASES, |it| u32::try_from(it).expect("a number of cases"));
    compare::<MemoryStore>(cases).unwrap_or_else(|difference| panic!("{difference}"));
    // Fewer are for looking at one difference again.
    if cases >= CASES {
        reached::check();
    }
}

/// "Everything due is logically absent before any caller can see the store again; memory may be reclaimed in bounded
/// steps": no answer depends on how much was.
#[test]
fn a_reluctant_store_answers_the_same() {
    compare::<Reluctant>(CASES / 2).unwrap_or_else(|difference| panic!("{difference}"));
}

/// So much can be said of the histories themselves, whatever the real store does.
#[test]
fn the_model_answers_itself_and_every_end_is_reached() {
    compare::<NaiveStore>(CASES / 5).unwrap_or_else(|difference| panic!("{difference}"));
    reached::check();
}
