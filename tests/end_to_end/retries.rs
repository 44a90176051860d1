//! Creates that are repeated because their answer was lost.

use rendezvous_testkit::server::{Server, call};

use crate::manual_host::{ManualHost, REGISTER};
use crate::{BINARY, SOON};

const KEY: &str = "Idempotency-Key: manual";

#[test]
fn a_repeated_create_is_answered_in_the_bytes_of_the_first() {
    let server = Server::start(BINARY);
    let mut host = ManualHost::register(&server);
    let first = server.call("POST", "/v1/listings", &[KEY], REGISTER);
    let challenge = host.challenge();
    let presence = host.presence(challenge.cookie);
    assert!(host.ask(&presence, SOON).is_some());
    let lease = format!("/v1/listings/{}/lease", host.listing);
    assert_eq!(server.call("PUT", &lease, &[], r#"{"version": 1}"#).status, 200);

    let again = server.call("POST", "/v1/listings", &[KEY], REGISTER);
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert!(again.head.to_ascii_lowercase().contains("idempotency-replayed: true"), "{again:?}");
    let other = REGISTER.replace("\"n\"", "\"other\"");
    let conflict = server.call("POST", "/v1/listings", &[KEY], &other);
    assert_eq!(conflict.status, 409);
    assert!(conflict.body.contains("idempotency_key_reused"), "{conflict:?}");

    let path = format!("/v1/listings/{}/attempts", host.listing);
    let first = server.call("POST", &path, &[KEY], "{}");
    let again = server.call("POST", &path, &[KEY], r#"{"ttl_ms": 20000}"#);
    assert_eq!(
        (first.status, again.status, &again.body),
        (201, 201, &first.body),
        "a default is no other request"
    );

    assert_eq!(server.call("DELETE", &format!("/v1/listings/{}", host.listing), &[], "").status, 204);
    for (path, body) in [("/v1/listings", REGISTER), (path.as_str(), "{}")] {
        let gone = server.call("POST", path, &[KEY], body);
        assert_eq!(gone.status, 410, "what was created and is gone is not created again: {gone:?}");
    }
}

#[test]
fn twenty_at_once_create_one() {
    let server = Server::start(BINARY);
    let http = server.http;
    let bodies: Vec<_> = std::thread::scope(|scope| {
        let create = || call(http, "POST", "/v1/listings", &[KEY], REGISTER);
        let calls: Vec<_> = (0..20).map(|_| scope.spawn(create)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    for response in &bodies {
        assert_eq!((response.status, &response.body), (201, &bodies[0].body));
    }
    assert_eq!(server.metrics().get("pool_used{pool=\"listings\"}"), 1);
}
