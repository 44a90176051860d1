//! What an engine is, whichever it is.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::counters::EngineCounters;
use crate::mmsg::MmsgEngine;
use crate::outbox::Outbox;
use crate::socket::BoundSocket;
use crate::tokio_engine::TokioUringEngine;
use crate::uring::UringEngine;
use crate::wake::WakeGate;

/// Addressing of one received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Who sent it; canonical, so a `::ffff:a.b.c.d` is given as IPv4.
    pub source: SocketAddr,
    /// The address it was sent to, canonical; only on a socket bound to a wildcard.
    pub local: Option<IpAddr>,
    /// It was longer than [`crate::DATAGRAM_LEN_MAX`]; the bytes are its head.
    pub truncated: bool,
}

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// io_uring: multishot receive into a provided buffer ring.
    Uring,
    /// io_uring through the library tokio-uring; cannot serve a socket bound to a wildcard.
    TokioUring,
    /// recvmmsg and sendmmsg behind poll.
    Mmsg,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [Self; 3] = [Self::Uring, Self::TokioUring, Self::Mmsg];

    /// Stable name, for configuration, logs and a metrics label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::TokioUring => "tokio-uring",
            Self::Mmsg => "mmsg",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Sizes of an engine, all fixed at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Receive buffers of 2,048 bytes; rounded up to a power of two, at most 32,768. Used by io_uring; under 1,024
    /// a burst ends the receive now and then (counted, nothing lost).
    pub buffers: u16,
    /// Replies that can wait for the next flush; at least 1.
    pub outbox_slots: usize,
    /// Submission queue of io_uring; a fuller outbox is flushed in more than one system call.
    pub submission_entries: u32,
    /// Completion queue of io_uring, at least the submission queue; twice the buffers and slots together keeps it
    /// from overflowing.
    pub completion_entries: u32,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { buffers: 4096, outbox_slots: 1024, submission_entries: 1024, completion_entries: 16_384 }
    }
}

/// A datagram engine, owned by the thread that built it.
///
/// The loop is `turn`, `receive`, `turn`, `receive`. Announce sleep with [`WakeGate::prepare_to_sleep`] before a turn
/// that may block, or a wake in between is not noticed.
pub trait Engine {
    /// Which engine this is.
    fn kind(&self) -> EngineKind;

    /// The address bound.
    fn local_addr(&self) -> SocketAddr;

    /// Replies for the next turn.
    fn outbox(&mut self) -> &mut Outbox;

    /// Sends what is queued, then waits for a datagram, a wake or the timeout: `None` waits for ever, zero does not
    /// block, and it never blocks while datagrams wait to be handed over. It may return early with nothing at hand.
    /// A refused reply is counted, never an error; an error means that the engine cannot go on.
    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Hands over datagrams received, at most `batch_max`; returns how many. What is left is handed over by the next
    /// call. The bytes are the engine's own buffer, valid for the call of `sink`.
    fn receive(&mut self, batch_max: usize, sink: &mut dyn FnMut(Meta, &[u8], &mut Outbox)) -> usize;

    /// What was counted up to the last `turn` or `receive`.
    fn counters(&self) -> &EngineCounters;
}

/// An engine that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel refused something.
    #[error("cannot build the {kind} engine: {step} failed")]
    Refused {
        /// Which engine.
        kind: EngineKind,
        /// What failed.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The engine cannot learn which address a datagram was sent to, hence not answer from it.
    #[error(
        "the {kind} engine cannot serve the wildcard {address}, since it would answer from any address; bind one \
         address, or take uring or mmsg"
    )]
    Wildcard {
        /// Which engine.
        kind: EngineKind,
        /// What the socket is bound to.
        address: SocketAddr,
    },
}

impl OpenError {
    /// For `map_err`.
    pub(crate) fn at<E: Into<io::Error>>(kind: EngineKind, step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Refused { kind, step, source: source.into() }
    }
}

/// Builds an engine on the calling thread, which must be the one to use it. `gate` stays with that thread; its waker
/// may long be elsewhere. The socket is consumed; keep a [`BoundSocket::try_clone`] to try the other engine with.
pub fn open(
    kind: EngineKind,
    socket: BoundSocket,
    gate: &WakeGate,
    options: EngineOptions,
) -> Result<Box<dyn Engine>, OpenError> {
    Ok(match kind {
        EngineKind::Uring => Box::new(UringEngine::new(socket, gate, options)?),
        EngineKind::TokioUring => Box::new(TokioUringEngine::new(socket, gate, options)?),
        EngineKind::Mmsg => Box::new(MmsgEngine::new(socket, gate, options)?),
    })
}

/// Whether a receive that failed so will fail for ever: the descriptor or the arguments are wrong, not the network.
/// An errno that an ICMP message can cause is not among them, or a stranger could end the engine: that is why EACCES
/// (administratively prohibited) and EOPNOTSUPP (source route failed) are left out.
pub(crate) fn is_fatal_receive(errno: i32) -> bool {
    matches!(errno, libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{SocketOptions, bind};
    use crate::wake::wake_pair;

    /// A server that is started again at once must not find its own port taken. Not among the contract's tests: those
    /// start other processes, which hold every descriptor for a moment.
    #[test]
    fn a_dropped_engine_gives_its_port_back_at_once() {
        let options =
            EngineOptions { buffers: 16, outbox_slots: 16, submission_entries: 8, completion_entries: 64 };
        for kind in EngineKind::ALL {
            if kind != EngineKind::Mmsg && std::env::var_os("RENDEZVOUS_NET_SKIP_URING").is_some() {
                continue;
            }
            for _ in 0..30 {
                let (gate, _waker) = wake_pair().unwrap();
                // Not one of the ports that the kernel gives to whoever asks for any.
                let socket = bind("127.66.0.1:5000".parse().unwrap(), SocketOptions::default()).unwrap();
                let mut engine = open(kind, socket, &gate, options).unwrap();
                engine.turn(Some(Duration::ZERO)).unwrap();
            }
        }
    }

    #[test]
    fn the_completion_queue_does_not_overflow_by_default() {
        let EngineOptions { buffers, outbox_slots, completion_entries, .. } = EngineOptions::default();
        assert!(completion_entries as usize >= 2 * (usize::from(buffers) + outbox_slots));
    }
}
