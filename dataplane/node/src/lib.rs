//! Wiring of the rendezvous server.
#![forbid(unsafe_code)]
pub mod clock;
pub mod mailbox;
pub mod ring;
pub mod store_thread;
