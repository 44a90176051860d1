//! Client of the rendezvous server: what a game host and a joiner run.
//!
//! | module | holds |
//! |---|---|
//! | [`host`] | [`Host`](host::Host): keeps an address proved, answers joiners. Sans-IO |
//! | [`joiner`] | [`Joiner`](joiner::Joiner): one attempt from HELLO to REPORT. Sans-IO |
//! | [`peer`] | [`Link`](peer::Link): punching and messages between two introduced peers. Sans-IO |
//! | [`control`] | [`ControlClient`](control::ControlClient): the HTTP control plane |
//! | [`driver`] | sockets, timers and the whole course of `rendezvous host` and `rendezvous join` on tokio |
//!
//! A sans-IO machine takes `now` and bytes, and is then asked for datagrams to send ([`Transmit`]), events and
//! the next time it wants to be woken. It reads no clock; its randomness is a generator seeded by the caller.
//! All of them are used through the trait [`Machine`].
//!
//! What this crate cannot do: it relays nothing, it encrypts no messages (the punch secret authenticates them,
//! no more), speaks only plain HTTP to the control plane, and cannot learn how a NAT maps its ports.
#![forbid(unsafe_code)]

pub mod control;
mod course;
mod credentials;
mod dialog;
pub mod driver;
pub mod host;
pub mod joiner;
mod machine;
pub mod peer;
mod refusal;
mod reporting;
mod second;
mod way;

pub use course::AttemptEvent;
pub use credentials::{HostCredentials, JoinerCredentials, MalformedCredentials, OwnAddresses, RoleKey};
pub use machine::{Machine, TRANSMIT_LEN_MAX, Transmit};
pub use refusal::Refused;
