//! Wiring of the rendezvous server: configuration, threads, clock, store thread, shutdown and telemetry.
//!
//! The only crate that knows OS threads, channels and the system clock. It decides nothing about authority.
//!
//! ```text
//!  NIC ─► ring thread ─► bounded channel ─► store thread ─► reply queue + wake ─► ring thread ─► NIC
//!  HTTP ─► control thread ─► lanes ─────────────► │ └─► oneshot ─► control thread ─► HTTP
//! ```
#![forbid(unsafe_code)]

pub mod banner;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control_thread;
mod dataplane;
pub mod doctor;
pub mod drain;
pub mod exit;
pub mod gateway;
mod ground;
mod hearing;
pub mod mailbox;
pub mod output;
pub mod peers;
mod placement;
pub mod ring;
pub mod serve;
pub mod spin;
pub mod store_thread;
mod sync;
mod systemd;
pub mod telemetry;
mod threads;
