//! The joiner: one attempt, from HELLO over BIND and INTRODUCE to the link and REPORT. Sans-IO.

use core::time::Duration;
use std::net::SocketAddr;

use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{InstanceId, Role};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Answer, parse_answer, parse_peer};

use crate::course::{AttemptEvent, Course, Start};
use crate::credentials::JoinerCredentials;
use crate::dialog::{Challenged, Dialog};
use crate::machine::{Bounded, Machine, Outbox, Transmit};
use crate::peer::{KEEP_ALIVE_DEFAULT, SendRefusal};

/// Events that wait beside those of the attempt.
const EVENTS_MAX: usize = 64;

/// What a joiner tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinerEvent {
    /// The server answered HELLO; BIND follows.
    Proved {
        /// Round trip to the server.
        round_trip: Duration,
    },
    /// What happened in the attempt.
    Attempt(AttemptEvent),
    /// Nothing is heard from the server; another local port may help. Only before the port is bound.
    ChangePort,
    /// Another instance answers, or somebody forged its CHALLENGE, which has no MAC. The joiner goes on as before and
    /// tells this at most once for each HELLO, and only until it is introduced. Ask `GET /v1/attempts/{id}`: only
    /// when that does not know the attempt is it over.
    InstanceChanged {
        /// The instance that answers now.
        instance: InstanceId,
    },
}

/// A joiner in one attempt.
#[derive(Debug)]
pub struct Joiner {
    dialog: Dialog,
    course: Course,
    out: Outbox,
    events: Bounded<JoinerEvent>,
}

impl Joiner {
    /// A joiner that begins with a HELLO at `now`. `seed` must be unpredictable to strangers: nonces come of it.
    #[must_use]
    pub fn new(credentials: JoinerCredentials, seed: u64, now: Instant) -> Self {
        Self::with_keep_alive(credentials, KEEP_ALIVE_DEFAULT, seed, now)
    }

    /// As [`Joiner::new`], with another distance between keep-alives of the link (zero for none).
    #[must_use]
    pub fn with_keep_alive(
        credentials: JoinerCredentials,
        keep_alive: Duration,
        seed: u64,
        now: Instant,
    ) -> Self {
        let JoinerCredentials { key, attempt, instance, server, lifetime, lan } = credentials;
        let secret = key.secret.clone();
        let deadline = now.after(lifetime);
        let start = Start { attempt, role: Role::Joiner, secret, deadline, lan, keep_alive };
        let mut joiner = Self {
            dialog: Dialog::new(key, instance, server.into(), seed, now),
            course: Course::new(start, now),
            out: Outbox::new(),
            events: Bounded::new(EVENTS_MAX),
        };
        joiner.handle_timeout(now);
        joiner
    }

    /// Sends a message to the peer, at most 512 bytes, once; returns its number.
    ///
    /// # Errors
    /// See [`SendRefusal`].
    pub fn send(&mut self, now: Instant, payload: &[u8]) -> Result<u32, SendRefusal> {
        self.course.send(now, payload, &mut self.out)
    }

    /// Stops at once and sends nothing more.
    pub fn close(&mut self) {
        self.course.close();
    }

    /// Whether it has stopped for good: refused, timed out, the peer silent and that reported, or closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.course.is_over()
    }

    /// Whether the link can carry messages.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.course.is_connected()
    }

    fn on_answer(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(answer) = parse_answer(bytes) else { return };
        match answer {
            Answer::Challenge(challenge) => match self.dialog.on_challenge(now, challenge) {
                Challenged::Ignored => {}
                Challenged::Proved => {
                    let round_trip = self.dialog.round_trip().unwrap_or_default();
                    self.events.push_over(JoinerEvent::Proved { round_trip });
                    self.course.on_proved(now);
                }
                Challenged::OtherInstance(instance) if self.course.is_binding() => {
                    self.events.push_over(JoinerEvent::InstanceChanged { instance });
                }
                Challenged::OtherInstance(_) => {}
            },
            Answer::Ack(ack) if ack.body.session.get() == self.dialog.session() => {
                self.course.on_ack(now, &mut self.dialog, &ack);
            }
            Answer::Bound(bound) if bound.body.attempt == self.course.attempt_bytes() => {
                self.course.on_bound(now, &mut self.dialog, &bound);
            }
            Answer::Introduce(it) if it.body.attempt == self.course.attempt_bytes() => {
                self.course.on_introduce(now, &mut self.dialog, &it, &mut self.out);
            }
            Answer::Ack(_) | Answer::Bound(_) | Answer::Introduce(_) | Answer::Notice(_) => {}
        }
    }
}

impl Machine for Joiner {
    type Event = JoinerEvent;

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let from = Endpoint::from(from);
        if from == self.dialog.server() {
            self.on_answer(now, bytes);
        } else if let Ok(datagram) = parse_peer(bytes) {
            self.course.handle_peer(now, from, &datagram, &mut self.out);
        }
        self.handle_timeout(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        // HELLO serves BIND; for REPORT and the link the address need not be proved again.
        if self.course.is_binding() {
            self.dialog.poll_hello(now, &mut self.out);
            if !self.course.is_settled() && self.dialog.take_port_change() {
                self.events.push_over(JoinerEvent::ChangePort);
            }
        }
        self.course.handle_timeout(now, &mut self.dialog, &mut self.out);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop()
    }

    fn poll_event(&mut self) -> Option<JoinerEvent> {
        self.events.pop().or_else(|| self.course.poll_event().map(JoinerEvent::Attempt))
    }

    fn next_timeout(&self) -> Instant {
        let hello = if self.course.is_binding() { self.dialog.hello_at() } else { Instant::MAX };
        self.course.next_timeout().min(hello)
    }

    fn wants_new_port(event: &JoinerEvent) -> bool {
        *event == JoinerEvent::ChangePort
    }
}
