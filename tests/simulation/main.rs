//! The deterministic simulation: the real handler, the real store and the real client machines in a world of one
//! thread, one seed and virtual time, with an oracle beside them.
//!
//! | command | does |
//! |---|---|
//! | `cargo test -p rendezvous-testkit --test simulation` | 2,000 seeds |
//! | `RENDEZVOUS_SEEDS=100000 cargo test …` | that many |
//! | `RENDEZVOUS_SEED=7 cargo test … -- many_seeds --nocapture` | that one, with its whole log |
//!
//! What it cannot show: anything of the kernel, of threads that really run at once, of HTTP itself (requests here are
//! transitions), and of keys that are renewed after half a day.
#![cfg(test)]

mod oracle;
mod reached;
mod seeds;
mod world;

/// Seeds run when nothing else is asked for.
const SEEDS_DEFAULT: u64 = 2_000;
/// From so many seeds on, everything must have been reached.
const SEEDS_TO_REACH_ALL: u64 = 1_000;

fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

#[test]
fn many_seeds_keep_every_property() {
    if let Some(seed) = asked("RENDEZVOUS_SEED") {
        println!("seed {seed}");
        let outcome = seeds::run(seed);
        print!("{}", outcome.world.log.text());
        println!("{}", outcome.reached);
        assert!(outcome.failure.is_none(), "{}", seeds::describe(seed, &outcome));
        return;
    }
    let count = asked("RENDEZVOUS_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let first = asked("RENDEZVOUS_SEED_FIRST").unwrap_or(0);
    println!("seeds {first} to {}", first + count - 1);
    let (reached, failures) = seeds::run_many(first, count);
    println!("{reached}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if count >= SEEDS_TO_REACH_ALL {
        assert!(reached.missing().is_empty(), "never reached in {count} seeds: {:?}", reached.missing());
    }
}

#[test]
fn one_seed_is_one_history() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 100..112 {
        let (one, again) = (seeds::run(seed), seeds::run(seed));
        assert_eq!(one.world.log.text(), again.world.log.text(), "seed {seed} has two histories");
        assert_eq!(one.hash, again.hash);
        assert!(one.world.log.text().len() > 1_000, "seed {seed} has next to no history");
        hashes.insert(one.hash);
    }
    assert_eq!(hashes.len(), 12, "different seeds have different histories");
}
