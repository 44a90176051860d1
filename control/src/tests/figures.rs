//! `/metrics`, health and version.

use rendezvous_shared::counter::Label;
use rendezvous_shared::outcome::DatagramOutcome;

use super::Server;
use crate::boundary::ReadyState;
use crate::http::observe::Route;
use crate::{HttpOptions, Surface};

/// A sample line: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// Reads OpenMetrics text, strictly enough to notice a slip.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with("# EOF\n"));
    let mut samples = Vec::new();
    for line in text.lines().filter(|it| !it.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            None => (series, Vec::new()),
            Some((name, labels)) => {
                let pair = |it: &str| {
                    let (key, value) = it.split_once('=').unwrap();
                    let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap();
                    (key.to_owned(), value.to_owned())
                };
                let labels = labels.strip_suffix('}').unwrap();
                (name, labels.split(',').map(pair).collect())
            }
        };
        assert!(name.starts_with("rendezvous_"), "{line}");
        samples.push((name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line}"))));
    }
    samples
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted: Vec<_> = labels.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
    let mut found = samples.iter().filter(|it| it.0 == name && it.1 == wanted);
    let first = found.next().unwrap_or_else(|| panic!("no {name} {labels:?}"));
    assert!(found.next().is_none(), "{name} {labels:?} stands there twice");
    first.2
}

#[tokio::test]
async fn the_metrics_hold_every_name_and_add_up() {
    let server = Server::with(Surface::Admin, HttpOptions::default()).await;
    server.send("GET", "/livez", &[], b"").await;
    server.send("GET", "/v1/listings/lst_secret", &[], b"").await;
    let answer = server.send("GET", "/metrics", &[], b"").await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let samples = parse(&answer.body);
    let get = |name: &str, labels: &[(&str, &str)]| value(&samples, name, labels);

    let outcomes: f64 = DatagramOutcome::ALL
        .iter()
        .map(|it| get("rendezvous_udp_datagrams_total", &[("outcome", it.name())]))
        .sum();
    let received = get("rendezvous_udp_datagrams_received_total", &[]);
    assert_eq!(received, outcomes + get("rendezvous_udp_datagrams_in_flight", &[]));
    for (name, labels, expected) in [
        ("udp_kernel_drops_total", vec![], 1.0),
        ("udp_receive_buffer_bytes", vec![], f64::from(8 << 20)),
        ("self_probes_total", vec![("result", "silent")], 22.0),
        ("udp_send_errors_total", vec![("errno", "ENOBUFS")], 2.0),
        ("udp_receive_errors_total", vec![("errno", "econnrefused")], 1.0),
        ("udp_unasked_dropped_total", vec![], 0.0),
        ("engine_info", vec![("engine", "recvmmsg"), ("reason", "configured")], 1.0),
        ("engine_rearms_total", vec![("reason", "no_buffer")], 4.0),
        ("datagram_seconds_count", vec![], 3.0),
        ("datagram_seconds_bucket", vec![("le", "0.000001")], 1.0),
        ("datagram_seconds_bucket", vec![("le", "0.0000025")], 2.0),
        ("datagram_seconds_bucket", vec![("le", "0.005")], 2.0),
        ("datagram_seconds_bucket", vec![("le", "0.01")], 3.0),
        ("datagram_seconds_bucket", vec![("le", "+Inf")], 3.0),
        ("transition_seconds_count", vec![("transition", "bind")], 1.0),
        ("transitions_total", vec![("transition", "bind"), ("outcome", "applied")], 16.0),
        ("transitions_total", vec![("transition", "get_drain"), ("outcome", "expired")], 0.0),
        ("store_queue_depth", vec![], 8.0),
        ("store_batch_size_bucket", vec![("le", "1.0")], 1.0),
        ("store_batch_size_count", vec![], 2.0),
        ("pool_used", vec![("pool", "listings")], 1.0),
        ("pool_limit", vec![("pool", "attempt_results")], 10.0),
        ("pool_high_water", vec![("pool", "attempts")], 2.0),
        ("introductions_total", vec![("result", "introduced")], 11.0),
        ("introductions_total", vec![("result", "replayed")], 5.0),
        ("introductions_total", vec![("result", "refused")], 3.0),
        ("attempt_outcomes_total", vec![("reason", "connected")], 0.0),
        ("presence_fresh", vec![], 3.0),
        ("listings_visible", vec![], 2.0),
        ("drain_state", vec![], 1.0),
        ("http_request_seconds_count", vec![("route", "/livez")], 1.0),
        ("http_request_seconds_count", vec![("route", "unmatched")], 1.0),
        ("http_connections", vec![], 1.0),
        ("http_connections_refused_total", vec![("reason", "connections")], 0.0),
        ("http_accept_errors_total", vec![], 0.0),
    ] {
        let found = get(&format!("rendezvous_{name}"), &labels);
        assert!((found - expected).abs() < 1e-9, "{name} {labels:?}: {found}");
    }
    assert!(!answer.body.contains("secret"), "no id becomes a label");
}

#[tokio::test]
async fn every_route_has_its_own_label() {
    let server = Server::start().await;
    let admin = Server::with(Surface::Admin, HttpOptions::default()).await;
    for &route in Route::ALL {
        let path = route.name().replace("{id}", "x").replace("{code}", "x");
        if route == Route::Unmatched {
            continue;
        }
        let counted = [&server, &admin].map(|it| it.control.app.durations.copy()[route.index()].1.len());
        server.send("GET", &path, &[], b"").await;
        admin.send("GET", &path, &[], b"").await;
        let now = [&server, &admin].map(|it| it.control.app.durations.copy()[route.index()].1.len());
        assert!(now != counted, "{path} was counted under another route");
    }
}

#[tokio::test]
async fn readiness_and_health_say_how_it_stands() {
    let public = Server::start().await;
    assert_eq!(public.send("GET", "/healthz", &[], b"").await.body, r#"{"status":"ready"}"#);
    assert_eq!(
        public.send("GET", "/version", &[], b"").await.body,
        r#"{"name":"rendezvous","version":"9.9.9","instance":"0000000000000abc"}"#
    );
    for (state, code) in
        [(ReadyState::Starting, "service_unavailable"), (ReadyState::Unavailable, "service_unavailable")]
    {
        public.readiness.set(state);
        public.send("GET", "/readyz", &[], b"").await.problem(503, code);
    }
    public.readiness.set(ReadyState::Ready);
    public.readiness.set_deaf(true);
    public.send("GET", "/readyz", &[], b"").await.problem(503, "service_unavailable");
    assert_eq!(public.send("GET", "/healthz", &[], b"").await.body, r#"{"status":"deaf"}"#);
    public.readiness.set_deaf(false);
    assert_eq!(public.send("GET", "/readyz", &[], b"").await.body, r#"{"status":"ready"}"#);
    public.readiness.set(ReadyState::Draining);
    public.send("GET", "/readyz", &[], b"").await.problem(503, "draining");

    let admin = Server::with(Surface::Admin, HttpOptions::default()).await;
    let detail = admin.send("GET", "/healthz", &[], b"").await.json();
    assert_eq!(detail["engine"]["name"], "recvmmsg");
    assert_eq!(detail["store"]["drain"]["remaining_ms"], 8_000);
    assert_eq!(detail["store"]["pools"][0]["pool"], "listings");
}
