//! The contract of the store, clause by clause, against [`MemoryStore`]; its invariants after every step.

mod crowds;
mod growth;
mod own;

use core::time::Duration;

use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::contract::Harness;
use rendezvous_shared::time::Instant;

use super::{MemoryStore, Pace};

/// Works off only what it must, and one thing for each call in between: that something was not taken apart yet must
/// never show.
const RELUCTANT: Pace = Pace { per_transition: 0, per_call: 1 };

/// Time set by hand, and the pace of the store; starts late enough that nothing is mistaken for zero.
struct ByHand(Instant, Pace);

impl ByHand {
    fn new(pace: Pace) -> Self {
        Self(Instant::from_millis(1_000_000), pace)
    }
}

impl Harness for ByHand {
    type Store = MemoryStore;

    fn store(&mut self, limits: Limits) -> MemoryStore {
        MemoryStore::with_pace(limits, InstanceId(7), MasterKey::from_bytes([5; 32]), self.1)
    }

    fn now(&self) -> Instant {
        self.0
    }

    fn advance(&mut self, by: Duration) {
        self.0 = self.0.after(by);
    }

    fn snapshot(&self, store: &MemoryStore) -> String {
        format!("{store:?}")
    }

    fn check(&mut self, store: &MemoryStore) {
        store.check_invariants();
    }
}

mod contract {
    use super::{ByHand, Pace};

    rendezvous_shared::store_contract_tests!(ByHand::new(Pace::DEFAULT));
}

mod reluctant {
    use super::{ByHand, RELUCTANT};

    rendezvous_shared::store_contract_tests!(ByHand::new(RELUCTANT));
}
