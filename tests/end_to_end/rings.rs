//! Several rings on one port, the probe port, and whether the sockets hear.

use std::io::Write;
use std::process::Command;

use rendezvous_control::directory::ApiKey;
use rendezvous_testkit::clock::wait_for;
use rendezvous_testkit::process::Running;
use rendezvous_testkit::server::{KEY, Server};

use crate::first_light::meet;
use crate::{BINARY, SOON};

/// A server on free loopback ports with this under `[dataplane]`, and a probe port.
fn server(dataplane: &str) -> Server {
    let key = ApiKey::parse(KEY).unwrap();
    let (id, fingerprint) = (key.id(), key.fingerprint().to_hex());
    let mut config = tempfile::NamedTempFile::new().unwrap();
    write!(
        config,
        "[listen]\nhttp = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nudp = '127.0.0.1:0'\nprobe_port = 0\n\
         [dataplane]\nself_probe_ms = 100\n{dataplane}\n\
         [[tenants]]\nname = 'dev'\n[[tenants.principals]]\nname = 'developer'\n\
         scopes = ['listing:write', 'attempt:write', 'read', 'operate', 'metrics']\n\
         keys = [{{ id = '{id}', secret_blake3 = '{fingerprint}' }}]\n"
    )
    .unwrap();
    let mut command = Command::new(BINARY);
    command.arg("serve").arg("--config").arg(config.path()).env_remove("RUST_LOG");
    Server::watch(Running::spawn("server", &mut command), BINARY.as_ref())
}

#[test]
fn peers_meet_across_three_rings_and_each_ring_hears() {
    for engine in ["uring", "mmsg"] {
        let server = server(&format!("threads = 3\nengine = '{engine}'"));
        assert!(
            server.banner.iter().any(|line| line.contains("3 threads on that port")),
            "{:?}",
            server.banner
        );
        meet(&server, 8);
        // Three rings and the probe port, several rounds each.
        wait_for(SOON, "rounds of questions", || {
            (server.metrics().get("self_probes_total{result=\"heard\"}") >= 12).then_some(())
        });
        let figures = server.metrics();
        assert_eq!(figures.get("self_probes_total{result=\"silent\"}"), 0);
        assert!(figures.get("udp_receive_buffer_bytes") > 0);
    }
}

#[test]
fn clients_are_told_the_probe_port() {
    let server = server("");
    let body = r#"{"protocol": "p", "name": "n", "player_capacity": 2}"#;
    let created = server.call("POST", "/v1/listings", &["Idempotency-Key: a"], body);
    let created: serde_json::Value = serde_json::from_str(&created.body).unwrap();
    let told = created["udp"]["probe_endpoints"][0].as_str().unwrap();
    assert!(server.banner.iter().any(|line| line.trim() == format!("probe   {told}")), "{told}");
}
