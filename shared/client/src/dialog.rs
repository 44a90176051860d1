//! One credential's dialog with the server: HELLO and CHALLENGE, the cookie, session and sequence.

use core::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Challenge, Cookie, Header, Hello, Kind, Proof};
use zerocopy::byteorder::big_endian::U64;

use crate::credentials::RoleKey;
use crate::machine::{Backoff, Outbox, Recent, Transmit};

/// First distance between tries, of every request.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Longest distance between HELLOs.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Requests left unanswered before the address is proved anew.
pub(crate) const SILENCES_MAX: u32 = 3;
/// HELLOs left unanswered before another local port is asked for: a stale conntrack entry dies with the port.
/// About 8 s with the back-off above.
pub(crate) const HELLOS_PER_PORT: u32 = 6;
/// A cookie is not used once it is this old; the server takes it for 30 s from when it was made.
const COOKIE_AGE_MAX: Duration = Duration::from_secs(27);

/// What a CHALLENGE came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenged {
    /// Not an answer to a HELLO of ours.
    Ignored,
    /// The address is proved.
    Proved,
    /// Another instance answers, or somebody forged that. Nothing was changed; told once for each HELLO.
    OtherInstance(InstanceId),
}

#[derive(Debug)]
pub(crate) struct Dialog {
    pub(crate) key: RoleKey,
    /// Replaced by a renewal; answers to it may still be on their way.
    previous: Option<RoleKey>,
    instance: InstanceId,
    server: Endpoint,
    session: u64,
    sequence: u64,
    cookie: Option<(Cookie, Instant)>,
    nonces: Recent,
    seeking: bool,
    hello_backoff: Backoff,
    hello_at: Instant,
    hellos: u32,
    /// Another instance was told of since the last HELLO.
    instance_doubted: bool,
    /// So many HELLOs got no answer that the port should change.
    port_doubted: bool,
    pub(crate) rng: SmallRng,
    round_trip: Option<Duration>,
}

impl Dialog {
    /// A dialog that begins with a HELLO at `now`.
    pub(crate) fn new(key: RoleKey, instance: InstanceId, server: Endpoint, seed: u64, now: Instant) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let session = rng.next_u64();
        Self {
            key,
            previous: None,
            instance,
            server,
            session,
            sequence: 0,
            cookie: None,
            nonces: Recent::default(),
            seeking: true,
            hello_backoff: Backoff::new(BACKOFF_MIN, BACKOFF_MAX),
            hello_at: now,
            hellos: 0,
            instance_doubted: false,
            port_doubted: false,
            rng,
            round_trip: None,
        }
    }

    /// Goes on with a key of the same listing, from a renewal.
    pub(crate) fn update_key(&mut self, key: RoleKey, now: Instant) {
        self.previous = Some(core::mem::replace(&mut self.key, key));
        self.forget(now);
    }

    /// Starts over with another credential, of whatever instance.
    pub(crate) fn replace(&mut self, key: RoleKey, instance: InstanceId, server: Endpoint, now: Instant) {
        self.key = key;
        self.previous = None;
        self.instance = instance;
        self.server = server;
        self.forget(now);
    }

    /// A new key or port: no cookie holds, no answer is awaited.
    fn forget(&mut self, now: Instant) {
        self.session = self.rng.next_u64();
        self.sequence = 0;
        self.cookie = None;
        self.seeking = false;
        self.seek(now);
    }

    pub(crate) const fn server(&self) -> Endpoint {
        self.server
    }

    pub(crate) const fn session(&self) -> u64 {
        self.session
    }

    pub(crate) const fn seeking(&self) -> bool {
        self.seeking
    }

    pub(crate) const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Proves the address anew, from `now` on.
    pub(crate) const fn seek(&mut self, now: Instant) {
        if !self.seeking {
            self.seeking = true;
            self.hello_at = now;
            self.hello_backoff.reset();
            self.hellos = 0;
            self.port_doubted = false;
        }
    }

    /// When the next HELLO is due.
    pub(crate) const fn hello_at(&self) -> Instant {
        if self.seeking { self.hello_at } else { Instant::MAX }
    }

    /// Sends a HELLO when one is due.
    pub(crate) fn poll_hello(&mut self, now: Instant, out: &mut Outbox) {
        if !self.seeking || now < self.hello_at {
            return;
        }
        self.send_hello(now, out);
        self.hello_at = now.after(self.hello_backoff.next(&mut self.rng));
        self.hellos += 1;
        self.port_doubted |= self.hellos.is_multiple_of(HELLOS_PER_PORT + 1);
    }

    /// Whether the port should change now; then what was proved no longer holds. The owner asks only while nothing
    /// of its own needs the port: the wish stays until then, or until the server answers.
    pub(crate) const fn take_port_change(&mut self) -> bool {
        let change = self.seeking && core::mem::replace(&mut self.port_doubted, false);
        if change {
            self.cookie = None;
        }
        change
    }

    /// Sends a HELLO out of turn: a request went unanswered, and a restarted server can say so only by CHALLENGE.
    pub(crate) fn send_hello(&mut self, now: Instant, out: &mut Outbox) {
        let nonce = self.rng.next_u64();
        self.nonces.push(nonce, now);
        self.instance_doubted = false;
        let len = limits::HELLO_LEN_MIN;
        let hello =
            Hello { header: Header::new(Kind::Hello, len), key_id: self.key.id, nonce: U64::new(nonce) };
        let secret = &self.key.secret;
        out.push(Transmit::sealed(self.server, &hello, len, Direction::ToServer, secret));
    }

    /// A CHALLENGE from the server's address. It has no MAC; the nonce alone shows that it answers us. Who reads our
    /// HELLO can forge one that names another instance, so that leaves the nonce to the genuine answer.
    pub(crate) fn on_challenge(&mut self, now: Instant, challenge: &Challenge) -> Challenged {
        let Some(sent) = self.nonces.find(challenge.nonce.get()) else { return Challenged::Ignored };
        let instance = InstanceId(challenge.instance.get());
        if instance != self.instance {
            let told = core::mem::replace(&mut self.instance_doubted, true);
            return if told { Challenged::Ignored } else { Challenged::OtherInstance(instance) };
        }
        self.nonces.clear();
        self.round_trip = Some(now.since(sent));
        self.cookie = Some((challenge.cookie, now));
        self.seeking = false;
        Challenged::Proved
    }

    /// Takes the next cookie from an answer whose MAC was verified; an older one, late or replayed, is not
    /// taken back.
    pub(crate) fn learn_cookie(&mut self, now: Instant, cookie: Cookie) {
        let newer = |held: &(Cookie, Instant)| cookie.issued_ms.get() >= held.0.issued_ms.get();
        if self.cookie.as_ref().is_none_or(newer) {
            self.cookie = Some((cookie, now));
        }
    }

    /// The cookie held, while it can be used.
    pub(crate) fn current_cookie(&self, now: Instant) -> Option<Cookie> {
        self.cookie.filter(|(_, received)| now.since(*received) < COOKIE_AGE_MAX).map(|(cookie, _)| cookie)
    }

    /// Starts a request with the next sequence; `None` without a usable cookie.
    pub(crate) fn proof(&mut self, now: Instant, kind: Kind, len: usize) -> Option<Proof> {
        let cookie = self.current_cookie(now)?;
        self.sequence += 1;
        Some(Proof {
            header: Header::new(kind, len),
            key_id: self.key.id,
            cookie,
            session: U64::new(self.session),
            sequence: U64::new(self.sequence),
        })
    }

    /// Whether `check` holds for the secret in use or the one a renewal just replaced.
    pub(crate) fn verifies(&self, check: impl Fn(&rendezvous_shared::credential::Secret) -> bool) -> bool {
        check(&self.key.secret) || self.previous.as_ref().is_some_and(|key| check(&key.secret))
    }
}
