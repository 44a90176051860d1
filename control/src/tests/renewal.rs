//! Renewal: which version, from where, and what a stale one becomes.

use rendezvous_shared::api;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};

use super::sample::{lease, listing_id};
use super::{HOST, Server};

fn path() -> String {
    format!("/v1/listings/{}/lease", listing_id())
}

#[tokio::test]
async fn the_version_comes_in_the_body_or_as_if_match() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Renewed(lease())));
    for (headers, body, version) in [
        (vec![], r#"{"version":6}"#, 6),
        (vec![("if-match", "\"5\"")], "", 5),
        (vec![("if-match", "\"4\"")], r#"{"version":4,"lease_ms":10000}"#, 4),
    ] {
        let renewed = server.call_with(HOST, "PUT", &path(), &headers, body).await;
        assert_eq!((renewed.status, renewed.header("etag")), (200, Some("\"7\"")), "{renewed:?}");
        let shown: api::RenewResponse = serde_json::from_str(&renewed.body).unwrap();
        assert_eq!((shown.lease.version, shown.lease.remaining_ms), (7, Some(60_250)));
        let Transition::RenewLease(asked) = server.last() else { panic!() };
        assert_eq!((asked.version, asked.lease.is_some()), (version, version == 4));
    }
}

#[tokio::test]
async fn a_stale_version_is_409_in_the_body_and_412_as_if_match() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Refused(Refusal::StaleVersion { latest: 9 })));
    for (status, headers, body) in [
        (409, vec![], r#"{"version":6}"#),
        (412, vec![("if-match", "\"6\"")], ""),
        (412, vec![("if-match", "\"6\"")], r#"{"version":6}"#),
    ] {
        let problem =
            server.call_with(HOST, "PUT", &path(), &headers, body).await.problem(status, "conflict");
        assert_eq!(problem.reason.as_deref(), Some("stale_version"));
        assert_eq!(problem.latest_version, Some(9));
    }
    // Any other refusal stays what it is.
    server.answer(Ok(Reply::Refused(Refusal::NotFound)));
    server.call_with(HOST, "PUT", &path(), &[("if-match", "\"6\"")], "").await.problem(404, "not_found");
}

#[tokio::test]
async fn no_version_is_428_and_two_are_422() {
    let server = Server::start().await;
    server.call_with(HOST, "PUT", &path(), &[], "{}").await.problem(428, "invalid_precondition");
    server.call_with(HOST, "PUT", &path(), &[], "").await.problem(428, "invalid_precondition");
    let both = server.call_with(HOST, "PUT", &path(), &[("if-match", "\"6\"")], r#"{"version":7}"#).await;
    assert_eq!(both.problem(422, "invalid_field").field.as_deref(), Some("version"));
    for tag in ["6", "W/\"6\"", "*", "\"6\", \"7\"", "\"\"", "\"+6\"", "\"99999999999999999999\"", "\""] {
        let refused = server.call_with(HOST, "PUT", &path(), &[("if-match", tag)], "").await;
        assert_eq!(refused.problem(422, "invalid_field").field.as_deref(), Some("If-Match"), "{tag}");
    }
    assert!(server.seen().is_empty());
}
