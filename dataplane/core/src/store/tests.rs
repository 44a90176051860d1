//! The contract of the store, clause by clause, against [`MemoryStore`]; its invariants after every step.

use core::time::Duration;

use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::contract::Harness;
use rendezvous_shared::time::Instant;

use super::MemoryStore;

/// Time set by hand; starts late enough that nothing is mistaken for zero.
struct ByHand(Instant);

impl ByHand {
    fn new() -> Self {
        Self(Instant::from_millis(1_000_000))
    }
}

impl Harness for ByHand {
    type Store = MemoryStore;

    fn store(&mut self, limits: Limits) -> MemoryStore {
        MemoryStore::new(limits, InstanceId(7), MasterKey::from_bytes([5; 32]))
    }

    fn now(&self) -> Instant {
        self.0
    }

    fn advance(&mut self, by: Duration) {
        self.0 = self.0.after(by);
    }

    fn check(&mut self, store: &MemoryStore) {
        store.check_invariants();
    }
}

mod contract {
    use super::ByHand;

    rendezvous_shared::store_contract_tests!(ByHand::new());
}
