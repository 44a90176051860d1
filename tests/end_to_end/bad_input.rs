//! Bad input anywhere gets a clear error, or on UDP silence and a count.

use std::net::UdpSocket;
use std::process::{Command, Output};
use std::time::Duration;

use rendezvous_testkit::clock::wait_for;
use rendezvous_testkit::http;
use rendezvous_testkit::server::Server;

use crate::{BINARY, SOON};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(BINARY).args(arguments).env_remove("RENDEZVOUS_KEY").output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn config_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn the_command_line_is_checked() {
    for (arguments, code, named) in [
        (vec!["--colour"], 64, "--colour"),
        (vec!["frobnicate"], 64, "frobnicate"),
        (vec!["serve", "--http", "nowhere"], 64, "nowhere"),
        (vec!["serve", "--engine", "steam"], 64, "steam"),
        (vec!["host"], 64, "--key"),
        (vec!["join", "--key", "k", "--listing", "lst_x"], 64, "lst_"),
        (vec!["join", "--key", "rvk_no_key"], 69, "reach"),
        (vec!["serve", "--config", "/nonexistent.toml"], 78, "/nonexistent.toml"),
    ] {
        let (got, text) =
            run(&[&arguments[..], if code == 69 { &["--server", "http://127.0.0.1:1"] } else { &[] }]
                .concat());
        assert_eq!(got, Some(code), "{arguments:?}: {text}");
        assert!(text.contains(named), "{arguments:?}: {text}");
    }
}

#[test]
fn the_configuration_is_checked() {
    let tenant = "[[tenants]]\nname = 'a'\n";
    for (text, named) in [
        ("[listen]\nhtpp = '127.0.0.1:1'\n", "htpp"),
        ("[limits]\nlistings = 'many'\n", "line 2"),
        ("limits = ", "line 1"),
        ("", "tenants"),
        (&format!("{tenant}[limits]\nlisting_records = 1\n"), "listing_records"),
        (&format!("{tenant}[listen]\nhttp = '0.0.0.0:7780'\n"), "insecure_http"),
        (&format!("{tenant}[[tenants]]\nname = 'a'\n"), "tenants[1]"),
    ] {
        let file = config_file(text);
        let path = file.path().to_str().unwrap();
        for arguments in [["check-config", path].to_vec(), ["serve", "--config", path].to_vec()] {
            let (code, error) = run(&arguments);
            assert_eq!(code, Some(78), "{text:?}: {error}");
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }
    let mut command = Command::new(BINARY);
    let output = command.arg("serve").env("RENDEZVOUS_DEV_KEY", "hello").output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("RENDEZVOUS_DEV_KEY"));
}

#[test]
fn http_requests_are_checked() {
    let server = Server::start(BINARY);
    let good = r#"{"protocol": "p", "name": "n", "player_capacity": 2}"#;
    let key = "Idempotency-Key: k";
    for (method, path, headers, body, status, named) in [
        ("POST", "/v1/listings", vec![key], "{\"protocol\": ", 400, "line"),
        ("POST", "/v1/listings", vec![key], r#"{"protocol": "p"}"#, 422, "name"),
        (
            "POST",
            "/v1/listings",
            vec![key],
            r#"{"protocol": "p", "name": "n", "player_capacity": 2, "x": 1}"#,
            422,
            "x",
        ),
        ("POST", "/v1/listings", vec![key], r#"["p", "n", "public", 2]"#, 422, "object"),
        ("GET", &format!("/v1/listings?protocol=p{}", "&x=1".repeat(40)), vec![], "", 422, "query"),
        ("POST", "/v1/listings", vec![], good, 400, "Idempotency-Key"),
        ("GET", "/v1/listings", vec![], "", 422, "protocol"),
        ("GET", "/v1/listings/lst_x", vec![], "", 404, "not_found"),
        ("GET", "/nowhere", vec![], "", 404, "not_found"),
        ("PATCH", "/v1/listings", vec![], "", 405, "method"),
    ] {
        let response = server.call(method, path, &headers, body);
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        assert!(response.head.contains("application/problem+json"), "{response:?}");
        assert!(response.body.contains(named), "{method} {path}: {response:?}");
    }
    for authorization in ["Authorization: Bearer rvk_no_key", "Authorization: Basic eA==", "X-Nothing: 1"] {
        let response =
            http::request(server.http, "POST", "/v1/listings", &[authorization, key], good).unwrap();
        assert_eq!(response.status, 401, "{authorization}: {response:?}");
    }
}

#[test]
fn bad_datagrams_get_silence_and_a_count() {
    let server = Server::start(BINARY);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.udp).unwrap();
    let mut hello = vec![0; 160];
    hello[..8].copy_from_slice(b"RDVZ\x01\x01\x00\xa0");
    let with = |at: usize, byte: u8| {
        let mut datagram = hello.clone();
        datagram[at] = byte;
        datagram
    };
    // A PRESENCE of the right shape that proves nothing: its time is long past, or its key is nobody's.
    let mut forged = hello.clone();
    forged[5] = 2;
    let cases = [
        ("empty", Vec::new()),
        ("too_short", b"RDVZ".to_vec()),
        ("bad_length", hello[..150].to_vec()),
        ("oversized", vec![1; 1201]),
        ("oversized", vec![1; 9000]),
        ("bad_magic", with(0, b'x')),
        ("bad_version", with(4, 9)),
        ("bad_type", with(5, 0x81)),
        ("bad_field", with(70, 1)),
        ("bad_key", forged),
    ];
    for (_, datagram) in &cases {
        socket.send(datagram).unwrap();
    }
    let metrics = wait_for(SOON, "count of every datagram", || {
        let metrics = server.metrics();
        (metrics.get("udp_datagrams_received_total") == cases.len() as u64).then_some(metrics)
    });
    metrics.check_accounts();
    for (outcome, _) in &cases {
        let expected = cases.iter().filter(|(name, _)| name == outcome).count() as u64;
        assert_eq!(metrics.outcome(outcome), expected, "{outcome}");
    }
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err(), "nothing is answered");
}
