//! The sans-IO datagram handler: what a received datagram comes to, and what the store's reply becomes.
//!
//! Checks go from cheap to dear: length, magic, version, type and fields; source address; key; cookie; sequence;
//! MAC. Until the MAC is verified nothing is remembered and, HELLO apart, nothing answered. What passes becomes a
//! [`Transition`]: only the store decides.

mod admit;
mod answer;
mod ceiling;
mod cookie;
mod repeats;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use rendezvous_shared::credential::{KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::{AddressPolicy, Endpoint, Mapping};
use rendezvous_shared::id::{AttemptId, InstanceId, Role, SessionId};
use rendezvous_shared::outcome::{ConflictReason, DatagramOutcome, Refusal};
use rendezvous_shared::store::{
    Bind, BindAnswer, Candidates, DatagramProof, EndPresence, Introduction, RefreshPresence, Reply, Report,
    Reporter, Transition,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Hello, Proof, Request};

pub use answer::Answer;
use ceiling::Ceiling;
pub use cookie::Cookies;
pub use repeats::DueRepeat;
use repeats::Repeats;

/// A received datagram with its addressing.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Where it came from.
    pub source: SocketAddr,
    /// The local address that was asked, when the socket is bound to a wildcard.
    pub local: Option<IpAddr>,
    /// Whether the kernel cut it off.
    pub truncated: bool,
    /// Its payload, in the engine's buffer.
    pub bytes: &'a [u8],
}

/// What a datagram comes to.
#[derive(Debug)]
pub enum Action {
    /// Nothing is answered.
    Silence(DatagramOutcome),
    /// Answered at once.
    Answer(Answer, DatagramOutcome),
    /// For the store to decide; give [`Handler::on_reply`] the rest with its reply.
    Submit(Transition, Pending),
}

/// What is remembered of a datagram while the store decides.
#[derive(Clone, Debug)]
pub struct Pending {
    request: RequestKind,
    source: Endpoint,
    local: Option<IpAddr>,
    key_id: KeyId,
    /// The secret that made its MAC, and makes the answer's.
    secret: Secret,
    session: SessionId,
    sequence: u64,
}

/// What the answer must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Presence,
    Bye,
    Bind(AttemptId),
    Report(AttemptId),
}

/// What a reply of the store becomes.
#[derive(Debug)]
pub struct Settled {
    /// The end of the datagram.
    pub outcome: DatagramOutcome,
    /// For its sender.
    pub answer: Option<Answer>,
    /// For somebody else who has proved an address: the other peer, or the host to be told.
    pub unasked: Option<Answer>,
}

/// Fixed properties of a handler.
#[derive(Clone, Copy, Debug)]
pub struct HandlerOptions {
    /// This start of the server.
    pub instance: InstanceId,
    /// The address the socket is bound to.
    pub bound: SocketAddr,
    /// Which sources are served.
    pub policy: AddressPolicy,
    /// Answers a second to unproved addresses.
    pub unproved_per_second: u32,
}

/// Turns datagrams into transitions, and replies into answers.
pub struct Handler {
    options: HandlerOptions,
    master: MasterKey,
    cookies: Cookies,
    ceiling: Ceiling,
    repeats: Repeats,
}

impl Handler {
    /// A handler for one socket. All that it will ever allocate is allocated here.
    #[must_use]
    pub fn new(options: HandlerOptions, master: MasterKey) -> Self {
        let cookies = Cookies::new(&master, options.bound.port());
        Self {
            options,
            master,
            cookies,
            ceiling: Ceiling::new(options.unproved_per_second),
            repeats: Repeats::new(),
        }
    }

    /// What `received` comes to at `now`.
    pub fn on_datagram(&mut self, now: Instant, received: &Received<'_>) -> Action {
        match self.judge(now, received) {
            Ok(action) => action,
            Err(outcome) => Action::Silence(outcome),
        }
    }

    fn judge(&mut self, now: Instant, received: &Received<'_>) -> Result<Action, DatagramOutcome> {
        if received.truncated {
            return Err(DatagramOutcome::Oversized);
        }
        let request = wire::parse_request(received.bytes)?;
        let source = admit::admit(&self.options, received)?;
        let proof = match request.proof() {
            None => {
                let Request::Hello(hello) = request else { return Err(DatagramOutcome::BadType) };
                let known = hello.body.key_id.instance() == self.options.instance
                    && request.verify(&self.master.secret(&hello.body.key_id));
                return self.challenge(now, received, source, hello.body, known);
            }
            Some(proof) => proof,
        };
        let role = self.check_key(now, &request, proof)?;
        let cookie_issued = self.cookies.check(now, &proof.key_id, source, &proof.cookie)?;
        let sequence = proof.sequence.get();
        if sequence == 0 || sequence == u64::MAX {
            return Err(DatagramOutcome::BadSequence);
        }
        let secret = self.right(&proof.key_id, role, named_attempt(&request));
        if !request.verify(&secret) {
            return Err(DatagramOutcome::BadMac);
        }
        let proven = DatagramProof {
            key_id: proof.key_id,
            source,
            local: received.local,
            arrived: now,
            cookie_issued,
            session: proof.session(),
            sequence,
        };
        let (transition, request) = self.transition(now, &request, proven)?;
        let pending = Pending {
            request,
            source,
            local: received.local,
            key_id: proof.key_id,
            secret,
            session: proven.session,
            sequence,
        };
        Ok(Action::Submit(transition, pending))
    }

    /// Answers HELLO whoever sent it: an old key must learn of the new instance. A good MAC draws on the reserved
    /// half of the ceiling.
    fn challenge(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        source: Endpoint,
        hello: &Hello,
        known: bool,
    ) -> Result<Action, DatagramOutcome> {
        if !self.ceiling.allow(now, known) {
            return Err(DatagramOutcome::UnprovedCeiling);
        }
        let cookie = self.cookies.issue(now, &hello.key_id, source);
        let answer = Answer::challenge(source, received.local, hello.nonce, self.options.instance, cookie);
        Ok(Action::Answer(answer, DatagramOutcome::Challenged))
    }

    /// A key of this instance, not past its end, of a role that sends this type.
    fn check_key(&self, now: Instant, request: &Request<'_>, proof: &Proof) -> Result<Role, DatagramOutcome> {
        let role = proof.key_id.role().ok_or(DatagramOutcome::BadKey)?;
        let may_send = role == Role::Host || matches!(request, Request::Bind(_) | Request::Report(_));
        let live = proof.key_id.instance() == self.options.instance && proof.key_id.expires() > now;
        if may_send && live { Ok(role) } else { Err(DatagramOutcome::BadKey) }
    }

    /// The secret that `role` uses: its key's own, or for a host in an attempt the right derived from it.
    fn right(&self, key_id: &KeyId, role: Role, attempt: Option<AttemptId>) -> Secret {
        let secret = self.master.secret(key_id);
        match (role, attempt) {
            (Role::Host, Some(attempt)) => secret.attempt_right(attempt),
            _ => secret,
        }
    }

    fn transition(
        &self,
        now: Instant,
        request: &Request<'_>,
        proof: DatagramProof,
    ) -> Result<(Transition, RequestKind), DatagramOutcome> {
        Ok(match request {
            Request::Hello(_) => return Err(DatagramOutcome::BadType),
            Request::Presence(_) => {
                (Transition::RefreshPresence(RefreshPresence { proof }), RequestKind::Presence)
            }
            Request::Bye(_) => (Transition::EndPresence(EndPresence { proof }), RequestKind::Bye),
            Request::Bind(bind) => {
                let candidates = self.candidates(now, bind.body, &proof)?;
                let attempt = bind.body.attempt();
                let round_trip = Duration::from_millis(bind.body.rtt_ms.get().into());
                (
                    Transition::Bind(Bind {
                        proof,
                        attempt,
                        candidates,
                        round_trip,
                        mapping: Mapping::Unknown,
                    }),
                    RequestKind::Bind(attempt),
                )
            }
            Request::Report(report) => {
                let attempt = report.body.attempt();
                let result =
                    wire::ReportResult::from_byte(report.body.result).ok_or(DatagramOutcome::BadField)?;
                let reporter = Reporter::Datagram(proof);
                (Transition::Report(Report { reporter, attempt, result }), RequestKind::Report(attempt))
            }
        })
    }

    /// The further endpoints of a BIND: the second proved by a cookie of its own, the others private.
    fn candidates(
        &self,
        now: Instant,
        bind: &wire::Bind,
        proof: &DatagramProof,
    ) -> Result<Candidates, DatagramOutcome> {
        let second = bind.second.get();
        if let Some(second) = second {
            if second.family() == proof.source.family() {
                return Err(DatagramOutcome::BadField);
            }
            admit::admit_endpoint(&self.options, second)?;
            self.cookies.check(now, &proof.key_id, second, &bind.second_cookie)?;
        }
        let lan = bind.lan.map(|it| it.get());
        if !lan.into_iter().flatten().all(rendezvous_shared::endpoint::is_lan_candidate) {
            return Err(DatagramOutcome::BadField);
        }
        Ok(Candidates { second, lan })
    }

    /// What the store's reply to a submitted datagram becomes.
    pub fn on_reply(&mut self, now: Instant, pending: &Pending, reply: &Reply) -> Settled {
        self.cancel_repeats(pending, reply);
        match (pending.request, reply) {
            (_, Reply::Refused(refusal)) => self.refused(now, pending, *refusal),
            (RequestKind::Presence | RequestKind::Bye, Reply::Presence(grant)) => {
                let cookie = self.cookies.issue(now, &pending.key_id, pending.source);
                let outcome = match pending.request {
                    RequestKind::Bye => DatagramOutcome::ByeAccepted,
                    _ => DatagramOutcome::PresenceAccepted,
                };
                let unasked = grant.pending.map(|notice| self.notice(now, &notice, 1));
                Settled { outcome, answer: Some(Answer::presence(pending, cookie, grant)), unasked }
            }
            (RequestKind::Bind(attempt), Reply::Bind(answer)) => self.bound(now, pending, attempt, answer),
            (RequestKind::Report(_), Reply::Reported) => {
                let cookie = self.cookies.issue(now, &pending.key_id, pending.source);
                let answer = Some(Answer::reported(pending, cookie));
                Settled { outcome: DatagramOutcome::ReportAccepted, answer, unasked: None }
            }
            // A reply of another kind than asked for is the store's defect; the sender learns `unavailable`.
            _ => self.refused(now, pending, Refusal::ServiceUnavailable),
        }
    }

    /// Whoever answers, or learns that the attempt is over, needs no repeats. A replayed datagram, or a key that
    /// is not of this attempt, stops nothing.
    fn cancel_repeats(&mut self, pending: &Pending, reply: &Reply) {
        let (RequestKind::Bind(attempt) | RequestKind::Report(attempt)) = pending.request else { return };
        let heard = match reply {
            Reply::Bind(_) | Reply::Reported => true,
            Reply::Refused(refusal) => matches!(
                refusal,
                Refusal::Expired
                    | Refusal::Conflict(ConflictReason::NoCommonFamily | ConflictReason::SameEndpoint)
            ),
            _ => false,
        };
        if let Some(role) = pending.key_id.role().filter(|_| heard) {
            self.repeats.cancel(attempt, role);
        }
    }

    fn bound(&mut self, now: Instant, pending: &Pending, attempt: AttemptId, answer: &BindAnswer) -> Settled {
        let cookie = self.cookies.issue(now, &pending.key_id, pending.source);
        let told = |handler: &mut Self, own: &Introduction| {
            let punch = handler.master.punch_secret(own.attempt);
            Answer::introduce(pending.source, pending.local, &pending.secret, punch, cookie, own)
        };
        match answer {
            BindAnswer::Waiting { peer_bound, remaining, notice } => {
                let answer = Some(Answer::bound(pending, attempt, cookie, *peer_bound, *remaining));
                let unasked = notice.map(|notice| {
                    self.repeats.plan(now, attempt, Role::Host);
                    self.notice(now, &notice, 1)
                });
                Settled { outcome: DatagramOutcome::BindAccepted, answer, unasked }
            }
            BindAnswer::Replayed { own } => {
                let answer = Some(told(self, own));
                Settled { outcome: DatagramOutcome::Introduced, answer, unasked: None }
            }
            BindAnswer::Introduced { own, peer } => {
                let answer = Some(told(self, own));
                if let Some(role) = peer.key_id.role() {
                    self.repeats.plan(now, attempt, role);
                }
                let unasked = self.pushed(now, peer);
                Settled { outcome: DatagramOutcome::Introduced, answer, unasked }
            }
        }
    }

    /// A refusal is told to a proved sender with a good MAC, in words of the protocol; a replayed datagram gets
    /// silence.
    fn refused(&mut self, now: Instant, pending: &Pending, refusal: Refusal) -> Settled {
        let outcome = match refusal {
            Refusal::StaleSequence => {
                return Settled { outcome: DatagramOutcome::StaleSequence, answer: None, unasked: None };
            }
            Refusal::NotFound | Refusal::Revoked => DatagramOutcome::RefusedNotFound,
            Refusal::Expired => DatagramOutcome::RefusedExpired,
            Refusal::Conflict(_) | Refusal::StaleVersion { .. } => DatagramOutcome::RefusedConflict,
            Refusal::CapacityExceeded(_) => DatagramOutcome::RefusedCapacity,
            Refusal::QuotaExceeded(_) => DatagramOutcome::RefusedQuota,
            Refusal::Draining { .. } => DatagramOutcome::RefusedDraining,
            Refusal::ServiceUnavailable => DatagramOutcome::RefusedUnavailable,
        };
        let cookie = self.cookies.issue(now, &pending.key_id, pending.source);
        Settled { outcome, answer: Some(Answer::refusal(pending, cookie, refusal)), unasked: None }
    }
}

/// The attempt a request names, whose right its MAC must be made with.
fn named_attempt(request: &Request<'_>) -> Option<AttemptId> {
    match request {
        Request::Bind(it) => Some(it.body.attempt()),
        Request::Report(it) => Some(it.body.attempt()),
        Request::Hello(_) | Request::Presence(_) | Request::Bye(_) => None,
    }
}
