//! A host's process: its datagrams, what its machine tells, its crashes and goodbyes.

use core::time::Duration;
use std::net::SocketAddr;

use rand::RngExt;
use rendezvous_client::Machine;
use rendezvous_client::host::{Host, HostEvent};
use rendezvous_shared::id::Role;
use rendezvous_shared::time::Instant;

use super::World;
use super::host::{HostAgent, Job};
use super::net::NodeId;
use crate::reached::Fault;

impl World {
    /// Sends what host `at` wants sent, and hears what it tells.
    pub(crate) fn drain_host(&mut self, at: usize) {
        while let Some(transmit) = self.hosts[at].machine.as_mut().and_then(Machine::poll_transmit) {
            self.send(self.hosts[at].node, transmit.to, transmit.bytes());
        }
        while let Some(event) = self.hosts[at].machine.as_mut().and_then(Machine::poll_event) {
            self.log.line(self.now, format_args!("host{at} {event:?}"));
            self.on_host_event(at, &event);
        }
        self.drain_twin(at);
    }

    fn on_host_event(&mut self, at: usize, event: &HostEvent) {
        let spread = Duration::from_millis(self.rng.random_range(0..250));
        let now = self.now;
        let leaves = matches!(event, HostEvent::Closed { .. }) && self.chance(Fault::HostLeaves);
        let host = &mut self.hosts[at];
        match event {
            HostEvent::ChangePort => {
                let node = host.node;
                self.net.change_port(node);
                let lan = self.net.lan_of(node);
                if let Some(machine) = &mut self.hosts[at].machine {
                    machine.set_lan([lan, None]);
                }
            }
            HostEvent::InstanceChanged { .. } => {
                host.renew_at = host.renew_at.min(now.after(spread).max(host.renew_earliest));
            }
            HostEvent::PresenceRefused(refused) if refused.is_gone() => {
                host.renew_at = host.renew_at.min(now.after(spread).max(host.renew_earliest));
            }
            HostEvent::AttemptsPending => host.pending_wanted = true,
            HostEvent::Attempt { attempt, event } => {
                let node = host.node;
                self.on_attempt_event(node, *attempt, Role::Host, event);
            }
            HostEvent::Closed { .. } if leaves || host.listing.is_none() => host.stop(),
            HostEvent::Closed { .. } => self.host_asks(at, Job::Delete),
            HostEvent::PresenceRefused(_)
            | HostEvent::Refreshed { .. }
            | HostEvent::ChangeSecondPort
            | HostEvent::Draining => {}
        }
    }

    /// Sends what the twin of host `at` wants sent, and hears what it tells; the lease is the other's business.
    fn drain_twin(&mut self, at: usize) {
        let Some(node) = self.hosts[at].twin.as_ref().map(|(node, _)| *node) else { return };
        while let Some(transmit) = self.hosts[at].twin().and_then(Machine::poll_transmit) {
            self.send(node, transmit.to, transmit.bytes());
        }
        while let Some(event) = self.hosts[at].twin().and_then(Machine::poll_event) {
            self.log.line(self.now, format_args!("host{at} twin {event:?}"));
            match event {
                HostEvent::ChangePort => self.net.change_port(node),
                HostEvent::Attempt { attempt, event } => {
                    self.on_attempt_event(node, attempt, Role::Host, &event);
                }
                _ => {}
            }
        }
    }

    /// Kills host `at`; it comes back later, on another port.
    pub(crate) fn crash_host(&mut self, at: usize) {
        let back = self.now.after(Duration::from_millis(self.rng.random_range(500..15_000)));
        let host = &mut self.hosts[at];
        host.returns_at = back;
        host.down_until = back;
        let listing = host.listing;
        host.stop();
        if listing.is_some() && self.rng.random_bool(0.5) {
            host.listing = listing;
            host.resumes = true;
            host.register_at = Instant::MAX;
            host.renew_at = back;
        }
        let node = host.node;
        self.net.change_port(node);
    }

    /// Host `at` says BYE and deletes its listing; unless `for_good` it comes back later.
    pub(crate) fn close_host(&mut self, at: usize, for_good: bool) {
        let back = self.now.after(Duration::from_millis(self.rng.random_range(3_000..10_000)));
        let now = self.now;
        let host = &mut self.hosts[at];
        host.closed |= for_good;
        host.returns_at = if host.closed { Instant::MAX } else { back };
        if core::mem::replace(&mut host.leaving, true) {
            return;
        }
        host.register_at = Instant::MAX;
        host.renew_at = Instant::MAX;
        host.job = None;
        host.pending_wanted = false;
        // BYE ends the presence in both families, so the twin stops first.
        host.stop_twin();
        let own = host.clock(now);
        match &mut host.machine {
            Some(machine) => machine.close(own),
            None => host.stop(),
        }
        self.drain_host(at);
    }

    /// A datagram reaches host `at`.
    pub(crate) fn host_hears(&mut self, at: usize, node: NodeId, from: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        let host = &mut self.hosts[at];
        if now < host.frozen_until {
            return;
        }
        let own = host.clock(now);
        let machine = if node == host.node { host.machine.as_mut() } else { host.twin() };
        if let Some(machine) = machine {
            machine.handle_datagram(own, from, bytes);
        }
        self.drain_host(at);
    }
}

impl HostAgent {
    /// Whether `node` is one of its sockets.
    pub(crate) fn is_at(&self, node: NodeId) -> bool {
        self.node == node || self.twin.as_ref().is_some_and(|(twin, _)| *twin == node)
    }

    fn twin(&mut self) -> Option<&mut Host> {
        self.twin.as_mut()?.1.as_mut()
    }

    /// The machine in the other family ends.
    pub(super) fn stop_twin(&mut self) {
        if let Some((_, twin)) = &mut self.twin {
            *twin = None;
        }
    }
}
