//! Each route's success, and what each refusal of the store becomes.

use std::sync::Arc;
use std::time::Duration;

use rendezvous_shared::api;
use rendezvous_shared::counter::Label;
use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Pool, QuotaScope, Refusal};
use rendezvous_shared::store::{DrainView, ListingLocator, Page, Phase, Reply, Transition};
use tokio::sync::oneshot;

use super::sample::{
    REGISTER, at, attempt, attempt_grant, attempt_id, grant, lease, listing, listing_id, pending,
};
use super::{ALL, HOST, JOINER, OPERATOR, Server};
use crate::boundary::{Lane, ReadyState};
use crate::{HttpOptions, Surface};

#[tokio::test]
async fn a_registration_is_answered_and_repeats_byte_for_byte() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Registered(Box::new(grant(false)))));
    let first = server.call(HOST, "POST", "/v1/listings", REGISTER).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.header("etag"), Some("\"7\""));
    assert_eq!(first.header("idempotency-replayed"), None);
    let body: api::RegisterResponse = serde_json::from_str(&first.body).unwrap();
    assert_eq!(body.lease.expires_at, "2027-01-15T08:01:01.250Z");
    assert_eq!((body.lease.version, body.lease.ttl_ms, body.lease.remaining_ms), (7, 60_000, None));
    let key_id = KeyId::from_hex(&body.presence.key_id).unwrap();
    assert_eq!(body.presence.secret, MasterKey::from_bytes([3; 32]).secret(&key_id).to_hex());
    assert_eq!(body.udp.endpoints, ["127.0.0.1:7777"]);
    assert_eq!(body.instance, "0000000000000abc");
    assert_eq!(body.listing.slot.as_deref(), Some("one"));

    server.clock.advance(Duration::from_millis(333));
    server.answer(Ok(Reply::Registered(Box::new(grant(true)))));
    let second = server.call(HOST, "POST", "/v1/listings", REGISTER).await;
    assert_eq!((second.status, &second.body), (201, &first.body));
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn an_owner_sees_its_lease_and_others_do_not() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Listing(Box::new(listing(true)))));
    let own = server.call(HOST, "GET", &format!("/v1/listings/{}", listing_id()), "").await;
    assert_eq!((own.status, own.header("etag")), (200, Some("\"7\"")));
    let body: api::ListingBody = serde_json::from_str(&own.body).unwrap();
    assert_eq!(body.lease.unwrap().remaining_ms, Some(60_250));
    assert_eq!(body.presence_remaining_ms, Some(20_000));
    assert!(body.join_code.is_some());

    server.answer(Ok(Reply::Listing(Box::new(listing(false)))));
    let other = server.call(JOINER, "GET", "/v1/join-codes/0000000A", "").await;
    assert_eq!((other.status, other.header("etag")), (200, None));
    let body: api::ListingBody = serde_json::from_str(&other.body).unwrap();
    assert!(body.lease.is_none() && body.slot.is_none() && body.join_code.is_none());
    assert!(body.presence_remaining_ms.is_none());
    let Transition::GetListing(asked) = server.last() else { panic!() };
    assert!(matches!(asked.locator, ListingLocator::JoinCode(_)));
}

#[tokio::test]
async fn attempts_are_created_read_listed_reported_and_cancelled() {
    let server = Server::start().await;
    let of_listing = format!("/v1/listings/{}/attempts", listing_id());
    server.answer(Ok(Reply::AttemptCreated(Box::new(attempt_grant(false)))));
    let created = server.call(JOINER, "POST", &of_listing, r#"{"note":"hi"}"#).await;
    assert_eq!(created.status, 201, "{created:?}");
    let body: api::AttemptResponse = serde_json::from_str(&created.body).unwrap();
    assert_eq!(body.expires_at, "2027-01-15T08:00:21.000Z");
    server.answer(Ok(Reply::AttemptCreated(Box::new(attempt_grant(true)))));
    let again = server.call(JOINER, "POST", &of_listing, r#"{"note":"hi"}"#).await;
    assert_eq!((again.status, again.body), (201, created.body));
    assert_eq!(server.call(JOINER, "POST", &of_listing, "").await.status, 201, "the body may be left out");

    let path = format!("/v1/attempts/{}", attempt_id());
    server.answer(Ok(Reply::Attempt(Box::new(attempt(Phase::Bound)))));
    let read = server.call(HOST, "GET", &path, "").await;
    let body: api::AttemptBody = serde_json::from_str(&read.body).unwrap();
    assert_eq!((body.phase.as_str(), body.reason, body.remaining_ms), ("bound", None, 19_400));
    assert_eq!(body.times_ms.host_bound, Some(100));
    assert_eq!(body.host.families, ["ipv4", "ipv6"]);
    assert_eq!((body.host.mapping.as_deref(), body.joiner.mapping), (Some("varies"), None));
    assert_eq!(body.host.report.as_deref(), Some("peer_silent"));
    server.answer(Ok(Reply::Attempt(Box::new(attempt(Phase::Ended(AttemptReason::HostSilent))))));
    let body = server.call(HOST, "GET", &path, "").await.json();
    assert_eq!((&body["reason"], &body["remaining_ms"]), (&"host_silent".into(), &0.into()));

    server.answer(Ok(Reply::Pending(vec![pending()])));
    let listed = server.call(HOST, "GET", &of_listing, "").await.json();
    assert_eq!(listed["attempts"][0]["note"], "hi");
    assert_eq!(listed["attempts"][0]["remaining_ms"], 4_000);

    server.answer(Ok(Reply::Reported));
    for result in ["connected", "peer_silent", "peer_unrecognised", "aborted"] {
        let body = format!(r#"{{"result":"{result}"}}"#);
        assert_eq!(server.call(JOINER, "POST", &format!("{path}/report"), &body).await.status, 204);
        let Transition::Report(report) = server.last() else { panic!() };
        assert_eq!(report.result.name(), result);
    }
    server.answer(Ok(Reply::Cancelled));
    assert_eq!(server.call(JOINER, "DELETE", &path, "").await.status, 204);
    server.answer(Ok(Reply::Deleted));
    let deleted = server.call(HOST, "DELETE", &format!("/v1/listings/{}", listing_id()), "").await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
}

#[tokio::test]
async fn a_long_poll_ends_with_an_attempt_at_its_time_or_at_drain() {
    let options = HttpOptions { poll_interval: Duration::from_millis(10), ..HttpOptions::default() };
    let server = Server::with(Surface::Public, options).await;
    let path = format!("/v1/listings/{}/attempts", listing_id());
    let mut asked = 0;
    server.script(move |_| {
        asked += 1;
        let answer = match asked {
            2 => Err(Refusal::ServiceUnavailable),
            4.. => Ok(Reply::Pending(vec![pending()])),
            _ => Ok(Reply::Pending(Vec::new())),
        };
        Box::pin(async move { answer })
    });
    let found = server.call(HOST, "GET", &format!("{path}?wait_ms=30000"), "").await;
    assert_eq!(found.json()["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(server.seen().len(), 4);

    // Each question takes 10 ms by the clock handed in; the pauses between take none.
    let clock = server.clock.clone();
    server.script(move |_| {
        clock.advance(Duration::from_millis(10));
        Box::pin(async { Ok(Reply::Pending(Vec::new())) })
    });
    let empty = server.call(HOST, "GET", &format!("{path}?wait_ms=25"), "").await;
    assert_eq!((empty.status, empty.body.as_str()), (200, r#"{"attempts":[]}"#));
    assert_eq!(server.seen().len(), 3, "asked at 0, 10 and 20 ms, and over at 30");

    let path = format!("{path}?wait_ms=30000");
    let waits = server.call(HOST, "GET", &path, "");
    let drains = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.readiness.set(ReadyState::Draining);
    };
    let (ended, ()) = tokio::time::timeout(Duration::from_secs(2), async { tokio::join!(waits, drains) })
        .await
        .expect("drain ends a long poll");
    assert_eq!(ended.status, 200);
}

#[tokio::test]
async fn every_refusal_has_its_status_code_and_particulars() {
    let server = Server::start().await;
    let path = format!("/v1/attempts/{}", attempt_id());
    let draining = Refusal::Draining { remaining: Duration::from_millis(12_001) };
    for (refusal, status, code) in [
        (Refusal::NotFound, 404, "not_found"),
        (Refusal::Expired, 410, "expired"),
        (Refusal::StaleVersion { latest: 9 }, 409, "conflict"),
        (draining, 503, "draining"),
        (Refusal::ServiceUnavailable, 503, "service_unavailable"),
        (Refusal::StaleSequence, 500, "internal"),
    ] {
        server.answer(Ok(Reply::Refused(refusal)));
        let refused = server.call(ALL, "DELETE", &path, "").await;
        refused.problem(status, code);
        server.answer(Err(refusal));
        let direct = server.call(ALL, "DELETE", &path, "").await;
        assert_eq!(direct.body, refused.body);
        if refusal == draining {
            assert_eq!(direct.header("retry-after"), Some("13"));
        }
    }
    for &reason in ConflictReason::ALL {
        server.answer(Ok(Reply::Refused(Refusal::Conflict(reason))));
        let problem = server.call(ALL, "DELETE", &path, "").await.problem(409, "conflict");
        assert_eq!(problem.reason.as_deref(), Some(reason.name()));
    }
    for &pool in Pool::ALL {
        server.answer(Ok(Reply::Refused(Refusal::CapacityExceeded(pool))));
        let problem = server.call(ALL, "DELETE", &path, "").await.problem(503, "capacity_exceeded");
        assert_eq!(problem.pool.as_deref(), Some(pool.name()));
    }
    for &scope in QuotaScope::ALL {
        server.answer(Ok(Reply::Refused(Refusal::QuotaExceeded(scope))));
        let problem = server.call(ALL, "DELETE", &path, "").await.problem(429, "quota_exceeded");
        assert_eq!(problem.scope.as_deref(), Some(scope.name()));
    }
}

#[tokio::test]
async fn what_is_absent_looks_the_same_however_it_is() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Refused(Refusal::NotFound)));
    let path = format!("/v1/listings/{}", listing_id());
    let absent = server.call(ALL, "GET", &path, "").await;
    absent.problem(404, "not_found");
    for path in ["/v1/listings/lst_x", "/v1/join-codes/!", "/v1/attempts/%ff", "/nowhere", "/metrics"] {
        let other = server.call(ALL, "GET", path, "").await;
        assert_eq!((other.status, &other.body), (404, &absent.body), "{path}");
    }
    for (method, path, allow) in [
        ("PATCH", path.as_str(), "GET,HEAD,DELETE"),
        ("DELETE", "/v1/listings", "GET,HEAD,POST"),
        ("POST", "/livez", "GET,HEAD"),
    ] {
        let refused = server.call(ALL, method, path, "").await;
        refused.problem(405, "method_not_allowed");
        assert_eq!(refused.header("allow"), Some(allow), "{path}");
    }
}

#[tokio::test]
async fn a_page_goes_on_with_its_cursor_and_only_with_it() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Page(Page { listings: vec![listing(false)], next_after: Some(listing_id()) })));
    let query = "/v1/listings?protocol=game&attr.a=1&attr.b=2&player_capacity_min=2";
    let first = server.call(JOINER, "GET", query, "").await;
    let body: api::PageResponse = serde_json::from_str(&first.body).unwrap();
    assert_eq!(body.listings.len(), 1);
    let cursor = body.next_cursor.unwrap();
    server.seen();

    // The same question in another order and with another limit.
    let same =
        format!("/v1/listings?limit=7&attr.b=2&attr.a=1&player_capacity_min=2&protocol=game&cursor={cursor}");
    assert_eq!(server.call(ALL, "GET", &same, "").await.status, 200);
    let Transition::BrowseListings(asked) = server.last() else { panic!() };
    assert_eq!((asked.after, asked.limit), (Some(listing_id()), 7));

    for changed in 0..cursor.len() {
        let mut tampered = cursor.clone().into_bytes();
        tampered[changed] = if tampered[changed] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(tampered).unwrap();
        let answer = server.call(JOINER, "GET", &format!("{query}&cursor={tampered}"), "").await;
        answer.problem(422, "invalid_cursor");
    }
    for (who, query) in [
        (JOINER, "/v1/listings?protocol=other&attr.a=1&attr.b=2&player_capacity_min=2"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&attr.b=2&player_capacity_max=2"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&player_capacity_min=2"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&attr.b=2"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&attr.b=2&player_capacity_min=3"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&attr.b=2&player_capacity_min=2&player_capacity_max=9"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&attr.b=2&player_capacity_min=2&name_prefix=x"),
        (JOINER, "/v1/listings?protocol=game&attr.a=1&attr.b=2&player_capacity_min=2&owner=me"),
        (super::STRANGER, query),
    ] {
        server.call(who, "GET", &format!("{query}&cursor={cursor}"), "").await.problem(422, "invalid_cursor");
    }
    server.call(JOINER, "GET", &format!("{query}&cursor="), "").await.problem(422, "invalid_cursor");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn drain_is_the_operators_and_shows_at_once() {
    let server = Server::with(Surface::Admin, HttpOptions::default()).await;
    server.call(OPERATOR, "POST", "/v1/drain", r#"{"window_ms":30001}"#).await.problem(422, "invalid_field");
    server.call(OPERATOR, "POST", "/v1/drain", "").await.problem(503, "service_unavailable");
    assert_eq!(server.call(OPERATOR, "GET", "/readyz", "").await.status, 200);
    server.seen();

    server.answer(Ok(Reply::Drain(DrainView::Draining { deadline: at(6_000), attempts: 3 })));
    let drained = server.call(OPERATOR, "POST", "/v1/drain", r#"{"window_ms":5000}"#).await;
    assert_eq!(drained.body, r#"{"state":"draining","remaining_ms":5000,"attempts":3}"#);
    let seen = server.seen();
    let [(Lane::Operator, Transition::BeginDrain(begin))] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(begin.window, Duration::from_secs(5));
    server.call(OPERATOR, "GET", "/readyz", "").await.problem(503, "draining");
    assert_eq!(server.call(OPERATOR, "GET", "/livez", "").await.status, 200);
    let state = server.call(OPERATOR, "GET", "/v1/drain", "").await;
    assert_eq!((state.status, state.body), (200, drained.body));
    assert!(matches!(server.seen().as_slice(), [(Lane::Operator, Transition::GetDrain)]));
}

#[tokio::test]
async fn a_panic_or_a_misplaced_reply_is_our_fault() {
    let server = Server::start().await;
    let path = format!("/v1/attempts/{}", attempt_id());
    server.answer(Ok(Reply::Renewed(lease())));
    server.call(ALL, "GET", &path, "").await.problem(500, "internal");
    server.script(|_| Box::pin(async { panic!("for the test") }));
    server.call(ALL, "GET", &path, "").await.problem(500, "internal");
    assert_eq!(server.call(ALL, "GET", "/livez", "").await.status, 200);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_unavailable_and_a_caller_that_left_is_forgotten() {
    let options = HttpOptions { store_timeout: Duration::from_millis(50), ..HttpOptions::default() };
    let server = Server::with(Surface::Public, options).await;
    let path = format!("/v1/attempts/{}", attempt_id());
    server.script(|_| Box::pin(std::future::pending()));
    server.call(ALL, "GET", &path, "").await.problem(503, "service_unavailable");

    let server = Server::start().await;
    let (given_up, waits) = oneshot::channel::<()>();
    let given_up = Arc::new(std::sync::Mutex::new(Some(given_up)));
    server.script(move |_| {
        let held = given_up.lock().unwrap().take();
        Box::pin(async move {
            let _held = held;
            std::future::pending().await
        })
    });
    let call = server.call(ALL, "GET", &path, "");
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    // The sender is dropped with the future.
    assert!(tokio::time::timeout(Duration::from_secs(2), waits).await.unwrap().is_err());
}
