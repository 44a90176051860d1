//! What all sans-IO machines have in common: the trait, datagrams to send, bounded queues, back-off.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use rand::RngExt;
use rand::rngs::SmallRng;
use rendezvous_shared::credential::{Direction, MAC_LEN, Secret};
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, MESSAGE_PAYLOAD_MAX};
use zerocopy::{Immutable, IntoBytes};

/// Longest datagram a machine sends: a message with a full payload.
pub const TRANSMIT_LEN_MAX: usize = size_of::<wire::Message>() + MESSAGE_PAYLOAD_MAX + MAC_LEN;

/// Datagrams that wait to be sent. A machine makes at most a handful per call for each attempt; what does not
/// fit counts as lost on the way.
const OUTBOX_LEN_MAX: usize = 512;

/// A sans-IO machine: input by `handle_*`, effects by `poll_*`, no clock and no I/O of its own.
pub trait Machine {
    /// What it tells its owner.
    type Event;

    /// A datagram arrived from `from`.
    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]);

    /// Does what is due at `now`; harmless when nothing is.
    fn handle_timeout(&mut self, now: Instant);

    /// The next datagram to send, until `None`.
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// The next event, until `None`.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`Machine::handle_timeout`] is wanted next; [`Instant::MAX`] for never.
    fn next_timeout(&self) -> Instant;

    /// Whether `event` asks for a new local port; [`driver::Session`](crate::driver::Session) then rebinds.
    fn wants_new_port(event: &Self::Event) -> bool;

    /// The same for the socket of the other address family, where there is one.
    fn wants_new_second_port(_: &Self::Event) -> bool {
        false
    }
}

/// A datagram to send.
#[derive(Clone)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    len: u16,
    buffer: [u8; TRANSMIT_LEN_MAX],
}

impl Transmit {
    /// What to send, at most [`TRANSMIT_LEN_MAX`] bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..usize::from(self.len)]
    }

    pub(crate) fn sealed<T: IntoBytes + Immutable>(
        to: Endpoint,
        layout: &T,
        len_min: usize,
        direction: Direction,
        secret: &Secret,
    ) -> Self {
        Self::filled(to, |buffer| wire::seal(layout, len_min, direction, secret, buffer))
    }

    pub(crate) fn filled(to: Endpoint, fill: impl FnOnce(&mut [u8]) -> usize) -> Self {
        let mut buffer = [0; TRANSMIT_LEN_MAX];
        let len = fill(&mut buffer);
        debug_assert!(len <= TRANSMIT_LEN_MAX);
        Self { to: to.into(), len: len as u16, buffer }
    }
}

impl fmt::Debug for Transmit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transmit").field("to", &self.to).field("len", &self.len).finish()
    }
}

/// A queue with a bound.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    items: VecDeque<T>,
    limit: usize,
}

impl<T> Bounded<T> {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { items: VecDeque::new(), limit }
    }

    /// Appends `item`, or gives it back when the queue is full.
    pub(crate) fn try_push(&mut self, item: T) -> Result<(), T> {
        if self.items.len() >= self.limit {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Appends `item`; the oldest leaves a full queue.
    pub(crate) fn push_over(&mut self, item: T) {
        if self.items.len() >= self.limit {
            self.items.pop_front();
        }
        self.items.push_back(item);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

/// Datagrams that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outbox(Bounded<Transmit>);

impl Outbox {
    pub(crate) const fn new() -> Self {
        Self(Bounded::new(OUTBOX_LEN_MAX))
    }

    pub(crate) fn push(&mut self, transmit: Transmit) {
        // Full: lost like a datagram on the way, and resent like one.
        let _ = self.0.try_push(transmit);
    }

    pub(crate) fn pop(&mut self) -> Option<Transmit> {
        self.0.pop()
    }
}

/// Doubling distances between tries, each off by up to a quarter either way so that a crowd spreads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    /// Tries before the distance doubles.
    patience: u32,
    tries: u32,
}

impl Backoff {
    pub(crate) const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, patience: 1, tries: 0 }
    }

    pub(crate) const fn with_patience(self, patience: u32) -> Self {
        Self { patience, ..self }
    }

    pub(crate) const fn reset(&mut self) {
        self.tries = 0;
    }

    /// How long to wait after the next try.
    pub(crate) fn next(&mut self, rng: &mut SmallRng) -> Duration {
        let wait = self.base.saturating_mul(1 << (self.tries / self.patience).min(16)).min(self.max);
        self.tries = self.tries.saturating_add(1);
        jittered(wait, rng)
    }
}

/// `wait`, off by up to a quarter either way.
pub(crate) fn jittered(wait: Duration, rng: &mut SmallRng) -> Duration {
    wait.mul_f64(rng.random_range(0.75..1.25))
}

/// The last few requests of one kind, to recognise their answers by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    sent: [Option<(u64, Instant)>; 4],
    next: usize,
}

impl Recent {
    pub(crate) const fn push(&mut self, number: u64, now: Instant) {
        self.sent[self.next] = Some((number, now));
        self.next = (self.next + 1) % self.sent.len();
    }

    /// When `number` was sent, if it is one of them.
    pub(crate) fn find(&self, number: u64) -> Option<Instant> {
        self.sent.iter().flatten().find(|(sent, _)| *sent == number).map(|(_, at)| *at)
    }

    /// Forgets all: none of them will be answered again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// `duration` as a datagram holds it; what is longer counts as the longest.
pub(crate) fn in_ms(duration: Duration) -> u16 {
    u16::try_from(duration.as_millis()).unwrap_or(u16::MAX)
}
