//! Who gets in, and what the directory refuses to hold.

use rendezvous_shared::id::{PrincipalId, TenantId};
use rendezvous_shared::limits::Limits;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};

use super::sample::{REGISTER, attempt_id, listing_id};
use super::{ALL, HOST, JOINER, METRICS, NOTHING, OPERATOR, READER, STRANGER, Server, directory, key};
use crate::directory::{ApiKey, Directory, DirectoryConfig};
use crate::{HttpOptions, Surface};

#[tokio::test]
async fn no_valid_key_is_one_and_the_same_401() {
    let server = Server::start().await;
    let good = key(ALL);
    let wrong_secret = ApiKey::generate([0; 10], [8; 32]).to_text();
    let (id, _) = good[4..].split_once('_').unwrap();
    let (_, other_secret) = wrong_secret[4..].split_once('_').unwrap();
    let headers = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(format!("Basic {good}")),
        Some(good.clone()),
        Some(format!("Bearer {wrong_secret}")),
        Some(format!("Bearer rvk_{id}_{other_secret}")),
        Some(format!("Bearer {good}x")),
        Some(format!("Bearer {good} {good}")),
    ];
    let mut bodies = Vec::new();
    for header in &headers {
        let pairs: Vec<_> = header.iter().map(|it| ("authorization", it.as_str())).collect();
        let refused = server.send("POST", "/v1/listings", &pairs, REGISTER.as_bytes()).await;
        refused.problem(401, "unauthorized");
        assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"));
        bodies.push(refused.body);
    }
    let twice = format!("Bearer {good}");
    let pairs = [("authorization", twice.as_str()), ("authorization", twice.as_str())];
    bodies.push(server.send("GET", "/v1/listings?protocol=x", &pairs, b"").await.body);
    assert!(bodies.windows(2).all(|it| it[0] == it[1]));
    assert!(server.seen().is_empty());
    // In any case of the scheme.
    let lower = format!("bearer {good}");
    let answer = server.send("GET", "/v1/listings?protocol=x", &[("authorization", &lower)], b"").await;
    answer.problem(503, "service_unavailable");
}

#[tokio::test]
async fn each_route_asks_for_its_scope() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Refused(Refusal::NotFound)));
    let listing = format!("/v1/listings/{}", listing_id());
    let attempt = format!("/v1/attempts/{}", attempt_id());
    let report = r#"{"result":"connected"}"#;
    let at_listing = format!("{listing}/attempts");
    let table: [(&str, &str, &str, &[&str]); 12] = [
        ("POST", "/v1/listings", REGISTER, &[HOST]),
        ("GET", "/v1/listings?protocol=x", "", &[JOINER, READER, OPERATOR]),
        ("GET", "/v1/listings?owner=me", "", &[HOST, JOINER, READER, OPERATOR]),
        ("GET", &listing, "", &[HOST, JOINER, READER, OPERATOR]),
        ("GET", "/v1/join-codes/00000000", "", &[HOST, JOINER, READER, OPERATOR]),
        ("PUT", &format!("{listing}/lease"), r#"{"version":1}"#, &[HOST]),
        ("DELETE", &listing, "", &[HOST, OPERATOR]),
        ("POST", &at_listing, "{}", &[JOINER]),
        ("GET", &at_listing, "", &[HOST]),
        ("GET", &attempt, "", &[HOST, JOINER, READER, OPERATOR]),
        ("DELETE", &attempt, "", &[HOST, JOINER, OPERATOR]),
        ("POST", &format!("{attempt}/report"), report, &[HOST, JOINER]),
    ];
    for (method, path, body, allowed) in table {
        for who in [HOST, JOINER, READER, OPERATOR, METRICS, NOTHING] {
            let answer = server.call(who, method, path, body).await;
            let expected = if allowed.contains(&who) { (404, "not_found") } else { (403, "forbidden") };
            assert_eq!(answer.status, expected.0, "{who} {method} {path}");
            answer.problem(expected.0, expected.1);
        }
        assert_eq!(server.seen().len(), allowed.len(), "{method} {path}");
    }
}

#[tokio::test]
async fn the_admin_listener_on_loopback_is_open_but_for_drain() {
    let server = Server::with(Surface::Admin, HttpOptions::default()).await;
    for path in ["/metrics", "/healthz", "/readyz", "/version"] {
        assert_eq!(server.send("GET", path, &[], b"").await.status, 200, "{path}");
    }
    server.send("POST", "/v1/drain", &[], b"").await.problem(401, "unauthorized");
    server.send("GET", "/v1/drain", &[], b"").await.problem(401, "unauthorized");
    server.call(METRICS, "POST", "/v1/drain", "").await.problem(403, "forbidden");
    server.send("GET", "/v1/listings", &[], b"").await.problem(404, "not_found");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn elsewhere_figures_need_a_key() {
    use tower::ServiceExt;
    let server = Server::start().await;
    let router = crate::routes::admin(std::sync::Arc::clone(&server.control.app), false);
    for (who, expected) in [(None, 401), (Some(HOST), 403), (Some(METRICS), 200), (Some(OPERATOR), 200)] {
        for path in ["/metrics", "/healthz"] {
            let mut request = http::Request::get(path);
            if let Some(who) = who {
                request = request.header("authorization", format!("Bearer {}", key(who)));
            }
            let request = request.body(axum::body::Body::empty()).unwrap();
            let status = router.clone().oneshot(request).await.unwrap().status();
            assert_eq!(status.as_u16(), expected, "{who:?} {path}");
        }
    }
}

#[tokio::test]
async fn the_store_learns_tenant_principal_and_operator() {
    let server = Server::start().await;
    server.answer(Ok(Reply::Refused(Refusal::NotFound)));
    let path = format!("/v1/attempts/{}", attempt_id());
    for (who, tenant, principal, operator) in
        [(ALL, 0, 0, true), (HOST, 0, 1, false), (OPERATOR, 0, 4, true), (STRANGER, 1, 7, true)]
    {
        server.call(who, "GET", &path, "").await.problem(404, "not_found");
        let Transition::GetAttempt(asked) = server.last() else { panic!() };
        assert_eq!(asked.caller.tenant, TenantId(tenant));
        assert_eq!(asked.caller.principal, PrincipalId(principal));
        assert_eq!(asked.caller.operator, operator);
    }
}

fn config(text: &str) -> Result<DirectoryConfig, serde_json::Error> {
    serde_json::from_str(text)
}

#[test]
fn a_bad_directory_names_the_field() {
    let hash = "0".repeat(64);
    let key = |id: &str| format!(r#"{{"id":"{id}","secret_blake3":"{hash}"}}"#);
    let tenant = |principals: &str| format!(r#"{{"tenants":[{{"name":"t","principals":[{principals}]}}]}}"#);
    let three = format!(r#"{{"name":"p","keys":[{},{},{}]}}"#, key("a"), key("b"), key("c"));
    let same = format!(r#"{{"name":"p","keys":[{}]}},{{"name":"q","keys":[{}]}}"#, key("a"), key("a"));
    let short = r#"{"name":"p","keys":[{"id":"a","secret_blake3":"00"}]}"#;
    for (text, field) in [
        (tenant(&three), "tenants[0].principals[0].keys"),
        (tenant(&same), "tenants[0].principals[1].keys[0].id"),
        (tenant(short), "tenants[0].principals[0].keys[0].secret_blake3"),
        (tenant(r#"{"name":"p"},{"name":"p"}"#), "tenants[0].principals[1].name"),
        (
            tenant(&format!(r#"{{"name":"p","keys":[{}]}}"#, key("a_b"))),
            "tenants[0].principals[0].keys[0].id",
        ),
        (r#"{"tenants":[{"name":""}]}"#.to_owned(), "tenants[0].name"),
    ] {
        let error = Directory::new(&config(&text).unwrap(), &Limits::DEFAULT).err().expect(field);
        assert_eq!(error.field, field);
        assert!(error.to_string().starts_with(field));
    }
    assert!(config(r#"{"tenants":[{"name":"t","quota":{}}]}"#).is_err(), "unknown fields are refused");
    assert!(config(&tenant(r#"{"name":"p","scopes":["root"]}"#)).is_err());
}

#[test]
fn quotas_are_the_principals_then_the_tenants_then_the_limits() {
    let key = ApiKey::generate([1; 10], [2; 32]);
    let text = format!(
        r#"{{"tenants":[{{"name":"t","quotas":{{"listings_per_owner":5,"listings_per_tenant":6}},
        "principals":[{{"name":"p","quotas":{{"listings_per_owner":0}},
        "keys":[{{"id":"{}","secret_blake3":"{}"}}]}}]}}]}}"#,
        key.id(),
        key.fingerprint().to_hex()
    );
    let directory = Directory::new(&config(&text).unwrap(), &Limits::DEFAULT).unwrap();
    let quotas = directory.authenticate(&key).unwrap().quotas;
    assert_eq!((quotas.listings_per_owner, quotas.listings_per_tenant), (0, 6));
    assert_eq!(quotas.attempts_per_tenant, Limits::DEFAULT.attempts_per_tenant);
}

#[test]
fn a_fingerprint_of_zeroes_opens_nothing_for_an_unknown_id() {
    assert!(directory().authenticate(&ApiKey::generate([0xee; 10], [7; 32])).is_none());
}
