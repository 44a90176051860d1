//! A network of numbers and a server just good enough to answer clients. For tests of this crate only.

pub mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rendezvous_client::host::{Host, HostEvent};
use rendezvous_client::joiner::{Joiner, JoinerEvent};
use rendezvous_client::{AttemptEvent, Machine, Transmit};
use rendezvous_shared::id::AttemptId;
use rendezvous_shared::time::Instant;

use server::Server;

pub const HOST: &str = "203.0.114.1:4000";
pub const JOINER: &str = "203.0.115.1:5000";
pub const HOST_6: &str = "[2a01:1::1]:4001";
pub const JOINER_6: &str = "[2a01:2::1]:5001";

pub fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub type Drop = Box<dyn FnMut(SocketAddr, SocketAddr, &[u8]) -> bool>;

pub struct World {
    pub now: Instant,
    pub server: Option<Server>,
    pub host: Option<Host>,
    pub joiner: Option<Joiner>,
    pub host_events: Vec<HostEvent>,
    pub joiner_events: Vec<JoinerEvent>,
    pub loss: f64,
    pub duplicates: f64,
    pub delay_max_ms: u64,
    /// Drops what it answers true for.
    pub drop: Option<Drop>,
    /// Everything sent, with its time.
    pub sent: Vec<(Instant, SocketAddr, SocketAddr, Vec<u8>)>,
    flying: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    count: u64,
    rng: SmallRng,
}

impl World {
    pub fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self {
            now: Instant::from_millis(1_000),
            server: Some(Server::new(1)),
            host: None,
            joiner: None,
            host_events: Vec::new(),
            joiner_events: Vec::new(),
            loss: 0.0,
            duplicates: 0.0,
            delay_max_ms: 20,
            drop: None,
            sent: Vec::new(),
            flying: BTreeMap::new(),
            count: 0,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    pub fn with_host(mut self, seed: u64) -> Self {
        let credentials = self.server.as_mut().unwrap().register(self.now);
        self.host = Some(Host::new(credentials, seed, self.now));
        self
    }

    pub fn add_joiner(&mut self, seed: u64) {
        let credentials = self.server.as_mut().unwrap().create_attempt(self.now);
        self.joiner = Some(Joiner::new(credentials, seed, self.now));
    }

    pub fn fly(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.sent.push((self.now, from, to, bytes.clone()));
        if self.drop.as_mut().is_some_and(|drop| drop(from, to, &bytes)) {
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.duplicates));
        for _ in 0..copies {
            if self.rng.random_bool(self.loss) {
                continue;
            }
            let delay = ms(self.rng.random_range(1..=self.delay_max_ms));
            self.count += 1;
            self.flying.insert((self.now.after(delay), self.count), (from, to, bytes.clone()));
        }
    }

    fn collect(&mut self) {
        let mut out: Vec<(SocketAddr, Transmit)> = Vec::new();
        let socket = |it: &Transmit, v4, v6| addr(if it.to.is_ipv4() { v4 } else { v6 });
        if let Some(host) = &mut self.host {
            let sent = std::iter::from_fn(|| host.poll_transmit());
            out.extend(sent.map(|it| (socket(&it, HOST, HOST_6), it)));
            self.host_events.extend(std::iter::from_fn(|| host.poll_event()));
        }
        if let Some(joiner) = &mut self.joiner {
            let sent = std::iter::from_fn(|| joiner.poll_transmit());
            out.extend(sent.map(|it| (socket(&it, JOINER, JOINER_6), it)));
            self.joiner_events.extend(std::iter::from_fn(|| joiner.poll_event()));
        }
        for (from, transmit) in out {
            self.fly(from, transmit.to, transmit.bytes().to_vec());
        }
        let pushes = self.server.as_mut().map(|server| server.due(self.now)).unwrap_or_default();
        for (to, bytes) in pushes {
            self.fly(server::addr_for(to), to, bytes);
        }
    }

    fn next(&self) -> Instant {
        let mut next = self.flying.keys().next().map_or(Instant::MAX, |(at, _)| *at);
        next = next.min(self.host.as_ref().map_or(Instant::MAX, Machine::next_timeout));
        next = next.min(self.joiner.as_ref().map_or(Instant::MAX, Machine::next_timeout));
        next.min(self.server.as_ref().map_or(Instant::MAX, Server::next_due))
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if to == server::addr_for(to) {
            let answers = self.server.as_mut().map(|server| server.handle(self.now, from, bytes));
            for (to, bytes) in answers.unwrap_or_default() {
                self.fly(server::addr_for(to), to, bytes);
            }
        } else if [HOST, HOST_6].map(addr).contains(&to) {
            self.host.iter_mut().for_each(|host| host.handle_datagram(self.now, from, bytes));
        } else if [JOINER, JOINER_6].map(addr).contains(&to) {
            self.joiner.iter_mut().for_each(|joiner| joiner.handle_datagram(self.now, from, bytes));
        }
    }

    /// Runs for `time`, or until `done` says so; returns whether it did.
    pub fn run_until(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now.after(time);
        let mut turns = 0;
        loop {
            self.collect();
            if done(self) {
                return true;
            }
            let next = self.next();
            if next > end {
                self.now = end;
                return false;
            }
            self.now = self.now.max(next);
            turns += 1;
            assert!(turns < 200_000, "the world spins");
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (from, to, bytes) = entry.remove();
                self.deliver(from, to, &bytes);
            }
            self.host.iter_mut().for_each(|host| host.handle_timeout(self.now));
            self.joiner.iter_mut().for_each(|joiner| joiner.handle_timeout(self.now));
        }
    }

    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    pub fn joined(&self) -> impl Iterator<Item = &AttemptEvent> {
        self.joiner_events.iter().filter_map(|event| match event {
            JoinerEvent::Attempt(event) => Some(event),
            _ => None,
        })
    }

    pub fn hosted(&self) -> impl Iterator<Item = &AttemptEvent> {
        self.host_events.iter().filter_map(|event| match event {
            HostEvent::Attempt { event, .. } => Some(event),
            _ => None,
        })
    }

    /// The attempt the host was first told of.
    pub fn attempt(&self) -> AttemptId {
        let told = self.host_events.iter().find_map(|event| match event {
            HostEvent::Attempt { attempt, .. } => Some(*attempt),
            _ => None,
        });
        told.unwrap()
    }

    pub fn both_connected(&self) -> bool {
        let connected = |event: &AttemptEvent| matches!(event, AttemptEvent::Connected { .. });
        self.joined().any(connected) && self.hosted().any(connected)
    }

    pub fn present(&self) -> bool {
        self.host_events.iter().any(|event| matches!(event, HostEvent::Refreshed { .. }))
    }
}
