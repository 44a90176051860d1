//! The store thread panics: nobody is given a reply that no store gave, `/readyz` says so at once, and the process ends
//! with code 70 within a second.
//!
//! The process is this test's own binary, started once more to serve over a store that panics when it is asked to
//! register a listing of a certain name. So the product needs no switch to fail by.
#![cfg(test)]

use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rendezvous_control::boundary::{Lane, Readiness, ReadyState, StoreGateway};
use rendezvous_control::directory::ApiKey;
use rendezvous_core::handler::Pending;
use rendezvous_core::store::MemoryStore;
use rendezvous_net::wake_pair;
use rendezvous_node::clock::{BootClock, Stopwatch};
use rendezvous_node::config::Config;
use rendezvous_node::gateway::Gateway;
use rendezvous_node::mailbox::{RingMailbox, mailbox};
use rendezvous_node::serve::serve_with;
use rendezvous_node::store_thread::{Lanes, StoreActor, lanes};
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::{HTTP_LANE_MAX, Limits};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, StoreStats, Transition};
use rendezvous_shared::time::Instant;
use rendezvous_testkit::clock::{Deadline, timed, wait_for};
use rendezvous_testkit::http;
use rendezvous_testkit::process::Running;
use rendezvous_testkit::server::{KEY, call};

/// The addresses the child listens at, separated by blanks; without it the child's test does nothing.
const ADDRESSES: &str = "RENDEZVOUS_TEST_ADDRESSES";
/// The name that no listing survives.
const FATAL: &str = "fatal";
const SOON: Duration = Duration::from_secs(20);

/// A real store until it is asked for something fatal.
struct Mortal {
    store: MemoryStore,
    /// Something to do before it panics.
    last_words: Box<dyn FnMut() + Send>,
}

impl EphemeralRendezvousStore for Mortal {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        let fatal = |it: &Transition| match it {
            Transition::RegisterListing(it) => it.description.name() == FATAL,
            Transition::EndPresence(_) => true,
            _ => false,
        };
        if batch.iter().any(fatal) {
            (self.last_words)();
            panic!("planted");
        }
        self.store.apply(now, batch, replies);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.store.next_deadline()
    }

    fn expire(&mut self, now: Instant) {
        self.store.expire(now);
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}
