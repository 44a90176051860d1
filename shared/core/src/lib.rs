//! Vocabulary of the rendezvous server: the words every other crate speaks.
//!
//! | module | holds |
//! |---|---|
//! | [`time`] | our own [`Instant`](time::Instant), the [`Clock`](time::Clock) trait and a clock set by hand |
//! | [`id`] | identifiers and handles, as newtypes |
//! | [`endpoint`] | canonical addresses and the policy on which of them may be introduced |
//! | [`credential`] | key ids, derived secrets and MACs |
//! | [`wire`] | the UDP wire format, version 1 (`docs/protocol.md` is the normative text) |
//! | [`outcome`] | every end a datagram or a transition can have |
//! | [`counter`] | counters indexed by those ends |
//! | [`api`] | the JSON bodies of the control plane |
//! | [`limits`] | every ceiling, with its reason |
//! | [`store`] | the boundary [`EphemeralRendezvousStore`](store::EphemeralRendezvousStore) |
//!
//! What this crate cannot do: it has no I/O, no threads and reads no clock. It decides nothing about
//! authority; that is the store's alone.
#![forbid(unsafe_code)]

pub mod api;
pub mod counter;
pub mod credential;
pub mod endpoint;
pub mod id;
pub mod limits;
pub mod outcome;
pub mod store;
pub mod time;
pub mod wire;
