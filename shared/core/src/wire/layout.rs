//! The layouts, big-endian, unaligned, without padding. Sizes are asserted at the end of the file.

use std::net::{IpAddr, Ipv6Addr};

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::credential::KeyId;
use crate::endpoint::{Endpoint, Family};
use crate::id::{AttemptId, SessionId};
use crate::labels;

/// The first four bytes of every datagram.
pub const MAGIC: [u8; 4] = *b"RDVZ";
/// The version this crate speaks.
pub const VERSION: u8 = 1;

/// The type byte. Requests have the high bit clear, answers have it set, peer datagrams have bit 6 set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is described at its layout")]
pub enum Kind {
    Hello = 0x01,
    Presence = 0x02,
    Bind = 0x03,
    Report = 0x04,
    Bye = 0x05,
    Punch = 0x41,
    Message = 0x42,
    Challenge = 0x81,
    Ack = 0x82,
    Notice = 0x83,
    Bound = 0x84,
    Introduce = 0x85,
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)+ } = $size:literal)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)+ }
        const _: () = assert!(size_of::<$name>() == $size);
    )+};
}

layouts! {
    /// The start of every datagram.
    Header {
        /// [`MAGIC`].
        magic: [u8; 4],
        /// [`VERSION`].
        version: u8,
        /// A [`Kind`].
        kind: u8,
        /// Length of the whole datagram in bytes.
        length: U16,
    } = 8

    /// What the server gave to show that it reached this address with this key: opaque to clients.
    Cookie {
        /// Milliseconds on the instance's clock at which it was made.
        issued_ms: U64,
        /// A MAC over key id, address, port, time and listener.
        mac: [u8; 16],
    } = 24

    /// An address and port: IPv6, or IPv4 as `::ffff:a.b.c.d`. All zero means none.
    WireEndpoint {
        /// The address.
        ip: [u8; 16],
        /// The port.
        port: U16,
    } = 18

    /// Asks for a cookie. Any client → server.
    Hello {
        /// Type 0x01.
        header: Header,
        /// The key the cookie is for.
        key_id: KeyId,
        /// Random; CHALLENGE echoes it.
        nonce: U64,
    } = 48

    /// What every later request starts with.
    Proof {
        /// The request's header.
        header: Header,
        /// The key whose secret made the MAC (for a host's attempt right: the presence key it derives from).
        key_id: KeyId,
        /// A current cookie for this key, address and port.
        cookie: Cookie,
        /// The sender's session.
        session: U64,
        /// Greater than any this session used with this key.
        sequence: U64,
    } = 80

    /// Keeps a host's address proved. Host → server.
    Presence {
        /// Type 0x02.
        proof: Proof,
    } = 80

    /// Binds the sender's address to its role in an attempt. Host or joiner → server.
    Bind {
        /// Type 0x03.
        proof: Proof,
        /// The attempt.
        attempt: [u8; 16],
        /// Round trip to the server as the sender measured it, in ms; 0 when unknown.
        rtt_ms: U16,
        /// Zero.
        reserved: [u8; 2],
        /// The sender's endpoint in the other address family, or none.
        second: WireEndpoint,
        /// The cookie that proves it; all zero with none.
        second_cookie: Cookie,
        /// Candidates within the sender's own network, or none.
        lan: [WireEndpoint; 2],
        /// The cookie that the probe port gave to this key and socket; all zero without one.
        probe_cookie: Cookie,
    } = 202

    /// Tells how the punch went. Peer → server.
    Report {
        /// Type 0x04.
        proof: Proof,
        /// The attempt.
        attempt: [u8; 16],
        /// A [`ReportResult`].
        result: u8,
        /// Zero.
        reserved: [u8; 1],
        /// Round trip between the peers in ms; 0 when unknown.
        rtt_ms: U16,
        /// Zero.
        reserved_2: [u8; 4],
    } = 104

    /// Ends presence at once; the lease stays. Host → server.
    Bye {
        /// Type 0x05.
        proof: Proof,
    } = 80

    /// Answers HELLO. Has no MAC: the receiver may hold a key of another instance.
    Challenge {
        /// Type 0x81.
        header: Header,
        /// The nonce of the HELLO.
        nonce: U64,
        /// The server's instance.
        instance: U64,
        /// For the key of the HELLO at the address it came from.
        cookie: Cookie,
    } = 48

    /// Answers PRESENCE, REPORT and BYE.
    Ack {
        /// Type 0x82.
        header: Header,
        /// The request's session.
        session: U64,
        /// The request's sequence.
        sequence: U64,
        /// The next cookie.
        cookie: Cookie,
        /// A [`Code`].
        code: u8,
        /// What the code leaves open; see [`Code`].
        detail: u8,
        /// See [`AckFlags`].
        flags: u8,
        /// Zero.
        reserved: u8,
        /// Remaining lease in ms.
        lease_remaining_ms: U32,
        /// Remaining presence in ms.
        presence_remaining_ms: U32,
        /// When to send the next PRESENCE, in ms from now.
        refresh_ms: U32,
    } = 64

    /// Tells a host that a joiner is bound and waits. Sent unasked.
    Notice {
        /// Type 0x83.
        header: Header,
        /// The attempt to BIND to.
        attempt: [u8; 16],
        /// A current cookie for the presence key.
        cookie: Cookie,
        /// Remaining life of the attempt in ms.
        remaining_ms: U32,
        /// 1 for the first, counting repeats.
        ordinal: u8,
        /// Zero.
        reserved: [u8; 3],
    } = 56

    /// Answers BIND while the other role is not bound, and when it is refused.
    BoundAnswer {
        /// Type 0x84.
        header: Header,
        /// The request's session.
        session: U64,
        /// The request's sequence.
        sequence: U64,
        /// The attempt.
        attempt: [u8; 16],
        /// The next cookie.
        cookie: Cookie,
        /// A [`Code`]; 0 when bound and waiting.
        code: u8,
        /// What the code leaves open; see [`Code`].
        detail: u8,
        /// See [`BoundFlags`].
        flags: u8,
        /// Zero.
        reserved: u8,
        /// Remaining life of the attempt in ms.
        remaining_ms: U32,
        /// When to send BIND again, in ms.
        retry_ms: U32,
    } = 76

    /// Hands over the peer's proved endpoint. Answers BIND, and is sent unasked to the one who bound first.
    Introduce {
        /// Type 0x85.
        header: Header,
        /// The attempt.
        attempt: [u8; 16],
        /// The peer's proved endpoint; in the receiver's family where the peer has one.
        peer: WireEndpoint,
        /// The peer's endpoint in the other family, or none.
        peer_second: WireEndpoint,
        /// The peer's candidates within a shared network, or none.
        lan: [WireEndpoint; 2],
        /// The punch secret, masked for the receiver's role.
        punch_masked: [u8; 16],
        /// Start punching this many ms after receipt.
        start_in_ms: U16,
        /// Distance between punches in ms.
        retry_ms: U16,
        /// Punches to send before giving up.
        retry_max: u8,
        /// Zero.
        reserved: [u8; 3],
        /// The next cookie for the receiver's key.
        cookie: Cookie,
    } = 144
}

impl Header {
    /// The header of a datagram of `kind` that is `len` bytes long.
    #[must_use]
    pub fn new(kind: Kind, len: usize) -> Self {
        debug_assert!(len <= crate::limits::DATAGRAM_LEN_MAX);
        Self { magic: MAGIC, version: VERSION, kind: kind as u8, length: U16::new(len as u16) }
    }
}

impl Proof {
    /// The sender's session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        SessionId(self.session.get())
    }
}

impl Bind {
    /// The attempt to bind to.
    #[must_use]
    pub const fn attempt(&self) -> AttemptId {
        AttemptId::from_bytes(self.attempt)
    }
}

impl Report {
    /// The attempt reported on.
    #[must_use]
    pub const fn attempt(&self) -> AttemptId {
        AttemptId::from_bytes(self.attempt)
    }
}

impl WireEndpoint {
    /// No endpoint.
    pub const NONE: Self = Self { ip: [0; 16], port: U16::ZERO };

    /// The endpoint, canonical; `None` when all is zero.
    #[must_use]
    pub fn get(&self) -> Option<Endpoint> {
        let none = self.ip == [0; 16] && self.port.get() == 0;
        (!none).then(|| Endpoint::new(IpAddr::V6(Ipv6Addr::from(self.ip)), self.port.get()))
    }

    /// Its family, if it is one.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        self.get().map(Endpoint::family)
    }
}

impl From<Option<Endpoint>> for WireEndpoint {
    fn from(endpoint: Option<Endpoint>) -> Self {
        endpoint.map_or(Self::NONE, |it| Self { ip: it.ip_bytes(), port: U16::new(it.port()) })
    }
}

/// Bits of [`Ack::flags`].
pub struct AckFlags;

impl AckFlags {
    /// An attempt waits for the host's BIND; NOTICE names it, or `GET /v1/listings/{id}/attempts`.
    pub const ATTEMPT_PENDING: u8 = 1;
    /// The server is draining: register elsewhere.
    pub const DRAINING: u8 = 2;
}

/// Bits of [`BoundAnswer::flags`].
pub struct BoundFlags;

impl BoundFlags {
    /// The other role is bound already.
    pub const PEER_BOUND: u8 = 1;
}

labels! {
    /// The result in ACK and BOUND. `detail` holds the index of the conflict reason, pool or quota scope plus
    /// one, 0 for the others.
    pub enum Code {
        /// Done.
        Ok = "ok",
        /// No such object, or the credential was superseded or removed.
        NotFound = "not_found",
        /// It was there and its time is over.
        Expired = "expired",
        /// It contradicts what is held.
        Conflict = "conflict",
        /// A collection is full.
        CapacityExceeded = "capacity_exceeded",
        /// A quota is used up.
        QuotaExceeded = "quota_exceeded",
        /// The server is going down.
        Draining = "draining",
        /// The store cannot answer.
        ServiceUnavailable = "service_unavailable",
    }
}

labels! {
    /// How a punch went, in REPORT (on the wire: its index plus one).
    pub enum ReportResult {
        /// The peers hear each other.
        Connected = "connected",
        /// Nothing came from the peer.
        PeerSilent = "peer_silent",
        /// Something came that did not know the punch secret.
        PeerUnrecognised = "peer_unrecognised",
        /// The sender gave up for a reason of its own.
        Aborted = "aborted",
    }
}

impl ReportResult {
    /// The result written as `byte` on the wire.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        use crate::counter::Label;
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// The byte that stands for it.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self as u8 + 1
    }
}
