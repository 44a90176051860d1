//! What hosts and joiners tell of their peers, held against what the oracle knows.

use std::net::SocketAddr;

use rendezvous_client::AttemptEvent;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, Role};

use super::World;
use super::net::{NodeId, is_lan};
use crate::oracle::broken;

impl World {
    /// What either side of an attempt tells must be so.
    pub(crate) fn on_attempt_event(
        &mut self,
        node: NodeId,
        attempt: AttemptId,
        role: Role,
        event: &AttemptEvent,
    ) {
        match event {
            AttemptEvent::Introduced { peer } => {
                let told = self.oracle.peer_told(attempt, role);
                // After a restart nothing is left to compare with: a datagram may still be on its way.
                if told.is_some_and(|told| Endpoint::from(*peer) != told.peer) {
                    broken(
                        "a peer is told of the right peer only",
                        format_args!("{attempt} {peer} {told:?}"),
                    );
                }
                self.introduced_to(attempt, role);
            }
            AttemptEvent::Connected { peer, .. } => self.check_connected(node, attempt, role, *peer),
            _ => {}
        }
    }

    /// Both ends of a link say that they hear each other: they must be the ends of one attempt.
    pub(crate) fn check_connected(&mut self, node: NodeId, attempt: AttemptId, role: Role, peer: SocketAddr) {
        let joiner = self.joiners.iter_mut().find(|(_, it)| it.attempt == Some(attempt));
        let Some((_, joiner)) = joiner else { return };
        let at = self.net.owner(peer);
        let right = match role {
            Role::Host => at == Some(joiner.node),
            Role::Joiner => at.is_some_and(|at| self.hosts.iter().any(|host| host.is_at(at))),
        };
        if !right || at == Some(node) {
            broken(
                "a link connects the two peers of an attempt",
                format_args!("{attempt} {role:?} {peer} is {at:?}"),
            );
        }
        joiner.connected |= role == Role::Joiner;
        self.reached.connected += u64::from(role == Role::Joiner);
        self.reached.met_on_lan += u64::from(is_lan(peer));
    }

    /// A side was told of its peer.
    pub(crate) fn introduced_to(&mut self, attempt: AttemptId, role: Role) {
        let joiner = self.joiners.values_mut().find(|it| it.attempt == Some(attempt));
        if let Some(joiner) = joiner.filter(|_| role == Role::Joiner) {
            joiner.introduced = true;
        }
    }
}
