//! What addresses have proved, judged from the bytes that arrived and the cookies that were sent, and from nothing
//! that the handler or the store says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rendezvous_core::handler::Action;
use rendezvous_shared::credential::{Direction, KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::{AddressPolicy, Endpoint, is_lan_candidate};
use rendezvous_shared::id::{AttemptId, InstanceId, Role};
use rendezvous_shared::limits::{COOKIE_FUTURE_MAX, PROOF_AGE_MAX, SOURCE_PORT_MIN};
use rendezvous_shared::outcome::DatagramOutcome;
use rendezvous_shared::store::{DatagramProof, Reporter, Transition};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Answer, Bind, Claim, Cookie, Request};
use zerocopy::IntoBytes;

use super::broken;

type KeyBytes = [u8; KeyId::LEN];

/// The key id as something that has an order.
pub(crate) fn bytes_of(key: &KeyId) -> KeyBytes {
    let mut bytes = [0; KeyId::LEN];
    bytes.copy_from_slice(key.as_bytes());
    bytes
}

/// What a received datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A HELLO for this key, which whoever sent it may be challenged for.
    Hello(KeyId),
    /// A request with a good MAC and a current cookie, from where the cookie was sent.
    Proves(KeyId),
    /// It proves nothing.
    Nothing(&'static str),
}

/// A received datagram as the oracle saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Its source.
    pub(crate) source: Endpoint,
    /// The address it was sent to.
    pub(crate) asked: SocketAddr,
    /// What it is.
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    key: KeyBytes,
    to: Endpoint,
    /// As written in it: a CHALLENGE has no MAC, so what a client took may differ there.
    at_ms: u64,
}

/// Bytes to and from one address, headers counted.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    received: u64,
    received_packets: u64,
    sent: u64,
    sent_packets: u64,
    proved: bool,
}

/// Cookies sent, datagrams accepted, bytes exchanged: of one instance of the server.
pub(crate) struct Proofs {
    instance: InstanceId,
    master: MasterKey,
    policy: AddressPolicy,
    cookies: BTreeMap<[u8; 16], Issued>,
    /// Keys of which the store said that there is nothing behind them.
    dead: BTreeSet<[u8; 32]>,
    traffic: BTreeMap<Endpoint, Traffic>,
    /// Every datagram that moved something, by key, session and sequence.
    accepted: BTreeSet<(KeyBytes, u64, u64)>,
    /// The last fresh BIND of a key in an attempt from an endpoint.
    bound: BTreeMap<(KeyBytes, [u8; 16], Endpoint), Instant>,
    /// The last fresh PRESENCE of a key from an endpoint.
    present: BTreeMap<(KeyBytes, Endpoint), Instant>,
    /// Unasked datagrams by receiver, type and attempt: how many, and the last.
    unasked: BTreeMap<(Endpoint, u8, [u8; 16]), (u32, Instant)>,
}

impl Proofs {
    pub(super) fn new(instance: InstanceId, master: MasterKey, policy: AddressPolicy) -> Self {
        Self {
            instance,
            master,
            policy,
            cookies: BTreeMap::new(),
            dead: BTreeSet::new(),
            traffic: BTreeMap::new(),
            accepted: BTreeSet::new(),
            bound: BTreeMap::new(),
            present: BTreeMap::new(),
            unasked: BTreeMap::new(),
        }
    }

    /// Looks at a datagram before the handler does.
    pub(crate) fn on_received(
        &mut self,
        now: Instant,
        from: SocketAddr,
        asked: SocketAddr,
        truncated: bool,
        bytes: &[u8],
    ) -> Seen {
        let source = Endpoint::from(from);
        let verdict =
            if truncated { Verdict::Nothing("truncated") } else { self.judge(now, source, asked, bytes) };
        let traffic = self.traffic.entry(source).or_default();
        traffic.received += bytes.len() as u64 + header_len(source);
        traffic.received_packets += 1;
        traffic.proved |= matches!(verdict, Verdict::Proves(_));
        Seen { source, asked, verdict }
    }

    fn judge(&self, now: Instant, source: Endpoint, asked: SocketAddr, bytes: &[u8]) -> Verdict {
        let Ok(request) = wire::parse_request(bytes) else { return Verdict::Nothing("does not parse") };
        if source == Endpoint::from(asked) || !self.admits(source) {
            return Verdict::Nothing("source not served");
        }
        let (signed, claim) = match request {
            Request::Hello(hello) => return Verdict::Hello(hello.body.key_id),
            Request::Proved(signed, claim) => (signed, claim),
        };
        let proof = signed.body;
        let key = &proof.key_id;
        let Some(role) = key.role() else { return Verdict::Nothing("no role") };
        let hosts_only = matches!(claim, Claim::Presence | Claim::Bye);
        if key.instance() != self.instance || key.expires() <= now || (hosts_only && role == Role::Joiner) {
            return Verdict::Nothing("key");
        }
        if !self.is_current(now, key, source, &proof.cookie) {
            return Verdict::Nothing("cookie");
        }
        if matches!(proof.sequence.get(), 0 | u64::MAX) {
            return Verdict::Nothing("sequence");
        }
        if !signed.verify(Direction::ToServer, &self.right(key, role, claim.attempt())) {
            return Verdict::Nothing("MAC");
        }
        match claim {
            Claim::Bind(bind) if !self.candidates_hold(now, key, source, bind) => {
                Verdict::Nothing("candidates")
            }
            _ => Verdict::Proves(*key),
        }
    }

    fn admits(&self, endpoint: Endpoint) -> bool {
        endpoint.port() >= SOURCE_PORT_MIN && self.policy.admits(endpoint.ip())
    }

    fn right(&self, key: &KeyId, role: Role, attempt: Option<AttemptId>) -> Secret {
        let secret = self.master.secret(key);
        match attempt.filter(|_| role == Role::Host) {
            Some(attempt) => secret.attempt_right(attempt),
            None => secret,
        }
    }

    /// Whether we sent `cookie` for this key to just there, and not too long ago.
    fn is_current(&self, now: Instant, key: &KeyId, at: Endpoint, cookie: &Cookie) -> bool {
        let issued = Instant::from_millis(cookie.issued_ms.get());
        let in_time = now.since(issued) <= PROOF_AGE_MAX && issued.since(now) <= COOKIE_FUTURE_MAX;
        let ours = self.cookies.get(&cookie.mac);
        in_time
            && ours.is_some_and(|it| {
                it.key == bytes_of(key) && it.to == at && it.at_ms == cookie.issued_ms.get()
            })
    }

    fn candidates_hold(&self, now: Instant, key: &KeyId, source: Endpoint, bind: &Bind) -> bool {
        let second = bind.second.get().is_none_or(|second| {
            second.family() != source.family()
                && self.admits(second)
                && self.is_current(now, key, second, &bind.second_cookie)
        });
        second && bind.lan.iter().filter_map(|lan| lan.get()).all(is_lan_candidate)
    }

    /// Takes note of what the store said of a key.
    pub(crate) fn on_settled(&mut self, seen: &Seen, outcome: DatagramOutcome) {
        if let (Verdict::Proves(key), DatagramOutcome::RefusedNotFound) = (seen.verdict, outcome) {
            self.dead.insert(bytes_of(&key));
        }
    }

    /// What the handler made of it must follow from what it is.
    pub(crate) fn on_judged(&self, seen: &Seen, action: &Action) {
        match (seen.verdict, action) {
            (Verdict::Proves(key), Action::Submit(transition, _)) => {
                let good =
                    proof_of(transition).is_some_and(|it| it.key_id == key && it.source == seen.source);
                if !good {
                    broken("only the observed source is handed on", format_args!("{seen:?} {transition:?}"));
                }
            }
            // Its key had too much of it, or sent it before, or the store is behind.
            (
                Verdict::Proves(_),
                Action::Silence(
                    DatagramOutcome::KeyLimited
                    | DatagramOutcome::StaleSequence
                    | DatagramOutcome::ShedBind
                    | DatagramOutcome::ShedPresence,
                ),
            ) => {}
            // The store said so before.
            (Verdict::Proves(key), Action::Answer(_, DatagramOutcome::RefusedNotFound))
                if self.dead.contains(&bytes_of(&key)) => {}
            (Verdict::Proves(_), other) => {
                broken("a datagram that proves its address is taken", format_args!("{seen:?} {other:?}"));
            }
            (Verdict::Nothing(_) | Verdict::Hello(_), Action::Submit(..)) => {
                broken("what proves nothing never reaches the store", format_args!("{seen:?} {action:?}"));
            }
            (Verdict::Hello(_), Action::Answer(..)) | (Verdict::Nothing(_), Action::Silence(_)) => {}
            (
                Verdict::Hello(_),
                Action::Silence(
                    DatagramOutcome::UnprovedCeiling
                    | DatagramOutcome::SourceLimited
                    | DatagramOutcome::ShedHello,
                ),
            ) => {}
            (_, other) => broken(
                "a HELLO is challenged, all else unproved is silent",
                format_args!("{seen:?} {other:?}"),
            ),
        }
    }

    /// Takes note of a datagram that the server sends, with a cookie for `key`; `unasked` when no datagram of its
    /// receiver brought it about just now.
    pub(crate) fn on_sent(&mut self, now: Instant, to: Endpoint, bytes: &[u8], key: &KeyId, unasked: bool) {
        let (cookie, attempt, challenge) = match wire::parse_answer(bytes) {
            Ok(Answer::Challenge(it)) => (it.cookie, [0; 16], true),
            Ok(Answer::Ack(it)) => (it.body.cookie, [0; 16], false),
            Ok(Answer::Notice(it)) => (it.body.cookie, it.body.attempt, false),
            Ok(Answer::Bound(it)) => (it.body.cookie, it.body.attempt, false),
            Ok(Answer::Introduce(it)) => (it.body.cookie, it.body.attempt, false),
            Err(error) => broken("the server sends what parses", error),
        };
        self.issued(&cookie, key, to);
        let traffic = self.traffic.entry(to).or_default();
        traffic.sent += bytes.len() as u64 + header_len(to);
        traffic.sent_packets += 1;
        if !traffic.proved {
            if !challenge {
                broken("an unproved address gets nothing but CHALLENGE", format_args!("{to} {bytes:?}"));
            }
            if traffic.sent > traffic.received || traffic.sent_packets > traffic.received_packets {
                broken("an unproved address gets no more than it sent", format_args!("{to} {traffic:?}"));
            }
        }
        if unasked {
            self.on_unasked(now, (to, bytes[5], attempt));
        }
    }

    fn issued(&mut self, cookie: &Cookie, key: &KeyId, to: Endpoint) {
        let issued = Issued { key: bytes_of(key), to, at_ms: cookie.issued_ms.get() };
        self.cookies.insert(cookie.mac, issued);
    }

    fn on_unasked(&mut self, now: Instant, what: (Endpoint, u8, [u8; 16])) {
        let (times, last) = self.unasked.entry(what).or_insert((0, now));
        let too_soon = *times > 0 && now.since(*last) < rendezvous_shared::limits::RESEND_INTERVAL;
        *times += 1;
        *last = now;
        if *times > u32::from(rendezvous_shared::limits::RESENDS_MAX) || too_soon {
            broken("unasked at most 3 times, 250 ms apart", format_args!("{what:?} {times}"));
        }
    }

    /// The store took a datagram; returns whether it is the first time.
    pub(super) fn on_accepted(&mut self, proof: &DatagramProof, attempt: Option<AttemptId>) -> bool {
        let key = bytes_of(&proof.key_id);
        let first = self.accepted.insert((key, proof.session.0, proof.sequence));
        if first {
            match attempt {
                Some(attempt) => {
                    self.bound.insert((key, attempt.to_bytes(), proof.source), proof.arrived);
                }
                None => {
                    self.present.insert((key, proof.source), proof.arrived);
                }
            }
        }
        first
    }

    /// Whether a BIND of `key` in `attempt` came from `endpoint` lately.
    pub(super) fn has_bound(
        &self,
        now: Instant,
        key: &KeyId,
        attempt: AttemptId,
        endpoint: Endpoint,
    ) -> bool {
        let at = self.bound.get(&(bytes_of(key), attempt.to_bytes(), endpoint));
        at.is_some_and(|at| now.since(*at) <= PROOF_AGE_MAX)
    }

    /// Whether a PRESENCE of `key` came from `endpoint` lately.
    pub(super) fn has_presence(&self, now: Instant, key: &KeyId, endpoint: Endpoint) -> bool {
        let at = self.present.get(&(bytes_of(key), endpoint));
        at.is_some_and(|at| now.since(*at) <= PROOF_AGE_MAX)
    }
}

/// The proof a transition of the datagram path carries.
fn proof_of(transition: &Transition) -> Option<&DatagramProof> {
    match transition {
        Transition::RefreshPresence(it) => Some(&it.proof),
        Transition::EndPresence(it) => Some(&it.proof),
        Transition::Bind(it) => Some(&it.proof),
        Transition::Report(it) => match &it.reporter {
            Reporter::Datagram(proof) => Some(proof),
            Reporter::Caller(_) => None,
        },
        _ => None,
    }
}

/// IP and UDP.
fn header_len(endpoint: Endpoint) -> u64 {
    if endpoint.ip().is_ipv4() { 28 } else { 48 }
}
