//! The load tool against the real server, small: every introduction verified, on both engines.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TOOL: &str = env!("CARGO_BIN_EXE_rendezvous-loadtest");

/// The server beside the tool. Cargo builds it for the tests of its own package only.
fn server() -> PathBuf {
    let path = Path::new(TOOL).with_file_name("rendezvous");
    assert!(path.is_file(), "{} is missing: run `cargo build -p rendezvous` first", path.display());
    path
}

fn smoke(more: &[&str]) -> Output {
    let output = Command::new(TOOL).arg("smoke").args(more).output();
    output.unwrap_or_else(|error| panic!("{TOOL}: {error}"))
}

fn passes_on(engine: &str) {
    let server = server();
    let server = server.to_string_lossy();
    let small = ["--hosts", "50", "--joiners", "100", "--seed", "7", "--timeout-s", "60"];
    let output = smoke(&[&small[..], &["--engine", engine, "--server-binary", &server]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{errors}");
    let has = |words: &[&str]| text.lines().any(|line| line.split_whitespace().eq(words.iter().copied()));
    for row in [
        &["hosts", "present", "50"][..],
        &["attempts", "100"],
        &["introduced", "100"],
        &["connected", "100"],
        &["lost", "0"],
        &["introductions", "100", "100"],
    ] {
        assert!(has(row), "no row {row:?} in\n{text}");
    }
    for part in ["seed 7", "create -> introduced", "smoke: all checks hold"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("FAILED"), "{text}");
}

fn works(engine: &str) -> bool {
    let doctor = Command::new(server()).args(["doctor", "--engine", engine]).output();
    doctor.is_ok_and(|it| it.status.success())
}

#[test]
fn every_attempt_is_introduced_by_uring() {
    if works("uring") {
        passes_on("uring");
    } else {
        eprintln!("skipped: io_uring does not work here");
    }
}

#[test]
fn every_attempt_is_introduced_by_tokio_uring() {
    if works("tokio-uring") {
        passes_on("tokio-uring");
    } else {
        eprintln!("skipped: tokio-uring does not work here");
    }
}

#[test]
fn every_attempt_is_introduced_by_mmsg() {
    passes_on("mmsg");
}

#[test]
fn bad_arguments_and_a_missing_server_have_codes_of_their_own() {
    assert_eq!(smoke(&["--hosts", "none"]).status.code(), Some(64));
    let remote = ["--server", "http://192.0.2.1:1", "--admin", "http://192.0.2.1:2", "--keys", "/none"];
    assert_eq!(smoke(&remote).status.code(), Some(64));
    assert_eq!(smoke(&["--server-binary", "/none/rendezvous"]).status.code(), Some(69));
    // It starts, and ends at once without being ready.
    assert_eq!(smoke(&["--server-binary", "/bin/true"]).status.code(), Some(69));
}
