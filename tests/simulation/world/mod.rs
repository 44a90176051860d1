//! A world of one seed: one server, some hosts and joiners, a network between them, one clock that nobody reads.
//!
//! One thread, virtual time. The next thing that is due happens; all chance comes from one generator; nothing iterates
//! over a hash map. So one seed is one history.

mod control;
mod converge;
mod host;
mod host_life;
mod joiner;
mod joiner_life;
mod links;
mod log;
mod mischief;
mod net;
mod plan;
mod ring;
mod rogue;
mod serve;
mod server;

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rendezvous_core::store::Pace;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply};
use rendezvous_shared::time::Instant;

use crate::oracle::{Oracle, broken};
use crate::reached::{Fault, Reached};
use control::{Asker, Call};
use host::HostAgent;
use joiner::JoinerAgent;
use log::Log;
use net::{Net, NodeId};
use plan::Plan;
use ring::Arrived;
use server::{POLICY, SERVER_V4, SERVER_V6, Server};

/// What every listing here speaks.
pub(crate) const PROTOCOL: &str = "game/1";
/// Things that may happen at one instant.
const SPINS_MAX: u32 = 20_000;

/// Something on its way.
enum Event {
    Datagram { from: SocketAddr, to: SocketAddr, truncated: bool, bytes: Vec<u8> },
    Call(Box<Call>),
    Answer(Asker, u64, Box<Reply>),
}

/// A world.
pub(crate) struct World {
    /// Everything that happened.
    pub(crate) log: Log,
    /// How often what happened.
    pub(crate) reached: Reached,
    now: Instant,
    rng: SmallRng,
    plan: Plan,
    net: Net,
    oracle: Oracle,
    server: Option<Server>,
    /// When the server is back.
    back_at: Instant,
    /// When a drained server ends.
    stop_at: Instant,
    hosts: Vec<HostAgent>,
    joiners: BTreeMap<usize, JoinerAgent>,
    joiners_made: usize,
    spawn_at: Instant,
    mischief_at: Instant,
    recorded: Vec<mischief::Recorded>,
    flights: BTreeMap<(Instant, u64), Event>,
    count: u64,
    spins: u32,
    /// Steps, for whoever watches that there are any.
    pulse: Arc<AtomicU64>,
}

/// A fingerprint of a request, as far as this world's requests differ.
fn fingerprint(of: u64) -> [u8; 16] {
    u128::from(of).to_be_bytes()
}

impl World {
    /// The world of `seed`, in which nothing happened yet.
    pub(crate) fn new(seed: u64, pulse: Arc<AtomicU64>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let now = Instant::from_millis(rng.random_range(0..100_000));
        let plan = Plan::new(&mut rng, now);
        let server = Server::new(&plan, &mut rng, now);
        let mut world = Self {
            log: Log::default(),
            reached: Reached::new(),
            now,
            oracle: Self::oracle_of(&server, &plan),
            net: Net::default(),
            server: Some(server),
            back_at: Instant::MAX,
            stop_at: Instant::MAX,
            hosts: Vec::new(),
            joiners: BTreeMap::new(),
            joiners_made: 0,
            spawn_at: now.after(Duration::from_secs(1)),
            mischief_at: now,
            recorded: Vec::new(),
            flights: BTreeMap::new(),
            count: 0,
            spins: 0,
            pulse,
            rng,
            plan,
        };
        for number in 0..world.plan.hosts {
            world.add_host(number);
        }
        // Joiners have homes of their own, too.
        for _ in 0..3 {
            world.net.add_site(&mut world.rng);
        }
        for (fault, on) in [
            (Fault::TinyCeilings, world.plan.limits != Limits::DEFAULT),
            (Fault::TinyBoxes, world.plan.outbox < 64),
            (Fault::TinyUnproved, world.plan.unproved_per_second < 1_000),
            (Fault::SlowStore, world.plan.pace != Pace::DEFAULT),
        ] {
            world.reached.faults.add(fault, u64::from(on));
        }
        world
    }

    fn oracle_of(server: &Server, plan: &Plan) -> Oracle {
        Oracle::new(server.instance, server.master.clone(), POLICY, plan.limits, plan.quotas)
    }

    /// Whether `fault` happens now; counts it.
    fn chance(&mut self, fault: Fault) -> bool {
        let rate = self.plan.rate(self.now, fault);
        let happens = rate > 0.0 && self.rng.random_bool(rate);
        self.reached.faults.add(fault, u64::from(happens));
        happens
    }

    fn latency(&mut self) -> Duration {
        let (least, most) = self.plan.latency;
        self.rng.random_range(least..=most)
    }

    fn plan_event(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.flights.insert((at, self.count), event);
    }

    /// Sends a datagram of `node` through its NAT.
    fn send(&mut self, node: NodeId, to: SocketAddr, bytes: &[u8]) {
        let Some(from) = self.net.outbound(self.now, node, to) else {
            return self.log.line(self.now, format_args!("node{node} cannot reach {to}"));
        };
        if to == SERVER_V4 || to == SERVER_V6 {
            self.record(from, to, bytes);
            self.forge_challenge(from, to, bytes);
        }
        self.fly(from, to, bytes.to_vec());
    }

    /// A datagram whose source may be anything.
    fn inject(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.log.line(self.now, format_args!("forged {from} > {to} {}", bytes.len()));
        let at = self.now.after(Duration::from_millis(1));
        self.plan_event(at, Event::Datagram { from, to, truncated: false, bytes });
    }

    /// A datagram leaves; the network does to it what this phase allows.
    fn fly(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        if self.chance(Fault::Loss) {
            return self.log.line(self.now, format_args!("lost {from} > {to} {}", bytes.len()));
        }
        let copies = 1 + if self.chance(Fault::Duplicate) { self.rng.random_range(1..=2) } else { 0 };
        for _ in 0..copies {
            let mut at = self.now.after(self.latency());
            if self.chance(Fault::Reorder) {
                at = at.after(Duration::from_millis(self.rng.random_range(0..400)));
            }
            if self.chance(Fault::Delay) {
                at = at.after(Duration::from_millis(self.rng.random_range(1_000..45_000)));
            }
            let mut bytes = bytes.clone();
            if self.chance(Fault::Corrupt) {
                self.corrupt(&mut bytes);
            }
            let truncated = self.chance(Fault::Truncate);
            self.plan_event(at, Event::Datagram { from, to, truncated, bytes });
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Datagram { from, to, truncated, bytes } => self.deliver(from, to, truncated, bytes),
            Event::Call(call) => self.call_arrives(call),
            Event::Answer(asker, id, reply) => self.answer_arrives(asker, id, *reply),
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, truncated: bool, bytes: Vec<u8>) {
        let kind = bytes.get(5).copied().unwrap_or_default();
        self.log.line(self.now, format_args!("{from} > {to} {kind:02x} {}", bytes.len()));
        if to == SERVER_V4 || to == SERVER_V6 {
            let Some(server) = &mut self.server else { return };
            let ring = server.ring_of(from);
            if !server.rings[ring].arrive(Arrived { from, to, truncated, bytes }) {
                self.log.line(self.now, format_args!("no room in socket {ring}"));
            }
            return;
        }
        let Some(node) = self.net.inbound(self.now, from, to) else { return };
        for at in 0..self.hosts.len() {
            if self.hosts[at].is_at(node) {
                self.host_hears(at, node, from, &bytes);
            }
        }
        let hears = |it: &JoinerAgent| it.node == node || it.second == Some(node);
        let joiners: Vec<usize> =
            self.joiners.iter().filter(|(_, it)| hears(it)).map(|(at, _)| *at).collect();
        for at in joiners {
            self.joiner_hears(at, node, from, &bytes);
        }
    }

    /// When the next thing is due.
    fn next(&self) -> Instant {
        let mut next = self.flights.keys().next().map_or(Instant::MAX, |(at, _)| *at);
        next = self.hosts.iter().map(HostAgent::next).fold(next, Instant::min);
        next = self.joiners.values().map(JoinerAgent::next).fold(next, Instant::min);
        next = next.min(self.mischief_at).min(self.spawn_at).min(self.back_at).min(self.stop_at);
        if let Some(server) = &self.server {
            next = next.min(server.store_at(self.now));
            next =
                (0..server.rings.len()).map(|ring| server.ring_at(self.now, ring)).fold(next, Instant::min);
        }
        next
    }

    /// Lets the next thing happen, unless it is later than `end`; returns whether it did.
    fn step(&mut self, end: Instant) -> bool {
        let next = self.next();
        if next > end {
            self.now = self.now.max(end);
            return false;
        }
        self.spins = if next > self.now { 0 } else { self.spins + 1 };
        if self.spins > SPINS_MAX {
            broken("time goes on", format_args!("at {:?}", self.now));
        }
        self.now = self.now.max(next);
        self.reached.steps += 1;
        self.pulse.fetch_add(1, Ordering::Relaxed);
        if self.now >= self.mischief_at {
            self.mischief();
        }
        self.live_and_die();
        while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let event = entry.remove();
            self.happen(event);
        }
        for at in 0..self.hosts.len() {
            if self.hosts[at].next() <= self.now {
                self.poll_host(at);
            }
        }
        let due = |it: &JoinerAgent, now: Instant| it.next() <= now;
        let due: Vec<usize> =
            self.joiners.iter().filter(|(_, it)| due(it, self.now)).map(|(at, _)| *at).collect();
        due.into_iter().for_each(|at| self.poll_joiner(at));
        self.serve();
        true
    }

    /// Joiners come, the server goes and comes back.
    fn live_and_die(&mut self) {
        let over = |it: &JoinerAgent| it.is_over() && it.wants.is_none();
        self.joiners.retain(|_, it| !over(it));
        if self.now >= self.spawn_at {
            let crowd = self.now < self.plan.calm_from() && self.joiners.len() < self.plan.joiners;
            self.spawn_at = if self.now < self.plan.calm_from() {
                self.now.after(Duration::from_millis(self.rng.random_range(300..3_000)))
            } else {
                Instant::MAX
            };
            if crowd {
                self.add_joiner(None);
            }
        }
        if self.now >= self.stop_at {
            self.stop_server();
        }
        if self.now >= self.back_at {
            self.start_server();
        }
    }

    /// The server's process ends, with all it holds.
    fn stop_server(&mut self) {
        self.stop_at = Instant::MAX;
        let Some(server) = self.server.take() else { return };
        self.log.line(self.now, format_args!("server {} ends", server.instance));
        self.count_reasons(&server);
        self.back_at = self.now.after(Duration::from_millis(self.rng.random_range(200..4_000)));
    }

    fn count_reasons(&mut self, server: &Server) {
        for (reason, count) in server.store.stats().attempt_reasons.iter() {
            self.reached.reasons.add(reason, count);
        }
    }

    fn start_server(&mut self) {
        self.back_at = Instant::MAX;
        let server = Server::new(&self.plan, &mut self.rng, self.now);
        self.log.line(self.now, format_args!("server {} starts", server.instance));
        self.oracle = Self::oracle_of(&server, &self.plan);
        self.server = Some(server);
    }
}
