//! Whom a datagram came from, whom it was for, and where the answer leaves from.

use std::net::SocketAddr;

use rendezvous_net::{EngineKind, EngineOptions, OpenError, SocketOptions, bind, open, wake_pair};

use crate::kit::{World, heard, peer_to};

/// Asks at `target`; the connected peer hears the answer only if it leaves from there.
fn ask(world: &mut World, target: &str) {
    let peer = peer_to(target, world.port());
    peer.send(b"who is there").unwrap();
    let meta = world.echo(1)[0];
    assert_eq!(meta.source, peer.local_addr().unwrap());
    assert_eq!(meta.local, Some(target.parse().unwrap()));
    assert_eq!(heard(&peer), b"who is there");
}

pub(crate) fn dual_stack_gives_canonical_ipv4(kind: EngineKind) {
    let mut world = World::new(kind, "[::]:0");
    let peer = peer_to("127.0.0.1", world.port());
    peer.send(b"x").unwrap();
    let meta = world.echo(1)[0];
    assert!(matches!(meta.source, SocketAddr::V4(_)));
    assert_eq!(heard(&peer), b"x");
}

pub(crate) fn wildcard_answers_from_the_address_asked(kind: EngineKind) {
    let mut world = World::new(kind, "0.0.0.0:0");
    for target in ["127.0.0.1", "127.0.0.2", "127.9.9.9", "127.0.0.2"] {
        ask(&mut world, target);
    }
    assert_eq!(world.engine.counters().send_errors.total(), 0);
}

pub(crate) fn dual_stack_answers_from_the_address_asked(kind: EngineKind) {
    let mut world = World::new(kind, "[::]:0");
    for target in ["127.0.0.2", "::1", "127.0.0.3"] {
        ask(&mut world, target);
    }
    assert_eq!(world.engine.counters().send_errors.total(), 0);
}

pub(crate) fn a_bound_address_needs_no_packet_info(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.2:0");
    let peer = peer_to("127.0.0.2", world.port());
    peer.send(b"x").unwrap();
    assert_eq!(world.echo(1)[0].local, None);
    assert_eq!(heard(&peer), b"x");
}

/// An engine without control messages would answer from whatever address the route has.
pub(crate) fn a_wildcard_is_refused(kind: EngineKind) {
    for wildcard in ["0.0.0.0:0", "[::]:0"] {
        let (gate, _waker) = wake_pair().unwrap();
        let socket = bind(wildcard.parse().unwrap(), SocketOptions::default()).unwrap();
        let bound = socket.local_addr();
        let refused = open(kind, socket, &gate, EngineOptions::default()).err().unwrap();
        assert!(matches!(refused, OpenError::Wildcard { address, .. } if address == bound), "{refused}");
        assert!(refused.to_string().contains(&bound.to_string()), "{refused}");
    }
}
