//! What threads meet at: channels, wakes, replies and timers. Files that hand something over take these from here.
//!
//! `tests/interleavings` compiles those files a second time beside a `sync` of its own, which lets a scheduler decide
//! at every step which thread goes on. Nothing here is a layer: these are the names themselves.

pub(crate) use crossbeam::channel::{Receiver, Select, Sender, TryRecvError, bounded};
pub(crate) use rendezvous_net::{WakeGate, Waker};
pub(crate) use tokio::sync::oneshot;
pub(crate) use tokio::time::{sleep, timeout};
