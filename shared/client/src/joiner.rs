//! The joiner: one attempt, from HELLO over BIND and INTRODUCE to the link and REPORT. Sans-IO.

use core::time::Duration;
use std::net::SocketAddr;

use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{InstanceId, Role};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Answer, Challenge, parse_answer, parse_peer};

use crate::course::{AttemptEvent, Course, Start};
use crate::credentials::{JoinerCredentials, OwnAddresses};
use crate::dialog::{Challenged, Dialog};
use crate::machine::{Bounded, Machine, Outbox, Transmit};
use crate::peer::{KEEP_ALIVE_DEFAULT, SendRefusal};
use crate::second::OtherFamily;

/// How long after the second family's proof the first may still take, before the joiner binds from the second.
const FIRST_FAMILY_LATE: Duration = Duration::from_millis(500);

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
    /// As [`JoinerEvent::ChangePort`], of the socket of the other family.
    ChangeSecondPort,
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
    /// One for each family, the first always there; the course takes one of them.
    dialogs: Vec<Dialog>,
    own: OwnAddresses,
    /// From when on a second family that is proved serves in place of a first that is not.
    switch_at: Instant,
    instance: InstanceId,
    seed: u64,
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
        let start = Start { attempt, role: Role::Joiner, secret, deadline, way: 0, lan, keep_alive };
        let mut joiner = Self {
            dialogs: vec![Dialog::new(key, instance, server.into(), seed, now)],
            own: OwnAddresses { lan, ..OwnAddresses::default() },
            switch_at: Instant::MAX,
            instance,
            seed,
            course: Course::new(start, now),
            out: Outbox::new(),
            events: Bounded::new(EVENTS_MAX),
        };
        joiner.handle_timeout(now);
        joiner
    }

    /// Proves the address in the other family, too, at the server's endpoint there; for a joiner that just began. BIND
    /// names it where [`Joiner::set_own`] tells it, and comes from it when the first family does not work. What goes to
    /// an address of that family must leave from a socket of its own.
    pub fn set_second_server(&mut self, now: Instant, server: SocketAddr) {
        let key = self.dialogs[0].key.clone();
        // Another stream of random numbers than the first dialog's: nonces tell the two apart.
        let seed = self.seed.rotate_left(32) ^ u64::from(u32::MAX);
        self.dialogs.truncate(1);
        self.dialogs.push(Dialog::new(key, self.instance, server.into(), seed, now));
        self.handle_timeout(now);
    }

    /// Sets what is known of the joiner's own addresses; to be set again when a port changed.
    pub fn set_own(&mut self, own: OwnAddresses) {
        self.own = own;
        self.course.set_lan(own.lan);
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

    fn on_answer(&mut self, now: Instant, by: usize, bytes: &[u8]) {
        let Ok(answer) = parse_answer(bytes) else { return };
        if let Answer::Challenge(challenge) = answer {
            return self.on_challenge(now, by, challenge);
        }
        if self.course.way != by {
            return;
        }
        let dialog = &mut self.dialogs[by];
        match answer {
            Answer::Ack(ack) if ack.body.session.get() == dialog.session() => {
                self.course.on_ack(now, dialog, &ack);
            }
            Answer::Bound(bound) if bound.body.attempt == self.course.attempt_bytes() => {
                self.course.on_bound(now, dialog, &bound);
            }
            Answer::Introduce(it) if it.body.attempt == self.course.attempt_bytes() => {
                self.course.on_introduce(now, dialog, &it, &mut self.out);
            }
            _ => {}
        }
    }

    fn on_challenge(&mut self, now: Instant, by: usize, challenge: &Challenge) {
        match self.dialogs[by].on_challenge(now, challenge) {
            Challenged::Ignored => {}
            Challenged::Proved => {
                let round_trip = self.dialogs[by].round_trip().unwrap_or_default();
                self.events.push_over(JoinerEvent::Proved { round_trip });
                if by != self.course.way && self.dialogs[self.course.way].current_cookie(now).is_none() {
                    self.switch_at = now.after(FIRST_FAMILY_LATE);
                } else {
                    self.course.on_proved(now);
                }
            }
            Challenged::OtherInstance(instance) if self.course.is_binding() => {
                self.events.push_over(JoinerEvent::InstanceChanged { instance });
            }
            Challenged::OtherInstance(_) => {}
        }
    }

    /// Binds from the second family once the first has had its time.
    fn switch(&mut self, now: Instant) {
        if now < self.switch_at {
            return;
        }
        self.switch_at = Instant::MAX;
        let first = self.dialogs[0].current_cookie(now);
        let second = self.dialogs.get(1).and_then(|dialog| dialog.current_cookie(now));
        if first.is_none() && second.is_some() && !self.course.has_asked() {
            self.course.way = 1;
            self.course.on_proved(now);
        }
    }

    /// This side's endpoint in the family that the course does not take; its proof is renewed when it is over.
    fn other_family(&mut self, now: Instant) -> Option<OtherFamily> {
        let other = self.dialogs.get_mut(1 - self.course.way)?;
        let own = self.own.in_family(other.server().family())?;
        let cookie = other.current_cookie(now);
        if cookie.is_none() {
            other.seek(now);
        }
        Some(OtherFamily { own, cookie })
    }
}

impl Machine for Joiner {
    type Event = JoinerEvent;

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let from = Endpoint::from(from);
        if let Some(by) = self.dialogs.iter().position(|dialog| dialog.server() == from) {
            self.on_answer(now, by, bytes);
        } else if let Ok(datagram) = parse_peer(bytes) {
            self.course.handle_peer(now, from, &datagram, &mut self.out);
        }
        self.handle_timeout(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut other = None;
        // HELLO serves BIND; for REPORT and the link the address need not be proved again.
        if self.course.is_binding() {
            self.switch(now);
            other = self.other_family(now);
            let told = [JoinerEvent::ChangePort, JoinerEvent::ChangeSecondPort];
            for (dialog, event) in self.dialogs.iter_mut().zip(told) {
                dialog.poll_hello(now, &mut self.out);
                if !self.course.is_settled() && dialog.take_port_change() {
                    self.events.push_over(event);
                }
            }
        }
        self.course.handle_timeout(now, &mut self.dialogs[self.course.way], other, &mut self.out);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop()
    }

    fn poll_event(&mut self) -> Option<JoinerEvent> {
        self.events.pop().or_else(|| self.course.poll_event().map(JoinerEvent::Attempt))
    }

    fn next_timeout(&self) -> Instant {
        if !self.course.is_binding() {
            return self.course.next_timeout();
        }
        let hello = self.dialogs.iter().map(Dialog::hello_at).fold(self.switch_at, Instant::min);
        self.course.next_timeout().min(hello)
    }

    fn wants_new_port(event: &JoinerEvent) -> bool {
        *event == JoinerEvent::ChangePort
    }

    fn wants_new_second_port(event: &JoinerEvent) -> bool {
        *event == JoinerEvent::ChangeSecondPort
    }
}
