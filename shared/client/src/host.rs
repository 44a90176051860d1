//! The host: keeps one address proved and answers joiners, many at once, on one socket. Sans-IO.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, InstanceId, Role};
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{
    Ack, AckFlags, Answer, Bye, Challenge, Kind, Notice, Presence, Signed, parse_answer, parse_peer,
};

use crate::course::{AttemptEvent, Course, Start};
use crate::credentials::{HostCredentials, RoleKey};
use crate::dialog::{BACKOFF_MAX, BACKOFF_MIN, Challenged, Dialog, SILENCES_MAX};
use crate::machine::{Backoff, Bounded, Machine, Outbox, Recent, Transmit};
use crate::peer::{KEEP_ALIVE_DEFAULT, SendRefusal};
use crate::refusal::Refused;

/// Attempts that are being bound or punched at once; the server's budget for a host is 20 a second, burst 40.
pub const PENDING_MAX: usize = 64;
/// Links held at once, those included.
pub const LINKS_MAX: usize = 1024;
/// Attempts that ended lately, so that a late NOTICE does not start them again.
const ENDED_MAX: usize = 64;
/// Events that wait beside those of attempts.
const EVENTS_MAX: usize = 64;
/// BYEs sent for want of an ACK: within a second.
const BYES_MAX: u32 = 3;

/// What a host tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// A PRESENCE was acknowledged.
    Refreshed {
        /// Round trip of the PRESENCE that was acknowledged.
        round_trip: Duration,
        /// What remains of the lease.
        lease_remaining: Duration,
        /// What remains of the presence.
        presence_remaining: Duration,
    },
    /// PRESENCE was refused. When [`Refused::is_gone`], the host has stopped until it gets another key, by
    /// [`Host::update_key`] from a renewal of the lease (a renewal may just have superseded the key) or by
    /// [`Host::replace`]. Introductions under way and links go on.
    PresenceRefused(Refused),
    /// Another instance answers, or somebody forged its CHALLENGE, which has no MAC. The host goes on as before and
    /// tells this at most once for each HELLO. Ask the control plane, by a renewal of the lease: only when that does
    /// not know the listing, register and [`Host::replace`]; else there is nothing to do but [`Host::update_key`].
    InstanceChanged {
        /// The instance that answers now.
        instance: InstanceId,
    },
    /// Nothing is heard from the server; another local port may help. Told only while no introduction and no link
    /// is under way: they would die with the port. It follows once they are over, if still nothing is heard.
    ChangePort,
    /// The server began to drain; told once for each instance.
    Draining,
    /// An attempt waits whose NOTICE may have been lost: ask `GET /v1/listings/{id}/attempts` and hand the ids
    /// to [`Host::bind`].
    AttemptsPending,
    /// What happened in an attempt.
    Attempt {
        /// Which.
        attempt: AttemptId,
        /// What.
        event: AttemptEvent,
    },
    /// BYE was acknowledged, or given up.
    Closed {
        /// Whether the server acknowledged it.
        acknowledged: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// HELLO until proved, then PRESENCE.
    Active,
    /// The credential is of no more use.
    Halted,
    /// BYE is on its way.
    Closing,
    Closed,
}

/// A host. Its links outlive its credentials and the server.
#[derive(Debug)]
pub struct Host {
    dialog: Dialog,
    phase: Phase,
    keep_alive: Duration,
    lan: [Option<Endpoint>; 2],
    refresh: Duration,
    presence_at: Instant,
    presence_sent: Recent,
    unanswered: u32,
    backoff: Backoff,
    byes: u32,
    draining: bool,
    courses: BTreeMap<AttemptId, Course>,
    ended: Bounded<AttemptId>,
    out: Outbox,
    events: Bounded<HostEvent>,
}

impl Host {
    /// A host that begins with a HELLO at `now`. `seed` must be unpredictable to strangers: nonces come of it.
    #[must_use]
    pub fn new(credentials: HostCredentials, seed: u64, now: Instant) -> Self {
        let HostCredentials { key, instance, server, refresh } = credentials;
        let mut host = Self {
            dialog: Dialog::new(key, instance, server.into(), seed, now),
            phase: Phase::Active,
            keep_alive: KEEP_ALIVE_DEFAULT,
            lan: [None; 2],
            refresh: sane_refresh(refresh),
            presence_at: Instant::MAX,
            presence_sent: Recent::default(),
            unanswered: 0,
            backoff: Backoff::new(BACKOFF_MIN, BACKOFF_MAX),
            byes: 0,
            draining: false,
            courses: BTreeMap::new(),
            ended: Bounded::new(ENDED_MAX),
            out: Outbox::new(),
            events: Bounded::new(EVENTS_MAX),
        };
        host.handle_timeout(now);
        host
    }

    /// Sets the distance between keep-alives of links made from now on (zero for none).
    pub const fn set_keep_alive(&mut self, keep_alive: Duration) {
        self.keep_alive = keep_alive;
    }

    /// Sets the candidates within the host's own network; what is not private is left out.
    pub const fn set_lan(&mut self, lan: [Option<Endpoint>; 2]) {
        self.lan = lan;
    }

    /// Goes on with the key of a renewal, also after a refusal of the one before. The same key changes nothing.
    pub fn update_key(&mut self, now: Instant, key: RoleKey) {
        if key.id == self.dialog.key.id || !matches!(self.phase, Phase::Active | Phase::Halted) {
            return;
        }
        self.phase = Phase::Active;
        for (attempt, course) in &mut self.courses {
            course.update_secret(key.secret.attempt_right(*attempt));
        }
        self.dialog.update_key(key, now);
        self.start(now);
    }

    /// Starts over after a new registration; attempts not yet introduced are gone, links go on.
    pub fn replace(&mut self, now: Instant, credentials: HostCredentials) {
        let HostCredentials { key, instance, server, refresh } = credentials;
        self.dialog.replace(key, instance, server.into(), now);
        self.refresh = sane_refresh(refresh);
        self.draining = false;
        self.courses.values_mut().for_each(Course::lose_server);
        self.start(now);
        self.phase = Phase::Active;
        self.handle_timeout(now);
    }

    /// Binds to an attempt learned over HTTP rather than by NOTICE. Known ones are left as they are.
    pub fn bind(&mut self, now: Instant, attempt: AttemptId, remaining: Duration) {
        let pending = self.courses.values().filter(|course| !course.is_connected()).count();
        let full = pending >= PENDING_MAX || self.courses.len() >= LINKS_MAX;
        let known = self.courses.contains_key(&attempt) || self.ended.iter().any(|it| *it == attempt);
        if self.phase != Phase::Active || full || known {
            return;
        }
        let secret = self.dialog.key.secret.attempt_right(attempt);
        let deadline = now.after(remaining.min(limits::ATTEMPT_MAX));
        let start =
            Start { attempt, role: Role::Host, secret, deadline, lan: self.lan, keep_alive: self.keep_alive };
        self.courses.insert(attempt, Course::new(start, now));
    }

    /// Sends a message over the link of `attempt`, at most 512 bytes, once; returns its number.
    ///
    /// # Errors
    /// See [`SendRefusal`].
    pub fn send(&mut self, now: Instant, attempt: AttemptId, payload: &[u8]) -> Result<u32, SendRefusal> {
        let course = self.courses.get_mut(&attempt).ok_or(SendRefusal::NotConnected)?;
        course.send(now, payload, &mut self.out)
    }

    /// Ends the link of `attempt`, without a word to the peer.
    pub fn close_link(&mut self, attempt: AttemptId) {
        if let Some(course) = self.courses.get_mut(&attempt) {
            course.close();
        }
    }

    /// Ends presence with BYE; [`HostEvent::Closed`] follows within a second. Links end at once.
    pub fn close(&mut self, now: Instant) {
        self.courses.values_mut().for_each(Course::close);
        if self.phase == Phase::Active && self.dialog.cookie_until().is_some_and(|until| now < until) {
            self.phase = Phase::Closing;
            self.presence_sent.clear();
            self.presence_at = now;
            self.backoff.reset();
            self.handle_timeout(now);
        } else if self.phase != Phase::Closed {
            self.finish(false);
        }
    }

    /// Links that can carry messages.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.courses.values().filter(|course| course.is_connected()).count()
    }

    /// Whether the key was refused for good and no other has come since.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.phase == Phase::Halted
    }

    /// Whether the address is proved and PRESENCE is being answered.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.phase == Phase::Active && !self.dialog.seeking() && self.unanswered < SILENCES_MAX
    }

    fn start(&mut self, now: Instant) {
        self.presence_sent.clear();
        self.presence_at = Instant::MAX;
        self.unanswered = 0;
        self.backoff.reset();
        self.dialog.seek(now);
    }

    fn finish(&mut self, acknowledged: bool) {
        self.phase = Phase::Closed;
        self.events.push_over(HostEvent::Closed { acknowledged });
    }

    fn on_answer(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(answer) = parse_answer(bytes) else { return };
        match answer {
            Answer::Challenge(challenge) => self.on_challenge(now, challenge),
            Answer::Ack(ack) if ack.body.session.get() == self.dialog.session() => self.on_ack(now, &ack),
            Answer::Ack(_) => {}
            Answer::Notice(notice) => self.on_notice(now, &notice),
            Answer::Bound(bound) => {
                if let Some(course) = self.courses.get_mut(&AttemptId::from_bytes(bound.body.attempt)) {
                    course.on_bound(now, &mut self.dialog, &bound);
                }
            }
            Answer::Introduce(it) => {
                if let Some(course) = self.courses.get_mut(&AttemptId::from_bytes(it.body.attempt)) {
                    course.on_introduce(now, &mut self.dialog, &it, &mut self.out);
                }
            }
        }
    }

    fn on_challenge(&mut self, now: Instant, challenge: &Challenge) {
        if self.phase != Phase::Active {
            return;
        }
        let sought = self.dialog.seeking();
        match self.dialog.on_challenge(now, challenge) {
            Challenged::Ignored => {}
            // The answer to a HELLO out of turn. The repeats of PRESENCE keep their pace, or a server that
            // answers HELLO and nothing else would be asked without pause.
            Challenged::Proved if !sought => {}
            Challenged::Proved => {
                self.presence_at = now;
                self.unanswered = 0;
                self.courses.values_mut().for_each(|course| course.on_proved(now));
            }
            Challenged::OtherInstance(instance) => {
                self.events.push_over(HostEvent::InstanceChanged { instance });
            }
        }
    }

    fn on_ack(&mut self, now: Instant, ack: &Signed<'_, Ack>) {
        let body = ack.body;
        let Some(sent) = self.presence_sent.find(body.sequence.get()) else {
            for course in self.courses.values_mut() {
                course.on_ack(now, &mut self.dialog, ack);
            }
            return;
        };
        if !self.dialog.verifies(|secret| ack.verify(Direction::ToClient, secret)) {
            return;
        }
        self.presence_sent.clear();
        self.unanswered = 0;
        self.backoff.reset();
        self.dialog.learn_cookie(now, body.cookie);
        if self.phase == Phase::Closing {
            return self.finish(true);
        }
        let refused = Refused::from_wire(body.code, body.detail);
        if refused.is_none() && body.refresh_ms.get() > 0 {
            self.refresh = sane_refresh(Duration::from_millis(body.refresh_ms.get().into()));
        }
        // A tenth to a fifth early: hosts spread, and none is ever late by its own doing.
        let early = self.refresh.mul_f64(rand::RngExt::random_range(&mut self.dialog.rng, 0.8..0.9));
        self.presence_at = now.after(early);
        if let Some(refused) = refused {
            if refused.is_gone() {
                self.phase = Phase::Halted;
            }
            self.events.push_over(HostEvent::PresenceRefused(refused));
            return;
        }
        let ms = |ms: u32| Duration::from_millis(ms.into());
        self.events.push_over(HostEvent::Refreshed {
            round_trip: now.since(sent),
            lease_remaining: ms(body.lease_remaining_ms.get()),
            presence_remaining: ms(body.presence_remaining_ms.get()),
        });
        if body.flags & AckFlags::ATTEMPT_PENDING != 0 {
            self.events.push_over(HostEvent::AttemptsPending);
        }
        if body.flags & AckFlags::DRAINING != 0 && !self.draining {
            self.draining = true;
            self.events.push_over(HostEvent::Draining);
        }
    }

    fn on_notice(&mut self, now: Instant, notice: &Signed<'_, Notice>) {
        if !self.dialog.verifies(|secret| notice.verify(Direction::ToClient, secret)) {
            return;
        }
        self.dialog.learn_cookie(now, notice.body.cookie);
        let remaining = Duration::from_millis(notice.body.remaining_ms.get().into());
        self.bind(now, AttemptId::from_bytes(notice.body.attempt), remaining);
    }

    fn poll_presence(&mut self, now: Instant) {
        if self.dialog.seeking() || now < self.presence_at {
            return;
        }
        let len = limits::PRESENCE_LEN_MIN;
        let silent = self.unanswered >= SILENCES_MAX;
        let proof = if silent { None } else { self.dialog.proof(now, Kind::Presence, len) };
        let Some(proof) = proof else {
            // The back-off goes on: only an ACK shows that PRESENCE gets through.
            self.presence_at = Instant::MAX;
            return self.dialog.seek(now);
        };
        self.presence_sent.push(proof.sequence.get(), now);
        let presence = Presence { proof };
        let (server, secret) = (self.dialog.server(), &self.dialog.key.secret);
        self.out.push(Transmit::sealed(server, &presence, len, Direction::ToServer, secret));
        if self.unanswered > 0 {
            // A restarted server is silent to an old key and says who it is only in a CHALLENGE: asking with the
            // first repeat instead of after three silences brings a host back seconds earlier.
            self.dialog.send_hello(now, &mut self.out);
        }
        self.unanswered += 1;
        self.presence_at = now.after(self.backoff.next(&mut self.dialog.rng));
    }

    fn poll_bye(&mut self, now: Instant) {
        if now < self.presence_at {
            return;
        }
        let len = limits::REPORT_LEN_MIN;
        let proof = if self.byes < BYES_MAX { self.dialog.proof(now, Kind::Bye, len) } else { None };
        let Some(proof) = proof else { return self.finish(false) };
        self.byes += 1;
        self.presence_sent.push(proof.sequence.get(), now);
        let bye = Bye { proof };
        let (server, secret) = (self.dialog.server(), &self.dialog.key.secret);
        self.out.push(Transmit::sealed(server, &bye, len, Direction::ToServer, secret));
        self.presence_at = now.after(BACKOFF_MIN);
    }

    fn forget_ended(&mut self) {
        let ended = &mut self.ended;
        self.courses.retain(|attempt, course| {
            let over = course.is_over();
            if over {
                ended.push_over(*attempt);
            }
            !over
        });
    }
}

impl Machine for Host {
    type Event = HostEvent;

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let from = Endpoint::from(from);
        if from == self.dialog.server() {
            self.on_answer(now, bytes);
        } else if let Ok(datagram) = parse_peer(bytes)
            && let Some(course) = self.courses.get_mut(&datagram.attempt)
        {
            course.handle_peer(now, from, &datagram, &mut self.out);
        }
        self.handle_timeout(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.forget_ended();
        match self.phase {
            Phase::Active => {
                self.poll_presence(now);
                self.dialog.poll_hello(now, &mut self.out);
            }
            Phase::Closing => self.poll_bye(now),
            Phase::Halted | Phase::Closed => {}
        }
        for course in self.courses.values_mut() {
            course.handle_timeout(now, &mut self.dialog, &mut self.out);
        }
        let port_is_free = self.phase == Phase::Active && self.courses.values().all(Course::is_done);
        if port_is_free && self.dialog.take_port_change() {
            self.events.push_over(HostEvent::ChangePort);
        }
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop()
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop().or_else(|| {
            self.courses.iter_mut().find_map(|(attempt, course)| {
                course.poll_event().map(|event| HostEvent::Attempt { attempt: *attempt, event })
            })
        })
    }

    fn next_timeout(&self) -> Instant {
        let own = match self.phase {
            Phase::Active if self.dialog.seeking() => self.dialog.hello_at(),
            Phase::Active | Phase::Closing => self.presence_at,
            Phase::Halted | Phase::Closed => Instant::MAX,
        };
        self.courses.values().map(Course::next_timeout).fold(own, Instant::min)
    }

    fn wants_new_port(event: &HostEvent) -> bool {
        *event == HostEvent::ChangePort
    }
}

/// The refresh asked for, held to what neither floods the server nor loses the presence.
fn sane_refresh(refresh: Duration) -> Duration {
    refresh.clamp(Duration::from_millis(100), limits::PRESENCE_REFRESH.max(Duration::from_secs(20)))
}
