//! A host driven datagram by datagram.

use std::net::UdpSocket;
use std::time::Duration;

use rendezvous_shared::credential::{Direction, KeyId, Secret};
use rendezvous_shared::limits::{HELLO_LEN_MIN, PRESENCE_LEN_MIN};
use rendezvous_shared::wire::{self, Answer, Challenge, Cookie, Header, Hello, Kind, Presence, Proof};
use rendezvous_testkit::server::Server;
use serde_json::Value;
use zerocopy::byteorder::big_endian::U64;

use crate::SOON;

/// What it registers, with the idempotency key `manual`.
pub(crate) const REGISTER: &str = r#"{"protocol": "restart", "name": "n", "player_capacity": 2}"#;

/// A host that a test drives datagram by datagram.
pub(crate) struct ManualHost {
    pub(crate) socket: UdpSocket,
    key_id: KeyId,
    pub(crate) secret: Secret,
    pub(crate) listing: String,
    sequence: u64,
}

impl ManualHost {
    pub(crate) fn register(server: &Server) -> Self {
        let response = server.call("POST", "/v1/listings", &["Idempotency-Key: manual"], REGISTER);
        assert_eq!(response.status, 201, "{response:?}");
        let body: Value = serde_json::from_str(&response.body).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.udp).unwrap();
        Self {
            socket,
            key_id: KeyId::from_hex(body["presence"]["key_id"].as_str().unwrap()).unwrap(),
            secret: Secret::from_hex(body["presence"]["secret"].as_str().unwrap()).unwrap(),
            listing: body["listing"]["id"].as_str().unwrap().into(),
            sequence: 0,
        }
    }

    /// The answer to `datagram`, or nothing within `within`.
    pub(crate) fn ask(&self, datagram: &[u8], within: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        self.socket.send(datagram).unwrap();
        let mut answer = [0; 512];
        let len = self.socket.recv(&mut answer).ok()?;
        Some(answer[..len].to_vec())
    }

    pub(crate) fn challenge(&self) -> Challenge {
        let header = Header::new(Kind::Hello, HELLO_LEN_MIN);
        let hello = Hello { header, key_id: self.key_id, nonce: U64::new(7) };
        let mut out = [0; HELLO_LEN_MIN];
        wire::seal(&hello, HELLO_LEN_MIN, Direction::ToServer, &self.secret, &mut out);
        let answer = self.ask(&out, SOON).expect("HELLO is always challenged");
        let Ok(Answer::Challenge(challenge)) = wire::parse_answer(&answer) else { panic!("{answer:?}") };
        assert_eq!(challenge.nonce.get(), 7);
        *challenge
    }

    pub(crate) fn presence(&mut self, cookie: Cookie) -> Vec<u8> {
        self.sequence += 1;
        let header = Header::new(Kind::Presence, PRESENCE_LEN_MIN);
        let (session, sequence) = (U64::new(99), U64::new(self.sequence));
        let proof = Proof { header, key_id: self.key_id, cookie, session, sequence };
        let mut out = vec![0; PRESENCE_LEN_MIN];
        let presence = Presence { proof };
        wire::seal(&presence, PRESENCE_LEN_MIN, Direction::ToServer, &self.secret, &mut out);
        out
    }
}
