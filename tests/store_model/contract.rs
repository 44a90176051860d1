//! The contract of the store, clause by clause, against the model.

use core::time::Duration;

use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::contract::Harness;
use rendezvous_shared::time::Instant;
use rendezvous_testkit::model::NaiveStore;

/// Time set by hand; starts late enough that nothing is mistaken for zero.
struct ByHand(Instant);

impl ByHand {
    fn new() -> Self {
        Self(Instant::from_millis(1_000_000))
    }
}

impl Harness for ByHand {
    type Store = NaiveStore;

    fn store(&mut self, limits: Limits) -> NaiveStore {
        NaiveStore::new(limits)
    }

    fn now(&self) -> Instant {
        self.0
    }

    fn advance(&mut self, by: Duration) {
        self.0 = self.0.after(by);
    }

    fn snapshot(&self, store: &NaiveStore) -> String {
        format!("{store:?}")
    }
}

rendezvous_shared::store_contract_tests!(ByHand::new());
