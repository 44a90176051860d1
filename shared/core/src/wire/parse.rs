//! Bytes to typed datagrams. After this the type proves length, version and kind; nothing is copied.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::layout::{
    Ack, Bind, BoundAnswer, Bye, Challenge, Header, Hello, Introduce, Kind, MAGIC, Notice, Presence, Proof,
    Report, ReportResult, VERSION, WireEndpoint,
};
use crate::credential::{Direction, MAC_LEN, Secret};
use crate::id::AttemptId;
use crate::limits;
use crate::outcome::DatagramOutcome;

/// Why bytes are not a datagram of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ParseRefusal {
    #[error("no payload")]
    Empty,
    #[error("longer than its type may be")]
    Oversized,
    #[error("shorter than its type must be")]
    TooShort,
    #[error("does not start with the magic bytes")]
    BadMagic,
    #[error("another version")]
    BadVersion,
    #[error("a type that is not sent in this direction")]
    BadType,
    #[error("the length field is not the length")]
    BadLength,
    #[error("a reserved or padding byte is set, or a field has no such value")]
    BadField,
}

impl From<ParseRefusal> for DatagramOutcome {
    fn from(refusal: ParseRefusal) -> Self {
        match refusal {
            ParseRefusal::Empty => Self::Empty,
            ParseRefusal::Oversized => Self::Oversized,
            ParseRefusal::TooShort => Self::TooShort,
            ParseRefusal::BadMagic => Self::BadMagic,
            ParseRefusal::BadVersion => Self::BadVersion,
            ParseRefusal::BadType => Self::BadType,
            ParseRefusal::BadLength => Self::BadLength,
            ParseRefusal::BadField => Self::BadField,
        }
    }
}

/// A layout with the bytes its MAC covers, not yet verified.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a, T> {
    /// The layout at the start.
    pub body: &'a T,
    covered: &'a [u8],
    mac: &'a [u8; MAC_LEN],
}

impl<'a, T> Signed<'a, T> {
    /// The same bytes, seen as a part of the layout.
    fn map<U>(&self, part: impl FnOnce(&'a T) -> &'a U) -> Signed<'a, U> {
        Signed { body: part(self.body), covered: self.covered, mac: self.mac }
    }

    /// Whether the holder of `secret` made this datagram, for this direction.
    #[must_use]
    pub fn verify(&self, direction: Direction, secret: &Secret) -> bool {
        secret.verify(direction, self.covered, self.mac)
    }
}

/// A datagram from a client.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Asks for a cookie; proves nothing yet.
    Hello(Signed<'a, Hello>),
    /// Everything else starts with a proof.
    Proved(Signed<'a, Proof>, Claim<'a>),
}

/// What a datagram with a proof wants.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is described at its layout")]
pub enum Claim<'a> {
    Presence,
    Bind(&'a Bind),
    Report(&'a Report),
    Bye,
}

impl Claim<'_> {
    /// The attempt it names, whose right its MAC must be made with.
    #[must_use]
    pub fn attempt(&self) -> Option<AttemptId> {
        match self {
            Self::Bind(it) => Some(it.attempt()),
            Self::Report(it) => Some(it.attempt()),
            Self::Presence | Self::Bye => None,
        }
    }
}

/// A datagram from the server.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is described at its layout")]
pub enum Answer<'a> {
    Challenge(&'a Challenge),
    Ack(Signed<'a, Ack>),
    Notice(Signed<'a, Notice>),
    Bound(Signed<'a, BoundAnswer>),
    Introduce(Signed<'a, Introduce>),
}

/// Reads a datagram that a client sent.
///
/// # Errors
/// What is wrong with it. A server answers none of these.
pub fn parse_request(bytes: &[u8]) -> Result<Request<'_>, ParseRefusal> {
    let header = parse_header(bytes, limits::DATAGRAM_LEN_MAX)?;
    match header.kind {
        kind if kind == Kind::Hello as u8 => {
            padded(bytes, limits::HELLO_LEN_MIN, limits::DATAGRAM_LEN_MAX).map(Request::Hello)
        }
        kind if kind == Kind::Presence as u8 => {
            let presence = padded::<Presence>(bytes, limits::PRESENCE_LEN_MIN, limits::DATAGRAM_LEN_MAX)?;
            Ok(Request::Proved(presence.map(|it| &it.proof), Claim::Presence))
        }
        kind if kind == Kind::Bind as u8 => {
            let bind = padded::<Bind>(bytes, limits::BIND_LEN_MIN, limits::DATAGRAM_LEN_MAX)?;
            check_bind(bind.body)?;
            Ok(Request::Proved(bind.map(|it| &it.proof), Claim::Bind(bind.body)))
        }
        kind if kind == Kind::Report as u8 => {
            let report = padded::<Report>(bytes, limits::REPORT_LEN_MIN, limits::REPORT_LEN_MAX)?;
            let zero = report.body.reserved == [0; 1] && report.body.reserved_2 == [0; 4];
            ReportResult::from_byte(report.body.result).filter(|_| zero).ok_or(ParseRefusal::BadField)?;
            Ok(Request::Proved(report.map(|it| &it.proof), Claim::Report(report.body)))
        }
        kind if kind == Kind::Bye as u8 => {
            let bye = padded::<Bye>(bytes, limits::REPORT_LEN_MIN, limits::REPORT_LEN_MAX)?;
            Ok(Request::Proved(bye.map(|it| &it.proof), Claim::Bye))
        }
        _ => Err(ParseRefusal::BadType),
    }
}

/// Reads a datagram that the server sent. The MAC is the caller's to verify: it knows which key it used.
///
/// # Errors
/// What is wrong with it; a client ignores such a datagram.
pub fn parse_answer(bytes: &[u8]) -> Result<Answer<'_>, ParseRefusal> {
    let header = parse_header(bytes, limits::DATAGRAM_LEN_MAX)?;
    match header.kind {
        kind if kind == Kind::Challenge as u8 => Challenge::ref_from_bytes(bytes)
            .map(Answer::Challenge)
            .map_err(|_| wrong_size::<Challenge>(bytes, 0)),
        kind if kind == Kind::Ack as u8 => exact(bytes).map(Answer::Ack),
        kind if kind == Kind::Notice as u8 => exact(bytes).map(Answer::Notice),
        kind if kind == Kind::Bound as u8 => exact(bytes).map(Answer::Bound),
        kind if kind == Kind::Introduce as u8 => exact(bytes).map(Answer::Introduce),
        _ => Err(ParseRefusal::BadType),
    }
}

pub(super) fn parse_header(bytes: &[u8], len_max: usize) -> Result<&Header, ParseRefusal> {
    if bytes.is_empty() {
        return Err(ParseRefusal::Empty);
    }
    if bytes.len() > len_max {
        return Err(ParseRefusal::Oversized);
    }
    let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| ParseRefusal::TooShort)?;
    if header.magic != MAGIC {
        return Err(ParseRefusal::BadMagic);
    }
    if header.version != VERSION {
        return Err(ParseRefusal::BadVersion);
    }
    if usize::from(header.length.get()) != bytes.len() {
        return Err(ParseRefusal::BadLength);
    }
    Ok(header)
}

/// A layout, zero padding, MAC; `len_min <= length <= len_max`.
fn padded<T>(bytes: &[u8], len_min: usize, len_max: usize) -> Result<Signed<'_, T>, ParseRefusal>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    if bytes.len() < len_min {
        return Err(ParseRefusal::TooShort);
    }
    if bytes.len() > len_max {
        return Err(ParseRefusal::Oversized);
    }
    let (covered, mac) = bytes.split_last_chunk::<MAC_LEN>().ok_or(ParseRefusal::TooShort)?;
    let (body, padding) = T::ref_from_prefix(covered).map_err(|_| ParseRefusal::TooShort)?;
    if padding.iter().any(|&byte| byte != 0) {
        return Err(ParseRefusal::BadField);
    }
    Ok(Signed { body, covered, mac })
}

/// A layout and its MAC, nothing more.
fn exact<T>(bytes: &[u8]) -> Result<Signed<'_, T>, ParseRefusal>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let (covered, mac) = bytes.split_last_chunk::<MAC_LEN>().ok_or(ParseRefusal::TooShort)?;
    let body = T::ref_from_bytes(covered).map_err(|_| wrong_size::<T>(bytes, MAC_LEN))?;
    Ok(Signed { body, covered, mac })
}

const fn wrong_size<T>(bytes: &[u8], mac_len: usize) -> ParseRefusal {
    if bytes.len() < size_of::<T>() + mac_len { ParseRefusal::TooShort } else { ParseRefusal::Oversized }
}

/// The rules within a BIND: reserved bytes zero, a second endpoint only with its cookie and port, candidates
/// packed from the front.
fn check_bind(bind: &Bind) -> Result<(), ParseRefusal> {
    let no_cookie = bind.second_cookie.issued_ms.get() == 0 && bind.second_cookie.mac == [0; 16];
    let second = bind.second.get();
    let [first_lan, second_lan] = bind.lan.map(|lan| lan.get());
    let portless = |endpoint: &WireEndpoint| endpoint.get().is_some_and(|it| it.port() == 0);
    let good = bind.reserved == [0; 2]
        && second.is_none() == no_cookie
        && !portless(&bind.second)
        && !bind.lan.iter().any(portless)
        && (second_lan.is_none() || first_lan.is_some());
    if good { Ok(()) } else { Err(ParseRefusal::BadField) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::{KeyId, MasterKey};
    use crate::id::{Handle, InstanceId, Role, TenantId};
    use crate::time::Instant;
    use crate::wire::seal;
    use proptest::prelude::*;
    use zerocopy::byteorder::big_endian::U64;

    fn hello(len: usize) -> Vec<u8> {
        let key_id = KeyId::new(Role::Host, TenantId(1), InstanceId(2), Handle(3), Instant::from_millis(4));
        let hello = Hello { header: Header::new(Kind::Hello, len), key_id, nonce: U64::new(5) };
        let mut out = vec![0; len];
        let secret = MasterKey::from_bytes([9; 32]).secret(&key_id);
        assert_eq!(seal(&hello, len, Direction::ToServer, &secret, &mut out), len);
        out
    }

    fn refusal(bytes: &[u8]) -> ParseRefusal {
        parse_request(bytes).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_sealed_hello_parses_and_verifies() {
        for len in [160, 161, 1200] {
            let bytes = hello(len);
            let Ok(Request::Hello(it)) = parse_request(&bytes) else { panic!("no HELLO") };
            let secret = MasterKey::from_bytes([9; 32]).secret(&it.body.key_id);
            assert!(it.verify(Direction::ToServer, &secret));
        }
    }

    #[test]
    fn each_defect_has_its_own_name() {
        let good = hello(160);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(refusal(&[]), ParseRefusal::Empty);
        assert_eq!(refusal(&good[..7]), ParseRefusal::TooShort);
        assert_eq!(refusal(&good[..159]), ParseRefusal::BadLength);
        assert_eq!(refusal(&with(0, b'X')), ParseRefusal::BadMagic);
        assert_eq!(refusal(&with(4, 2)), ParseRefusal::BadVersion);
        assert_eq!(refusal(&with(5, Kind::Challenge as u8)), ParseRefusal::BadType);
        assert_eq!(refusal(&with(5, Kind::Punch as u8)), ParseRefusal::BadType);
        assert_eq!(refusal(&with(5, 0)), ParseRefusal::BadType);
        assert_eq!(refusal(&with(60, 1)), ParseRefusal::BadField);
        assert_eq!(refusal(&vec![0; 1201]), ParseRefusal::Oversized);
        let short = &mut good[..100].to_vec();
        short[7] = 100;
        assert_eq!(refusal(short), ParseRefusal::TooShort);
        let report = &mut hello(300);
        report[5] = Kind::Report as u8;
        assert_eq!(refusal(report), ParseRefusal::Oversized);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1300), kind in 0u8..=255) {
            let _ = parse_request(&bytes);
            let _ = parse_answer(&bytes);
            let mut framed = bytes;
            if framed.len() >= 8 {
                let len = framed.len() as u16;
                framed[..4].copy_from_slice(&MAGIC);
                framed[4] = VERSION;
                framed[5] = kind;
                framed[6..8].copy_from_slice(&len.to_be_bytes());
                let _ = parse_request(&framed);
                let _ = parse_answer(&framed);
            }
        }
    }
}
