//! The control client against a server that fails as told.
#![expect(unreachable_pub, clippy::unwrap_used, reason = "a test; clippy takes only test functions for one")]

mod http;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rendezvous_client::control::{Browse, ControlClient, ControlError, ControlOptions, IdempotencyKey};
use rendezvous_shared::api::{AttemptRequest, RenewRequest};
use rendezvous_shared::id::{AttemptId, Handle, ListingId};

use self::http::Http;

fn listing() -> ListingId {
    ListingId::new(1, Handle(2))
}

fn attempt_body() -> String {
    let attempt = AttemptId::new(3, Handle(4));
    let hex = "ab".repeat(32);
    format!(
        r#"{{"id":"{attempt}","listing_id":"{}","joiner":{{"key_id":"{hex}","secret":"{hex}"}},"ttl_ms":20000,
        "expires_at":"2026-01-01T00:00:00Z","udp":{{"endpoints":["127.0.0.1:7777"]}},"instance":"00000000000000ff"}}"#,
        listing()
    )
}

fn problem(status: u16, rest: &str) -> String {
    format!(r#"{{"type":"about:blank","title":"t","status":{status},"code":"conflict","detail":"d"{rest}}}"#)
}

#[tokio::test]
async fn a_create_is_retried_with_its_key_and_authenticates() {
    let calls = AtomicUsize::new(0);
    let server = Http::serve(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => (0, None, String::new()),
        1 => (503, Some(0), problem(503, "")),
        _ => (201, None, attempt_body()),
    })
    .await;
    let client = server.client();
    let key = IdempotencyKey::random().unwrap();
    let answer = client.create_attempt(listing(), &AttemptRequest::default(), &key).await.unwrap();
    assert_eq!(answer.instance, "00000000000000ff");
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    for request in seen.iter() {
        assert_eq!(request.method, "POST");
        assert_eq!(request.path, format!("/v1/listings/{}/attempts", listing()));
        assert_eq!(request.headers["idempotency-key"], seen[0].headers["idempotency-key"]);
        assert_eq!(request.headers["authorization"], "Bearer rvk_test_secret");
        assert_eq!(request.body, seen[0].body);
    }
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn a_problem_is_typed_and_not_retried() {
    let server =
        Http::serve(|_| (409, None, problem(409, r#","reason":"stale_version","latest_version":7"#))).await;
    let request = RenewRequest { version: Some(3), lease_ms: None };
    let error = server.client().renew(listing(), &request).await.unwrap_err();
    assert_eq!((error.latest_version(), error.code()), (Some(7), Some("conflict")));
    assert!(!error.is_transient() && !error.is_gone());
    assert_eq!(server.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_problem_document_still_has_its_status() {
    let server = Http::serve(|_| (404, None, "<html>".to_owned())).await;
    let error = server.client().get(listing()).await.unwrap_err();
    assert!(error.is_gone(), "{error}");
    let server = Http::serve(|_| (200, None, "{".to_owned())).await;
    assert!(matches!(server.client().get(listing()).await, Err(ControlError::Malformed(_))));
}

#[tokio::test]
async fn retries_end_and_a_long_retry_after_is_the_callers() {
    let server = Http::serve(|_| (503, Some(0), problem(503, ""))).await;
    let error = server.client().delete(listing()).await.unwrap_err();
    assert!(error.is_transient());
    assert_eq!(server.seen.lock().unwrap().len(), 4);
    let server = Http::serve(|_| (503, Some(60), problem(503, ""))).await;
    let error = server.client().delete(listing()).await.unwrap_err();
    let ControlError::Problem { retry_after, .. } = error else { panic!("{error}") };
    assert_eq!(retry_after, Some(Duration::from_secs(60)));
    assert_eq!(server.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn nobody_there_and_https_are_said_clearly() {
    let options = ControlOptions { tries: 2, ..ControlOptions::default() };
    let client = ControlClient::new("http://127.0.0.1:1", "k", options.clone()).unwrap();
    let error = client.get(listing()).await.unwrap_err();
    assert!(matches!(error, ControlError::Unreachable(_)), "{error}");
    let error = ControlClient::new("https://example.net", "k", options).unwrap_err();
    assert!(error.to_string().contains("https"));
}

#[tokio::test]
async fn browsing_encodes_its_query() {
    let server = Http::serve(|_| (200, None, r#"{"listings":[],"next_cursor":"a+b"}"#.to_owned())).await;
    let browse = Browse {
        protocol: Some("my game/1".to_owned()),
        cursor: Some("a+b=".to_owned()),
        limit: Some(10),
        ..Browse::default()
    };
    let page = server.client().browse(&browse).await.unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("a+b"));
    let path = server.seen.lock().unwrap()[0].path.clone();
    assert_eq!(path, "/v1/listings?protocol=my%20game%2F1&cursor=a%2Bb%3D&limit=10");
}
