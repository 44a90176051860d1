//! Stores with a fault planted in them: a comparison that finds none of these finds nothing.

use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, Reporter, StoreStats, Transition};
use rendezvous_shared::time::Instant;
use rendezvous_testkit::model::NaiveStore;

use crate::compare;
use crate::machine::Real;

/// Enough to find any of them.
const CASES: u32 = 200;

/// The model, but what `FAULT` picks is answered and not done.
struct Forgetful<const FAULT: usize>(NaiveStore);

/// The model, but a batch is applied from its end.
struct Backwards(NaiveStore);

/// The model, but its clock stands still within a microsecond.
struct Coarse(NaiveStore);

const FAULTS: [fn(&Transition) -> bool; 5] = [
    |it| matches!(it, Transition::LiftRevocation(_)),
    |it| matches!(it, Transition::EndPresence(_)),
    |it| matches!(it, Transition::RenewLease(_)),
    |it| matches!(it, Transition::CancelAttempt(_)),
    |it| matches!(it, Transition::Report(it) if matches!(it.reporter, Reporter::Datagram(_))),
];

macro_rules! as_the_model {
    () => {
        fn next_deadline(&self) -> Option<Instant> {
            self.0.next_deadline()
        }

        fn expire(&mut self, now: Instant) {
            self.0.expire(now);
        }

        fn stats(&self) -> StoreStats {
            self.0.stats()
        }
    };
}

impl<const FAULT: usize> EphemeralRendezvousStore for Forgetful<FAULT> {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        for transition in batch {
            let before = self.0.clone();
            self.0.apply(now, core::slice::from_ref(transition), replies);
            if FAULTS[FAULT](transition) {
                self.0 = before;
            }
        }
    }

    as_the_model!();
}

impl EphemeralRendezvousStore for Backwards {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        let start = replies.len();
        for transition in batch.iter().rev() {
            self.0.apply(now, core::slice::from_ref(transition), replies);
        }
        replies[start..].reverse();
    }

    as_the_model!();
}

impl EphemeralRendezvousStore for Coarse {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        self.0.apply(Instant::from_nanos(now.as_nanos() / 1_000 * 1_000), batch, replies);
    }

    as_the_model!();
}

impl<const FAULT: usize> Real for Forgetful<FAULT> {
    fn empty(limits: Limits) -> Self {
        Self(NaiveStore::new(limits))
    }

    fn check(&self) {}
}

impl Real for Backwards {
    fn empty(limits: Limits) -> Self {
        Self(NaiveStore::new(limits))
    }

    fn check(&self) {}
}

impl Real for Coarse {
    fn empty(limits: Limits) -> Self {
        Self(NaiveStore::new(limits))
    }

    fn check(&self) {}
}

#[test]
fn planted_faults_are_found() {
    let found = [
        ("lifts nothing", compare::<Forgetful<0>>(CASES)),
        ("takes no leave", compare::<Forgetful<1>>(CASES)),
        ("renews nothing", compare::<Forgetful<2>>(CASES)),
        ("cancels nothing", compare::<Forgetful<3>>(CASES)),
        ("hears no reports", compare::<Forgetful<4>>(CASES)),
        ("goes backwards", compare::<Backwards>(CASES)),
        ("has a coarse clock", compare::<Coarse>(CASES)),
    ];
    for (fault, outcome) in found {
        let difference = outcome.expect_err(fault);
        println!("{fault}: {difference}\n");
        assert!(
            difference.lines().count() < 40,
            "one that {fault} was found by too long a history: {difference}"
        );
    }
}
