//! A joiner's process: its datagrams, and what its machine tells.

use core::time::Duration;
use std::net::SocketAddr;

use rand::RngExt;
use rendezvous_client::joiner::JoinerEvent;
use rendezvous_client::{AttemptEvent, Machine};
use rendezvous_shared::id::Role;
use rendezvous_shared::store::{Report, Reporter, Transition};
use rendezvous_shared::wire::ReportResult;

use super::World;
use super::control::Asker;
use super::joiner::{JoinerAgent, Player, Stage};
use super::net::NodeId;

/// How long a joiner stays once all is calm and it is connected.
const STAY: Duration = Duration::from_secs(3);

impl World {
    /// Sends what joiner `at` wants sent, and hears what it tells.
    pub(crate) fn drain_joiner(&mut self, at: usize) {
        let machine = |world: &mut Self| match &mut world.joiners.get_mut(&at)?.player {
            Player::Machine(machine) => Some(machine.poll_transmit()?),
            _ => None,
        };
        while let Some(transmit) = machine(self) {
            self.send(self.joiners[&at].node, transmit.to, transmit.bytes());
        }
        let event = |world: &mut Self| match &mut world.joiners.get_mut(&at)?.player {
            Player::Machine(machine) => machine.poll_event(),
            _ => None,
        };
        while let Some(event) = event(self) {
            self.log.line(self.now, format_args!("joiner{at} {event:?}"));
            self.on_joiner_event(at, &event);
        }
        let over = |it: &JoinerAgent| matches!(&it.player, Player::Machine(machine) if machine.is_over());
        if self.joiners.get(&at).is_some_and(over) {
            self.joiner_gone(at);
        }
    }

    fn on_joiner_event(&mut self, at: usize, event: &JoinerEvent) {
        let now = self.now;
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        let (node, caller) = (joiner.node, joiner.caller);
        let Some(attempt) = joiner.attempt else { return };
        match event {
            JoinerEvent::ChangePort if self.hosts.iter().all(|host| !host.is_at(node)) => {
                self.net.change_port(node)
            }
            JoinerEvent::InstanceChanged { .. } if joiner.job.is_none() => {
                joiner.stage = Stage::Asking;
                joiner.wake_at = now;
            }
            JoinerEvent::Attempt(event) => {
                if let AttemptEvent::Connected { .. } = event {
                    joiner.leaves_at = now.after(STAY);
                }
                self.on_attempt_event(node, attempt, Role::Joiner, event);
                if matches!(event, AttemptEvent::PeerSilent) && self.rng.random_bool(0.2) {
                    let reporter = Reporter::Caller(caller);
                    let result = ReportResult::Aborted;
                    self.ask(Asker::Nobody, Transition::Report(Report { reporter, attempt, result }));
                }
            }
            JoinerEvent::ChangePort
            | JoinerEvent::ChangeSecondPort
            | JoinerEvent::Proved { .. }
            | JoinerEvent::InstanceChanged { .. } => {}
        }
    }

    /// A datagram reaches joiner `at`.
    pub(crate) fn joiner_hears(&mut self, at: usize, node: NodeId, from: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        match &mut joiner.player {
            Player::Machine(machine) => machine.handle_datagram(now.after(joiner.clock_ahead), from, bytes),
            Player::Rogue(rogue) => rogue.hear(node != joiner.node, bytes),
            Player::Nobody => {}
        }
        self.drain_joiner(at);
    }
}
