//! How many bytes does what is kept take, and does it grow once the ceilings are reached?

use allocation_counter::measure;
use rendezvous_shared::id::{PrincipalId, TenantId};
use rendezvous_shared::limits::{Limits, REVOCATION_MIN};
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, Subject};

use crate::fleet::{Fleet, Lifetimes, TENANTS, limits};
use crate::rounds::shuffled;

/// Principals from here on have nothing.
const FIRST_BARRED: u32 = 1 << 31;

pub(crate) fn print() {
    println!(
        "Bytes that the store holds, by a counting allocator; what is reserved for the ceilings counts as"
    );
    println!("held. In a turnover everything ends, some of it early, and every pool is filled again.\n");
    println!(
        "| listings / attempts | a listing with its presence, record and indexes | all pools full, revocations too | growth in turnovers after |"
    );
    println!("|---|---|---|---|");
    for (listings, attempts, turnovers) in [
        (Limits::DEFAULT.listings, Limits::DEFAULT.attempts, 20),
        (Limits::LISTINGS_MAX, Limits::ATTEMPTS_MAX, 2),
    ] {
        let per_listing = per_listing(listings);
        let (full, growth) = full(listings, attempts, turnovers);
        let mib = full as f64 / f64::from(1 << 20);
        println!("| {listings} / {attempts} | {per_listing} | {mib:.1} MiB | {growth} in {turnovers} |");
    }
}

/// Of a store that holds nothing but listings, each with its presence and record.
fn per_listing(listings: usize) -> i64 {
    let none =
        Limits { attempt_records: 0, attempt_results: 0, listing_records: listings, ..limits(listings, 0) };
    let mut kept = None;
    let bytes = measure(|| {
        let mut fleet = Fleet::new(none, Lifetimes::FEW);
        fleet.register(listings);
        // What the bench keeps for itself is not the store's.
        (fleet.hosts, fleet.replies) = (Vec::new(), Vec::new());
        kept = Some(fleet);
    });
    drop(kept);
    bytes.bytes_current / listings as i64
}

/// Of a store with every pool full; and what so many turnovers of everything add to that.
fn full(listings: usize, attempts: usize, turnovers: usize) -> (i64, i64) {
    let mut kept = None;
    let bytes = measure(|| {
        let mut fleet = Fleet::new(limits(listings, attempts), Lifetimes::FEW);
        fleet.hosts.reserve(2 * listings);
        fleet.fill(attempts);
        kept = Some(fleet);
    });
    let mut fleet = kept.unwrap();
    let own = (fleet.hosts.capacity() * size_of::<crate::fleet::Host>()) as i64;
    let after = measure(|| (0..turnovers).for_each(|_| fleet.fill(attempts)));
    (bytes.bytes_current - own, after.bytes_current)
}

impl Fleet {
    /// Ends everything there is, twice over, and fills every pool again.
    fn fill(&mut self, attempts: usize) {
        // Whatever there was is over.
        self.now = self.now.after(REVOCATION_MIN);
        self.settle();
        let (_, listings) = self.pool(Pool::Listings);
        // Listings that end leave their records: twice the listings fill those.
        for _ in 0..2 {
            for host in 0..self.hosts.len() {
                let delete = self.deletion(host);
                self.one(delete);
            }
            self.hosts.clear();
            self.register(listings);
        }
        let order = shuffled(listings);
        // Attempts that end leave records and results: those fill with four times, and twice, the attempts.
        for turn in 0..4 {
            let made: Vec<_> = order.iter().take(attempts).map(|&host| self.join(host)).collect();
            for attempt in made.iter().filter(|_| turn < 3) {
                let cancel = self.cancellation(attempt);
                assert!(matches!(self.one(cancel), Reply::Cancelled));
            }
        }
        // Whom it bars does not matter: each takes a place.
        for number in 0..self.pool(Pool::Revocations).1 as u32 {
            let subject = Subject::Principal(PrincipalId(FIRST_BARRED + number));
            let revoke = self.revocation(TenantId(number % TENANTS), subject);
            assert!(matches!(self.one(revoke), Reply::Revoked(_)));
        }
        let pools = self.store.stats().pools;
        assert!(pools.iter().all(|it| it.used == it.limit), "{pools:?}");
    }
}
