//! The direct link between two introduced peers. Sans-IO; the server has no part in it any more.
//!
//! **Connected** means: a datagram that only the peer can have made said that the peer hears us, that is, a punch
//! with `heard` set or any message. Hearing the peer alone is not enough, since the way back may be shut.
//! Each side answers every punch without `heard` at once, goes on punching until it is connected, and sends
//! [`TRAILING_PUNCHES`] more after that, spaced as before. So whichever datagram is lost, a later one says the
//! same, and the side that is connected first does not leave the other behind.
//!
//! The path used is where the connecting datagram came from. It moves, since a NAT may give the peer another port,
//! only to the source of a message with a higher ordinal than all messages before it: a delayed or replayed message
//! moves nothing, and no punch does after the connecting one. TTLs are left alone.

use core::time::Duration;
use std::net::SocketAddr;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rendezvous_shared::credential::{Direction, Secret};
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{
    self, Header, Kind, MESSAGE_PAYLOAD_MAX, Message, PeerBody, PeerDatagram, Punch, seal_message,
};
use zerocopy::byteorder::big_endian::U32;

use crate::machine::{Bounded, Outbox, Transmit, jittered};

/// Distance between punches when the server gives none.
pub const RETRY_DEFAULT: Duration = Duration::from_millis(200);
/// Punches to each address before giving up when the server gives no number: 5 s.
pub const RETRIES_DEFAULT: u8 = 25;
/// Punches to each LAN candidate, which nobody proved.
pub const LAN_PUNCHES_MAX: u8 = 3;
/// Punches after this side is connected, so that the other is too, whatever got lost: one in 5,000 fails at
/// 30 % loss even if no message follows.
pub const TRAILING_PUNCHES: u8 = 6;
/// How often a connected link that sends nothing says that it is there; NATs forget a mapping after 30 s.
pub const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(10);
/// Keep-alives that may be missed before the link counts as closed.
const KEEP_ALIVES_MISSED: u32 = 4;
/// Punches answered at once, over a link's life: a replayed punch must not make an endless echo.
const ANSWERS_MAX: u8 = 64;
/// The peer's two endpoints, two candidates, and sources that proved themselves.
const PATHS_MAX: usize = 8;
/// Events that wait; what comes above it is dropped like a datagram on the way.
const EVENTS_MAX: usize = 256;

/// What an introduction says.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The attempt.
    pub attempt: AttemptId,
    /// This side's role.
    pub role: Role,
    /// [`PunchSecret::peer_key`](rendezvous_shared::credential::PunchSecret::peer_key) of the attempt.
    pub key: Secret,
    /// The peer's proved endpoint.
    pub peer: Endpoint,
    /// Its endpoint in the other family.
    pub second: Option<Endpoint>,
    /// Its candidates within a shared network.
    pub lan: [Option<Endpoint>; 2],
    /// Punch after this; held to 2 s at most.
    pub start_in: Duration,
    /// Distance between punches; [`RETRY_DEFAULT`] when zero, held to 20 ms–2 s.
    pub retry: Duration,
    /// Punches before giving up; [`RETRIES_DEFAULT`] when zero.
    pub retry_max: u8,
    /// Distance between keep-alives; zero for none, and then the link never closes by itself.
    pub keep_alive: Duration,
}

/// What a link tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Both sides hear each other.
    Connected {
        /// Where the peer is reached.
        peer: SocketAddr,
        /// Time from our last punch to its answer; an estimate, too short where the way is longer than the
        /// distance of punches. `None` when a message came before any answer.
        round_trip: Option<Duration>,
    },
    /// A message, each at most once, in the order of arrival.
    Message {
        /// Its number, counted by the peer from 1.
        ordinal: u32,
        /// Its payload, at most 512 bytes.
        payload: Vec<u8>,
    },
    /// Nothing that says it hears us came from the peer; all traffic has stopped.
    PeerSilent,
    /// As above, and something came that did not know the punch secret.
    PeerUnrecognised,
    /// A connected peer has not been heard for 40 s (4 keep-alives).
    Closed,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefusal {
    /// The link is not connected, or no longer.
    #[error("the link is not connected")]
    NotConnected,
    /// The payload is longer than 512 bytes.
    #[error("the payload is longer than 512 bytes")]
    TooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Punching,
    Connected(Endpoint),
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    to: Endpoint,
    left: u8,
    /// A valid datagram came from there: what is said per path, since another path may be open in one direction only.
    heard: bool,
}

/// One link. Its owner shares a socket with it: it hands in what the peer sent and takes away what to send.
#[derive(Debug)]
pub struct Link {
    attempt: AttemptId,
    role: Role,
    key: Secret,
    retry: Duration,
    keep_alive: Duration,
    rng: SmallRng,
    state: State,
    paths: Vec<Path>,
    rounds_left: u8,
    next_at: Instant,
    heard: bool,
    heard_at: Instant,
    stranger: bool,
    answers_left: u8,
    asked_at: Option<Instant>,
    punches: u32,
    messages: u32,
    window: Window,
    out: Outbox,
    events: Bounded<LinkEvent>,
}

impl Link {
    /// A link that starts punching `start_in` after `now`.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64, now: Instant) -> Self {
        let rounds = if config.retry_max == 0 { RETRIES_DEFAULT } else { config.retry_max };
        let retry = if config.retry.is_zero() { RETRY_DEFAULT } else { config.retry };
        let public = [Some(config.peer), config.second].map(|to| (to, rounds));
        let lan = config.lan.map(|to| (to, LAN_PUNCHES_MAX.min(rounds)));
        let mut paths = Vec::<Path>::with_capacity(PATHS_MAX);
        for (to, left) in public.into_iter().chain(lan) {
            if let Some(to) = to.filter(|to| paths.iter().all(|path| path.to != *to)) {
                paths.push(Path { to, left, heard: false });
            }
        }
        Self {
            attempt: config.attempt,
            role: config.role,
            key: config.key,
            retry: retry.clamp(Duration::from_millis(20), Duration::from_secs(2)),
            keep_alive: config.keep_alive,
            rng: SmallRng::seed_from_u64(seed),
            state: State::Punching,
            paths,
            rounds_left: rounds,
            next_at: now.after(config.start_in.min(Duration::from_secs(2))),
            heard: false,
            heard_at: now,
            stranger: false,
            answers_left: ANSWERS_MAX,
            asked_at: None,
            punches: 0,
            messages: 0,
            window: Window::default(),
            out: Outbox::new(),
            events: Bounded::new(EVENTS_MAX),
        }
    }

    /// Takes a datagram that names this attempt; what the peer did not make changes nothing but the reason
    /// given at the end.
    pub fn handle(&mut self, now: Instant, from: Endpoint, datagram: &PeerDatagram<'_>) {
        if self.state == State::Over || datagram.attempt != self.attempt || datagram.role != self.role.peer()
        {
            return;
        }
        if !datagram.verify(&self.key) {
            self.stranger = true;
            return;
        }
        self.heard = true;
        self.heard_at = now;
        self.learn(from);
        match datagram.body {
            PeerBody::Punch { heard: true } => self.connect(now, from),
            PeerBody::Punch { heard: false } => {
                if self.answers_left > 0 {
                    self.answers_left -= 1;
                    self.punch(now, from, true);
                }
            }
            PeerBody::Message { ordinal, payload } => {
                self.connect(now, from);
                if self.window.newest(ordinal) {
                    self.state = State::Connected(from);
                }
                if self.window.insert(ordinal) {
                    let _ = self.events.try_push(LinkEvent::Message { ordinal, payload: payload.to_vec() });
                }
            }
        }
    }

    /// Sends what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_timeout() {
            return;
        }
        match self.state {
            State::Punching if self.rounds_left == 0 => self.give_up(),
            State::Punching => {
                self.rounds_left -= 1;
                self.punch_all(now);
                let pause = jittered(self.retry, &mut self.rng);
                // After the last one, the answer to it may be as far away as a slow path is long.
                let pause = if self.rounds_left == 0 { pause.max(Duration::from_millis(500)) } else { pause };
                self.next_at = now.after(pause);
            }
            State::Connected(_) if now >= self.closes_at() => {
                self.state = State::Over;
                self.tell(LinkEvent::Closed);
            }
            State::Connected(to) => {
                self.punch(now, to, true);
                let pause = if self.rounds_left > 0 { self.retry } else { self.keep_alive };
                self.rounds_left = self.rounds_left.saturating_sub(1);
                self.next_at =
                    if pause.is_zero() { Instant::MAX } else { now.after(jittered(pause, &mut self.rng)) };
            }
            State::Over => {}
        }
    }

    /// Sends `payload`, at most 512 bytes, once; nobody resends it.
    ///
    /// # Errors
    /// See [`SendRefusal`].
    pub fn send(&mut self, payload: &[u8]) -> Result<u32, SendRefusal> {
        let State::Connected(to) = self.state else { return Err(SendRefusal::NotConnected) };
        if payload.len() > MESSAGE_PAYLOAD_MAX {
            return Err(SendRefusal::TooLong);
        }
        self.messages += 1;
        let len = size_of::<Message>() + payload.len() + rendezvous_shared::credential::MAC_LEN;
        let message = Message {
            header: Header::new(Kind::Message, len),
            attempt: self.attempt.to_bytes(),
            role: self.role as u8,
            reserved: [0; 3],
            ordinal: U32::new(self.messages),
        };
        self.out.push(Transmit::filled(to, |buffer| seal_message(&message, payload, &self.key, buffer)));
        Ok(self.messages)
    }

    /// Stops all traffic, without a word: the protocol has none for it.
    pub fn close(&mut self) {
        self.state = State::Over;
        while self.out.pop().is_some() {}
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop()
    }

    /// When [`Link::handle_timeout`] is wanted; [`Instant::MAX`] once the link is over.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        match self.state {
            State::Punching => self.next_at,
            State::Connected(_) => self.next_at.min(self.closes_at()),
            State::Over => Instant::MAX,
        }
    }

    /// Whether messages can be sent.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Whether it is over for good.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    fn closes_at(&self) -> Instant {
        if self.keep_alive.is_zero() {
            Instant::MAX
        } else {
            self.heard_at.after(self.keep_alive * KEEP_ALIVES_MISSED)
        }
    }

    fn connect(&mut self, now: Instant, from: Endpoint) {
        if self.state != State::Punching {
            return;
        }
        self.state = State::Connected(from);
        self.rounds_left = TRAILING_PUNCHES;
        self.next_at = now;
        let round_trip = self.asked_at.map(|asked| now.since(asked));
        self.tell(LinkEvent::Connected { peer: from.into(), round_trip });
        self.handle_timeout(now);
    }

    fn give_up(&mut self) {
        self.state = State::Over;
        self.tell(if self.stranger { LinkEvent::PeerUnrecognised } else { LinkEvent::PeerSilent });
    }

    /// Tells what must not be lost: the oldest message makes room for it.
    fn tell(&mut self, event: LinkEvent) {
        self.events.push_over(event);
    }

    /// Punches a verified source too: a NAT may have given the peer another port towards us.
    fn learn(&mut self, from: Endpoint) {
        self.paths.iter_mut().filter(|path| path.to == from).for_each(|path| path.heard = true);
        let known = self.paths.iter().any(|path| path.to == from && path.left > 0);
        if !known && self.paths.len() < PATHS_MAX {
            self.paths.push(Path { to: from, left: self.rounds_left, heard: true });
        }
    }

    fn punch_all(&mut self, now: Instant) {
        for at in 0..self.paths.len() {
            if self.paths[at].left > 0 {
                self.paths[at].left -= 1;
                self.punch(now, self.paths[at].to, self.paths[at].heard);
            }
        }
    }

    fn punch(&mut self, now: Instant, to: Endpoint, heard: bool) {
        self.punches += 1;
        if !self.heard {
            self.asked_at = Some(now);
        }
        let len = wire::sealed_len::<Punch>(0);
        let punch = Punch {
            header: Header::new(Kind::Punch, len),
            attempt: self.attempt.to_bytes(),
            role: self.role as u8,
            heard: u8::from(heard),
            reserved: [0; 2],
            ordinal: U32::new(self.punches),
        };
        self.out.push(Transmit::sealed(to, &punch, len, Direction::ToPeer, &self.key));
    }
}

/// The numbers seen lately: the highest, and which of the 64 below it.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    highest: u32,
    below: u64,
}

impl Window {
    const fn newest(self, ordinal: u32) -> bool {
        ordinal > self.highest
    }

    /// Whether `ordinal` is new; takes note of it.
    fn insert(&mut self, ordinal: u32) -> bool {
        if ordinal > self.highest {
            let ahead = ordinal - self.highest;
            self.below = self.below.checked_shl(ahead).unwrap_or(0);
            if ahead <= 64 && self.highest > 0 {
                self.below |= 1 << (ahead - 1);
            }
            self.highest = ordinal;
            return true;
        }
        let behind = self.highest - ordinal;
        if ordinal == 0 || behind == 0 || behind > 64 || self.below >> (behind - 1) & 1 == 1 {
            return false;
        }
        self.below |= 1 << (behind - 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn a_number_passes_once_in_any_order() {
        let mut window = Window::default();
        let passed: Vec<bool> = [2, 1, 2, 1, 5, 3, 3, 70, 6, 5, 4, 0].map(|it| window.insert(it)).to_vec();
        let want = [true, true, false, false, true, true, false, true, true, false, false, false];
        assert_eq!(passed, want);
    }
}
