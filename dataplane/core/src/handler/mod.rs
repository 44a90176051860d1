//! The sans-IO datagram handler: what a received datagram comes to, and what the store's reply becomes.
//!
//! Checks go from cheap to dear: length, magic, version, type and fields; source address; key; cookie; sequence;
//! MAC; then the key's own budget. Until the MAC is verified nothing is remembered and, HELLO apart, nothing answered.
//! What passes becomes a [`Transition`]: only the store decides.

mod admit;
mod answer;
mod ceiling;
mod cookie;
mod judge;
mod keys;
mod load;
mod repeats;
mod self_probe;
mod sources;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use rendezvous_shared::credential::{KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::{AddressPolicy, Endpoint};
use rendezvous_shared::id::{AttemptId, InstanceId, Role, SessionId};
use rendezvous_shared::limits::{Limits, UNPROVED_ANSWERS_PER_SECOND};
use rendezvous_shared::outcome::{ConflictReason, DatagramOutcome, Refusal};
use rendezvous_shared::store::{BindAnswer, Introduction, Reply, Transition};
use rendezvous_shared::time::Instant;

pub use answer::Answer;
use ceiling::Ceiling;
pub use cookie::Cookies;
use keys::Keys;
pub use load::Load;
pub use repeats::DueRepeat;
use repeats::Repeats;
pub use self_probe::SelfProbe;
use sources::Sources;

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

impl Pending {
    /// Whether "not found" means the key itself, and not an attempt that it named. (A joiner's key ends with its attempt
    /// anyway.)
    const fn speaks_for_its_key(&self) -> bool {
        matches!(self.request, RequestKind::Presence | RequestKind::Bye)
    }
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
#[derive(Clone, Debug)]
pub struct HandlerOptions {
    /// This start of the server.
    pub instance: InstanceId,
    /// The address the socket is bound to.
    pub bound: SocketAddr,
    /// Addresses that are the server's own too: of this machine when bound to a wildcard, and what is advertised.
    pub own: Vec<Endpoint>,
    /// The port beside which a client may show that its mapping does not vary by destination.
    pub probe_port: Option<u16>,
    /// Whether only HELLO is answered: on the probe port.
    pub hello_only: bool,
    /// Which sources are served.
    pub policy: AddressPolicy,
    /// Answers a second to unproved addresses.
    pub unproved_per_second: u32,
    /// Keys to remember at most, each in both families.
    pub keys_max: usize,
    /// The question by which the server finds out whether this socket hears, and the answer's ordinal of this ring.
    pub self_probe: Option<SelfProbe>,
}

impl HandlerOptions {
    /// A handler for the socket bound to `bound`, without anything that is not needed.
    #[must_use]
    pub const fn new(instance: InstanceId, bound: SocketAddr, policy: AddressPolicy) -> Self {
        Self {
            instance,
            bound,
            own: Vec::new(),
            probe_port: None,
            hello_only: false,
            policy,
            unproved_per_second: UNPROVED_ANSWERS_PER_SECOND,
            keys_max: Limits::DEFAULT.listings + Limits::DEFAULT.attempts,
            self_probe: None,
        }
    }
}

/// Turns datagrams into transitions, and replies into answers.
pub struct Handler {
    options: HandlerOptions,
    master: MasterKey,
    cookies: Cookies,
    /// Those that the probe port gives.
    probe_cookies: Option<Cookies>,
    ceiling: Ceiling,
    sources: Sources,
    keys: Keys,
    load: Load,
    repeats: Repeats,
}

impl Handler {
    /// A handler for one socket. All that it will ever allocate is allocated here.
    #[must_use]
    pub fn new(options: HandlerOptions, master: MasterKey) -> Self {
        Self {
            cookies: Cookies::new(&master, options.bound.port()),
            probe_cookies: options.probe_port.map(|port| Cookies::new(&master, port)),
            ceiling: Ceiling::new(options.unproved_per_second),
            sources: Sources::new(&master),
            keys: Keys::new(&master, options.keys_max),
            load: Load::default(),
            repeats: Repeats::new(),
            options,
            master,
        }
    }

    /// Tells how far the store is behind, which decides what is shed.
    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// The secret that `role` uses: its key's own, or for a host in an attempt the right derived from it.
    fn right(&self, key_id: &KeyId, role: Role, attempt: Option<AttemptId>) -> Secret {
        let secret = self.master.secret(key_id);
        match (role, attempt) {
            (Role::Host, Some(attempt)) => secret.attempt_right(attempt),
            _ => secret,
        }
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
                self.keys.take_back(&pending.key_id, pending.source.family(), pending.sequence);
                return Settled { outcome: DatagramOutcome::StaleSequence, answer: None, unasked: None };
            }
            Refusal::NotFound | Refusal::Revoked => {
                if pending.speaks_for_its_key() {
                    self.keys.bury(now, &pending.key_id, pending.source.family());
                }
                DatagramOutcome::RefusedNotFound
            }
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
