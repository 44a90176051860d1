//! The control plane as its callers and the store see it: requests and answers, both of which get lost.

use core::time::Duration;

use rand::RngExt;
use rendezvous_shared::outcome::{OutcomeKind, Refusal};
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, Transition};

use super::{Event, World};
use crate::reached::Fault;

/// How long a caller waits for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A host.
    Host(usize),
    /// A joiner.
    Joiner(usize),
    /// Somebody whom the answer does not interest.
    Nobody,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its number.
    pub(crate) id: u64,
    /// Who asks.
    pub(crate) asker: Asker,
    /// For what.
    pub(crate) transition: Transition,
    /// Whether it uses the operators' lane.
    pub(crate) operator: bool,
}

impl World {
    /// Sends a request; returns its number.
    pub(crate) fn ask(&mut self, asker: Asker, transition: Transition) -> u64 {
        self.count += 1;
        let id = self.count;
        let operator = matches!(transition, Transition::BeginDrain(_) | Transition::GetDrain);
        let call = Call { id, asker, transition, operator };
        self.log.line(self.now, format_args!("ask #{id} {asker:?} {:?}", call.transition));
        if matches!(call.transition, Transition::CreateAttempt(_) | Transition::RegisterListing(_)) {
            self.disturb_create(&call);
        }
        if self.chance(Fault::CallDuplicated) {
            self.send_call(Call { asker: Asker::Nobody, ..call.clone() }, Duration::ZERO);
        }
        if self.chance(Fault::CallLate) {
            let late = Duration::from_millis(self.rng.random_range(500..150_000));
            self.send_call(Call { asker: Asker::Nobody, ..call.clone() }, late);
        }
        if self.chance(Fault::CallLost) {
            self.log.line(self.now, format_args!("lost #{id}"));
        } else {
            self.send_call(call, Duration::ZERO);
        }
        id
    }

    /// The same key with another request, now or after the record's time.
    fn disturb_create(&mut self, call: &Call) {
        if !self.chance(Fault::KeyReused) {
            return;
        }
        let mut other = call.clone();
        match &mut other.transition {
            Transition::CreateAttempt(it) => it.idempotency.fingerprint[0] ^= 1,
            Transition::RegisterListing(it) => it.idempotency.fingerprint[0] ^= 1,
            _ => {}
        }
        other.asker = Asker::Nobody;
        let late = Duration::from_millis(self.rng.random_range(200..120_000));
        self.send_call(other, late);
    }

    fn send_call(&mut self, call: Call, late: Duration) {
        let at = self.now.after(late).after(self.latency());
        self.plan_event(at, Event::Call(Box::new(call)));
    }

    /// A request reaches the server.
    pub(crate) fn call_arrives(&mut self, call: Box<Call>) {
        let Some(server) = &mut self.server else { return };
        if let Err(call) = server.take_in(call) {
            self.reached.faults.count(Fault::TinyLane);
            self.reached.transitions.count(OutcomeKind::ServiceUnavailable);
            self.answer(&call, Reply::Refused(Refusal::ServiceUnavailable));
        }
    }

    /// Applies one request that waits.
    pub(crate) fn serve_call(&mut self, call: &Call) {
        // The asker gave up, and the server noticed or not.
        if !self.awaits(call.asker, call.id) && call.asker != Asker::Nobody && self.rng.random_bool(0.5) {
            self.log.line(self.now, format_args!("abandoned #{}", call.id));
            self.reached.transitions.count(OutcomeKind::Abandoned);
            return;
        }
        let Some(server) = &mut self.server else { return };
        let now = server.clock(self.now);
        let mut replies = Vec::new();
        server.store.apply(now, core::slice::from_ref(&call.transition), &mut replies);
        let Some(reply) = replies.pop() else {
            crate::oracle::broken("one reply for each transition", format_args!("{call:?}"));
        };
        self.log.line(self.now, format_args!("applied #{} {:?} {reply:?}", call.id, call.transition.kind()));
        self.on_applied(now, &call.transition, &reply);
        self.answer(call, reply);
    }

    fn answer(&mut self, call: &Call, reply: Reply) {
        if call.asker == Asker::Nobody {
            return;
        }
        if self.chance(Fault::AnswerLost) {
            self.log.line(self.now, format_args!("answer lost #{}", call.id));
            return;
        }
        let at = self.now.after(self.latency());
        let (asker, id) = (call.asker, call.id);
        self.plan_event(at, Event::Answer(asker, id, Box::new(reply)));
    }

    fn awaits(&self, asker: Asker, id: u64) -> bool {
        match asker {
            Asker::Host(host) => self.hosts[host].awaits(id),
            Asker::Joiner(joiner) => self.joiners.get(&joiner).is_some_and(|it| it.awaits(id)),
            Asker::Nobody => false,
        }
    }

    /// An answer reaches its asker, if that still waits for it.
    pub(crate) fn answer_arrives(&mut self, asker: Asker, id: u64, reply: Reply) {
        if !self.awaits(asker, id) {
            return;
        }
        match asker {
            Asker::Host(host) => self.host_answered(host, reply),
            Asker::Joiner(joiner) => self.joiner_answered(joiner, reply),
            Asker::Nobody => {}
        }
    }
}
