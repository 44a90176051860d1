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
}

#[test]
fn an_engine_asked_for_by_name_is_not_replaced() {
    let serve = || {
        let free = "127.0.0.1:0";
        let mut command = Command::new(BINARY);
        command.args(["serve", "--engine", "uring", "--http", free, "--admin", free, "--udp", free]);
        Running::spawn("server", &mut command)
    };
    let (status, lines) = without_io_uring(serve).wait(SOON);
    assert_eq!(status.code(), Some(69), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("dataplane.engine: uring")), "{lines:#?}");
}

#[test]
fn the_fallback_can_be_asked_for() {
    let free = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_at(BINARY.as_ref(), [free; 3], &["--engine", "mmsg"]);
    meet(&server, 1);
    assert!(server.metrics().has("engine_info", "engine=\"mmsg\",reason=\"requested\""));
}
