//! What the process hands in. The node implements these; tests script them.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};
use rendezvous_shared::time::Instant;

use crate::snapshot::Snapshot;

/// A boxed future that borrows nothing.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// The queue a transition waits in. A flood on one cannot starve the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Everything that callers ask for.
    Http,
    /// Drain and its state.
    Operator,
}

/// The way to the store thread.
pub trait StoreGateway: Send + Sync + 'static {
    /// Hands `transition` over and resolves to the store's reply. A full lane or a dead store is
    /// [`Refusal::ServiceUnavailable`]; [`Reply::Refused`] and `Err` mean the same to the caller.
    ///
    /// Dropping the future before the store thread picked the transition up must change nothing; dropping it
    /// later must not stop the transition.
    fn submit(&self, lane: Lane, transition: Transition) -> BoxFuture<Result<Reply, Refusal>>;
}

/// The process's figures.
pub trait Telemetry: Send + Sync + 'static {
    /// All figures as of one moment: `received = Σ outcomes + in_flight` holds within one snapshot.
    /// [`Snapshot::store`] is `None` when the store does not answer.
    fn snapshot(&self) -> BoxFuture<Snapshot>;
}

/// Where the monotonic clock stands on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallAnchor {
    /// Milliseconds of the Unix epoch at [`Instant::ZERO`].
    pub unix_ms_at_zero: i64,
}

/// Time, read at the edge.
pub trait Times: Send + Sync + 'static {
    /// The store's monotonic clock.
    fn now(&self) -> Instant;

    /// Wall time of [`Instant::ZERO`], taken once at the start: the same deadline is then always written as the
    /// same `expires_at`, so a repeated create is answered with the same bytes.
    fn wall(&self) -> WallAnchor;
}

/// Whether the server takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReadyState {
    /// Not yet.
    Starting = 0,
    /// Yes.
    Ready = 1,
    /// No more, and never again.
    Draining = 2,
    /// A part of it does not answer.
    Unavailable = 3,
    /// A socket of the datagram path does not hear.
    Deaf = 4,
}

/// What `/readyz` says; set by the process, read without waiting.
#[derive(Debug, Default)]
pub struct Readiness {
    state: AtomicU8,
    draining: AtomicBool,
    deaf: AtomicBool,
}

impl Readiness {
    /// At [`ReadyState::Starting`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the state. `Draining` stays, whatever is set later; only `Unavailable` shows above it.
    pub fn set(&self, state: ReadyState) {
        if state == ReadyState::Draining {
            self.draining.store(true, Ordering::SeqCst);
        } else {
            self.state.store(state as u8, Ordering::SeqCst);
        }
    }

    /// Says whether a socket of the datagram path does not hear. It is taken back when it hears again.
    pub fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::SeqCst);
    }

    /// The state now.
    #[must_use]
    pub fn get(&self) -> ReadyState {
        let state = self.state.load(Ordering::SeqCst);
        if state == ReadyState::Unavailable as u8 {
            ReadyState::Unavailable
        } else if self.draining.load(Ordering::SeqCst) {
            ReadyState::Draining
        } else if state == ReadyState::Ready as u8 {
            if self.deaf.load(Ordering::SeqCst) { ReadyState::Deaf } else { ReadyState::Ready }
        } else {
            ReadyState::Starting
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deafness_is_taken_back() {
        let readiness = Readiness::new();
        readiness.set_deaf(true);
        assert_eq!(readiness.get(), ReadyState::Starting);
        readiness.set(ReadyState::Ready);
        assert_eq!(readiness.get(), ReadyState::Deaf);
        readiness.set_deaf(false);
        assert_eq!(readiness.get(), ReadyState::Ready);
        readiness.set(ReadyState::Draining);
        readiness.set_deaf(true);
        assert_eq!(readiness.get(), ReadyState::Draining);
    }

    #[test]
    fn a_drain_is_never_taken_back() {
        let readiness = Readiness::new();
        assert_eq!(readiness.get(), ReadyState::Starting);
        for (set, expected) in [
            (ReadyState::Ready, ReadyState::Ready),
            (ReadyState::Unavailable, ReadyState::Unavailable),
            (ReadyState::Draining, ReadyState::Unavailable),
            (ReadyState::Ready, ReadyState::Draining),
        ] {
            readiness.set(set);
            assert_eq!(readiness.get(), expected);
        }
    }
}
