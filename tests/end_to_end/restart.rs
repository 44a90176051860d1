//! A server that comes back knows nothing, and nobody has to do anything about it.

use std::time::Duration;

use rendezvous_shared::credential::Direction;
use rendezvous_shared::limits::PRESENCE_REFRESH;
use rendezvous_shared::wire::{self, Answer};
use rendezvous_testkit::clock::{timed, wait_for};
use rendezvous_testkit::server::Server;
use serde_json::Value;

use crate::first_light::meet;
use crate::manual_host::{ManualHost, REGISTER};
use crate::{BINARY, SOON};

#[test]
fn a_host_is_listed_again_within_one_refresh_interval() {
    host_comes_back(None);
}

pub(crate) fn host_comes_back(engine: Option<&str>) {
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
    check_engine(&server, engine);
    let (after, took) = timed(|| wait_for(SOON, "visible listing after the restart", || visible(&server)));
    assert_ne!(before, after, "a restart starts empty");
    assert!(took <= PRESENCE_REFRESH, "{took:?}");
    assert_eq!(server.call("GET", &format!("/v1/listings/{before}"), &[], "").status, 404);
    drop(host);
    meet(&server, 1);
}

#[test]
fn nothing_issued_before_a_restart_is_honoured() {
    old_credentials_are_void(None);
}

pub(crate) fn old_credentials_are_void(engine: Option<&str>) {
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
    check_engine(&server, engine);

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

/// The engine that must be at work, where the test is about one.
fn check_engine(server: &Server, engine: Option<&str>) {
    if let Some(engine) = engine {
        assert!(server.metrics().has("engine_info", &format!("engine=\"{engine}\"")), "not on {engine}");
    }
}
