//! Test kit of the rendezvous server: real processes on real sockets, watched line by line.
//!
//! Everything waits for something that must happen, within a bound, and a failure shows what was seen instead.
#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on says why and stops")]

pub mod clock;
pub mod faults;
pub mod http;
pub mod metrics;
pub mod model;
pub mod process;
pub mod seccomp;
pub mod server;
