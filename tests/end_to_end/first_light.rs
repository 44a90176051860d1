//! Two peers meet, and need the server no more.

use std::process::Command;

use rendezvous_testkit::clock::wait_for;
use rendezvous_testkit::process::Running;
use rendezvous_testkit::server::Server;

use crate::{BINARY, SOON, last_word};

/// The command of the banner's line that has `word` as its first argument.
fn pasted(server: &Server, word: &str) -> Running {
    let needle = format!(" {word} --server ");
    let line =
        server.banner.iter().find(|line| line.contains(&needle)).expect("the banner says what to type");
    let mut words = line.split_whitespace();
    let program = words.next().unwrap();
    assert!(program.ends_with("/rendezvous"), "{program}");
    let mut command = Command::new(program);
    command.args(words).env_remove("RENDEZVOUS_KEY").env_remove("RUST_LOG");
    Running::spawn(word, &mut command)
}

#[test]
fn pasted_lines_make_two_peers_meet_and_the_server_may_die() {
    let mut server = Server::start(BINARY);
    let mut host = pasted(&server, "host");
    host.expect(SOON, "its listing", |line| line.starts_with("listed as lst_"));
    let mut joiner = pasted(&server, "join");

    let to_host = joiner.expect(SOON, "the host's address", |line| line.contains("connected to 127.0.0.1:"));
    let to_joiner =
        host.expect(SOON, "the joiner's address", |line| line.contains("connected to 127.0.0.1:"));
    assert_ne!(last_word(&to_host), last_word(&to_joiner));
    assert_ne!(last_word(&to_host), server.udp.to_string());

    joiner.expect(SOON, "the third message", |line| line.contains("message 3: "));
    server.process.kill();
    for ordinal in 4..=10 {
        let message = format!("message {ordinal}: ");
        joiner.expect(SOON, &message, |line| line.contains(&message));
        host.expect(SOON, &message, |line| line.contains(&message));
    }
    let (status, lines) = joiner.wait(SOON);
    assert!(status.success(), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "sent 10, received 10 messages"), "{lines:#?}");
}

#[test]
fn three_joiners_of_one_host_are_each_introduced_once() {
    let server = Server::start(BINARY);
    meet(&server, 3);
}

/// One host and `count` joiners at once; every one is introduced exactly once, to the right peer.
pub(crate) fn meet(server: &Server, count: u64) {
    let quick = ["--messages", "2", "--interval-ms", "50"];
    let mut host = server.host(&quick);
    host.expect(SOON, "its listing", |line| line.starts_with("listed as lst_"));
    let mut joiners: Vec<_> = (0..count).map(|_| server.join(&quick)).collect();
    for joiner in &mut joiners {
        let (status, lines) = joiner.wait(SOON);
        assert!(status.success(), "{lines:#?}");
        let introduced = lines.iter().filter(|line| line.starts_with("introduced to ")).count();
        assert_eq!(introduced, 1, "{lines:#?}");
    }
    for _ in 0..count {
        host.expect(SOON, "the joiner's last message", |line| line.contains("message 2: "));
    }
    let lines = host.seen().to_vec();
    let introduced = lines.iter().filter(|line| line.contains(": introduced to ")).count();
    assert_eq!(introduced as u64, count, "{lines:#?}");

    let metrics = wait_for(SOON, "moment with nothing in flight", || {
        let metrics = server.metrics();
        metrics.check_accounts();
        (metrics.get("udp_datagrams_in_flight") == 0).then_some(metrics)
    });
    assert_eq!(metrics.get("introductions_total{result=\"introduced\"}"), count);
}
