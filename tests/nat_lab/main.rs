//! The NAT lab: real server, host and joiner processes in network namespaces, behind NATs made of nftables.
//!
//! Needs root, `ip` and `nft`, and says so where it has not. Namespaces are named `rvlab-<process>-…`, and each is
//! removed by the process that made it.
//!
//! What it cannot show: NATs that are not Linux's, delay and reordering, addresses that change on the way.
#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

mod ground;
mod namespace;
mod nat;
mod page;
mod pairs;
mod play;
mod stories;

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use nat::Nat;
use page::Name;
use pairs::Finding;
use play::End;

/// The server under test; it is host and joiner too.
const BINARY: &str = env!("CARGO_BIN_EXE_rendezvous");

/// For anything that takes a moment on an idle machine; generous, since several cases are played at once.
const SOON: Duration = Duration::from_secs(20);

/// Cases played at once. They mostly wait.
const AT_ONCE: usize = 6;

/// Set to `write` to have the page written from what is found.
const WRITE: &str = "RENDEZVOUS_NAT_PAGE";

/// Set to play only the cases whose name contains it.
const ONLY: &str = "RENDEZVOUS_NAT_ONLY";

/// Set to `required` where the lab must not be skipped.
const REQUIRED: &str = "RENDEZVOUS_NAT_LAB";

struct Case {
    name: Name,
    expected: End,
    play: Box<dyn FnOnce() -> Finding + Send>,
}

fn cases() -> VecDeque<Case> {
    let mut cases = VecDeque::new();
    for story in stories::all() {
        let name = page::story(story.name);
        cases.push_back(Case { name, expected: story.expected, play: Box::new(story.play) });
    }
    for host in Nat::ALL {
        for joiner in Nat::ALL {
            let play = Box::new(move || pairs::play(host, joiner));
            let name = page::pair(host, joiner);
            cases.push_back(Case { name, expected: pairs::expected(host, joiner), play });
        }
    }
    if let Ok(only) = std::env::var(ONLY) {
        cases.retain(|case| case.name.join(" / ").contains(&only));
        assert!(!cases.is_empty(), "no case is named like {only:?}");
    }
    cases
}

/// Plays cases until none is left; what broke is no finding, but told by its panic.
fn work(cases: &Mutex<VecDeque<Case>>, found: &Mutex<Vec<(Name, End, Option<Finding>)>>) {
    loop {
        let next = cases.lock().expect("nobody panics with it").pop_front();
        let Some(Case { name, expected, play }) = next else { return };
        let finding = catch_unwind(AssertUnwindSafe(play)).ok();
        found.lock().expect("nobody panics with it").push((name, expected, finding));
    }
}

#[test]
fn every_case_ends_as_expected() {
    if let Some(obstacle) = namespace::obstacle() {
        assert!(!std::env::var(REQUIRED).is_ok_and(|it| it == "required"), "no NAT lab: {obstacle}");
        // Not by a macro, whose output a test that passes keeps to itself.
        let _ = writeln!(std::io::stderr(), "the NAT lab is skipped: {obstacle}");
        return;
    }
    let (cases, found) = (Mutex::new(cases()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| work(&cases, &found));
        }
    });
    let mut wrong = Vec::new();
    let mut findings = BTreeMap::new();
    for (name, expected, finding) in found.into_inner().expect("all threads ended well") {
        let title = name.join(" / ").trim_end_matches(" / ").to_owned();
        let Some(finding) = finding else {
            wrong.push(format!("{title}: broke off, see above"));
            continue;
        };
        let ms = finding.connected_after_ms.map_or_else(String::new, |ms| format!(", {ms:.1} ms"));
        println!("{title}: {:?}{ms}", finding.end);
        if finding.end != expected {
            wrong.push(format!("{title}: {:?}, expected {expected:?}", finding.end));
        }
        findings.insert(name, finding);
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    if std::env::var(WRITE).is_ok_and(|it| it == "write") {
        page::write(&findings);
    }
}
