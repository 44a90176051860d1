//! A server that comes back knows nothing, and nobody has to do anything about it.

use std::net::UdpSocket;
use std::time::Duration;

use rendezvous_shared::credential::{Direction, KeyId, Secret};
use rendezvous_shared::limits::{HELLO_LEN_MIN, PRESENCE_LEN_MIN, PRESENCE_REFRESH};
use rendezvous_shared::wire::{self, Answer, Challenge, Cookie, Header, Hello, Kind, Presence, Proof};
use rendezvous_testkit::clock::{timed, wait_for};
use rendezvous_testkit::server::Server;
use serde_json::Value;
use zerocopy::byteorder::big_endian::U64;

use crate::first_light::meet;
use crate::{BINARY, SOON};

const REGISTER: &str = r#"{"protocol": "restart", "name": "n", "player_capacity": 2}"#;

/// A host that a test drives datagram by datagram.
struct ManualHost {
    socket: UdpSocket,
    key_id: KeyId,
    secret: Secret,
    listing: String,
    sequence: u64,
}

impl ManualHost {
    fn register(server: &Server) -> Self {
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
    fn ask(&self, datagram: &[u8], within: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        self.socket.send(datagram).unwrap();
        let mut answer = [0; 512];
        let len = self.socket.recv(&mut answer).ok()?;
        Some(answer[..len].to_vec())
    }

    fn challenge(&self) -> Challenge {
        let header = Header::new(Kind::Hello, HELLO_LEN_MIN);
        let hello = Hello { header, key_id: self.key_id, nonce: U64::new(7) };
        let mut out = [0; HELLO_LEN_MIN];
        wire::seal(&hello, HELLO_LEN_MIN, Direction::ToServer, &self.secret, &mut out);
        let answer = self.ask(&out, SOON).expect("HELLO is always challenged");
        let Ok(Answer::Challenge(challenge)) = wire::parse_answer(&answer) else { panic!("{answer:?}") };
        assert_eq!(challenge.nonce.get(), 7);
        *challenge
    }

    fn presence(&mut self, cookie: Cookie) -> Vec<u8> {
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

#[test]
fn a_host_is_listed_again_within_one_refresh_interval() {
    let mut server = Server::start(BINARY);
    let mut host = server.host(&["--protocol", "restart"]);
    host.expect(SOON, "its listing", |line| line.starts_with("listed as lst_"));
    let visible = |server: &Server| {
        let page = server.call("GET", "/v1/listings?protocol=restart", &[], "");
        assert_eq!(page.status, 200, "the configured key stays valid: {page:?}");
        let body: Value = serde_json::from_str(&page.body).unwrap();
        body["listings"][0]["id"].as_str().map(str::to_owned)
    };
    let before = wait_for(SOON, "visible listing", || visible(&server));
    server.restart();
    let (after, took) = timed(|| wait_for(SOON, "visible listing after the restart", || visible(&server)));
    assert_ne!(before, after, "a restart starts empty");
    assert!(took <= PRESENCE_REFRESH, "{took:?}");
    assert_eq!(server.call("GET", &format!("/v1/listings/{before}"), &[], "").status, 404);
    drop(host);
    meet(&server, 1);
}

#[test]
fn nothing_issued_before_a_restart_is_honoured() {
    let mut server = Server::start(BINARY);
    let mut host = ManualHost::register(&server);
    let challenge = host.challenge();
    let presence = host.presence(challenge.cookie);
    let answer = host.ask(&presence, SOON).expect("PRESENCE is acknowledged");
    let Ok(Answer::Ack(ack)) = wire::parse_answer(&answer) else { panic!("{answer:?}") };
    assert!(ack.verify(Direction::ToClient, &host.secret));
    let path = format!("/v1/listings/{}/attempts", host.listing);
    let created = server.call("POST", &path, &["Idempotency-Key: manual"], "{}");
    assert_eq!(created.status, 201, "{created:?}");
    let attempt: Value = serde_json::from_str(&created.body).unwrap();
    let attempt = format!("/v1/attempts/{}", attempt["id"].as_str().unwrap());
    assert_eq!(server.call("GET", &attempt, &[], "").status, 200);

    server.restart();

    let stale = host.presence(ack.body.cookie);
    assert_eq!(host.ask(&stale, Duration::from_millis(500)), None, "an old cookie and key get silence");
    let again = host.challenge();
    assert_ne!(again.instance, challenge.instance);
    let foreign = host.presence(again.cookie);
    assert_eq!(
        host.ask(&foreign, Duration::from_millis(500)),
        None,
        "a new cookie for an old key does not help"
    );
    let metrics = server.metrics();
    metrics.check_accounts();
    assert_eq!(metrics.outcome("bad_key"), 2);
    assert_eq!(metrics.outcome("challenged"), 1);

    assert_eq!(server.call("GET", &format!("/v1/listings/{}", host.listing), &[], "").status, 404);
    assert_eq!(server.call("GET", &attempt, &[], "").status, 404);
    let lease = format!("/v1/listings/{}/lease", host.listing);
    assert_eq!(server.call("PUT", &lease, &[], r#"{"version": 1}"#).status, 404);
    let fresh = server.call("POST", "/v1/listings", &["Idempotency-Key: manual"], REGISTER);
    assert_eq!(fresh.status, 201);
    assert!(!fresh.head.to_ascii_lowercase().contains("idempotency-replayed"), "{fresh:?}");
    assert!(!fresh.body.contains(&host.listing));
}
