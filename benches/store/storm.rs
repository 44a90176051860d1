//! What is the longest pause when much ends in one instant?

use std::collections::BTreeSet;
use std::time::Duration;

use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::EphemeralRendezvousStore;

use crate::clients::KINDS;
use crate::rounds::{cpu_seconds, summary};
use crate::stages::{STAGES, Stage};

const STORMS: usize = 15;
/// Rounds of a storm in which nothing ends by itself.
const ROUNDS_MIN: usize = 200;
/// By how much time goes on with each round: what a round takes, more or less.
const ROUND: Duration = Duration::from_micros(100);

const EXPLANATION: &str = "\
A round is what the store thread does between two looks at its queues: work off, apply one batch. A batch has some of
everything: PRESENCE, some of hosts that had lapsed, registrations and creations into quotas and pools that look full,
renewals, binds, reports, cancels, reads, BYEs, revocations. Where something comes \"then\", the first round is it alone.
A storm is over when nothing is left that was over when it began. Microseconds of the thread on its core, so that other
work of the machine is not taken for a pause: median of all storms (min-max); each is the same again and again, so that
the fastest of all times of each round has the least noise in it.

| what ends | longest round | the longest when each is at its fastest | which that is | all rounds | rounds |";

pub(crate) fn print() {
    let Limits { listings, attempts, .. } = Limits::DEFAULT;
    println!(
        "{listings} listings with presence and {attempts} attempts, most of which end in one instant; {STORMS} storms of each kind."
    );
    println!("{EXPLANATION}");
    println!("|---|---|---|---|---|---|");
    let mut done = BTreeSet::new();
    for (name, stage) in STAGES {
        let storms: Vec<_> = (0..STORMS).map(|_| rounds(stage(), &mut done)).collect();
        let longest = summary(storms.iter().map(|it| it.iter().copied().fold(0.0, f64::max)).collect());
        let all = summary(storms.iter().map(|it| it.iter().sum()).collect());
        let count = storms[0].len();
        let fastest = (0..count).map(|at| storms.iter().map(|it| it[at]).fold(f64::MAX, f64::min));
        let (which, least) = fastest.enumerate().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
        println!(
            "| {name} | {:.0} ({:.0}-{:.0}) | {least:.0} | {} | {:.0} ({:.0}-{:.0}) | {count} |",
            longest.median,
            longest.min,
            longest.max,
            which + 1,
            all.median,
            all.min,
            all.max
        );
    }
    assert_eq!(done.len(), KINDS, "some of what was asked was never done: {done:?}");
}

/// Microseconds of each round, until nothing is left of what was over when the storm began.
fn rounds(stage: Stage, done: &mut BTreeSet<&'static str>) -> Vec<f64> {
    let Stage { mut clients, first } = stage;
    let began = clients.fleet.now;
    let quiet = clients.fleet.store.next_deadline().is_none_or(|at| at > began);
    let mut spent = Vec::new();
    let mut first = first.map(|it| vec![it]);
    while clients.fleet.store.next_deadline().is_some_and(|at| at <= began)
        || (quiet && spent.len() < ROUNDS_MIN)
    {
        let batch = first.take().unwrap_or_else(|| clients.batch());
        spent.push(1e6 * cpu_seconds(|| clients.round(&batch)));
        clients.learn(&batch);
        clients.fleet.now = clients.fleet.now.after(ROUND);
    }
    done.append(&mut clients.done);
    spent
}
