//! Where io_uring is refused, the other engine serves, and everything says why.

use std::process::Command;

use rendezvous_testkit::process::Running;
use rendezvous_testkit::seccomp::without_io_uring;
use rendezvous_testkit::server::Server;

use crate::first_light::meet;
use crate::restart::{host_comes_back, old_credentials_are_void};
use crate::{BINARY, SOON};

const REASON: &str = "io_uring_refused_by_seccomp";

#[test]
fn without_io_uring_peers_meet_all_the_same() {
    let mut server = without_io_uring(|| Server::start(BINARY));
    meet(&server, 3);
    assert!(server.metrics().has("engine_info", &format!("engine=\"mmsg\",reason=\"{REASON}\"")));
    let said = server.process.seen();
    assert!(said.iter().any(|line| line.contains("WARN") && line.contains(REASON)), "{said:#?}");
    assert!(server.banner.iter().any(|line| line.contains("mmsg") && line.contains(REASON)));
}

/// Both servers, before and after the restart, are children of the filtered thread.
#[test]
fn without_io_uring_a_restart_goes_as_well() {
    without_io_uring(|| host_comes_back(Some("mmsg")));
    without_io_uring(|| old_credentials_are_void(Some("mmsg")));
}

#[test]
fn the_doctor_names_the_reason() {
    let doctor = || Running::spawn("doctor", Command::new(BINARY).arg("doctor"));
    let (status, lines) = without_io_uring(doctor).wait(SOON);
    assert!(status.success(), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("engine") && line.ends_with("mmsg")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("reason") && line.contains(REASON)), "{lines:#?}");
    // And of each engine by itself.
    for (engine, state) in [("uring", REASON), ("tokio-uring", REASON), ("mmsg", "works")] {
        let says = |line: &&String| line.split_whitespace().take(3).eq(["trial", "of", engine]);
        let said = lines.iter().find(says);
        assert!(said.is_some_and(|line| line.contains(state)), "{engine}: {lines:#?}");
    }
}

#[test]
fn an_engine_asked_for_by_name_is_not_replaced() {
    for engine in ["uring", "tokio-uring"] {
        let (status, lines) = without_io_uring(|| serve(engine, "127.0.0.1:0")).wait(SOON);
        assert_eq!(status.code(), Some(69), "{lines:#?}");
        let told = format!("dataplane.engine: {engine}: ");
        assert!(lines.iter().any(|line| line.contains(&told)), "{lines:#?}");
    }
}

#[test]
fn tokio_uring_serves_where_it_is_asked_for() {
    let doctor = Command::new(BINARY).args(["doctor", "--engine", "tokio-uring"]).output().unwrap();
    if !doctor.status.success() {
        println!("left out, tokio-uring does not work here:\n{}", String::from_utf8_lossy(&doctor.stdout));
        return;
    }
    let free = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_at(BINARY.as_ref(), [free; 3], &["--engine", "tokio-uring"]);
    meet(&server, 3);
    assert!(server.metrics().has("engine_info", "engine=\"tokio-uring\",reason=\"requested\""));
}

/// It would answer from any of the machine's addresses, so the configuration is wrong whatever the kernel can do.
#[test]
fn tokio_uring_is_refused_on_a_wildcard() {
    let path = std::env::temp_dir().join(format!("rendezvous-wildcard-{}.toml", std::process::id()));
    let tenants = "[[tenants]]\nname = 'a'\n[[tenants.principals]]\nname = 'b'\n";
    let text = format!("[listen]\nudp = '0.0.0.0:0'\nadvertise = ['127.0.0.1:7777']\n{tenants}");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--engine", "tokio-uring", "--config"]).arg(&path);
    let (status, lines) = Running::spawn("server", &mut command).wait(SOON);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(status.code(), Some(78), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("dataplane.engine: tokio-uring")), "{lines:#?}");
}

fn serve(engine: &str, free: &str) -> Running {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--engine", engine, "--http", free, "--admin", free, "--udp", free]);
    Running::spawn("server", &mut command)
}

#[test]
fn the_fallback_can_be_asked_for() {
    let free = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_at(BINARY.as_ref(), [free; 3], &["--engine", "mmsg"]);
    meet(&server, 1);
    assert!(server.metrics().has("engine_info", "engine=\"mmsg\",reason=\"requested\""));
}
