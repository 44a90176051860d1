//! How many bytes does what is kept take, and does it grow once the ceilings are reached?

use std::time::Duration;

use allocation_counter::measure;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::EphemeralRendezvousStore;

use crate::fleet::{Fleet, limits};
use crate::rounds::shuffled;

const GROWTH_ROUNDS: usize = 20;

pub(crate) fn print() {
    println!(
        "Bytes that the store holds, by a counting allocator; what is reserved for the ceilings counts as held.\n"
    );
    println!(
        "| listings / attempts | a listing with its presence, record and indexes | all pools full | growth in {GROWTH_ROUNDS} turnovers after |"
    );
    println!("|---|---|---|---|");
    for (listings, attempts) in
        [(Limits::DEFAULT.listings, Limits::DEFAULT.attempts), (Limits::LISTINGS_MAX, Limits::ATTEMPTS_MAX)]
    {
        let per_listing = per_listing(listings);
        let (full, growth) = full(listings, attempts);
        let mib = full as f64 / f64::from(1 << 20);
        println!("| {listings} / {attempts} | {per_listing} | {mib:.1} MiB | {growth} |");
    }
}

/// Of a store that holds nothing but listings, each with its presence and record.
fn per_listing(listings: usize) -> i64 {
    let none =
        Limits { attempt_records: 0, attempt_results: 0, listing_records: listings, ..limits(listings, 0) };
    let mut kept = None;
    let bytes = measure(|| {
        let mut fleet = Fleet::new(none);
        fleet.register(listings);
        // What the bench keeps for itself is not the store's.
        (fleet.hosts, fleet.replies) = (Vec::new(), Vec::new());
        kept = Some(fleet);
    });
    drop(kept);
    bytes.bytes_current / listings as i64
}

/// Of a store with every pool full; and what a turnover of everything adds to that.
fn full(listings: usize, attempts: usize) -> (i64, i64) {
    let mut kept = None;
    let bytes = measure(|| {
        let mut fleet = Fleet::new(limits(listings, attempts));
        fleet.hosts.reserve(2 * listings);
        fleet.fill(attempts);
        kept = Some(fleet);
    });
    let mut fleet = kept.unwrap();
    let own = (fleet.hosts.capacity() * size_of::<crate::fleet::Host>()) as i64;
    let rounds = if listings > 100_000 { 2 } else { GROWTH_ROUNDS };
    let after = measure(|| (0..rounds).for_each(|_| fleet.fill(attempts)));
    (bytes.bytes_current - own, after.bytes_current)
}

impl Fleet {
    /// Ends everything there is, twice over, and fills every pool again.
    fn fill(&mut self, attempts: usize) {
        let listings = self.store.stats().pools[0].limit;
        self.now = self.now.after(Duration::from_secs(1_000));
        while self.store.next_deadline().is_some_and(|at| at <= self.now) {
            self.store.expire(self.now);
        }
        // Listings that end leave their records: twice the listings fill those.
        for _ in 0..2 {
            for host in 0..self.hosts.len() {
                self.delete(host);
            }
            self.hosts.clear();
            self.register(listings);
        }
        let order = shuffled(listings);
        // Attempts that end leave records and results: those fill with four times, and twice, the attempts.
        for turn in 0..4 {
            let mut made = Vec::with_capacity(attempts);
            for &host in order.iter().take(attempts) {
                let create = self.creation(host);
                let reply = self.one(create);
                made.push(self.granted(&reply, host));
            }
            if turn < 3 {
                made.iter().for_each(|it| self.cancel(it));
            }
        }
        let pools = self.store.stats().pools;
        assert!(pools.iter().take(5).all(|it| it.used == it.limit), "{pools:?}");
    }
}
