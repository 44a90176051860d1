//! Readiness, drain, signals, exit codes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use rendezvous_testkit::clock::{Deadline, timed, wait_for};
use rendezvous_testkit::http;
use rendezvous_testkit::process::Running;
use rendezvous_testkit::server::{KEY, Server};
use rustix::process::{Pid, Signal, kill_process};

use crate::{BINARY, SOON};

#[test]
fn a_signal_drains_and_the_exit_code_is_zero() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(BINARY);
        server.process.signal(signal);
        let ((status, lines), took) = timed(|| server.process.wait(SOON));
        assert_eq!(status.code(), Some(0), "{lines:#?}");
        assert!(took < Duration::from_secs(10), "with no attempt live it ends at once: {took:?}");
        assert!(lines.iter().any(|line| line.contains("draining")), "{lines:#?}");
    }
}

#[test]
fn a_signal_waits_for_the_attempt_that_is_live() {
    let mut server = Server::start(BINARY);
    let mut host = server.host(&["--protocol", "drain"]);
    host.expect(SOON, "its listing", |line| line.starts_with("listed as lst_"));
    let listing = wait_for(SOON, "visible listing", || {
        let page = server.call("GET", "/v1/listings?protocol=drain", &[], "");
        let body: serde_json::Value = serde_json::from_str(&page.body).unwrap();
        body["listings"][0]["id"].as_str().map(str::to_owned)
    });
    let path = format!("/v1/listings/{listing}/attempts");
    // Nobody binds to it: it lives its ten seconds out.
    let created = server.call("POST", &path, &["Idempotency-Key: k1"], r#"{"ttl_ms": 10000}"#);
    assert_eq!(created.status, 201, "{created:?}");
    server.process.signal(Signal::TERM);
    let draining = Deadline::after(Duration::from_secs(60));
    wait_for(Duration::from_secs(2), "/readyz that says no", || {
        let ready = http::request(server.http, "GET", "/readyz", &[], "").ok()?;
        (ready.status == 503).then_some(())
    });
    assert_eq!(http::request(server.http, "GET", "/livez", &[], "").unwrap().status, 200);
    let refused = server.call("POST", &path, &["Idempotency-Key: k2"], "{}");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("\"draining\""), "{refused:?}");
    assert!(refused.head.to_ascii_lowercase().contains("retry-after: "), "{refused:?}");
    let again = server.call("POST", &path, &["Idempotency-Key: k1"], r#"{"ttl_ms": 10000}"#);
    assert_eq!(again.status, 201, "what was created before is still told: {again:?}");
    let (status, _) = server.process.wait(SOON);
    assert_eq!(status.code(), Some(0));
    let took = Duration::from_secs(60) - draining.remaining();
    assert!(
        took > Duration::from_secs(5) && took < Duration::from_secs(30),
        "it waited for the attempt: {took:?}"
    );
}

#[test]
fn drain_over_http_clears_everything_and_stays_up() {
    let server = Server::start(BINARY);
    let authorization = format!("Authorization: Bearer {KEY}");
    let body = r#"{"protocol": "p", "name": "n", "player_capacity": 2}"#;
    assert_eq!(server.call("POST", "/v1/listings", &["Idempotency-Key: a"], body).status, 201);
    let anonymous = http::request(server.admin, "POST", "/v1/drain", &[], "").unwrap();
    assert_eq!(anonymous.status, 401);
    let drain =
        || http::request(server.admin, "POST", "/v1/drain", &[&authorization], r#"{"window_ms": 200}"#);
    assert_eq!(drain().unwrap().status, 200);
    let ready = http::request(server.http, "GET", "/readyz", &[], "").unwrap();
    assert_eq!(ready.status, 503, "{ready:?}");
    wait_for(SOON, "empty store", || {
        (server.metrics().get("pool_used{pool=\"listings\"}") == 0).then_some(())
    });
    let shown = http::request(server.admin, "GET", "/v1/drain", &[&authorization], "").unwrap();
    assert!(shown.body.contains("\"drained\""), "{shown:?}");
    assert_eq!(http::request(server.http, "GET", "/livez", &[], "").unwrap().status, 200);
    let refused = server.call("POST", "/v1/listings", &["Idempotency-Key: b"], body);
    assert_eq!(refused.status, 503, "{refused:?}");
}

#[test]
fn a_port_in_use_is_refused_loudly() {
    let server = Server::start(BINARY);
    let free = "127.0.0.1:0".to_owned();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (http, admin, udp, named) in [
        (server.http.to_string(), free.clone(), free.clone(), server.http.to_string()),
        (free.clone(), server.admin.to_string(), free.clone(), server.admin.to_string()),
        (free.clone(), free.clone(), server.udp.to_string(), server.udp.to_string()),
        (free.clone(), free.clone(), taken.local_addr().unwrap().to_string(), "in use".into()),
    ] {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--http", &http, "--admin", &admin, "--udp", &udp]);
        let (status, lines) = Running::spawn("second server", &mut command).wait(SOON);
        assert_eq!(status.code(), Some(69), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains(&named)), "{lines:#?}");
    }
}

#[test]
fn operators_get_in_whatever_crowds_the_public_listener() {
    let server = Server::start(BINARY);
    let crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(server.http).unwrap()).collect();
    assert_eq!(http::request(server.admin, "GET", "/readyz", &[], "").unwrap().status, 200);
    let refused = "http_connections_refused_total{reason=\"connections_per_address\"}";
    wait_for(SOON, "refused connection", || (server.metrics().get(refused) > 0).then_some(()));
    drop(crowd);
}

#[test]
fn a_log_nobody_reads_is_no_reason_to_die() {
    let free = "127.0.0.1:0";
    let mut command = Command::new(BINARY);
    command.args(["serve", "--http", free, "--admin", free, "--udp", free]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    // Closed before the first line is logged.
    drop(server.stderr.take());
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let status = wait_for(SOON, "end of the server", || server.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_banner_nobody_reads_keeps_nobody_from_stopping() {
    // A pipe that is full from the start, and never read.
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--http", "127.0.0.1:0", "--admin", &admin.to_string(), "--udp", "127.0.0.1:0"]);
    let mut server = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    wait_for(SOON, "readiness", || {
        let ready = http::request(admin, "GET", "/readyz", &[], "").ok()?;
        (ready.status == 200).then_some(())
    });
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let status = wait_for(SOON, "end of the server", || server.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    drop(reader);
}
