//! The host: keeps its address proved, in one family or both, and answers joiners, many at once, on one socket of each
//! family. Sans-IO.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, InstanceId, Role};
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Ack, AckFlags, Answer, Challenge, Notice, Signed, parse_answer, parse_peer};

use crate::course::{AttemptEvent, Course, Start};
use crate::credentials::{HostCredentials, OwnAddresses, RoleKey};
use crate::dialog::{Challenged, Dialog};
use crate::machine::{Bounded, Machine, Outbox, Transmit};
use crate::peer::{KEEP_ALIVE_DEFAULT, SendRefusal};
use crate::refusal::Refused;
use crate::second::OtherFamily;
use crate::way::Way;

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
    /// As [`HostEvent::ChangePort`], of the socket of the other family.
    ChangeSecondPort,
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
    /// One for each family, the first always there. BYE goes the way that `bye_way` names.
    ways: Vec<Way>,
    bye_way: usize,
    instance: InstanceId,
    seed: u64,
    phase: Phase,
    keep_alive: Duration,
    lan: [Option<Endpoint>; 2],
    refresh: Duration,
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
            ways: vec![Way::new(Dialog::new(key, instance, server.into(), seed, now))],
            bye_way: 0,
            instance,
            seed,
            phase: Phase::Active,
            keep_alive: KEEP_ALIVE_DEFAULT,
            lan: [None; 2],
            refresh: sane_refresh(refresh),
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

    /// Keeps presence in the other address family, too, at the server's endpoint there; `None` ends that. What goes
    /// to an address of that family must leave from a socket of its own.
    pub fn set_second_server(&mut self, now: Instant, server: Option<SocketAddr>) {
        self.drop_second();
        if let Some(server) = server {
            let key = self.ways[0].dialog.key.clone();
            // Another stream of random numbers than the first way's: nonces tell the two apart.
            let seed = self.seed.rotate_left(32) ^ u64::from(u32::MAX);
            self.ways.push(Way::new(Dialog::new(key, self.instance, server.into(), seed, now)));
        }
        self.handle_timeout(now);
    }

    fn drop_second(&mut self) {
        self.ways.truncate(1);
        self.courses.values_mut().for_each(|course| course.way = 0);
    }

    /// Sets what is known of the host's own addresses; to be set again when a port changed.
    pub fn set_own(&mut self, own: OwnAddresses) {
        self.lan = own.lan;
        for way in &mut self.ways {
            way.own = own.in_family(way.dialog.server().family());
        }
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
        if key.id == self.ways[0].dialog.key.id || !matches!(self.phase, Phase::Active | Phase::Halted) {
            return;
        }
        self.phase = Phase::Active;
        for (attempt, course) in &mut self.courses {
            course.update_secret(key.secret.attempt_right(*attempt));
        }
        for way in &mut self.ways {
            way.dialog.update_key(key.clone(), now);
            way.start(now);
        }
    }

    /// Starts over after a new registration, in one family until [`Host::set_second_server`]; attempts not yet
    /// introduced are gone, links go on.
    pub fn replace(&mut self, now: Instant, credentials: HostCredentials) {
        let HostCredentials { key, instance, server, refresh } = credentials;
        self.courses.values_mut().for_each(Course::lose_server);
        self.drop_second();
        self.ways[0].dialog.replace(key, instance, server.into(), now);
        self.ways[0].start(now);
        self.instance = instance;
        self.refresh = sane_refresh(refresh);
        self.draining = false;
        self.phase = Phase::Active;
        self.handle_timeout(now);
    }

    /// Binds to an attempt learned over HTTP rather than by NOTICE. Known ones are left as they are.
    pub fn bind(&mut self, now: Instant, attempt: AttemptId, remaining: Duration) {
        let way = self.ways.iter().position(|way| way.is_proved(now)).unwrap_or_default();
        self.bind_by(now, way, attempt, remaining);
    }

    fn bind_by(&mut self, now: Instant, way: usize, attempt: AttemptId, remaining: Duration) {
        let pending = self.courses.values().filter(|course| !course.is_connected()).count();
        let full = pending >= PENDING_MAX || self.courses.len() >= LINKS_MAX;
        let known = self.courses.contains_key(&attempt) || self.ended.iter().any(|it| *it == attempt);
        if self.phase != Phase::Active || full || known {
            return;
        }
        let secret = self.ways[0].dialog.key.secret.attempt_right(attempt);
        let deadline = now.after(remaining.min(limits::ATTEMPT_MAX));
        let (lan, keep_alive) = (self.lan, self.keep_alive);
        let start = Start { attempt, role: Role::Host, secret, deadline, way, lan, keep_alive };
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
        let proved = self.ways.iter().position(|way| way.is_proved(now));
        if self.phase == Phase::Active
            && let Some(proved) = proved
        {
            self.phase = Phase::Closing;
            self.bye_way = proved;
            self.ways[proved].start_bye(now);
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

    /// Whether the address is proved and PRESENCE is being answered, in one family at least.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.phase == Phase::Active && self.ways.iter().any(Way::is_present)
    }

    fn finish(&mut self, acknowledged: bool) {
        self.phase = Phase::Closed;
        self.events.push_over(HostEvent::Closed { acknowledged });
    }

    fn on_answer(&mut self, now: Instant, by: usize, bytes: &[u8]) {
        let Ok(answer) = parse_answer(bytes) else { return };
        let way = &mut self.ways[by];
        match answer {
            Answer::Challenge(challenge) => self.on_challenge(now, by, challenge),
            Answer::Ack(ack) if ack.body.session.get() == way.dialog.session() => self.on_ack(now, by, &ack),
            Answer::Ack(_) => {}
            Answer::Notice(notice) => self.on_notice(now, by, &notice),
            Answer::Bound(bound) => {
                if let Some(course) = course_by(&mut self.courses, by, bound.body.attempt) {
                    course.on_bound(now, &mut way.dialog, &bound);
                }
            }
            Answer::Introduce(it) => {
                if let Some(course) = course_by(&mut self.courses, by, it.body.attempt) {
                    course.on_introduce(now, &mut way.dialog, &it, &mut self.out);
                }
            }
        }
    }

    fn on_challenge(&mut self, now: Instant, by: usize, challenge: &Challenge) {
        if self.phase != Phase::Active {
            return;
        }
        let way = &mut self.ways[by];
        let sought = way.dialog.seeking();
        match way.dialog.on_challenge(now, challenge) {
            Challenged::Ignored => {}
            // The answer to a HELLO out of turn. The repeats of PRESENCE keep their pace, or a server that
            // answers HELLO and nothing else would be asked without pause.
            Challenged::Proved if !sought => {}
            Challenged::Proved => {
                way.on_proved(now);
                let courses = self.courses.values_mut().filter(|course| course.way == by);
                courses.for_each(|course| course.on_proved(now));
            }
            Challenged::OtherInstance(instance) => {
                self.events.push_over(HostEvent::InstanceChanged { instance });
            }
        }
    }

    fn on_ack(&mut self, now: Instant, by: usize, ack: &Signed<'_, Ack>) {
        let body = ack.body;
        let way = &mut self.ways[by];
        let Some(sent) = way.sent_at(body.sequence.get()) else {
            for course in self.courses.values_mut().filter(|course| course.way == by) {
                course.on_ack(now, &mut way.dialog, ack);
            }
            return;
        };
        if !way.on_ack(now, ack) {
            return;
        }
        if self.phase == Phase::Closing {
            return self.finish(true);
        }
        let refused = Refused::from_wire(body.code, body.detail);
        if refused.is_none() && body.refresh_ms.get() > 0 {
            self.refresh = sane_refresh(Duration::from_millis(body.refresh_ms.get().into()));
        }
        way.plan(now, self.refresh);
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

    fn on_notice(&mut self, now: Instant, by: usize, notice: &Signed<'_, Notice>) {
        let dialog = &mut self.ways[by].dialog;
        if !dialog.verifies(|secret| notice.verify(Direction::ToClient, secret)) {
            return;
        }
        dialog.learn_cookie(now, notice.body.cookie);
        let remaining = Duration::from_millis(notice.body.remaining_ms.get().into());
        self.bind_by(now, by, AttemptId::from_bytes(notice.body.attempt), remaining);
    }

    fn poll_bye(&mut self, now: Instant) {
        let way = &mut self.ways[self.bye_way];
        if now < way.bye_at() {
            return;
        }
        if self.byes < BYES_MAX && way.send_bye(now, &mut self.out) {
            self.byes += 1;
        } else {
            self.finish(false);
        }
    }

    /// This side's endpoint in the other family than that of way `by`, where the server would find it.
    fn other_family(&self, now: Instant, by: usize) -> Option<OtherFamily> {
        let other = self.ways.get(1 - by)?;
        let cookie = other.dialog.current_cookie(now)?;
        Some(OtherFamily { own: other.own?, cookie: Some(cookie) })
    }

    fn poll_courses(&mut self, now: Instant) {
        let others = [self.other_family(now, 0), self.other_family(now, 1)];
        for course in self.courses.values_mut() {
            let dialog = &mut self.ways[course.way].dialog;
            course.handle_timeout(now, dialog, others[course.way], &mut self.out);
        }
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
        if let Some(by) = self.ways.iter().position(|way| way.dialog.server() == from) {
            self.on_answer(now, by, bytes);
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
            Phase::Active => self.ways.iter_mut().for_each(|way| way.poll(now, &mut self.out)),
            Phase::Closing => self.poll_bye(now),
            Phase::Halted | Phase::Closed => {}
        }
        self.poll_courses(now);
        let port_is_free = self.phase == Phase::Active && self.courses.values().all(Course::is_done);
        let told = [HostEvent::ChangePort, HostEvent::ChangeSecondPort];
        for (way, event) in self.ways.iter_mut().zip(told).filter(|_| port_is_free) {
            if way.dialog.take_port_change() {
                self.events.push_over(event);
            }
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
            Phase::Active => self.ways.iter().map(Way::next_timeout).fold(Instant::MAX, Instant::min),
            Phase::Closing => self.ways[self.bye_way].bye_at(),
            Phase::Halted | Phase::Closed => Instant::MAX,
        };
        self.courses.values().map(Course::next_timeout).fold(own, Instant::min)
    }

    fn wants_new_port(event: &HostEvent) -> bool {
        *event == HostEvent::ChangePort
    }

    fn wants_new_second_port(event: &HostEvent) -> bool {
        *event == HostEvent::ChangeSecondPort
    }
}

/// The course of `attempt`, if it takes way `by`.
fn course_by(courses: &mut BTreeMap<AttemptId, Course>, by: usize, attempt: [u8; 16]) -> Option<&mut Course> {
    courses.get_mut(&AttemptId::from_bytes(attempt)).filter(|course| course.way == by)
}

/// The refresh asked for, held to what neither floods the server nor loses the presence.
fn sane_refresh(refresh: Duration) -> Duration {
    refresh.clamp(Duration::from_millis(100), limits::PRESENCE_REFRESH.max(Duration::from_secs(20)))
}
