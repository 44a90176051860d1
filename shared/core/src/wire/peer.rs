//! What two introduced peers send each other: the recommended punch, and a message for trying it by hand.
//! The server neither sends nor accepts these.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Header, Kind};
use super::parse::{ParseRefusal, parse_header};
use crate::credential::{Direction, MAC_LEN, Secret};
use crate::id::{AttemptId, Role};
use crate::limits;

/// Longest payload of a [`Message`].
pub const MESSAGE_PAYLOAD_MAX: usize = 512;

/// Opens the way to the peer and shows that this side knows the punch secret.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Punch {
    /// Type 0x41.
    pub header: Header,
    /// The attempt both were introduced in.
    pub attempt: [u8; 16],
    /// The sender's [`Role`].
    pub role: u8,
    /// 1 when the sender has heard the peer; the answer to such a punch is none.
    pub heard: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Counts this side's punches from 1.
    pub ordinal: U32,
}

/// The head of a message; its payload follows, then the MAC.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Message {
    /// Type 0x42.
    pub header: Header,
    /// The attempt both were introduced in.
    pub attempt: [u8; 16],
    /// The sender's [`Role`].
    pub role: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Counts this side's messages from 1.
    pub ordinal: U32,
}

const _: () = assert!(size_of::<Punch>() == 32 && size_of::<Message>() == 32);

/// Writes `message`, `payload` and the MAC into `out`; returns the length, `32 + payload + 16`.
///
/// # Panics
/// When `out` is shorter than that.
pub fn seal_message(message: &Message, payload: &[u8], key: &Secret, out: &mut [u8]) -> usize {
    let head = size_of::<Message>();
    let len = head + payload.len() + MAC_LEN;
    let (covered, mac) = out[..len].split_at_mut(len - MAC_LEN);
    covered[..head].copy_from_slice(message.as_bytes());
    covered[head..].copy_from_slice(payload);
    mac.copy_from_slice(&key.mac(Direction::ToPeer, covered));
    len
}

/// A datagram from a peer, not yet verified.
#[derive(Clone, Copy, Debug)]
pub struct PeerDatagram<'a> {
    /// The attempt it names.
    pub attempt: AttemptId,
    /// The side that sent it.
    pub role: Role,
    /// Punch or message.
    pub body: PeerBody<'a>,
    covered: &'a [u8],
    mac: &'a [u8; MAC_LEN],
}

/// What a peer's datagram says.
#[derive(Clone, Copy, Debug)]
pub enum PeerBody<'a> {
    /// A punch.
    Punch {
        /// Whether the sender has heard us.
        heard: bool,
    },
    /// A message.
    Message {
        /// Its number.
        ordinal: u32,
        /// Its payload.
        payload: &'a [u8],
    },
}

impl PeerDatagram<'_> {
    /// Whether the holder of the punch secret behind `key` sent it.
    #[must_use]
    pub fn verify(&self, key: &Secret) -> bool {
        key.verify(Direction::ToPeer, self.covered, self.mac)
    }
}

/// Reads a datagram that a peer sent.
///
/// # Errors
/// What is wrong with it; a client ignores such a datagram.
pub fn parse_peer(bytes: &[u8]) -> Result<PeerDatagram<'_>, ParseRefusal> {
    let header = parse_header(bytes, limits::DATAGRAM_LEN_MAX)?;
    let (covered, mac) = bytes.split_last_chunk::<MAC_LEN>().ok_or(ParseRefusal::TooShort)?;
    let datagram = |attempt, role, body| {
        let role = Role::from_byte(role).ok_or(ParseRefusal::BadField)?;
        Ok(PeerDatagram { attempt: AttemptId::from_bytes(attempt), role, body, covered, mac })
    };
    if header.kind == Kind::Punch as u8 {
        let punch = Punch::ref_from_bytes(covered).map_err(|_| ParseRefusal::BadLength)?;
        if punch.heard > 1 || punch.reserved != [0; 2] {
            return Err(ParseRefusal::BadField);
        }
        datagram(punch.attempt, punch.role, PeerBody::Punch { heard: punch.heard == 1 })
    } else if header.kind == Kind::Message as u8 {
        let (message, payload) = Message::ref_from_prefix(covered).map_err(|_| ParseRefusal::TooShort)?;
        if payload.len() > MESSAGE_PAYLOAD_MAX {
            return Err(ParseRefusal::Oversized);
        }
        if message.reserved != [0; 3] {
            return Err(ParseRefusal::BadField);
        }
        datagram(message.attempt, message.role, PeerBody::Message { ordinal: message.ordinal.get(), payload })
    } else {
        Err(ParseRefusal::BadType)
    }
}
