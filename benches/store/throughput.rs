//! How many refreshes, renewals and whole attempts a second, on one core, at several sizes?

use std::time::Duration;

use rendezvous_shared::limits::Limits;
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{BindAnswer, DeleteListing, EphemeralRendezvousStore, Reply, Transition};

use crate::fleet::{Attempt, BATCH, Fleet, Lifetimes, limits};
use crate::rounds::{Floor, ROUNDS, cpu_seconds, shuffled, summary};

/// Transitions measured in a round.
const COUNT: usize = 64 * 1024;

/// Figures of one store, in nanoseconds for each.
struct Costs {
    name: String,
    rows: Vec<(&'static str, Vec<f64>)>,
    floor: Vec<f64>,
}

pub(crate) fn print() {
    println!(
        "ns each, median of {ROUNDS} rounds (min-max); in brackets the multiple of a hash map's update in the"
    );
    println!(
        "same rounds. An attempt is create, bind, bind with introduction, and all that ends of it later."
    );
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
    for row in 0..stores[0].rows.len() {
        let cells = stores.iter().map(|store| {
            let (it, floor) = (summary(store.rows[row].1.clone()), summary(store.floor.clone()));
            format!("{:.0} ({:.0}-{:.0}) [{:.1}]", it.median, it.min, it.max, it.median / floor.median)
        });
        println!("| {} | {} |", stores[0].rows[row].0, cells.collect::<Vec<_>>().join(" | "));
    }
    let refresh = |at: usize| summary(stores[at].rows[0].1.clone()).median;
    println!(
        "\nrefresh at {} takes {:.1} times what it takes at {}",
        names[2],
        refresh(2) / refresh(0),
        names[0]
    );
    for store in &stores {
        for (name, values) in store.rows.iter().filter(|(name, _)| ["refresh", "attempt"].contains(name)) {
            let million = 1e3 / summary(values.clone()).median;
            println!("\n{name} at {}: {million:.2} million a second", store.name);
        }
    }
}

fn costs(listings: usize, lifetimes: Lifetimes) -> Costs {
    let attempts = (listings * 2 / 5).max(4_000);
    // One place more, so that one can go and one can come.
    let places = limits(listings + BATCH, attempts);
    // What is deleted leaves its record for six minutes, which the bench does not wait for.
    let listing_records = places.listing_records + ROUNDS * COUNT / 8;
    let mut fleet = Fleet::new(Limits { listing_records, ..places }, lifetimes);
    fleet.register(listings);
    let order = shuffled(listings);
    let mut floor = Floor::new(listings);
    let mut rows = ["refresh", "renew", "attempt", "register and delete"].map(|name| (name, Vec::new()));
    let mut floors = Vec::new();
    warm_up(&mut fleet, &order);
    for _ in 0..ROUNDS {
        floors.push(floor.measure(COUNT) * 1e9);
        rows[0].1.push(refreshes(&mut fleet, &order));
        rows[1].1.push(renewals(&mut fleet, &order));
        rows[2].1.push(cycles(&mut fleet, &order, COUNT / 4));
        rows[3].1.push(churn(&mut fleet, COUNT / 8));
        fleet.live_on();
    }
    Costs { name: format!("{listings} listings"), rows: rows.into(), floor: floors }
}

/// Until as many things end as begin: records of attempts last longest.
fn warm_up(fleet: &mut Fleet, order: &[usize]) {
    for _ in 0..8 {
        cycles(fleet, order, 4_096);
        fleet.live_on();
    }
}

impl Fleet {
    fn live_on(&mut self) {
        (0..2).for_each(|_| self.pass(Duration::from_secs(5)));
    }

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

/// Whole attempts, at the rate at which they end: so each time as much ends as begins.
fn cycles(fleet: &mut Fleet, order: &[usize], count: usize) -> f64 {
    let pace = fleet.pace();
    let mut spent = 0.0;
    for hosts in order.iter().cycle().copied().take(count).collect::<Vec<_>>().chunks(BATCH) {
        let creates: Vec<_> = hosts.iter().map(|&host| fleet.creation(host)).collect();
        let mut made: Vec<Attempt> = Vec::new();
        spent += apply(fleet, &creates);
        for (reply, &host) in fleet.replies.iter().zip(hosts) {
            made.push(fleet.granted(reply, host));
        }
        let binds: Vec<_> = made.iter().map(|it| fleet.bind_joiner(it)).collect();
        spent += apply(fleet, &binds);
        let waiting = |it: &Reply| matches!(it, Reply::Bind(BindAnswer::Waiting { .. }));
        assert!(fleet.replies.iter().all(waiting));
        let binds: Vec<_> = made.iter().map(|it| fleet.bind_host(it)).collect();
        spent += apply(fleet, &binds);
        let introduced = |it: &Reply| matches!(it, Reply::Bind(BindAnswer::Introduced { .. }));
        assert!(fleet.replies.iter().all(introduced));
        fleet.pass(pace);
    }
    spent / count as f64
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
