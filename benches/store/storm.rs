//! What is the longest pause when everything ends in one instant?

use std::time::Duration;

use rendezvous_shared::limits::{LEASE_MAX, Limits};
use rendezvous_shared::store::{EphemeralRendezvousStore, Transition};

use crate::fleet::{BATCH, Fleet, Lifetimes};
use crate::rounds::{cpu_seconds, shuffled, summary};

const STORMS: usize = 15;

pub(crate) fn print() {
    let limits = Limits::DEFAULT;
    println!(
        "{} listings with presence and {} attempts end in one instant, {STORMS} times.",
        limits.listings, limits.attempts
    );
    println!(
        "A round is what the store thread does between two looks at its queues: work off, apply one batch."
    );
    println!("Time of the thread on its core, so that other work of the machine is not taken for a pause.\n");
    let (mut longest, mut calm, mut total, mut rounds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STORMS {
        let mut fleet = full(limits);
        calm.push(measured_rounds(&mut fleet, 200).0);
        fleet.now = fleet.now.after(LEASE_MAX);
        let (max, sum, count) = measured_rounds(&mut fleet, usize::MAX);
        longest.push(max);
        total.push(sum);
        rounds.push(count as f64);
    }
    let (longest, calm) = (summary(longest), summary(calm));
    println!("| | µs, median of the storms (min-max) |");
    println!("|---|---|");
    println!("| longest round of a storm | {:.0} ({:.0}-{:.0}) |", longest.median, longest.min, longest.max);
    println!("| longest round of 200 before it | {:.0} ({:.0}-{:.0}) |", calm.median, calm.min, calm.max);
    let (total, rounds) = (summary(total), summary(rounds));
    println!(
        "| all rounds of a storm ({:.0}) | {:.0} ({:.0}-{:.0}) |",
        rounds.median, total.median, total.min, total.max
    );
}

/// A store at its ceilings.
fn full(limits: Limits) -> Fleet {
    let mut fleet = Fleet::new(limits, Lifetimes::FEW);
    fleet.register(limits.listings);
    let order = shuffled(limits.listings);
    for host in order.into_iter().take(limits.attempts) {
        let create = fleet.creation(host);
        let reply = fleet.one(create);
        let attempt = fleet.granted(&reply, host);
        let bind = fleet.bind_joiner(&attempt);
        fleet.one(bind);
    }
    fleet
}

/// Longest, sum (both in microseconds) and number of rounds, until nothing is left to do or `most` are done.
fn measured_rounds(fleet: &mut Fleet, most: usize) -> (f64, f64, usize) {
    let (mut longest, mut sum, mut count) = (0.0_f64, 0.0, 0);
    while count < most && (most < usize::MAX || fleet.store.next_deadline().is_some_and(|at| at <= fleet.now))
    {
        let batch: Vec<Transition> =
            (0..BATCH).map(|it| fleet.refresh((count * BATCH + it) % fleet.hosts.len())).collect();
        fleet.replies.clear();
        let spent = cpu_seconds(|| {
            fleet.store.expire(fleet.now);
            fleet.store.apply(fleet.now, &batch, &mut fleet.replies);
        });
        longest = longest.max(spent * 1e6);
        sum += spent * 1e6;
        count += 1;
    }
    fleet.now = fleet.now.after(Duration::from_nanos(1));
    (longest, sum, count)
}
