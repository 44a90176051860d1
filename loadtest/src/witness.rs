//! Stands between a machine and its socket and notes what passes: each INTRODUCE, also those the machine ignores as
//! repeats, and the number of datagrams to the server.

use std::net::SocketAddr;

use rendezvous_client::{Machine, Transmit};
use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Answer, parse_answer};

use crate::ledger::Shared;

/// A machine under watch.
pub(crate) struct Witness<M> {
    machine: M,
    role: Role,
    server: SocketAddr,
    ledger: Shared,
}

impl<M> Witness<M> {
    pub(crate) const fn new(machine: M, role: Role, server: SocketAddr, ledger: Shared) -> Self {
        Self { machine, role, server, ledger }
    }

    pub(crate) const fn inner_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M: Machine> Machine for Witness<M> {
    type Event = M::Event;

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        if from == self.server
            && let Ok(Answer::Introduce(it)) = parse_answer(bytes)
        {
            let peer = it.body.peer.get().map(SocketAddr::from);
            let attempt = AttemptId::from_bytes(it.body.attempt);
            self.ledger.borrow_mut().witnessed(self.role, attempt, peer);
        }
        self.machine.handle_datagram(now, from, bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.machine.poll_transmit()?;
        if transmit.to == self.server {
            self.ledger.borrow_mut().datagrams_sent += 1;
        }
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    fn next_timeout(&self) -> Instant {
        self.machine.next_timeout()
    }

    fn wants_new_port(event: &M::Event) -> bool {
        M::wants_new_port(event)
    }
}
