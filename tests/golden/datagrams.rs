//! The datagrams of one introduction, sealed with the product's own code.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rendezvous_shared::counter::Label;
use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::Role;
use rendezvous_shared::limits;
use rendezvous_shared::outcome::ConflictReason;
use rendezvous_shared::wire::{
    Ack, AckFlags, Bind, BoundAnswer, BoundFlags, Bye, Challenge, Code, Cookie, Header, Hello, Introduce,
    Kind, Message, Notice, Presence, Proof, Punch, Report, ReportResult, WireEndpoint, seal, seal_message,
    sealed_len,
};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

use crate::file::{DatagramVector, Value, bytes, hex, named, text, wide};
use crate::world::{HOST_SESSION, INSTANCE, JOINER_SESSION, World};

impl World {
    /// The datagrams of one introduction in the order in which they travel, and what stands beside it.
    pub(crate) fn datagrams(&self) -> Vec<DatagramVector> {
        let punch = |name, role, heard, ordinal| self.punch_datagram(name, role, heard, ordinal);
        vec![
            self.hello("hello_host", Role::Host, 160, 0x0102_0304_0506_0708),
            self.challenge("challenge_host", 0x0102_0304_0506_0708, cookie(1)),
            self.presence("presence", 160, cookie(1), 1),
            self.ack("ack_presence", "presence_secret", (HOST_SESSION, 1), cookie(2), (Code::Ok, 0, 0)),
            self.presence("presence_padded", 200, cookie(2), 2),
            self.hello("hello_joiner", Role::Joiner, 161, 0x1112_1314_1516_1718),
            self.challenge("challenge_joiner", 0x1112_1314_1516_1718, cookie(3)),
            self.bind("bind_joiner", Role::Joiner, cookie(3), 1, JOINER_CANDIDATES),
            self.bound("bound_joiner", Role::Joiner, 1, cookie(4), (Code::Ok, 0, 0)),
            self.notice("notice", cookie(5)),
            self.bind("bind_host", Role::Host, cookie(5), 3, HOST_CANDIDATES),
            self.introduce("introduce_host", Role::Host, cookie(6)),
            self.introduce("introduce_joiner", Role::Joiner, cookie(7)),
            punch("punch_host", Role::Host, 0, 1),
            punch("punch_joiner", Role::Joiner, 1, 2),
            self.message("message_joiner", Role::Joiner, b"hello, host"),
            self.message("message_empty", Role::Host, b""),
            self.report("report_joiner", Role::Joiner, cookie(7), 2, (ReportResult::Connected, 23)),
            self.ack("ack_report_joiner", "joiner_secret", (JOINER_SESSION, 2), cookie(8), (Code::Ok, 0, 0)),
            self.report("report_host", Role::Host, cookie(6), 4, (ReportResult::PeerSilent, 0)),
            self.ack("ack_report_host", "attempt_right", (HOST_SESSION, 4), cookie(9), (Code::Ok, 0, 0)),
            self.bye("bye", cookie(9), 5),
            self.ack(
                "ack_refused",
                "presence_secret",
                (HOST_SESSION, 5),
                cookie(10),
                (Code::NotFound, 0, AckFlags::ATTEMPT_PENDING | AckFlags::DRAINING),
            ),
            self.bound("bound_refused", Role::Host, 6, cookie(11), {
                let detail = ConflictReason::EndpointAlreadyBound.index() as u8 + 1;
                (Code::Conflict, detail, BoundFlags::PEER_BOUND)
            }),
        ]
    }

    fn hello(&self, name: &str, role: Role, len: usize, nonce: u64) -> DatagramVector {
        let hello = Hello {
            header: Header::new(Kind::Hello, len),
            key_id: self.key_id(role),
            nonce: U64::new(nonce),
        };
        let fields = [("key_id", text(self.key_id(role).to_hex())), ("nonce", wide(nonce))];
        self.sealed(name, "HELLO", Direction::ToServer, own_secret(role), &hello, len, fields)
    }

    fn challenge(&self, name: &str, nonce: u64, cookie: Cookie) -> DatagramVector {
        let challenge = Challenge {
            header: Header::new(Kind::Challenge, size_of::<Challenge>()),
            nonce: U64::new(nonce),
            instance: U64::new(INSTANCE.0),
            cookie,
        };
        DatagramVector {
            name: name.into(),
            kind: "CHALLENGE".into(),
            direction: "s2c".into(),
            secret: "none".into(),
            fields: named([
                ("nonce", wide(nonce)),
                ("instance", wide(INSTANCE.0)),
                ("cookie", bytes(cookie.as_bytes())),
            ]),
            len: size_of::<Challenge>() as u64,
            hex: hex(challenge.as_bytes()),
        }
    }

    fn proof(&self, kind: Kind, len: usize, role: Role, cookie: Cookie, sequence: u64) -> Proof {
        Proof {
            header: Header::new(kind, len),
            key_id: self.key_id(role),
            cookie,
            session: U64::new(session(role)),
            sequence: U64::new(sequence),
        }
    }

    fn proof_fields(&self, proof: &Proof) -> BTreeMap<String, Value> {
        named([
            ("key_id", text(proof.key_id.to_hex())),
            ("cookie", bytes(proof.cookie.as_bytes())),
            ("session", wide(proof.session.get())),
            ("sequence", Value::Number(proof.sequence.get())),
        ])
    }

    fn presence(&self, name: &str, len: usize, cookie: Cookie, sequence: u64) -> DatagramVector {
        let proof = self.proof(Kind::Presence, len, Role::Host, cookie, sequence);
        let fields = self.proof_fields(&proof);
        let layout = Presence { proof };
        self.sealed(name, "PRESENCE", Direction::ToServer, "presence_secret", &layout, len, fields)
    }

    fn bye(&self, name: &str, cookie: Cookie, sequence: u64) -> DatagramVector {
        let len = limits::REPORT_LEN_MIN;
        let proof = self.proof(Kind::Bye, len, Role::Host, cookie, sequence);
        let fields = self.proof_fields(&proof);
        self.sealed(name, "BYE", Direction::ToServer, "presence_secret", &Bye { proof }, len, fields)
    }

    fn bind(&self, name: &str, role: Role, cookie: Cookie, sequence: u64, it: Candidates) -> DatagramVector {
        let len = limits::BIND_LEN_MIN;
        let proof = self.proof(Kind::Bind, len, role, cookie, sequence);
        let second_cookie = if it.second.is_empty() { NO_COOKIE } else { self::cookie(0x20) };
        let probe_cookie = if it.second.is_empty() { NO_COOKIE } else { self::cookie(0x21) };
        let layout = Bind {
            proof,
            attempt: self.attempt.to_bytes(),
            rtt_ms: U16::new(it.rtt_ms),
            reserved: [0; 2],
            second: endpoint(it.second),
            second_cookie,
            lan: it.lan.map(endpoint),
            probe_cookie,
        };
        let mut fields = self.proof_fields(&proof);
        fields.extend(named([
            ("attempt", bytes(&layout.attempt)),
            ("rtt_ms", Value::Number(it.rtt_ms.into())),
            ("second", text(it.second)),
            ("second_cookie", bytes(second_cookie.as_bytes())),
            ("lan", Value::List(it.lan.map(String::from).into())),
            ("probe_cookie", bytes(probe_cookie.as_bytes())),
        ]));
        self.sealed(name, "BIND", Direction::ToServer, role_right(role), &layout, len, fields)
    }

    fn report(
        &self,
        name: &str,
        role: Role,
        cookie: Cookie,
        sequence: u64,
        (result, rtt_ms): (ReportResult, u16),
    ) -> DatagramVector {
        let len = limits::REPORT_LEN_MIN;
        let proof = self.proof(Kind::Report, len, role, cookie, sequence);
        let layout = Report {
            proof,
            attempt: self.attempt.to_bytes(),
            result: result.to_byte(),
            reserved: [0; 1],
            rtt_ms: U16::new(rtt_ms),
            reserved_2: [0; 4],
        };
        let mut fields = self.proof_fields(&proof);
        fields.extend(named([
            ("attempt", bytes(&layout.attempt)),
            ("result", Value::Number(result.to_byte().into())),
            ("rtt_ms", Value::Number(rtt_ms.into())),
        ]));
        self.sealed(name, "REPORT", Direction::ToServer, role_right(role), &layout, len, fields)
    }

    fn ack(
        &self,
        name: &str,
        secret: &str,
        (session, sequence): (u64, u64),
        cookie: Cookie,
        (code, detail, flags): (Code, u8, u8),
    ) -> DatagramVector {
        let len = sealed_len::<Ack>(0);
        let good = secret == "presence_secret" && code == Code::Ok;
        let [lease, presence, refresh] = if good { [59_000, 30_000, 10_000] } else { [0; 3] };
        let layout = Ack {
            header: Header::new(Kind::Ack, len),
            session: U64::new(session),
            sequence: U64::new(sequence),
            cookie,
            code: code as u8,
            detail,
            flags,
            reserved: 0,
            lease_remaining_ms: U32::new(lease),
            presence_remaining_ms: U32::new(presence),
            refresh_ms: U32::new(refresh),
        };
        let fields = [
            ("session", wide(session)),
            ("sequence", Value::Number(sequence)),
            ("cookie", bytes(cookie.as_bytes())),
            ("code", Value::Number(code as u64)),
            ("detail", Value::Number(detail.into())),
            ("flags", Value::Number(flags.into())),
            ("lease_remaining_ms", Value::Number(lease.into())),
            ("presence_remaining_ms", Value::Number(presence.into())),
            ("refresh_ms", Value::Number(refresh.into())),
        ];
        self.sealed(name, "ACK", Direction::ToClient, secret, &layout, 0, fields)
    }

    fn notice(&self, name: &str, cookie: Cookie) -> DatagramVector {
        let layout = Notice {
            header: Header::new(Kind::Notice, sealed_len::<Notice>(0)),
            attempt: self.attempt.to_bytes(),
            cookie,
            remaining_ms: U32::new(19_500),
            ordinal: 1,
            reserved: [0; 3],
        };
        let fields = [
            ("attempt", bytes(&layout.attempt)),
            ("cookie", bytes(cookie.as_bytes())),
            ("remaining_ms", Value::Number(19_500)),
            ("ordinal", Value::Number(1)),
        ];
        self.sealed(name, "NOTICE", Direction::ToClient, "presence_secret", &layout, 0, fields)
    }

    fn bound(
        &self,
        name: &str,
        role: Role,
        sequence: u64,
        cookie: Cookie,
        (code, detail, flags): (Code, u8, u8),
    ) -> DatagramVector {
        let layout = BoundAnswer {
            header: Header::new(Kind::Bound, sealed_len::<BoundAnswer>(0)),
            session: U64::new(session(role)),
            sequence: U64::new(sequence),
            attempt: self.attempt.to_bytes(),
            cookie,
            code: code as u8,
            detail,
            flags,
            reserved: 0,
            remaining_ms: U32::new(19_700),
            retry_ms: U32::new(250),
        };
        let fields = [
            ("session", wide(session(role))),
            ("sequence", Value::Number(sequence)),
            ("attempt", bytes(&layout.attempt)),
            ("cookie", bytes(cookie.as_bytes())),
            ("code", Value::Number(code as u64)),
            ("detail", Value::Number(detail.into())),
            ("flags", Value::Number(flags.into())),
            ("remaining_ms", Value::Number(19_700)),
            ("retry_ms", Value::Number(250)),
        ];
        self.sealed(name, "BOUND", Direction::ToClient, role_right(role), &layout, 0, fields)
    }

    fn introduce(&self, name: &str, receiver: Role, cookie: Cookie) -> DatagramVector {
        let (peer, it, start_in_ms) = match receiver {
            Role::Host => ("203.0.113.9:50001", JOINER_CANDIDATES, 40),
            Role::Joiner => ("203.0.113.9:50000", HOST_CANDIDATES, 60),
        };
        let punch_masked = self.masked(role_right(receiver));
        let layout = Introduce {
            header: Header::new(Kind::Introduce, sealed_len::<Introduce>(0)),
            attempt: self.attempt.to_bytes(),
            peer: endpoint(peer),
            peer_second: endpoint(it.second),
            lan: it.lan.map(endpoint),
            punch_masked,
            start_in_ms: U16::new(start_in_ms),
            retry_ms: U16::new(250),
            retry_max: 20,
            reserved: [0; 3],
            cookie,
        };
        let fields = [
            ("attempt", bytes(&layout.attempt)),
            ("peer", text(peer)),
            ("peer_second", text(it.second)),
            ("lan", Value::List(it.lan.map(String::from).into())),
            ("punch_masked", bytes(&punch_masked)),
            ("start_in_ms", Value::Number(start_in_ms.into())),
            ("retry_ms", Value::Number(250)),
            ("retry_max", Value::Number(20)),
            ("cookie", bytes(cookie.as_bytes())),
        ];
        self.sealed(name, "INTRODUCE", Direction::ToClient, role_right(receiver), &layout, 0, fields)
    }

    fn punch_datagram(&self, name: &str, role: Role, heard: u8, ordinal: u32) -> DatagramVector {
        let layout = Punch {
            header: Header::new(Kind::Punch, sealed_len::<Punch>(0)),
            attempt: self.attempt.to_bytes(),
            role: role as u8,
            heard,
            reserved: [0; 2],
            ordinal: U32::new(ordinal),
        };
        let fields = [
            ("attempt", bytes(&layout.attempt)),
            ("role", Value::Number(role as u64)),
            ("heard", Value::Number(heard.into())),
            ("ordinal", Value::Number(ordinal.into())),
        ];
        self.sealed(name, "PUNCH", Direction::ToPeer, "peer_key", &layout, 0, fields)
    }

    fn message(&self, name: &str, role: Role, payload: &[u8]) -> DatagramVector {
        let len = sealed_len::<Message>(0) + payload.len();
        let layout = Message {
            header: Header::new(Kind::Message, len),
            attempt: self.attempt.to_bytes(),
            role: role as u8,
            reserved: [0; 3],
            ordinal: U32::new(1),
        };
        let mut out = vec![0; len];
        assert_eq!(seal_message(&layout, payload, &self.secret("peer_key"), &mut out), len);
        DatagramVector {
            name: name.into(),
            kind: "MESSAGE".into(),
            direction: "p2p".into(),
            secret: "peer_key".into(),
            fields: named([
                ("attempt", bytes(&layout.attempt)),
                ("role", Value::Number(role as u64)),
                ("ordinal", Value::Number(1)),
                ("payload", bytes(payload)),
            ]),
            len: len as u64,
            hex: hex(&out),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a vector has as many parts")]
    fn sealed<T: IntoBytes + Immutable>(
        &self,
        name: &str,
        kind: &str,
        direction: Direction,
        secret: &str,
        layout: &T,
        len_min: usize,
        fields: impl IntoIterator<Item = (impl Into<String>, Value)>,
    ) -> DatagramVector {
        let mut out = [0; limits::DATAGRAM_LEN_MAX];
        let len = seal(layout, len_min, direction, &self.secret(secret), &mut out);
        DatagramVector {
            name: name.into(),
            kind: kind.into(),
            direction: match direction {
                Direction::ToServer => "c2s",
                Direction::ToClient => "s2c",
                Direction::ToPeer => "p2p",
            }
            .into(),
            secret: secret.into(),
            fields: named(fields),
            len: len as u64,
            hex: hex(&out[..len]),
        }
    }
}

/// Further ways to reach a side; an empty text is none.
#[derive(Clone, Copy)]
struct Candidates {
    rtt_ms: u16,
    second: &'static str,
    lan: [&'static str; 2],
}

const JOINER_CANDIDATES: Candidates =
    Candidates { rtt_ms: 40, second: "[2001:db8::9]:50001", lan: ["192.168.1.20:50001", ""] };
const HOST_CANDIDATES: Candidates =
    Candidates { rtt_ms: 20, second: "", lan: ["192.168.1.10:50000", "[fd00::10]:50000"] };
const NO_COOKIE: Cookie = Cookie { issued_ms: U64::ZERO, mac: [0; 16] };

/// A cookie as a server might make it; to clients it is 24 opaque bytes.
fn cookie(number: u8) -> Cookie {
    Cookie { issued_ms: U64::new(100_000 + u64::from(number)), mac: [0xc0 | number; 16] }
}

const fn session(role: Role) -> u64 {
    match role {
        Role::Host => HOST_SESSION,
        Role::Joiner => JOINER_SESSION,
    }
}

/// The secret handed out with the role's key.
const fn own_secret(role: Role) -> &'static str {
    match role {
        Role::Host => "presence_secret",
        Role::Joiner => "joiner_secret",
    }
}

/// The secret of the role in the attempt.
const fn role_right(role: Role) -> &'static str {
    match role {
        Role::Host => "attempt_right",
        Role::Joiner => "joiner_secret",
    }
}

fn endpoint(text: &str) -> WireEndpoint {
    let parsed: Option<SocketAddr> =
        (!text.is_empty()).then(|| text.parse().unwrap_or_else(|_| panic!("no endpoint: {text}")));
    parsed.map(Endpoint::from).into()
}
