//! The UDP wire format, version 1. Normative text: `docs/protocol.md`; vectors: `tests/golden/`.
//!
//! Every datagram is a fixed layout, padding for those that clients send, and a MAC as its last 16 bytes over
//! all bytes before it (CHALLENGE alone has no MAC). [`parse_request`] is the server's way in, [`parse_answer`]
//! the client's, [`seal`] the only way out.

mod layout;
mod parse;
mod peer;

pub use layout::{
    Ack, AckFlags, Bind, BoundAnswer, BoundFlags, Bye, Challenge, Code, Cookie, Header, Hello, Introduce,
    Kind, MAGIC, Notice, Presence, Proof, Report, ReportResult, VERSION, WireEndpoint,
};
pub use parse::{Answer, Claim, ParseRefusal, Request, Signed, parse_answer, parse_request};
pub use peer::{MESSAGE_PAYLOAD_MAX, Message, PeerBody, PeerDatagram, Punch, parse_peer, seal_message};

use zerocopy::{Immutable, IntoBytes};

use crate::credential::{Direction, MAC_LEN, Secret};

/// Writes `layout`, zero padding up to `len_min`, and the MAC into `out`; returns the length.
///
/// The length field is the caller's to set with [`Header::new`]; it must be what this returns.
///
/// # Panics
/// When `out` is too short; callers size it by the protocol's constants.
pub fn seal<T: IntoBytes + Immutable>(
    layout: &T,
    len_min: usize,
    direction: Direction,
    secret: &Secret,
    out: &mut [u8],
) -> usize {
    let bytes = layout.as_bytes();
    let len = sealed_len::<T>(len_min);
    let (body, mac) = out[..len].split_at_mut(len - MAC_LEN);
    body[..bytes.len()].copy_from_slice(bytes);
    body[bytes.len()..].fill(0);
    mac.copy_from_slice(&secret.mac(direction, body));
    len
}

/// Length of a sealed `T`: its layout and MAC, or `len_min` where that is longer.
#[must_use]
pub const fn sealed_len<T>(len_min: usize) -> usize {
    let len = size_of::<T>() + MAC_LEN;
    if len < len_min { len_min } else { len }
}
