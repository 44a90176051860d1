//! Every kind of NAT against every other: what is expected, and how it is played.

use crate::ground::Ground;
use crate::nat::{Nat, Rules};
use crate::play::{self, End, Path};

/// What the control plane says of an attempt whose peers were introduced and did not hear each other.
pub(crate) const NOT_HEARD: &str = "peer_silent";

/// Meetings of a pair that connects; the page shows the median.
const MEETINGS: usize = 3;

/// What a case came to.
pub(crate) struct Finding {
    pub(crate) end: End,
    pub(crate) connected_after_ms: Option<f64>,
}

/// What is expected of a host behind the first and a joiner behind the second.
pub(crate) fn expected(host: Nat, joiner: Nat) -> End {
    use Nat::{AddressRestricted, EndpointDependent, FullCone, PortRestricted};
    match (host, joiner) {
        // The new port that one side opens towards the other is nowhere announced, and the other lets in only the
        // port that was: both ways are shut, whatever is sent.
        (EndpointDependent, EndpointDependent | PortRestricted) | (PortRestricted, EndpointDependent) => {
            End::Failed(NOT_HEARD.into())
        }
        // The side that lets in any port learns the new one from the first punch, and answers there.
        (EndpointDependent, _) | (_, EndpointDependent) => End::Connected(Path::PortLearnt),
        // Each sends from the port that was announced.
        (FullCone | AddressRestricted | PortRestricted, FullCone | AddressRestricted | PortRestricted) => {
            End::Connected(Path::Public)
        }
    }
}

/// Plays a host behind the first against a joiner behind the second, in two networks with the same private addresses.
pub(crate) fn play(host: Nat, joiner: Nat) -> Finding {
    let mut ground = Ground::new();
    let mut near = ground.router("192.168.1", Rules::of(host));
    let mut far = ground.router("192.168.1", Rules::of(joiner));
    let (host, joiner) = (near.machine(true, false), far.machine(true, false));
    let mut running = play::host(&host, &[]);
    let finding = repeat(|| play::join(&ground, &mut running, &joiner, &[]));
    no_stray(&ground);
    finding
}

/// Plays the same meeting a few times when it connects.
///
/// It must end the same way each time, but for one thing: where both sides' punches cross inside one router within
/// microseconds, Linux may take the peer's for the first of a flow and give ours another port. No way in the world is
/// that short, so the announced ports count if they served once.
pub(crate) fn repeat(mut meet: impl FnMut() -> play::Meeting) -> Finding {
    let first = meet();
    let mut end = first.end;
    let mut times: Vec<f64> = first.connected_after_ms.into_iter().collect();
    let rounds = if let End::Connected(_) = end { 1..MEETINGS } else { 0..0 };
    for _ in rounds {
        let next = meet();
        times.extend(next.connected_after_ms);
        let crossed = |end: &End| *end == End::Connected(Path::PortLearnt);
        let public = |end: &End| *end == End::Connected(Path::Public);
        match (&end, &next.end) {
            (one, other) if crossed(one) && public(other) => end = next.end,
            (one, other) if public(one) && crossed(other) => {}
            (one, other) => assert_eq!(one, other, "the same pair ends the same way each time"),
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    Finding { end, connected_after_ms: times.get(times.len() / 2).copied() }
}

/// The server sent nothing but CHALLENGE to an endpoint from which no proof came: not to a candidate that a client
/// named, not to anybody else.
pub(crate) fn no_stray(ground: &Ground) {
    assert!(ground.public.counted("from_server") > 0, "the counters see what the server sends");
    assert_eq!(ground.public.counted("strays"), 0, "datagrams to an endpoint that proved nothing");
}
