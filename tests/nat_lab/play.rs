//! One meeting of two players, and what came of it.

use std::time::Duration;

use rendezvous_shared::endpoint::is_lan_candidate;
use rendezvous_testkit::clock::wait_for;
use rendezvous_testkit::process::Running;

use crate::SOON;
use crate::ground::{Ground, Machine};

/// A join that fails takes until its attempt is over, 20 s, and the time to say so.
const JOIN_MAX: Duration = Duration::from_secs(60);

/// Where the peers reached each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    /// At the endpoints the server saw.
    Public,
    /// One of them at a port that only its punch showed.
    PortLearnt,
    /// At private addresses.
    Lan,
    /// Over IPv6.
    Ipv6,
}

/// How a meeting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peers talked.
    Connected(Path),
    /// They did not, and the control plane gives this reason.
    Failed(String),
}

impl End {
    /// As the page shows it: result, and path or reason.
    pub(crate) fn columns(&self) -> [String; 2] {
        match self {
            Self::Connected(path) => {
                let path = match path {
                    Path::Public => "public endpoints",
                    Path::PortLearnt => "public, a port learnt from a punch",
                    Path::Lan => "LAN",
                    Path::Ipv6 => "IPv6",
                };
                ["connects".into(), path.into()]
            }
            Self::Failed(reason) => ["does not".into(), format!("`{reason}`")],
        }
    }
}

/// What one joiner saw.
pub(crate) struct Meeting {
    pub(crate) end: End,
    /// From the creation of the attempt until both sides heard each other.
    pub(crate) connected_after_ms: Option<f64>,
    /// The host's endpoint, as the server told it.
    pub(crate) host_endpoint: Option<String>,
}

/// Starts a host, and waits until it is registered.
pub(crate) fn host(machine: &Machine, arguments: &[&str]) -> Running {
    let mut host = machine.start("host", arguments);
    host.expect(SOON, "its listing", |line| line.starts_with("listed as lst_"));
    host
}

/// Has `machine` join the only listing there is, and waits for the end of that.
pub(crate) fn join(ground: &Ground, host: &mut Running, machine: &Machine, arguments: &[&str]) -> Meeting {
    let (_, lines) = machine.start("join", arguments).wait(JOIN_MAX);
    let Some(attempt) = after(&lines, "attempt ") else { panic!("no attempt: {lines:#?}") };
    let attempt = attempt.split(' ').next().unwrap_or_default().to_owned();
    let host_endpoint = after(&lines, "introduced to ");
    let (Some(told), Some(reached)) = (host_endpoint.as_ref(), after(&lines, "connected to ")) else {
        return Meeting {
            end: End::Failed(reason(ground, &attempt)),
            connected_after_ms: None,
            host_endpoint,
        };
    };
    let prefix = format!("{attempt}: connected to ");
    if after(host.seen(), &prefix).is_none() {
        host.expect(SOON, "the joiner", |line| line.starts_with(&prefix));
    }
    let seen = host.seen();
    let their_told = after(seen, &format!("{attempt}: introduced to ")).expect("introduced before connected");
    let their_reached = after(seen, &prefix).expect("it was awaited");
    let path = path(told, &reached).max(path(&their_told, &their_reached));
    let times = lines.iter().find(|line| line.starts_with("introduced after ")).expect("times are told");
    let connected_after_ms = times.rsplit(' ').nth(1).and_then(|ms| ms.parse().ok());
    Meeting { end: End::Connected(path), connected_after_ms, host_endpoint }
}

/// The rest of the first line that starts with `prefix`.
fn after(lines: &[String], prefix: &str) -> Option<String> {
    lines.iter().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned)
}

fn path(told: &str, reached: &str) -> Path {
    let endpoint = |text: &str| text.parse::<std::net::SocketAddr>().expect("an endpoint");
    let (told, reached) = (endpoint(told), endpoint(reached));
    if reached.is_ipv6() {
        Path::Ipv6
    } else if is_lan_candidate(reached.into()) {
        Path::Lan
    } else if told == reached {
        Path::Public
    } else {
        Path::PortLearnt
    }
}

/// Why the attempt ended, once it did.
fn reason(ground: &Ground, attempt: &str) -> String {
    wait_for(JOIN_MAX, "the end of an attempt", || {
        let answer = ground.call(&format!("/v1/attempts/{attempt}"));
        let body: serde_json::Value = serde_json::from_str(&answer.body).expect("it is JSON");
        body["reason"].as_str().map(str::to_owned)
    })
}
