//! The server's threads at work: turns of the rings, rounds of the store, and the oracle's look at both.

use core::time::Duration;

use rendezvous_shared::counter::Label;
use rendezvous_shared::outcome::{ConflictReason, DatagramOutcome, IntroductionResult, Refusal};
use rendezvous_shared::store::{BindAnswer, DrainView, EphemeralRendezvousStore, Reply, Transition};
use rendezvous_shared::time::Instant;

use super::World;
use super::control::Call;
use super::ring::{self, Turn};

/// Rounds of the store between two looks at all of it.
const AUDIT_ROUNDS: u64 = 12;
/// Rounds of the store between two checks of its invariants.
const INVARIANT_ROUNDS: u64 = 8;
/// HTTP transitions applied in one round.
const HTTP_BURST_MAX: usize = 4;

impl World {
    /// The server's threads do what is due.
    pub(super) fn serve(&mut self) {
        let Some(server) = &self.server else { return };
        let rings: Vec<usize> =
            (0..server.rings.len()).filter(|ring| server.ring_at(self.now, *ring) <= self.now).collect();
        let round = server.store_at(self.now) <= self.now;
        rings.into_iter().for_each(|ring| self.ring_turn(ring));
        if round {
            self.store_round();
        }
    }

    fn ring_turn(&mut self, ring: usize) {
        let Some(server) = &mut self.server else { return };
        let mut turn = Turn::new(server.clock(self.now), &mut self.oracle);
        server.rings[ring].turn(&mut turn);
        let Turn { out, ends, .. } = turn;
        if !ends.is_empty() {
            self.log.line(self.now, format_args!("ring{ring} {}", ring::names(&ends)));
        }
        ends.into_iter().for_each(|end: DatagramOutcome| self.reached.datagrams.count(end));
        for datagram in out {
            self.record(datagram.from, datagram.to, &datagram.bytes);
            self.fly(datagram.from, datagram.to, datagram.bytes);
        }
    }

    /// One round of the store thread: operators, some of the others, what the rings sent.
    fn store_round(&mut self) {
        let Some(server) = &mut self.server else { return };
        server.begin_round(self.now);
        let now = server.clock(self.now);
        server.expire(now);
        let mut calls: Vec<Call> = server.operator.drain(..).collect();
        let burst = server.http.len().min(HTTP_BURST_MAX);
        calls.extend(server.http.drain(..burst));
        calls.iter().for_each(|call| self.serve_call(call));
        for ring in 0..self.plan.rings {
            while let Some(mut batch) =
                self.server.as_mut().and_then(|it| it.rings[ring].to_store.pop_front())
            {
                let Some(server) = &mut self.server else { return };
                server.store.apply(now, &batch.transitions, &mut batch.replies);
                for (transition, reply) in batch.transitions.iter().zip(&batch.replies) {
                    self.on_applied(now, transition, reply);
                }
                let Some(server) = &mut self.server else { return };
                server.rings[ring].from_store.push_back(batch);
            }
        }
        self.look_at_store(now);
    }

    fn look_at_store(&mut self, now: Instant) {
        let Some(server) = &mut self.server else { return };
        let settled = server.store.next_deadline().is_none_or(|at| at > now);
        self.oracle.check_stats(now, &server.store.stats(), settled);
        if server.rounds.is_multiple_of(AUDIT_ROUNDS) {
            self.oracle.audit(now, &mut server.store);
        }
        if server.rounds.is_multiple_of(INVARIANT_ROUNDS) {
            server.store.check_invariants();
        }
    }

    /// The store answered: counted and judged.
    pub(super) fn on_applied(&mut self, now: Instant, transition: &Transition, reply: &Reply) {
        self.reached.transitions.count(reply.kind());
        match reply {
            Reply::Refused(Refusal::Conflict(reason)) => self.reached.conflicts.count(*reason),
            Reply::Refused(Refusal::StaleVersion { .. }) => {
                self.reached.conflicts.count(ConflictReason::StaleVersion);
            }
            // Whoever ordered it ends the process when it is done, unless this world ends with it.
            Reply::Drain(DrainView::Draining { deadline, .. }) if self.mischief_at != Instant::MAX => {
                let done = self.now.after(deadline.since(now) + Duration::from_secs(2));
                self.stop_at = self.stop_at.min(done);
            }
            Reply::Refused(Refusal::CapacityExceeded(pool)) => self.reached.pools.count(*pool),
            Reply::Refused(Refusal::QuotaExceeded(scope)) => self.reached.quotas.count(*scope),
            _ => {}
        }
        if let Transition::Bind(bind) = transition {
            match reply {
                Reply::Bind(BindAnswer::Introduced { .. }) => {
                    self.reached.introductions.count(IntroductionResult::Introduced);
                }
                Reply::Bind(BindAnswer::Replayed { .. }) => {
                    self.reached.introductions.count(IntroductionResult::Replayed)
                }
                Reply::Refused(_) => self.reached.introductions.count(IntroductionResult::Refused),
                _ => {}
            }
            self.log.line(self.now, format_args!("bind {} {:?} {reply:?}", bind.attempt, bind.proof.source));
        } else if let Reply::Refused(refusal) = reply {
            self.log.line(self.now, format_args!("{} {refusal:?}", transition.kind().name()));
        }
        self.oracle.on_reply(now, transition, reply);
    }
}
