//! The server: one or two rings, the real store behind them, the control plane's lanes, its own clock.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use rendezvous_core::handler::{Handler, HandlerOptions};
use rendezvous_core::store::MemoryStore;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::store::EphemeralRendezvousStore;
use rendezvous_shared::time::Instant;

use super::control::Call;
use super::plan::Plan;
use super::ring::{Ring, Sizes};
use crate::oracle::broken;

/// Where the server is asked.
pub(crate) const SERVER_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9)), 7777);
/// See [`SERVER_V4`].
pub(crate) const SERVER_V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe)), 7777);
/// Who is served.
pub(crate) const POLICY: AddressPolicy = AddressPolicy::Public;
/// Operator transitions that wait.
const OPERATOR_LANE_MAX: usize = 8;
/// Times that the store may leave what is due and change nothing.
const IDLE_ROUNDS_MAX: u32 = 3;
/// Least distance between two rounds of the store.
const ROUND: Duration = Duration::from_micros(100);

/// One instance of the server.
pub(crate) struct Server {
    /// Its number.
    pub(crate) instance: InstanceId,
    /// Makes its secrets.
    pub(crate) master: MasterKey,
    /// When it started, on the world's clock.
    epoch: Instant,
    /// All authority.
    pub(crate) store: MemoryStore,
    /// Its ring threads.
    pub(crate) rings: Vec<Ring>,
    /// Requests of the control plane that wait.
    pub(crate) http: VecDeque<Call>,
    /// Requests of operators that wait.
    pub(crate) operator: VecDeque<Call>,
    lane: usize,
    /// The store thread stands still until then.
    pub(crate) store_paused_until: Instant,
    round_earliest: Instant,
    /// Rounds of the store so far.
    pub(crate) rounds: u64,
    /// What the store held when it last gave back, and how often that was the same.
    held: (Option<Instant>, Vec<u64>),
    idle_rounds: u32,
}

impl Server {
    /// A server that starts at `epoch`.
    pub(crate) fn new(plan: &Plan, rng: &mut SmallRng, epoch: Instant) -> Self {
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        let master = MasterKey::from_bytes(bytes);
        let instance = InstanceId(rng.random());
        let sizes = Sizes { boxes: plan.boxes, outbox: plan.outbox, socket: plan.socket };
        let bound = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), SERVER_V4.port());
        let options = HandlerOptions {
            unproved_per_second: plan.unproved_per_second,
            ..HandlerOptions::new(instance, bound, POLICY)
        };
        let ring = |_| {
            let handler = Handler::new(options.clone(), master.clone());
            Ring::new(handler, [SERVER_V4, SERVER_V6], sizes)
        };
        let id_key = MasterKey::from_bytes(master.subkey("ids", 0));
        Self {
            instance,
            epoch,
            store: MemoryStore::with_pace(plan.limits, instance, id_key, plan.pace),
            rings: (0..plan.rings).map(ring).collect(),
            master,
            http: VecDeque::new(),
            operator: VecDeque::new(),
            lane: plan.lane,
            store_paused_until: Instant::ZERO,
            round_earliest: Instant::ZERO,
            rounds: 0,
            held: (None, Vec::new()),
            idle_rounds: 0,
        }
    }

    /// The server's clock at `world`.
    pub(crate) fn clock(&self, world: Instant) -> Instant {
        Instant::ZERO.after(world.since(self.epoch))
    }

    /// The world's clock at `own`.
    fn world(&self, own: Instant) -> Instant {
        if own == Instant::MAX { own } else { self.epoch.after(own.since(Instant::ZERO)) }
    }

    /// The ring that datagrams from `from` come to.
    pub(crate) fn ring_of(&self, from: SocketAddr) -> usize {
        usize::from(from.port()) % self.rings.len()
    }

    /// Takes a request in; gives it back when its lane is full.
    pub(crate) fn take_in(&mut self, call: Box<Call>) -> Result<(), Box<Call>> {
        let (lane, room) =
            if call.operator { (&mut self.operator, OPERATOR_LANE_MAX) } else { (&mut self.http, self.lane) };
        if lane.len() >= room {
            return Err(call);
        }
        lane.push_back(*call);
        Ok(())
    }

    /// When the store thread next has something to do, on the world's clock.
    pub(crate) fn store_at(&self, now: Instant) -> Instant {
        let work = !self.http.is_empty()
            || !self.operator.is_empty()
            || self.rings.iter().any(|ring| !ring.to_store.is_empty());
        let due = self.store.next_deadline().map_or(Instant::MAX, |at| self.world(at));
        let at = if work { now } else { due };
        if at == Instant::MAX { at } else { at.max(self.store_paused_until).max(self.round_earliest) }
    }

    /// When ring `index` next has something to do, on the world's clock.
    pub(crate) fn ring_at(&self, now: Instant, index: usize) -> Instant {
        self.world(self.rings[index].next(self.clock(now)))
    }

    /// A round of the store begins at `now`.
    pub(crate) fn begin_round(&mut self, now: Instant) {
        self.rounds += 1;
        self.round_earliest = now.after(ROUND);
    }

    /// Lets the store give back some of what is over at `now`, on its own clock. Whatever it leaves is less each time.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.store.expire(now);
        let due = self.store.next_deadline();
        if due.is_none_or(|at| at > now) {
            self.idle_rounds = 0;
            return;
        }
        let stats = self.store.stats();
        let used = stats.pools.iter().map(|pool| pool.used as u64);
        let held = (due, used.chain([stats.attempt_reasons.total()]).collect());
        self.idle_rounds = if held == self.held { self.idle_rounds + 1 } else { 0 };
        self.held = held;
        if self.idle_rounds >= IDLE_ROUNDS_MAX {
            broken("what is over is given back step by step", format_args!("{stats:?} {due:?} at {now:?}"));
        }
    }
}
