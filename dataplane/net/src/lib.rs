//! Datagram engines of the rendezvous server: io_uring, tokio-uring and recvmmsg behind one trait.
//!
//! A ring thread owns one [`Engine`], which sends what is queued in its [`Outbox`], waits for datagrams,
//! a wake or a timeout in one system call, and lends each datagram out of its own buffer:
//!
//! ```no_run
//! use rendezvous_net::{EngineChoice, EngineOptions, SocketOptions, bind, open, probe, wake_pair};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = EngineOptions::default();
//! let decision = probe(EngineChoice::Auto, options);
//! let socket = bind("127.0.0.1:3478".parse()?, SocketOptions::default())?;
//! let (gate, waker) = wake_pair()?; // the waker goes to the thread that produces replies
//! # let _ = waker;
//! let mut engine = open(decision.kind, socket, &gate, options)?;
//! loop {
//!     let sleep = gate.prepare_to_sleep();
//!     // Re-check the reply queue here: `Some(Duration::ZERO)` if it holds something.
//!     engine.turn(None)?;
//!     sleep.awake();
//!     engine.receive(64, &mut |meta, bytes, outbox| {
//!         let len = bytes.len().min(64);
//!         let _full = outbox.push(meta.source, meta.local, |reply| {
//!             reply[..len].copy_from_slice(&bytes[..len]);
//!             len
//!         });
//!     });
//! }
//! # }
//! ```
//!
//! This is the only crate of the product with `unsafe`. It reads no clock, prints nothing, and allocates nothing
//! per datagram once an engine is built; tokio-uring does both inside of the library.
//!
//! What it cannot do: it speaks UDP on Linux only, has no segmentation offload, drops nothing and retries nothing
//! on its own account (a reply the kernel refuses is counted and gone), and one engine serves one socket on the
//! thread that built it.

mod address;
mod counters;
mod desk;
mod engine;
mod facts;
mod group;
mod header;
mod memory;
mod mmsg;
mod outbox;
mod probe;
mod socket;
mod tokio_engine;
mod uring;
mod wake;

pub use counters::{EngineCounters, ErrnoClass, ErrnoCounts, RearmReason};
pub use engine::{Engine, EngineKind, EngineOptions, Meta, OpenError, open};
pub use facts::{DoctorFacts, doctor_facts};
pub use group::bind_group;
pub use outbox::{Outbox, OutboxFull};
pub use probe::{DecisionReason, EngineChoice, EngineDecision, UnknownEngine, open_decided, probe};
pub use socket::{BindError, BoundSocket, BufferGrant, SocketMemory, SocketOptions, bind};
pub use wake::{Sleep, WakeGate, Waker, wake_pair};

/// Longest datagram delivered whole, bytes of UDP payload. A longer one is delivered as its head, flagged
/// [`Meta::truncated`].
pub const DATAGRAM_LEN_MAX: usize = 1200;

/// Longest reply a slot of the [`Outbox`] holds, bytes of UDP payload.
pub const REPLY_LEN_MAX: usize = 256;

/// One receive buffer, bytes: header, name, control and the longest datagram need 1,344; a power of two keeps each
/// on its own pages and shows truncation of anything between.
pub(crate) const BUFFER_LEN: usize = 2048;

const _: () = assert!(BUFFER_LEN >= 16 + address::NAME_LEN + address::CONTROL_LEN + DATAGRAM_LEN_MAX);
const _: () = assert!(BUFFER_LEN <= u16::MAX as usize);
