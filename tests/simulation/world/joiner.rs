//! A joiner: finds a listing, creates an attempt, and plays it to its end with the real machine.

use core::time::Duration;

use rand::{Rng, RngExt};
use rendezvous_client::joiner::Joiner;
use rendezvous_client::{JoinerCredentials, Machine, RoleKey};
use rendezvous_shared::id::{AttemptId, ListingId, PrincipalId};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    AttemptGrant, Caller, CancelAttempt, CreateAttempt, GetAttempt, IdempotencyKey, Reply, Transition,
};
use rendezvous_shared::time::Instant;

use super::control::{Asker, PATIENCE};
use super::net::NodeId;
use super::rogue::Rogue;
use super::server::{SERVER_V4, SERVER_V6};
use super::{World, fingerprint};
use crate::oracle::browse;
use crate::reached::Fault;

/// Tries of one request before a joiner goes home.
const TRIES_MAX: u32 = 12;

/// How far a joiner is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Browsing,
    Creating(ListingId),
    /// Has an attempt, and takes its time.
    Waiting(Box<RoleKey>, Instant),
    Playing,
    Asking,
    Over,
}

/// Who plays once the attempt is there.
pub(crate) enum Player {
    /// Nobody yet, or one that vanished.
    Nobody,
    /// The real machine.
    Machine(Box<Joiner>),
    /// One that plays by no rules.
    Rogue(Box<Rogue>),
}

/// A joiner and what it knows.
pub(crate) struct JoinerAgent {
    /// Its socket; maybe a host's.
    pub(crate) node: NodeId,
    /// A rogue's socket in the other family.
    pub(crate) second: Option<NodeId>,
    /// Itself.
    pub(crate) caller: Caller,
    /// Its attempt.
    pub(crate) attempt: Option<AttemptId>,
    /// Who plays.
    pub(crate) player: Player,
    /// The host it wants, once all is calm.
    pub(crate) wants: Option<usize>,
    /// Whether it was told where the host is.
    pub(crate) introduced: bool,
    /// Whether both heard each other.
    pub(crate) connected: bool,
    pub(super) stage: Stage,
    key: [u8; 16],
    lifetime: Duration,
    tries: u32,
    pub(super) job: Option<(u64, Instant)>,
    pub(super) wake_at: Instant,
    pub(super) leaves_at: Instant,
    pub(super) clock_ahead: Duration,
}

impl JoinerAgent {
    /// Whether request `id` is the one it waits for.
    pub(crate) fn awaits(&self, id: u64) -> bool {
        self.job.is_some_and(|(call, _)| call == id)
    }

    /// Whether it is done.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// When it next has something to do, on the world's clock.
    pub(crate) fn next(&self) -> Instant {
        if self.is_over() {
            return Instant::MAX;
        }
        let player = match &self.player {
            Player::Machine(machine) => machine.next_timeout(),
            Player::Nobody | Player::Rogue(_) => Instant::MAX,
        };
        let player = if player == Instant::MAX {
            player
        } else {
            Instant::ZERO.after(player.since(Instant::ZERO.after(self.clock_ahead)))
        };
        let rogue = match &self.player {
            Player::Rogue(rogue) => rogue.next(),
            _ => Instant::MAX,
        };
        let own = self.job.map_or(self.wake_at, |(_, until)| until);
        player.min(rogue).min(own).min(self.leaves_at)
    }
}

impl World {
    /// Another joiner; once all is calm, one for host `wants`.
    pub(crate) fn add_joiner(&mut self, wants: Option<usize>) {
        self.joiners_made += 1;
        let number = self.joiners_made;
        let host = wants.unwrap_or_else(|| self.rng.random_range(0..self.hosts.len()));
        let host_node = self.hosts[host].node;
        let calm = wants.is_some();
        let shared = !calm && self.chance(Fault::SharedSocket);
        let other_family = !calm && self.rng.random_bool(0.1);
        let v6 = self.net.is_v6(host_node) != other_family;
        let node = if shared {
            host_node
        } else {
            // Some behind the host's own NAT.
            let site = if self.rng.random_bool(0.2) {
                self.net.site_of(host_node)
            } else {
                self.rng.random_range(0..self.net.sites())
            };
            self.net.add_node(site, v6)
        };
        let mut key = [0; 16];
        self.rng.fill_bytes(&mut key);
        let tenant = self.hosts[host].caller.tenant;
        // Some hosts try their own listing.
        let own = !calm && self.rng.random_bool(0.05);
        let principal =
            if own { self.hosts[host].caller.principal } else { PrincipalId(1_000 + number as u32) };
        let caller = Caller { tenant, principal, operator: false };
        let agent = JoinerAgent {
            node,
            second: None,
            caller,
            attempt: None,
            player: Player::Nobody,
            wants,
            introduced: false,
            connected: false,
            stage: Stage::Browsing,
            key,
            lifetime: Duration::from_millis(if self.plan.long_attempts && self.rng.random_bool(0.3) {
                self.rng.random_range(30_000..=61_000)
            } else {
                self.rng.random_range(4_500..=20_000)
            }),
            tries: 0,
            job: None,
            wake_at: self.now,
            leaves_at: Instant::MAX,
            clock_ahead: Duration::from_millis(self.rng.random_range(0..1_000_000)),
        };
        self.joiners.insert(number, agent);
    }

    /// Does what joiner `at` has to do.
    pub(crate) fn poll_joiner(&mut self, at: usize) {
        let now = self.now;
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        if now >= joiner.leaves_at {
            joiner.stage = Stage::Over;
            joiner.player = Player::Nobody;
            return;
        }
        if let Player::Machine(machine) = &mut joiner.player {
            machine.handle_timeout(now.after(joiner.clock_ahead));
        }
        if joiner.job.is_some_and(|(_, until)| now >= until) {
            self.joiner_again(at);
        } else if joiner.job.is_none() && now >= joiner.wake_at {
            joiner.wake_at = Instant::MAX;
            self.joiner_acts(at);
        }
        self.poll_rogue(at);
        self.drain_joiner(at);
    }

    fn joiner_again(&mut self, at: usize) {
        let pause = Duration::from_millis(self.rng.random_range(500..1_000));
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        joiner.job = None;
        joiner.tries += 1;
        joiner.wake_at = self.now.after(pause);
        if joiner.tries >= TRIES_MAX && joiner.wants.is_none() {
            joiner.stage = Stage::Over;
        }
    }

    fn joiner_acts(&mut self, at: usize) {
        let Some(joiner) = self.joiners.get(&at) else { return };
        let caller = joiner.caller;
        let transition = match &joiner.stage {
            Stage::Waiting(key, over) => {
                let (key, over) = (RoleKey::clone(key), *over);
                return self.joiner_plays(at, key, over);
            }
            Stage::Browsing => {
                // A friend told it the id, or it browses.
                let wanted = joiner.wants.or_else(|| {
                    self.rng.random_bool(0.3).then(|| self.rng.random_range(0..self.hosts.len()))
                });
                let told = wanted.and_then(|host| self.hosts[host].listing);
                if let (Some((listing, _)), Some(joiner)) = (told, self.joiners.get_mut(&at)) {
                    joiner.stage = Stage::Creating(listing);
                    return self.joiner_acts(at);
                }
                browse(caller, None, 50)
            }
            Stage::Creating(listing) => Transition::CreateAttempt(Box::new(CreateAttempt {
                caller,
                quotas: self.plan.quotas,
                idempotency: IdempotencyKey { key: joiner.key, fingerprint: fingerprint(at as u64) },
                listing: *listing,
                note: None,
                lifetime: joiner.lifetime,
            })),
            Stage::Asking => {
                let Some(attempt) = joiner.attempt else { return };
                Transition::GetAttempt(GetAttempt { caller, attempt })
            }
            Stage::Playing | Stage::Over => return,
        };
        let call = self.ask(Asker::Joiner(at), transition);
        if let Some(joiner) = self.joiners.get_mut(&at) {
            joiner.job = Some((call, self.now.after(PATIENCE)));
        }
    }

    /// The control plane answered joiner `at`.
    pub(crate) fn joiner_answered(&mut self, at: usize, reply: Reply) {
        let pick = self.rng.random_range(0..1_000usize);
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        joiner.job = None;
        match (joiner.stage.clone(), reply) {
            (Stage::Browsing, Reply::Page(page)) if !page.listings.is_empty() && joiner.wants.is_none() => {
                joiner.stage = Stage::Creating(page.listings[pick % page.listings.len()].id);
                joiner.wake_at = self.now;
            }
            (Stage::Creating(_), Reply::AttemptCreated(grant)) => {
                joiner.tries = 0;
                self.joiner_created(at, &grant);
            }
            (
                Stage::Creating(_),
                Reply::Refused(Refusal::NotFound | Refusal::Expired | Refusal::Conflict(_)),
            ) => {
                joiner.stage = Stage::Browsing;
                self.rng.fill_bytes(&mut joiner.key);
                self.joiner_again(at);
            }
            (Stage::Asking, Reply::Refused(Refusal::NotFound | Refusal::Expired)) => self.joiner_gone(at),
            (Stage::Asking, Reply::Attempt(_)) => joiner.stage = Stage::Playing,
            _ => self.joiner_again(at),
        }
    }

    /// Its attempt is no more: home, or another one when it is wanted that it succeeds.
    pub(super) fn joiner_gone(&mut self, at: usize) {
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        joiner.player = Player::Nobody;
        if joiner.wants.is_none() || joiner.introduced {
            joiner.stage = Stage::Over;
            return;
        }
        joiner.stage = Stage::Browsing;
        joiner.attempt = None;
        self.rng.fill_bytes(&mut joiner.key);
        self.joiner_again(at);
    }

    fn joiner_created(&mut self, at: usize, grant: &AttemptGrant) {
        let key = self.role_key(grant.joiner_key);
        let crash = self.chance(Fault::JoinerCrash);
        let late = self.chance(Fault::JoinerLate);
        let cancel = self.chance(Fault::Cancel);
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        joiner.attempt = Some(grant.id);
        // Some vanish in the middle of it.
        let at_once = crash && self.rng.random_bool(0.5);
        let vanishes = self.now.after(Duration::from_millis(self.rng.random_range(50..2_000)));
        joiner.leaves_at = if crash { vanishes } else { Instant::MAX };
        let Some(key) = key.filter(|_| !at_once) else {
            self.log.line(self.now, format_args!("joiner{at} vanishes"));
            joiner.stage = Stage::Over;
            return;
        };
        let over = self.now.after(grant.lifetime);
        joiner.stage = Stage::Waiting(Box::new(key), over);
        // Up to most of a long attempt: a host that bound early is not proved any more then.
        let longest = (joiner.lifetime * 9 / 10).as_millis() as u64;
        let waits = if late { self.rng.random_range(1_000..longest.max(12_000)) } else { 0 };
        joiner.wake_at = self.now.after(Duration::from_millis(waits));
        let (attempt, caller) = (grant.id, joiner.caller);
        if cancel {
            self.ask(Asker::Nobody, Transition::CancelAttempt(CancelAttempt { caller, attempt }));
        }
        if !late {
            self.joiner_acts(at);
        }
    }

    /// Begins to play, in an attempt that is over at `over`.
    fn joiner_plays(&mut self, at: usize, key: RoleKey, over: Instant) {
        let rogue = self.chance(Fault::Rogue);
        let seed = self.rng.random();
        let now = self.now;
        let Some(joiner) = self.joiners.get_mut(&at) else { return };
        joiner.stage = Stage::Playing;
        joiner.wake_at = Instant::MAX;
        let Some(attempt) = joiner.attempt else { return };
        if rogue && joiner.wants.is_none() {
            joiner.leaves_at = now.after(joiner.lifetime);
            joiner.second = (!self.net.is_v6(joiner.node))
                .then(|| self.net.add_node(self.net.site_of(joiner.node), true));
            joiner.player = Player::Rogue(Box::new(Rogue::new(key, attempt, now)));
            return;
        }
        let credentials = JoinerCredentials {
            instance: key.id.instance(),
            key,
            attempt,
            server: if self.net.is_v6(joiner.node) { SERVER_V6 } else { SERVER_V4 },
            lifetime: over.since(now),
            lan: [self.net.lan_of(joiner.node), None],
        };
        let own = now.after(joiner.clock_ahead);
        joiner.player = Player::Machine(Box::new(Joiner::new(credentials, seed, own)));
        self.drain_joiner(at);
    }
}
