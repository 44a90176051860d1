//! One role's course through one attempt: BIND until introduced, the link, REPORT. Shared by host and joiner.

use core::time::Duration;
use std::net::SocketAddr;

use rand::Rng;
use rendezvous_shared::credential::{Direction, PunchSecret, Secret};
use rendezvous_shared::endpoint::{Endpoint, is_lan_candidate};
use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{
    Ack, Bind, BoundAnswer, Cookie, Introduce, Kind, PeerDatagram, ReportResult, Signed, WireEndpoint,
};
use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U16;

use crate::dialog::{BACKOFF_MIN, Dialog, SILENCES_MAX};
use crate::machine::{Backoff, Bounded, Outbox, Recent, Transmit, in_ms, jittered};
use crate::peer::{Link, LinkConfig, LinkEvent, SendRefusal};
use crate::refusal::Refused;
use crate::reporting::Reporting;
use crate::second::{OtherFamily, Second};

/// Longest distance between BINDs: an attempt lives 20 s.
const BIND_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// BINDs at each distance before it doubles: the first second is when a lost answer hurts.
const BINDS_PER_STEP: u32 = 4;
/// The server's hint for the next BIND is held to this at least.
const BIND_RETRY_MIN: Duration = Duration::from_millis(200);
/// Events that wait.
const EVENTS_MAX: usize = 512;

/// What happened in an attempt, for either role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEvent {
    /// The server holds this side's endpoint and waits for the other. Told once.
    Bound,
    /// The peer's endpoint is known; punching starts.
    Introduced {
        /// The endpoint it proved.
        peer: SocketAddr,
    },
    /// The server said no; nothing more is sent for this attempt.
    Refused(Refused),
    /// Not introduced before the attempt's deadline.
    TimedOut,
    /// The peers hear each other. See [`LinkEvent::Connected`].
    Connected {
        /// Where the peer is reached.
        peer: SocketAddr,
        /// An estimate; see [`LinkEvent::Connected`].
        round_trip: Option<Duration>,
    },
    /// See [`LinkEvent::Message`].
    Message {
        /// Counted by the peer from 1.
        ordinal: u32,
        /// At most 512 bytes.
        payload: Vec<u8>,
    },
    /// See [`LinkEvent::PeerSilent`]; punching has stopped.
    PeerSilent,
    /// See [`LinkEvent::PeerUnrecognised`]; punching has stopped.
    PeerUnrecognised,
    /// A connected peer went silent; see [`LinkEvent::Closed`].
    Closed,
    /// The report was acknowledged, or given up.
    Reported {
        /// Whether the server acknowledged it.
        acknowledged: bool,
    },
}

#[derive(Debug)]
struct Binding {
    backoff: Backoff,
    next_at: Instant,
    /// No BIND goes out before, whatever asks for one.
    earliest: Instant,
    unanswered: u32,
    sent: Recent,
    bound: bool,
    /// The same in every repeat: a BIND must not differ from the one the server holds.
    rtt_ms: Option<u16>,
    second: Second,
}

#[derive(Debug)]
enum Stage {
    Binding(Box<Binding>),
    Linked { link: Box<Link>, report: Option<Box<Reporting>> },
    Ended,
}

#[derive(Debug)]
pub(crate) struct Course {
    attempt: AttemptId,
    role: Role,
    /// The joiner's secret, or the host's right.
    secret: Secret,
    previous: Option<Secret>,
    deadline: Instant,
    /// Which of its owner's ways to the server it takes.
    pub(crate) way: usize,
    lan: [Option<Endpoint>; 2],
    keep_alive: Duration,
    stage: Stage,
    events: Bounded<AttemptEvent>,
}

/// What a course is started with.
pub(crate) struct Start {
    pub(crate) attempt: AttemptId,
    pub(crate) role: Role,
    pub(crate) secret: Secret,
    pub(crate) deadline: Instant,
    pub(crate) way: usize,
    pub(crate) lan: [Option<Endpoint>; 2],
    pub(crate) keep_alive: Duration,
}

impl Course {
    pub(crate) fn new(start: Start, now: Instant) -> Self {
        Self {
            attempt: start.attempt,
            role: start.role,
            secret: start.secret,
            previous: None,
            deadline: start.deadline,
            way: start.way,
            lan: candidates(start.lan),
            keep_alive: start.keep_alive,
            stage: Stage::Binding(Box::new(Binding {
                backoff: Backoff::new(BACKOFF_MIN, BIND_BACKOFF_MAX).with_patience(BINDS_PER_STEP),
                next_at: now,
                earliest: now,
                unanswered: 0,
                sent: Recent::default(),
                bound: false,
                rtt_ms: None,
                second: Second::default(),
            })),
            events: Bounded::new(EVENTS_MAX),
        }
    }

    /// Other candidates, with another port: only before the server holds those of a BIND.
    pub(crate) fn set_lan(&mut self, lan: [Option<Endpoint>; 2]) {
        if let Stage::Binding(binding) = &mut self.stage
            && !binding.bound
        {
            self.lan = candidates(lan);
            binding.second = Second::default();
        }
    }

    /// Whether the server may hold an endpoint of this side, bound or not told yet.
    pub(crate) fn has_asked(&self) -> bool {
        match &self.stage {
            Stage::Binding(binding) => binding.rtt_ms.is_some(),
            Stage::Linked { .. } | Stage::Ended => true,
        }
    }

    /// A renewal brought another presence key, so the right in this attempt is another too.
    pub(crate) fn update_secret(&mut self, secret: Secret) {
        self.previous = Some(core::mem::replace(&mut self.secret, secret));
    }

    /// The credential is gone: what needs the server ends, a link goes on.
    pub(crate) fn lose_server(&mut self) {
        match &mut self.stage {
            Stage::Binding(_) => self.end(AttemptEvent::TimedOut),
            Stage::Linked { report, .. } => *report = None,
            Stage::Ended => {}
        }
    }

    pub(crate) const fn attempt_bytes(&self) -> [u8; 16] {
        self.attempt.to_bytes()
    }

    pub(crate) const fn is_binding(&self) -> bool {
        matches!(self.stage, Stage::Binding(_))
    }

    /// Whether the server holds this side's endpoint, so that its port must stay.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.stage {
            Stage::Binding(binding) => binding.bound,
            Stage::Linked { .. } | Stage::Ended => true,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(&self.stage, Stage::Linked { link, .. } if link.is_connected())
    }

    /// Whether nothing is left to be done: no datagram is sent or awaited any more.
    pub(crate) fn is_done(&self) -> bool {
        match &self.stage {
            Stage::Linked { link, report } => link.is_over() && report.is_none(),
            Stage::Ended => true,
            Stage::Binding(_) => false,
        }
    }

    /// Whether nothing is left to be done, and every event was taken.
    pub(crate) fn is_over(&self) -> bool {
        self.is_done() && self.events.len() == 0
    }

    pub(crate) fn poll_event(&mut self) -> Option<AttemptEvent> {
        self.events.pop()
    }

    pub(crate) fn next_timeout(&self) -> Instant {
        match &self.stage {
            Stage::Binding(binding) => binding.next_at.min(self.deadline),
            Stage::Linked { link, report } => {
                link.next_timeout().min(report.as_ref().map_or(Instant::MAX, |report| report.next_at))
            }
            Stage::Ended => Instant::MAX,
        }
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        dialog: &mut Dialog,
        other: Option<OtherFamily>,
        out: &mut Outbox,
    ) {
        match &mut self.stage {
            Stage::Binding(_) if now >= self.deadline => self.end(AttemptEvent::TimedOut),
            Stage::Binding(binding) if now >= binding.next_at => self.send_bind(now, dialog, other, out),
            Stage::Linked { link, .. } => {
                link.handle_timeout(now);
                self.drain_link(now, out);
                self.poll_report(now, dialog, out);
            }
            Stage::Binding(_) | Stage::Ended => {}
        }
    }

    pub(crate) fn handle_peer(
        &mut self,
        now: Instant,
        from: Endpoint,
        datagram: &PeerDatagram<'_>,
        out: &mut Outbox,
    ) {
        match &mut self.stage {
            Stage::Linked { link, .. } => {
                link.handle(now, from, datagram);
                self.drain_link(now, out);
            }
            // The peer punches already, so our INTRODUCE was lost: asked for again at once. It cannot be verified
            // without that, so it moves a BIND forward to the usual distance and does nothing else.
            Stage::Binding(binding) if datagram.role == self.role.peer() => {
                binding.next_at = binding.next_at.min(binding.earliest);
            }
            Stage::Binding(_) | Stage::Ended => {}
        }
    }

    /// BOUND: waiting, or refused.
    pub(crate) fn on_bound(&mut self, now: Instant, dialog: &mut Dialog, answer: &Signed<'_, BoundAnswer>) {
        let verified = self.verifies(|secret| answer.verify(Direction::ToClient, secret));
        let body = answer.body;
        let Stage::Binding(binding) = &mut self.stage else { return };
        let known =
            body.session.get() == dialog.session() && binding.sent.find(body.sequence.get()).is_some();
        if !verified || !known {
            return;
        }
        dialog.learn_cookie(now, body.cookie);
        if let Some(refused) = Refused::from_wire(body.code, body.detail) {
            return self.end(AttemptEvent::Refused(refused));
        }
        binding.unanswered = 0;
        binding.second.keep();
        binding.backoff.reset();
        let retry = Duration::from_millis(body.retry_ms.get().into());
        let retry = retry.clamp(BIND_RETRY_MIN, BIND_BACKOFF_MAX);
        binding.next_at = now.after(jittered(retry, &mut dialog.rng));
        let first = !core::mem::replace(&mut binding.bound, true);
        if body.remaining_ms.get() > 0 {
            self.deadline = now.after(Duration::from_millis(body.remaining_ms.get().into()));
        }
        if first {
            self.tell(AttemptEvent::Bound);
        }
    }

    /// INTRODUCE; a repeat changes nothing but the cookie.
    pub(crate) fn on_introduce(
        &mut self,
        now: Instant,
        dialog: &mut Dialog,
        answer: &Signed<'_, Introduce>,
        out: &mut Outbox,
    ) {
        let verify = |secret: &Secret| answer.verify(Direction::ToClient, secret);
        let secret = match &self.previous {
            _ if verify(&self.secret) => &self.secret,
            Some(previous) if verify(previous) => previous,
            _ => return,
        };
        let body = answer.body;
        dialog.learn_cookie(now, body.cookie);
        let Some(peer) = body.peer.get().filter(|peer| peer.port() != 0) else { return };
        if !self.is_binding() {
            return;
        }
        let config = LinkConfig {
            attempt: self.attempt,
            role: self.role,
            key: secret.mask(self.attempt, PunchSecret::from_bytes(body.punch_masked)).peer_key(),
            peer,
            second: body.peer_second.get().filter(|it| it.port() != 0),
            lan: body.lan.map(|lan| lan.get().filter(|it| is_lan_candidate(*it))),
            start_in: Duration::from_millis(body.start_in_ms.get().into()),
            retry: Duration::from_millis(body.retry_ms.get().into()),
            retry_max: body.retry_max,
            keep_alive: self.keep_alive,
        };
        let mut link = Box::new(Link::new(config, dialog.rng.next_u64(), now));
        link.handle_timeout(now);
        self.stage = Stage::Linked { link, report: None };
        self.tell(AttemptEvent::Introduced { peer: peer.into() });
        self.drain_link(now, out);
    }

    /// ACK, if it answers a REPORT of this course.
    pub(crate) fn on_ack(&mut self, now: Instant, dialog: &mut Dialog, answer: &Signed<'_, Ack>) {
        let Stage::Linked { report: Some(report), .. } = &self.stage else { return };
        let known = report.has_sent(answer.body.sequence.get());
        if !known || !self.verifies(|secret| answer.verify(Direction::ToClient, secret)) {
            return;
        }
        dialog.learn_cookie(now, answer.body.cookie);
        // A refusal (another report came first, the attempt is over) is an answer too.
        self.finish_report(true);
    }

    pub(crate) fn send(
        &mut self,
        now: Instant,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<u32, SendRefusal> {
        let Stage::Linked { link, .. } = &mut self.stage else { return Err(SendRefusal::NotConnected) };
        let ordinal = link.send(payload)?;
        self.drain_link(now, out);
        Ok(ordinal)
    }

    /// Ends the course without a word.
    pub(crate) fn close(&mut self) {
        self.stage = Stage::Ended;
    }

    fn verifies(&self, check: impl Fn(&Secret) -> bool) -> bool {
        check(&self.secret) || self.previous.as_ref().is_some_and(check)
    }

    fn end(&mut self, event: AttemptEvent) {
        self.stage = Stage::Ended;
        self.tell(event);
    }

    /// Messages make room for what is told once.
    fn tell(&mut self, event: AttemptEvent) {
        self.events.push_over(event);
    }

    fn send_bind(&mut self, now: Instant, dialog: &mut Dialog, other: Option<OtherFamily>, out: &mut Outbox) {
        let Stage::Binding(binding) = &mut self.stage else { return };
        let len = limits::BIND_LEN_MIN;
        let (second, second_cookie) = match binding.second.decide(now, other, dialog.current_cookie(now)) {
            Ok(second) => second,
            Err(wait_until) => {
                binding.next_at = wait_until;
                return;
            }
        };
        let Some(proof) = dialog.proof(now, Kind::Bind, len) else {
            // No cookie: the owner is proving its address, or must begin to.
            dialog.seek(now);
            binding.next_at = dialog.hello_at().max(now.after(Duration::from_millis(50)));
            return;
        };
        if binding.unanswered > 0 && binding.unanswered.is_multiple_of(SILENCES_MAX) {
            dialog.seek(now);
        }
        binding.unanswered += 1;
        binding.sent.push(proof.sequence.get(), now);
        binding.earliest = now.after(BACKOFF_MIN);
        binding.next_at = now.after(binding.backoff.next(&mut dialog.rng));
        let measured = dialog.round_trip().map_or(0, in_ms);
        let rtt_ms = *binding.rtt_ms.get_or_insert(measured);
        let bind = Bind {
            proof,
            attempt: self.attempt.to_bytes(),
            rtt_ms: U16::new(rtt_ms),
            reserved: [0; 2],
            second: WireEndpoint::from(second),
            second_cookie,
            lan: self.lan.map(WireEndpoint::from),
            probe_cookie: Cookie::new_zeroed(),
        };
        out.push(Transmit::sealed(dialog.server(), &bind, len, Direction::ToServer, &self.secret));
    }

    /// A cookie came: a BIND that waited for it goes out at once.
    pub(crate) fn on_proved(&mut self, now: Instant) {
        if let Stage::Binding(binding) = &mut self.stage {
            binding.next_at = now;
            binding.unanswered = 0;
        }
    }

    fn drain_link(&mut self, now: Instant, out: &mut Outbox) {
        let Stage::Linked { link, report } = &mut self.stage else { return };
        while let Some(transmit) = link.poll_transmit() {
            out.push(transmit);
        }
        while let Some(event) = link.poll_event() {
            let (event, result) = match event {
                LinkEvent::Connected { peer, round_trip } => {
                    let rtt = round_trip.unwrap_or_default();
                    (AttemptEvent::Connected { peer, round_trip }, Some((ReportResult::Connected, rtt)))
                }
                LinkEvent::Message { ordinal, payload } => (AttemptEvent::Message { ordinal, payload }, None),
                LinkEvent::PeerSilent => {
                    (AttemptEvent::PeerSilent, Some((ReportResult::PeerSilent, Duration::ZERO)))
                }
                LinkEvent::PeerUnrecognised => {
                    (AttemptEvent::PeerUnrecognised, Some((ReportResult::PeerUnrecognised, Duration::ZERO)))
                }
                LinkEvent::Closed => (AttemptEvent::Closed, None),
            };
            if let AttemptEvent::Message { .. } = event {
                let _ = self.events.try_push(event);
            } else {
                self.events.push_over(event);
            }
            if let Some((result, round_trip)) = result {
                *report = Some(Box::new(Reporting::new(result, round_trip, now)));
            }
        }
    }

    fn poll_report(&mut self, now: Instant, dialog: &mut Dialog, out: &mut Outbox) {
        let Stage::Linked { report: Some(report), .. } = &mut self.stage else { return };
        if now < report.next_at {
            return;
        }
        if report.is_spent() {
            return self.finish_report(false);
        }
        report.send(now, self.attempt, &self.secret, dialog, out);
    }

    fn finish_report(&mut self, acknowledged: bool) {
        if let Stage::Linked { report, .. } = &mut self.stage {
            *report = None;
            self.tell(AttemptEvent::Reported { acknowledged });
        }
    }
}

/// Those that are private, the first first.
fn candidates(lan: [Option<Endpoint>; 2]) -> [Option<Endpoint>; 2] {
    let [first, second] = lan.map(|lan| lan.filter(|it| is_lan_candidate(*it)));
    if first.is_some() { [first, second] } else { [second, None] }
}
