//! End to end: real server, host and joiner processes on real sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod fallback;
mod first_light;
mod lifecycle;
mod manual_host;
mod restart;
mod retries;
mod rings;

use std::time::Duration;

/// The server under test; it is host and joiner too.
const BINARY: &str = env!("CARGO_BIN_EXE_rendezvous");

/// For anything that takes a moment on an idle machine; generous, since test machines are not idle.
const SOON: Duration = Duration::from_secs(20);

/// The endpoint at the end of a line such as `… connected to 127.0.0.1:4000`.
fn last_word(line: &str) -> String {
    line.rsplit(' ').next().unwrap_or_default().to_owned()
}
