//! Machines on tokio: sockets, timers, and the whole course of a host and of a joiner.
//!
//! [`host::run`] and [`joiner::run`] do all that `rendezvous host` and `rendezvous join` do. Who drives thousands
//! of them takes [`Session`] with a [`Host`](crate::host::Host) or [`Joiner`](crate::joiner::Joiner), one
//! [`ControlClient`](crate::control::ControlClient) for all and one [`SystemClock`] for all stamps.

pub mod clock;
pub mod host;
pub mod joiner;
mod session;
pub mod ways;

use core::time::Duration;
use std::collections::BTreeMap;

use rendezvous_shared::id::AttemptId;
use rendezvous_shared::time::Instant;
use tokio::sync::{mpsc, watch};

pub use clock::SystemClock;
pub use session::{Session, Stamped};
pub use ways::{Families, Network, Ways, resolve};

use crate::control::ControlError;
use crate::credentials::MalformedCredentials;

/// Why a driver ended other than by being told to, or by its attempt being over.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The control plane refused for good, or (joiner) could not be reached.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A credential cannot be read.
    #[error(transparent)]
    Credentials(#[from] MalformedCredentials),
    /// The server's UDP endpoint cannot be used.
    #[error("no route to any of the server's UDP endpoints: {0}")]
    NoEndpoint(String),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] std::io::Error),
    /// The system has no randomness to give.
    #[error("no randomness: {0}")]
    Random(#[from] getrandom::Error),
}

impl DriverError {
    /// Whether the same may succeed later: see [`ControlError::is_transient`]; a name that does not resolve counts
    /// too, since resolvers have bad moments.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Control(error) => error.is_transient(),
            Self::NoEndpoint(_) => true,
            Self::Credentials(_) | Self::Socket(_) | Self::Random(_) => false,
        }
    }
}

/// Messages to send over each link, to try it out.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// How many.
    pub count: u32,
    /// How far apart.
    pub interval: Duration,
}

impl Default for Messages {
    fn default() -> Self {
        Self { count: 10, interval: Duration::from_millis(500) }
    }
}

/// A seed from the system.
///
/// # Errors
/// The system has none to give.
pub fn random_seed() -> Result<u64, getrandom::Error> {
    getrandom::u64()
}

/// Waits until told to stop, or until nobody can tell any more. The value's guard is not held: it is not `Send`.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Hands `event` to whoever listens. A listener that is slow misses events; the dialog does not wait for it.
fn tell<E>(events: &mpsc::Sender<E>, event: E) {
    if events.try_send(event).is_err() {
        tracing::debug!("an event was dropped: its receiver is slow or gone");
    }
}

/// What is still to be sent over each link.
#[derive(Debug, Default)]
struct Chatter(BTreeMap<AttemptId, (u32, Instant)>);

impl Chatter {
    fn start(&mut self, attempt: AttemptId, messages: Messages, now: Instant) {
        if messages.count > 0 {
            self.0.insert(attempt, (messages.count, now));
        }
    }

    fn stop(&mut self, attempt: AttemptId) {
        self.0.remove(&attempt);
    }

    fn next_at(&self) -> Instant {
        self.0.values().map(|(_, at)| *at).min().unwrap_or(Instant::MAX)
    }

    /// The links on which a message is due; each is put off by `interval`.
    fn due(&mut self, now: Instant, interval: Duration) -> Vec<AttemptId> {
        let mut due = Vec::new();
        self.0.retain(|attempt, (left, at)| {
            if now >= *at {
                due.push(*attempt);
                *left -= 1;
                *at = now.after(interval);
            }
            *left > 0
        });
        due
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
