//! What is not a plain pair: shared networks, two families, lost datagrams, NATs and hosts that restart.

use std::time::Duration;

use rendezvous_testkit::clock::{pause, wait_for};

use crate::SOON;
use crate::ground::Ground;
use crate::nat::{Nat, Rules};
use crate::pairs::{Finding, NOT_HEARD, no_stray, repeat};
use crate::play::{self, End, Meeting, Path};

/// A case with its name on the page.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) expected: End,
    pub(crate) play: fn() -> Finding,
}

/// All of them, those that take longest first.
pub(crate) fn all() -> Vec<Story> {
    let story = |name, expected, play| Story { name, expected, play };
    let connected = End::Connected;
    let failed = |reason: &str| End::Failed(reason.into());
    vec![
        story("a mapping of the host's goes stale: it changes its port", connected(Path::Public), stale),
        story("the joiner's UDP is blocked", failed("expired"), blocked),
        story("the host's NAT restarts after its presence", connected(Path::Public), nat_restarts),
        story("two endpoint-dependent NATs; silence afterwards", failed(NOT_HEARD), silence),
        story("30 % of all datagrams lost, each way", connected(Path::Public), loss),
        story("the host restarts on another port", connected(Path::Public), host_restarts),
        story("one NAT without hairpin", connected(Path::Lan), || one_nat(false, &[])),
        story("one NAT without hairpin, LAN addresses not named", failed(NOT_HEARD), || {
            one_nat(false, &["--no-lan"])
        }),
        story("one NAT with hairpin, LAN addresses not named", connected(Path::Public), || {
            one_nat(true, &["--no-lan"])
        }),
        story("a carrier's NAT with hairpin, two homes", connected(Path::Public), || {
            carrier(true, ["192.168.1", "192.168.2"])
        }),
        story(
            "a carrier's NAT with hairpin, two homes with the same private addresses",
            connected(Path::Public),
            || carrier(true, ["192.168.1", "192.168.1"]),
        ),
        story("a carrier's NAT without hairpin, two homes", failed(NOT_HEARD), || {
            carrier(false, ["192.168.1", "192.168.2"])
        }),
        story("IPv6 only, on both sides", connected(Path::Ipv6), || families(Nat::PortRestricted, V6, V6)),
        story("endpoint-dependent NATs, and IPv6 on both sides", connected(Path::Ipv6), || {
            families(Nat::EndpointDependent, BOTH, BOTH)
        }),
        story("a host with both families, a joiner with IPv4 only", connected(Path::Public), || {
            families(Nat::PortRestricted, BOTH, V4)
        }),
        story("a host with both families, a joiner with IPv6 only", connected(Path::Ipv6), || {
            families(Nat::PortRestricted, BOTH, V6)
        }),
        story("a host with IPv6 only, a joiner with both families", connected(Path::Ipv6), || {
            families(Nat::PortRestricted, V6, BOTH)
        }),
        story("a host with IPv6 only, a joiner with IPv4 only", failed("no_common_family"), || {
            families(Nat::PortRestricted, V6, V4)
        }),
    ]
}

/// IPv4, IPv6.
type Has = (bool, bool);
const V4: Has = (true, false);
const V6: Has = (false, true);
const BOTH: Has = (true, true);

fn families(nat: Nat, host: Has, joiner: Has) -> Finding {
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", Rules::of(nat));
    let mut far = ground.router("192.168.2", Rules::of(nat));
    let (host, joiner) = (near.machine(host.0, host.1), far.machine(joiner.0, joiner.1));
    let mut running = play::host(&host, &[]);
    let finding = repeat(|| play::join(&ground, &mut running, &joiner, &[]));
    no_stray(&ground);
    finding
}

fn one_nat(hairpin: bool, arguments: &[&str]) -> Finding {
    let mut ground = Ground::new();
    let mut home = ground.router("192.168.1", Rules { hairpin, ..Rules::of(Nat::PortRestricted) });
    let (host, joiner) = (home.machine(true, false), home.machine(true, false));
    let mut running = play::host(&host, arguments);
    let finding = repeat(|| play::join(&ground, &mut running, &joiner, arguments));
    no_stray(&ground);
    finding
}

/// Both are seen behind one public address, so each is told the other's private addresses, which lead nowhere here or
/// to a stranger: in the second home they may even be its own.
fn carrier(hairpin: bool, lans: [&str; 2]) -> Finding {
    let mut ground = Ground::new();
    let mut carrier = ground.router("100.64.0", Rules { hairpin, ..Rules::of(Nat::PortRestricted) });
    let [mut near, mut far] = lans.map(|lan| carrier.router(lan, Rules::of(Nat::PortRestricted)));
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    let finding = repeat(|| play::join(&ground, &mut running, &joiner, &[]));
    no_stray(&ground);
    finding
}

fn blocked() -> Finding {
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", Rules::of(Nat::PortRestricted));
    let mut far = ground.router("192.168.2", Rules { udp_blocked: true, ..Rules::of(Nat::PortRestricted) });
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    let finding = repeat(|| play::join(&ground, &mut running, &joiner, &[]));
    no_stray(&ground);
    finding
}

fn loss() -> Finding {
    let rules = Rules { loss_percent: 30, ..Rules::of(Nat::PortRestricted) };
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", rules);
    let mut far = ground.router("192.168.2", rules);
    ground.lose(30);
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    // Half of all round trips fail. Of a hundred joins one does not get its first cookie before its attempt is over;
    // that two in a row do not would be another matter.
    repeat(|| match play::join(&ground, &mut running, &joiner, &[]) {
        Meeting { end: End::Failed(_), .. } => play::join(&ground, &mut running, &joiner, &[]),
        met => met,
    })
}

/// After both gave up, no punch is sent any more, although the host's program lives on.
fn silence() -> Finding {
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", Rules::of(Nat::EndpointDependent));
    let mut far = ground.router("192.168.2", Rules::of(Nat::EndpointDependent));
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    let finding = repeat(|| play::join(&ground, &mut running, &joiner, &[]));
    running.expect(SOON, "its giving up", |line| line.ends_with("the peer is silent"));
    let punches = ground.public.counted("between_peers");
    assert!(punches > 10, "{punches} punches: they tried");
    pause(Duration::from_secs(5));
    assert_eq!(ground.public.counted("between_peers"), punches, "punches after giving up");
    assert!(running.is_running(), "the host is there for the next joiner");
    no_stray(&ground);
    finding
}

/// The mappings of the host's NAT are lost, and new ones get other ports: the newest proved one is introduced.
fn nat_restarts() -> Finding {
    let rules = Rules::of(Nat::PortRestricted);
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", rules);
    let mut far = ground.router("192.168.2", rules);
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    let before = play::join(&ground, &mut running, &joiner, &[]).host_endpoint.expect("they were introduced");
    let presence = || {
        let answer = ground.call("/v1/listings?protocol=demo&owner=me");
        let body: serde_json::Value = serde_json::from_str(&answer.body).expect("it is JSON");
        body["listings"][0]["presence_remaining_ms"].as_u64()
    };
    // No port that the system gives to a socket is in this range, or the new mapping could be the old one.
    near.restart(Rules { ports: Some((20_000, 29_999)), ..rules });
    let mut last = presence().expect("the host is present");
    wait_for(SOON * 2, "presence through the new mapping", || {
        let left = presence()?;
        (left > std::mem::replace(&mut last, left)).then_some(())
    });
    assert!(ground.public.counted("from_new_ports") > 0, "it comes from the new range");
    ground.watch_old_port(&before);
    let finding = repeat(|| {
        let meeting = play::join(&ground, &mut running, &joiner, &[]);
        let port = port(meeting.host_endpoint.as_deref());
        assert!((20_000..30_000).contains(&port), "the newest proved port is introduced, not {port}");
        meeting
    });
    assert_eq!(ground.public.counted("to_old_port"), 0, "datagrams to the old mapping");
    no_stray(&ground);
    finding
}

/// The host's program dies and starts again: its new port is introduced at once, and the old one gets nothing.
fn host_restarts() -> Finding {
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", Rules::of(Nat::PortRestricted));
    let mut far = ground.router("192.168.2", Rules::of(Nat::PortRestricted));
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let slot = ["--slot", "one"];
    let mut running = play::host(&host, &slot);
    let before = play::join(&ground, &mut running, &joiner, &[]).host_endpoint.expect("they were introduced");
    running.kill();
    let mut running = play::host(&host, &slot);
    ground.watch_old_port(&before);
    let finding = repeat(|| {
        let meeting = play::join(&ground, &mut running, &joiner, &[]);
        assert_ne!(meeting.host_endpoint.as_ref(), Some(&before), "the new port is introduced");
        meeting
    });
    assert_eq!(ground.public.counted("to_old_port"), 0, "datagrams to the port of a dead host");
    let junk = [vec![0; 160], b"RDVZ\x01\x02\x00\xa0".iter().copied().chain([0; 152]).collect()];
    assert!(!joiner.is_answered(&junk), "what proves nothing is answered");
    no_stray(&ground);
    finding
}

/// A router holds a mapping that leads nowhere, and drops what comes from the host's port: another port gets through.
fn stale() -> Finding {
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", Rules::of(Nat::PortRestricted));
    let mut far = ground.router("192.168.2", Rules::of(Nat::PortRestricted));
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    let before = play::join(&ground, &mut running, &joiner, &[]).host_endpoint.expect("they were introduced");
    // The joiner is gone, and so is its link after four keep-alives; the host keeps its port until then.
    running.expect(Duration::from_secs(60), "the end of the link", |line| line.ends_with("the peer is gone"));
    let stale = port(Some(&before));
    near.space.nft(&format!("insert rule inet filter forward udp sport {stale} drop"));
    running.expect(Duration::from_secs(60), "another port", |line| line.contains("trying another port"));
    let finding = repeat(|| {
        let meeting = play::join(&ground, &mut running, &joiner, &[]);
        assert_ne!(port(meeting.host_endpoint.as_deref()), stale);
        meeting
    });
    no_stray(&ground);
    finding
}

fn port(endpoint: Option<&str>) -> u16 {
    let endpoint = endpoint.expect("they were introduced");
    endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an endpoint has a port")
}
