//! Whatever comes and goes, a store at its ceilings holds the memory it held before.

use core::time::Duration;

use allocation_counter::measure;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{InstanceId, ListingId, SessionId};
use rendezvous_shared::limits::{ATTEMPT_MIN, LEASE_MIN, Limits, RECORD_GRACE, RESULT_LIFETIME};
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{
    CancelAttempt, CreateAttempt, DatagramProof, DeleteListing, EphemeralRendezvousStore, LeaseGrant,
    RefreshPresence, RegisterListing, RenewLease, Reply, Transition,
};
use rendezvous_shared::time::Instant;

use super::own::{QUOTAS, caller, idempotency, registrations};
use crate::store::MemoryStore;

/// Just over which a hash table takes twice as many places.
const TABLE: usize = 4_096 / 8 * 7;
/// By so much may ordered sets and lanes differ from one moment to another.
const SLACK: i64 = 8 * 1024;

/// A store, one host that stays, and the time.
struct Churn {
    store: MemoryStore,
    now: Instant,
    host: (ListingId, LeaseGrant),
    made: usize,
}

impl Churn {
    fn new(limits: Limits) -> Self {
        let mut store = MemoryStore::new(limits, InstanceId(7), MasterKey::from_bytes([5; 32]));
        let (now, mut replies) = (Instant::from_millis(1_000_000), Vec::new());
        store.apply(now, &registrations(1), &mut replies);
        let [Reply::Registered(host)] = replies.as_slice() else { panic!("{replies:?}") };
        let host = (host.view.id, host.lease);
        Self { store, now, host, made: 1 }
    }

    fn apply(&mut self, batch: &[Transition]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(batch.len());
        self.store.apply(self.now, batch, &mut replies);
        replies
    }

    /// A second passes; the host lives on, and so many listings and attempts come and go.
    fn step(&mut self, listings: usize, attempts: usize) {
        self.now = self.now.after(Duration::from_secs(1));
        let (listing, LeaseGrant { version, presence_key, .. }) = self.host;
        let renew = RenewLease { caller: caller(1), listing, version, lease: None };
        let proof = DatagramProof {
            key_id: presence_key,
            source: Endpoint::new([9, 9, 9, 1].into(), 4000),
            local: None,
            arrived: self.now,
            cookie_issued: self.now,
            session: SessionId(1),
            sequence: version,
        };
        let refresh = Transition::RefreshPresence(RefreshPresence { proof });
        let replies = self.apply(&[refresh, Transition::RenewLease(renew)]);
        let [Reply::Presence(_), Reply::Renewed(lease)] = replies.as_slice() else { panic!("{replies:?}") };
        self.host.1 = *lease;
        let Some(Transition::RegisterListing(register)) = registrations(1).pop() else { panic!("none") };
        let registrations: Vec<_> = (0..listings)
            .map(|it| {
                let (idempotency, lease) = (idempotency(self.made + it), LEASE_MIN);
                let register = RegisterListing { idempotency, lease, ..(*register).clone() };
                Transition::RegisterListing(Box::new(register))
            })
            .collect();
        let creations: Vec<_> = (0..attempts)
            .map(|it| {
                Transition::CreateAttempt(Box::new(CreateAttempt {
                    caller: caller(2),
                    quotas: QUOTAS,
                    idempotency: idempotency(self.made + it),
                    listing,
                    note: Some("let me in".into()),
                    lifetime: ATTEMPT_MIN,
                }))
            })
            .collect();
        self.made += listings.max(attempts);
        let mut replies = self.apply(&registrations);
        replies.extend(self.apply(&creations));
        let ends = replies.iter().map(|reply| match reply {
            Reply::Registered(it) => {
                Transition::DeleteListing(DeleteListing { caller: caller(1), listing: it.view.id })
            }
            Reply::AttemptCreated(it) => {
                Transition::CancelAttempt(CancelAttempt { caller: caller(2), attempt: it.id })
            }
            other => panic!("{other:?}"),
        });
        let replies = self.apply(&ends.collect::<Vec<_>>());
        assert!(replies.iter().all(|it| matches!(it, Reply::Deleted | Reply::Cancelled)));
    }
}

/// "At its ceilings the store must not grow": a pool of records is as full as it gets, while one after the other makes
/// way for the next.
#[test]
fn it_does_not_grow_at_its_ceilings() {
    let seconds = |it: Duration| usize::try_from(it.as_secs()).unwrap();
    let lives = [
        (Pool::ListingRecords, seconds(LEASE_MIN + RECORD_GRACE)),
        (Pool::AttemptRecords, seconds(ATTEMPT_MIN + RECORD_GRACE)),
        (Pool::AttemptResults, seconds(RESULT_LIFETIME)),
    ];
    for (pool, life) in lives {
        let each = TABLE / life;
        let limits = Limits {
            listings: 2 * each,
            attempts: 2 * each,
            listing_records: lives[0].1 * each + 1,
            attempt_records: lives[1].1 * each,
            attempt_results: lives[2].1 * each,
            ..Limits::DEFAULT
        };
        let mut churn = Churn::new(limits);
        for turnover in 0..2 {
            let grown = measure(|| (0..3 * life).for_each(|_| churn.step(each, each)));
            assert!(grown.bytes_current <= SLACK, "{pool:?}, turnover {turnover}: {grown:?}");
        }
        let held = churn.store.stats().pools;
        let full = held.iter().find(|it| it.pool == pool).unwrap();
        assert!(full.high_water == full.limit && full.used + each + 1 >= full.limit, "{full:?}");
        churn.store.check_invariants();
    }
}
