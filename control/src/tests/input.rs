//! What a request may hold: every rule broken once.

use rendezvous_shared::limits;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{IdempotencyKey, Reply, Transition, Visibility};
use serde_json::{Value, json};

use super::sample::{REGISTER, attempt_id, listing_id};
use super::{ALL, Server};

fn registration(change: impl FnOnce(&mut Value)) -> String {
    let mut body: Value = serde_json::from_str(REGISTER).unwrap();
    change(&mut body);
    body.to_string()
}

fn set(field: &'static str, value: Value) -> String {
    registration(|body| body[field] = value)
}

#[tokio::test]
async fn a_registration_that_breaks_a_rule_names_the_field() {
    let server = Server::start().await;
    let long = |len: usize| Value::from("x".repeat(len));
    let many: Value =
        (0..17).map(|it| (it.to_string(), Value::from(""))).collect::<serde_json::Map<_, _>>().into();
    let table = [
        (set("protocol", "".into()), "protocol"),
        (set("protocol", long(65)), "protocol"),
        (set("protocol", "a\u{7f}".into()), "protocol"),
        (set("protocol", 3.into()), "protocol"),
        (set("name", "".into()), "name"),
        (set("name", long(129)), "name"),
        (set("name", "a\nb".into()), "name"),
        (set("name", "é".repeat(65).into()), "name"),
        (set("slot", "".into()), "slot"),
        (set("slot", long(65)), "slot"),
        (set("slot", "\u{0}".into()), "slot"),
        (set("visibility", "secret".into()), "visibility"),
        (set("player_capacity", 0.into()), "player_capacity"),
        (set("player_capacity", 65_536.into()), "player_capacity"),
        (set("player_capacity", (-1).into()), "player_capacity"),
        (set("player_capacity", Value::from(1.5)), "player_capacity"),
        (set("attributes", many), "attributes"),
        (set("attributes", json!({"": "x"})), "attributes"),
        (set("attributes", json!({"k".repeat(65): "x"})), "attributes"),
        (set("attributes", json!({"k": "x".repeat(257)})), "attributes.k"),
        (set("attributes", json!({"k": 1})), "attributes.k"),
        (set("lease_ms", 9_999.into()), "lease_ms"),
        (set("lease_ms", 300_001.into()), "lease_ms"),
        (set("lease_ms", "60000".into()), "lease_ms"),
        (set("colour", "red".into()), "colour"),
        (registration(|it| drop(it.as_object_mut().unwrap().remove("name"))), "name"),
        ("[]".to_owned(), "body"),
    ];
    for (body, field) in table {
        let problem = server.call(ALL, "POST", "/v1/listings", &body).await.problem(422, "invalid_field");
        assert_eq!(problem.field.as_deref(), Some(field), "{body} {problem:?}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn what_the_limits_allow_is_taken() {
    let server = Server::start().await;
    let attributes: serde_json::Map<_, _> =
        (0..16).map(|it| (format!("{it:064}"), Value::from("v".repeat(256)))).collect();
    let body = json!({
        "protocol": "p".repeat(64), "name": "n".repeat(128), "slot": "s".repeat(64),
        "visibility": "unlisted", "player_capacity": 65_535, "attributes": attributes, "lease_ms": 300_000,
    });
    let answer = server.call(ALL, "POST", "/v1/listings", &body.to_string()).await;
    answer.problem(503, "service_unavailable");
    let Transition::RegisterListing(asked) = server.last() else { panic!() };
    assert_eq!(asked.lease, limits::LEASE_MAX);
    assert_eq!(asked.description.visibility(), Visibility::Unlisted);
    assert_eq!(asked.description.attributes().count(), 16);
    assert!(asked.description.attributes().is_sorted());
    assert_eq!(asked.quotas.listings_per_owner, 1_000);

    server.call(ALL, "POST", "/v1/listings", REGISTER).await.problem(503, "service_unavailable");
    let Transition::RegisterListing(asked) = server.last() else { panic!() };
    assert_eq!(asked.lease, limits::LEASE_DEFAULT);
}

#[tokio::test]
async fn a_body_must_be_json_and_say_so() {
    let server = Server::start().await;
    for (body, place) in [
        ("{\"name\":", "line 1 column 8"),
        ("{\n \"name\" 3}", "line 2 column 9"),
        ("\u{0}", "line 1 column 1"),
    ] {
        let answer = server.call(ALL, "POST", "/v1/listings", body).await;
        assert!(answer.problem(400, "invalid_json").detail.contains(place), "{answer:?}");
    }
    let trailing = format!("{REGISTER} x");
    server.call(ALL, "POST", "/v1/listings", &trailing).await.problem(400, "invalid_json");
    server.call(ALL, "POST", "/v1/drain", "").await.problem(404, "not_found");

    let authorization = format!("Bearer {}", super::key(ALL));
    let base = [("authorization", authorization.as_str()), ("idempotency-key", "k")];
    for content_type in [None, Some("text/plain"), Some("application/jsonx"), Some("multipart/form-data")] {
        let mut headers = base.to_vec();
        headers.extend(content_type.map(|it| ("content-type", it)));
        let answer = server.send("POST", "/v1/listings", &headers, REGISTER.as_bytes()).await;
        answer.problem(415, "invalid_content_type");
    }
    let mut headers = base.to_vec();
    headers.push(("content-type", "Application/JSON; charset=utf-8"));
    let answer = server.send("POST", "/v1/listings", &headers, REGISTER.as_bytes()).await;
    answer.problem(503, "service_unavailable");
    let answer = server.send("POST", "/v1/listings", &headers, b"{\"name\":\"\xff\"}").await;
    answer.problem(400, "invalid_json");
}

#[tokio::test]
async fn an_idempotency_key_is_needed_on_both_creates() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Refused(Refusal::NotFound)));
    let attempts = format!("/v1/listings/{}/attempts", listing_id());
    let longest = "k".repeat(limits::IDEMPOTENCY_KEY_LEN_MAX);
    let too_long = format!("{longest}k");
    for (path, body) in [("/v1/listings", REGISTER), (attempts.as_str(), "{}")] {
        for headers in [
            vec![],
            vec![("idempotency-key", "")],
            vec![("idempotency-key", too_long.as_str())],
            vec![("idempotency-key", "a b")],
            vec![("idempotency-key", "a\tb")],
            vec![("idempotency-key", "é")],
            vec![("idempotency-key", "a"), ("idempotency-key", "a")],
        ] {
            let answer = server.call_with(ALL, "POST", path, &headers, body).await;
            answer.problem(400, "invalid_idempotency_key");
        }
        let headers = [("idempotency-key", longest.as_str())];
        server.call_with(ALL, "POST", path, &headers, body).await.problem(404, "not_found");
    }
    assert_eq!(server.seen().len(), 2);
}

async fn idempotency(server: &Server, path: &str, key: &str, body: &str) -> IdempotencyKey {
    server.call_with(ALL, "POST", path, &[("idempotency-key", key)], body).await;
    match server.last() {
        Transition::RegisterListing(it) => it.idempotency,
        Transition::CreateAttempt(it) => it.idempotency,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_fingerprint_follows_the_meaning_and_nothing_else() {
    let server = Server::start().await;
    let path = "/v1/listings";
    let first = idempotency(
        &server,
        path,
        "k",
        r#"{"protocol":"p","name":"n","player_capacity":4,"attributes":{"a":"1","b":"2"}}"#,
    )
    .await;
    let same = r#"{ "attributes": {"b":"2", "a":"\u0031"}, "player_capacity":4, "name":"n", "protocol":"p",
        "visibility":"public", "slot":null, "lease_ms":60000 }"#;
    assert_eq!(idempotency(&server, path, "k", same).await, first);
    let other_key = idempotency(&server, path, "l", same).await;
    assert_ne!(other_key.key, first.key);
    assert_eq!(other_key.fingerprint, first.fingerprint);
    let base: Value = serde_json::from_str(same).unwrap();
    for (field, value) in [
        ("protocol", json!("pp")),
        ("name", json!("m")),
        ("visibility", json!("unlisted")),
        ("player_capacity", json!(5)),
        ("attributes", json!({"a": "1", "b": "3"})),
        ("attributes", json!({"a": "1b", "c": "2"})),
        ("attributes", json!({"a": "1"})),
        ("slot", json!("s")),
        ("lease_ms", json!(60_001)),
    ] {
        let mut body = base.clone();
        body[field] = value;
        let changed = idempotency(&server, path, "k", &body.to_string()).await;
        assert_eq!(changed.key, first.key);
        assert_ne!(changed.fingerprint, first.fingerprint, "{field}");
    }

    let at = |id: &str| format!("/v1/listings/{id}/attempts");
    let here = at(&listing_id().to_string());
    let elsewhere = at(&attempt_id().to_string().replace("att_", "lst_"));
    let attempt = idempotency(&server, &here, "k", "").await;
    assert_eq!(idempotency(&server, &here, "k", r#"{"ttl_ms":20000,"note":null}"#).await, attempt);
    let changed = [
        idempotency(&server, &elsewhere, "k", "").await,
        idempotency(&server, &here, "k", r#"{"note":""}"#).await,
        idempotency(&server, &here, "k", r#"{"ttl_ms":20001}"#).await,
    ];
    assert!(changed.iter().all(|it| it.key == attempt.key && it.fingerprint != attempt.fingerprint));
}

#[tokio::test]
async fn other_bodies_and_queries_name_what_they_break() {
    let server = Server::start().await;
    let attempts = format!("/v1/listings/{}/attempts", listing_id());
    let lease = format!("/v1/listings/{}/lease", listing_id());
    let report = format!("/v1/attempts/{}/report", attempt_id());
    let note = |text: String| json!({ "note": text }).to_string();
    let many = (0..17).fold("/v1/listings?protocol=g".to_owned(), |it, n| format!("{it}&attr.{n}=x"));
    let table = [
        ("POST", attempts.clone(), note("x".repeat(257)), "note"),
        ("POST", attempts.clone(), note("\u{1b}[2J".to_owned()), "note"),
        ("POST", attempts.clone(), r#"{"ttl_ms":4999}"#.to_owned(), "ttl_ms"),
        ("POST", attempts.clone(), r#"{"ttl_ms":60001}"#.to_owned(), "ttl_ms"),
        ("POST", attempts.clone(), r#"{"x":1}"#.to_owned(), "x"),
        ("PUT", lease.clone(), r#"{"version":1,"lease_ms":9999}"#.to_owned(), "lease_ms"),
        ("PUT", lease.clone(), r#"{"version":-1}"#.to_owned(), "version"),
        ("PUT", lease, r#"{"version":1,"ttl_ms":1}"#.to_owned(), "ttl_ms"),
        ("POST", report.clone(), r#"{"result":"fine"}"#.to_owned(), "result"),
        ("POST", report, "{}".to_owned(), "result"),
        ("GET", format!("{attempts}?wait_ms=30001"), String::new(), "wait_ms"),
        ("GET", format!("{attempts}?wait_ms=-1"), String::new(), "wait_ms"),
        ("GET", format!("{attempts}?wait_ms=1&wait_ms=2"), String::new(), "wait_ms"),
        ("GET", format!("{attempts}?wait=1"), String::new(), "wait"),
        ("GET", "/v1/listings".to_owned(), String::new(), "protocol"),
        ("GET", "/v1/listings?protocol=".to_owned(), String::new(), "protocol"),
        ("GET", "/v1/listings?protocol=a&protocol=b".to_owned(), String::new(), "protocol"),
        ("GET", "/v1/listings?owner=you".to_owned(), String::new(), "owner"),
        ("GET", "/v1/listings?protocol=a&limit=0".to_owned(), String::new(), "limit"),
        ("GET", "/v1/listings?protocol=a&limit=101".to_owned(), String::new(), "limit"),
        ("GET", "/v1/listings?protocol=a&limit=+5".to_owned(), String::new(), "limit"),
        ("GET", "/v1/listings?protocol=a&colour=red".to_owned(), String::new(), "colour"),
        ("GET", "/v1/listings?protocol=a&attr.=x".to_owned(), String::new(), "attributes"),
        ("GET", "/v1/listings?protocol=a&name_prefix=%0a".to_owned(), String::new(), "name_prefix"),
        (
            "GET",
            "/v1/listings?protocol=a&player_capacity_min=0".to_owned(),
            String::new(),
            "player_capacity_min",
        ),
        (
            "GET",
            "/v1/listings?protocol=a&player_capacity_min=9&player_capacity_max=8".to_owned(),
            String::new(),
            "player_capacity_max",
        ),
        ("GET", many, String::new(), "attr"),
    ];
    for (method, path, body, field) in table {
        let problem = server.call(ALL, method, &path, &body).await.problem(422, "invalid_field");
        assert_eq!(problem.field.as_deref(), Some(field), "{method} {path} {body} {problem:?}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_query_reaches_the_store_as_meant() {
    let server = Server::start().await;
    let query =
        "/v1/listings?owner=me&name_prefix=R%C3%A4um+1&attr.z=1&attr.a=%26&player_capacity_max=8&limit=100";
    server.call(ALL, "GET", query, "").await.problem(503, "service_unavailable");
    let Transition::BrowseListings(asked) = server.last() else { panic!() };
    assert!(asked.owned && asked.protocol.is_none() && asked.after.is_none());
    assert_eq!(asked.filter.name_prefix.as_deref(), Some("Räum 1"));
    assert_eq!(asked.filter.attributes, [("a".into(), "&".into()), ("z".into(), "1".into())]);
    assert_eq!((asked.filter.player_capacity_min, asked.filter.player_capacity_max), (None, Some(8)));
    assert_eq!(asked.limit, 100);
}
