//! The server's hand-overs under a scheduler that decides at every step which thread goes on.
//!
//! The files that hand something over are the product's own, compiled here once more: what they take from
//! `crate::sync` is then [`sync`]'s, whose every operation is a step. So what runs is the ring thread, the store thread,
//! the gateway and the drain as they are, over a real socket and the real store. Schedules are drawn at random, and by
//! PCT, which finds what needs few switches at the right places. A failure prints its schedule; `SHUTTLE_RANDOM_SEED`
//! repeats a run, `INTERLEAVINGS` says how many schedules to try instead of the default.
//!
//! What it cannot show: orders of memory accesses weaker than sequential (`dataplane/net/tests/wake_orders.rs` tries
//! those of the wake flag), what happens within crossbeam's and tokio's own operations, each one step here, and that no
//! schedule which was not drawn fails.
#![cfg(test)]

mod backlog;
mod boxes;
mod cancel;
mod drain_hand_off;
mod kit;
mod peers;
#[expect(missing_docs, reason = "each is described where it comes from")]
pub mod sync;

pub use rendezvous_node::{clock, spin};

#[path = "../../dataplane/node/src/drain.rs"]
pub mod drain;
#[path = "../../dataplane/node/src/gateway.rs"]
pub mod gateway;
#[path = "../../dataplane/node/src/mailbox.rs"]
pub mod mailbox;
#[path = "../../dataplane/node/src/ring.rs"]
pub mod ring;
#[path = "../../dataplane/node/src/store_thread.rs"]
pub mod store_thread;
