//! Pure core of the rendezvous server.
//!
//! [`handler`] turns received datagrams into transitions, and the store's replies into answers; [`store`] holds
//! all authority in memory. Neither does I/O, owns a thread or reads a clock: `now` comes in, effects go out as
//! returned values.
//!
//! What this crate cannot do: it keeps nothing across a restart, by design, and it is one writer's store; there
//! is no sharing it between processes.
#![forbid(unsafe_code)]

mod budget;
pub mod handler;
pub mod store;
