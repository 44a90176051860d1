//! How many refreshes, renewals and whole attempts a second, on one core, at several sizes?

use std::time::Duration;

use rendezvous_shared::limits::{ATTEMPT_MAX, ATTEMPT_MIN, INTRODUCED_LIFETIME_MIN, Limits, RECORD_GRACE};
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{BindAnswer, DeleteListing, EphemeralRendezvousStore, Reply, Transition};

use crate::fleet::{Attempt, BATCH, Fleet, Lifetimes, limits};
use crate::rounds::{Floor, ROUNDS, cpu_seconds, shuffled, summary};

/// Transitions measured in a round.
const COUNT: usize = 64 * 1024;
/// What is measured; the four after the attempt are its parts.
const ROWS: [&str; 8] = [
    "refresh",
    "renew",
    "attempt",
    "· its creation",
    "· bind of the joiner",
    "· bind of the host, introduction",
    "· the end of it, of its result and its record",
    "register and delete",
];

/// Figures of one store, in nanoseconds for each.
struct Costs {
    name: String,
    rows: [Vec<f64>; ROWS.len()],
    floor: Vec<f64>,
}

pub(crate) fn print() {
    println!(
        "ns each, median of {ROUNDS} rounds (min-max); in brackets the multiple of a hash map's update in the"
    );
    println!("same rounds. Attempts are made as fast as they end when all pools are full.");
    println!(
        "In the last column leases and attempts last every whole second that is allowed, elsewhere one.\n"
    );
    let sizes = [1_000, Limits::DEFAULT.listings, Limits::LISTINGS_MAX];
    let mut stores: Vec<_> = sizes.into_iter().map(|it| costs(it, Lifetimes::FEW)).collect();
    let mut spread = costs(Limits::DEFAULT.listings, Lifetimes::All);
    spread.name += ", all lifetimes";
    stores.push(spread);
    let names: Vec<_> = stores.iter().map(|it| &*it.name).collect();
    println!("| | {} |", names.join(" | "));
    println!("|---|---|---|---|---|");
    for (row, name) in ROWS.iter().enumerate() {
        let cells = stores.iter().map(|store| {
            let (it, floor) = (summary(store.rows[row].clone()), summary(store.floor.clone()));
            format!("{:.0} ({:.0}-{:.0}) [{:.1}]", it.median, it.min, it.max, it.median / floor.median)
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    let refresh = |at: usize| summary(stores[at].rows[0].clone()).median;
    println!(
        "\nrefresh at {} takes {:.1} times what it takes at {}",
        names[2],
        refresh(2) / refresh(0),
        names[0]
    );
    for store in &stores {
        for row in [0, 2] {
            let it = summary(store.rows[row].clone());
            println!(
                "\n{} at {}: {:.2} million a second ({:.2}-{:.2})",
                ROWS[row],
                store.name,
                1e3 / it.median,
                1e3 / it.max,
                1e3 / it.min
            );
        }
    }
}

/// Hosts in random order, round and round.
struct Turns {
    order: Vec<usize>,
    next: usize,
}

impl Turns {
    fn batch(&mut self) -> Vec<usize> {
        let Self { order, next } = self;
        let hosts = (0..BATCH).map(|it| order[(*next + it) % order.len()]).collect();
        *next += BATCH;
        hosts
    }
}

/// Attempts only, for as long as a profiler wants to look at them.
pub(crate) fn attempts() {
    let (mut fleet, mut turns) = populated(Limits::DEFAULT.listings, Lifetimes::FEW);
    let whole = (0..4 * ROUNDS).map(|_| cycles(&mut fleet, &mut turns, COUNT / 4).iter().sum());
    let it = summary(whole.collect());
    println!("{:.0} ns each, median of {} rounds ({:.0}-{:.0})", it.median, 4 * ROUNDS, it.min, it.max);
}

/// A store with its hosts, in which as many attempts, results and records end as begin; and the hosts in random order.
fn populated(listings: usize, lifetimes: Lifetimes) -> (Fleet, Turns) {
    let attempts = (listings * 2 / 5).max(4_000);
    // One place more, so that one can go and one can come.
    let places = limits(listings + BATCH, attempts);
    // What is deleted leaves its record for six minutes, which the bench does not wait for.
    let listing_records = places.listing_records + ROUNDS * COUNT / 8;
    let mut fleet = Fleet::new(Limits { listing_records, ..places }, lifetimes);
    fleet.register(listings);
    let mut turns = Turns { order: shuffled(listings), next: 0 };
    // A record lasts longest.
    let longest = match lifetimes {
        Lifetimes::One { .. } => ATTEMPT_MIN.max(INTRODUCED_LIFETIME_MIN) + RECORD_GRACE,
        Lifetimes::All => ATTEMPT_MAX + RECORD_GRACE,
    };
    let until = fleet.now.after(longest);
    while fleet.now < until {
        cycles(&mut fleet, &mut turns, BATCH);
    }
    (fleet, turns)
}

fn costs(listings: usize, lifetimes: Lifetimes) -> Costs {
    let (mut fleet, mut turns) = populated(listings, lifetimes);
    let mut floor = Floor::new(listings);
    let mut rows = [const { Vec::new() }; ROWS.len()];
    let mut floors = Vec::new();
    for _ in 0..ROUNDS {
        floors.push(floor.measure(COUNT) * 1e9);
        let parts = cycles(&mut fleet, &mut turns, COUNT / 4);
        let attempt = [parts.iter().sum()].into_iter().chain(parts);
        let figures = [refreshes(&mut fleet, &turns.order), renewals(&mut fleet, &turns.order)];
        let figures = figures.into_iter().chain(attempt).chain([churn(&mut fleet, COUNT / 8)]);
        rows.iter_mut().zip(figures).for_each(|(row, figure)| row.push(figure));
    }
    Costs { name: format!("{listings} listings"), rows, floor: floors }
}

impl Fleet {
    /// Between two batches of attempts, so that no pool overflows: of short attempts the records last longest, of all
    /// lifetimes the attempts themselves are most.
    fn pace(&self) -> Duration {
        let turnover = match self.lifetimes {
            Lifetimes::One { .. } => Duration::from_millis(17_500),
            Lifetimes::All => Duration::from_secs(40),
        };
        turnover / self.pool(Pool::Attempts).1 as u32 * BATCH as u32
    }
}

/// Nanoseconds that the store takes for one batch.
fn apply(fleet: &mut Fleet, batch: &[Transition]) -> f64 {
    fleet.replies.clear();
    1e9 * cpu_seconds(|| fleet.store.apply(fleet.now, batch, &mut fleet.replies))
}

fn refreshes(fleet: &mut Fleet, order: &[usize]) -> f64 {
    let hosts: Vec<usize> = order.iter().copied().cycle().take(COUNT).collect();
    let mut spent = 0.0;
    for hosts in hosts.chunks(BATCH) {
        let batch: Vec<_> = hosts.iter().map(|&host| fleet.refresh(host)).collect();
        spent += apply(fleet, &batch);
        assert!(fleet.replies.iter().all(|it| matches!(it, Reply::Presence(_))));
    }
    spent / COUNT as f64
}

fn renewals(fleet: &mut Fleet, order: &[usize]) -> f64 {
    let hosts: Vec<usize> = order.iter().copied().take(COUNT).collect();
    let mut spent = 0.0;
    for hosts in hosts.chunks(BATCH) {
        let batch: Vec<_> = hosts.iter().map(|&host| fleet.renewal(host)).collect();
        spent += apply(fleet, &batch);
        assert!(fleet.replies.iter().all(|it| matches!(it, Reply::Renewed(_))));
        hosts.iter().for_each(|&host| fleet.hosts[host].version += 1);
    }
    spent / hosts.len() as f64
}

/// Whole attempts, at the rate at which they end: so each time as much ends as begins. The parts of one, in order.
fn cycles(fleet: &mut Fleet, turns: &mut Turns, count: usize) -> [f64; 4] {
    let pace = fleet.pace();
    let mut spent = [0.0; 4];
    for _ in 0..count / BATCH {
        let hosts = turns.batch();
        fleet.pass(pace);
        spent[3] += 1e9 * cpu_seconds(|| fleet.settle());
        let creates: Vec<_> = hosts.iter().map(|&host| fleet.creation(host)).collect();
        let mut made: Vec<Attempt> = Vec::new();
        spent[0] += apply(fleet, &creates);
        for (reply, &host) in fleet.replies.iter().zip(&hosts) {
            made.push(fleet.granted(reply, host));
        }
        let binds: Vec<_> = made.iter().map(|it| fleet.bind_joiner(it)).collect();
        spent[1] += apply(fleet, &binds);
        let waiting = |it: &Reply| matches!(it, Reply::Bind(BindAnswer::Waiting { .. }));
        assert!(fleet.replies.iter().all(waiting));
        let binds: Vec<_> = made.iter().map(|it| fleet.bind_host(it)).collect();
        spent[2] += apply(fleet, &binds);
        let introduced = |it: &Reply| matches!(it, Reply::Bind(BindAnswer::Introduced { .. }));
        assert!(fleet.replies.iter().all(introduced));
    }
    spent.map(|it| it / count as f64)
}

fn churn(fleet: &mut Fleet, count: usize) -> f64 {
    let mut spent = 0.0;
    for turn in 0..count / BATCH {
        let registrations = (0..BATCH)
            .map(|it| (turn * BATCH + it) as u32)
            .map(|number| Transition::RegisterListing(Box::new(fleet.registration(number))));
        let registrations: Vec<_> = registrations.collect();
        spent += apply(fleet, &registrations);
        let mut deletions = Vec::new();
        for (reply, asked) in fleet.replies.iter().zip(&registrations) {
            let (Reply::Registered(grant), Some(caller)) = (reply, asked.caller()) else {
                panic!("not registered: {reply:?}")
            };
            deletions.push(Transition::DeleteListing(DeleteListing { caller, listing: grant.view.id }));
        }
        spent += apply(fleet, &deletions);
        assert!(fleet.replies.iter().all(|it| matches!(it, Reply::Deleted)));
        // The records of what was deleted must end too.
        fleet.now = fleet.now.after(Duration::from_millis(1));
    }
    spent / count as f64
}
