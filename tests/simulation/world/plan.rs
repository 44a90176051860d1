//! What a seed chooses: the shape of the world, and which faults happen when and how often.

use core::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use rendezvous_core::store::Pace;
use rendezvous_shared::counter::Label;
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::Quotas;
use rendezvous_shared::time::Instant;

use crate::reached::Fault;

/// Which faults happen, with what probability each time there is an occasion.
pub(crate) struct Phase {
    /// When it ends.
    pub(crate) ends: Instant,
    rates: Vec<f64>,
}

/// What a seed chose.
pub(crate) struct Plan {
    /// Hosts.
    pub(crate) hosts: usize,
    /// Joiners at a time.
    pub(crate) joiners: usize,
    /// Ring threads.
    pub(crate) rings: usize,
    /// Boxes of a ring, and transitions in each.
    pub(crate) boxes: (usize, usize),
    /// Places in a ring's outbox.
    pub(crate) outbox: usize,
    /// Datagrams in a ring's socket buffer.
    pub(crate) socket: usize,
    /// Places in the control plane's lane.
    pub(crate) lane: usize,
    /// Answers a second to unproved addresses.
    pub(crate) unproved_per_second: u32,
    /// The store's ceilings.
    pub(crate) limits: Limits,
    /// How much the store works off along with other work.
    pub(crate) pace: Pace,
    /// Everybody's policy.
    pub(crate) quotas: Quotas,
    /// Time between a datagram's sending and its arrival, at least and at most.
    pub(crate) latency: (Duration, Duration),
    /// Leases that hosts ask for, in milliseconds, at least and at most.
    pub(crate) leases: (u64, u64),
    /// Whether some attempts live longer than an address stays proved.
    pub(crate) long_attempts: bool,
    /// The faulty phases, one behind the other.
    pub(crate) phases: Vec<Phase>,
}

/// The slowest pace at which all is worked off in the end.
const SLOW: Pace = Pace { per_transition: 0, per_call: 1 };

const MOSTLY: (f64, f64) = (0.3, 0.9);
const OFTEN: (f64, f64) = (0.05, 0.35);
const SOMETIMES: (f64, f64) = (0.01, 0.10);
const SELDOM: (f64, f64) = (0.005, 0.03);

/// The bounds of a fault's rate: per datagram, per request, per joiner, or per mischief (twice a second).
fn bounds(fault: Fault) -> (f64, f64) {
    match fault {
        Fault::Loss | Fault::CallLost | Fault::AnswerLost | Fault::Reorder => OFTEN,
        Fault::Duplicate | Fault::CallDuplicated | Fault::CallLate | Fault::KeyReused => SOMETIMES,
        Fault::Delay | Fault::Corrupt | Fault::Truncate | Fault::Restart | Fault::Drain => SELDOM,
        Fault::ReplayElsewhere | Fault::ReplaySpoofed | Fault::ReplayCorrupt | Fault::Garbage => OFTEN,
        Fault::JoinerCrash | Fault::JoinerLate | Fault::Cancel | Fault::Decline => OFTEN,
        Fault::EagerHost | Fault::HostLeaves => MOSTLY,
        Fault::SharedSocket | Fault::Rogue => OFTEN,
        _ => SOMETIMES,
    }
}

impl Plan {
    /// The plan that `rng` makes, starting at `now`.
    pub(crate) fn new(rng: &mut SmallRng, now: Instant) -> Self {
        let enabled: Vec<bool> = Fault::ALL.iter().map(|_| rng.random_bool(0.5)).collect();
        let has = |fault: Fault| enabled[fault.index()];
        let hosts = rng.random_range(1..=4);
        let latency_min = rng.random_range(1..=40);
        let tiny = has(Fault::TinyCeilings) && rng.random_bool(0.5);
        let few = has(Fault::TinyBoxes) && rng.random_bool(0.5);
        Self {
            hosts,
            joiners: rng.random_range(1..=4),
            rings: rng.random_range(1..=2),
            boxes: if few { (rng.random_range(1..=2), rng.random_range(1..=2)) } else { (8, 8) },
            outbox: if few { 4 } else { 64 },
            socket: if few { 4 } else { 64 },
            lane: if has(Fault::TinyLane) { rng.random_range(1..=2) } else { 64 },
            unproved_per_second: if has(Fault::TinyUnproved) { rng.random_range(8..=40) } else { 20_000 },
            limits: if tiny { tiny_limits(rng, hosts) } else { Limits::DEFAULT },
            quotas: if tiny && rng.random_bool(0.5) {
                Quotas {
                    listings_per_owner: rng.random_range(1..=2),
                    listings_per_tenant: rng.random_range(2..=6),
                    attempts_per_tenant: 3,
                }
            } else {
                Quotas { listings_per_owner: 100, listings_per_tenant: 100, attempts_per_tenant: 100 }
            },
            // Records are tight in a tiny store, and outlive the leases.
            leases: if tiny || rng.random_bool(0.6) { (9_000, 24_000) } else { (40_000, 60_000) },
            pace: if has(Fault::SlowStore) { SLOW } else { Pace::DEFAULT },
            long_attempts: !tiny,
            latency: (
                Duration::from_millis(latency_min),
                Duration::from_millis(latency_min + rng.random_range(1..=60)),
            ),
            phases: phases(rng, &enabled, now),
        }
    }

    /// The rate of `fault` at `now`.
    pub(crate) fn rate(&self, now: Instant, fault: Fault) -> f64 {
        self.phases.iter().find(|phase| now < phase.ends).map_or(0.0, |phase| phase.rates[fault.index()])
    }

    /// When the faults stop.
    pub(crate) fn calm_from(&self) -> Instant {
        self.phases.last().map_or(Instant::ZERO, |phase| phase.ends)
    }
}

/// Ceilings a few hosts and joiners run into, and above what they need once all is calm.
fn tiny_limits(rng: &mut SmallRng, hosts: usize) -> Limits {
    let listings = hosts + rng.random_range(0..=1);
    let attempts = rng.random_range(2..=4);
    Limits {
        listings,
        attempts,
        listing_records: listings + rng.random_range(1..=4),
        attempt_records: attempts + hosts + rng.random_range(0..=4),
        attempt_results: rng.random_range(0..=4),
        revocations: rng.random_range(1..=2),
        ..Limits::DEFAULT
    }
}

fn phases(rng: &mut SmallRng, enabled: &[bool], start: Instant) -> Vec<Phase> {
    let mut ends = start;
    let mut phases = Vec::new();
    for _ in 0..rng.random_range(3..=6) {
        ends = ends.after(Duration::from_millis(rng.random_range(5_000..=40_000)));
        let rate = |fault: &Fault| {
            let (low, high) = bounds(*fault);
            let on = enabled[fault.index()] && rng.random_bool(0.6);
            if on { rng.random_range(low..high) } else { 0.0 }
        };
        phases.push(Phase { ends, rates: Fault::ALL.iter().map(rate).collect() });
    }
    phases
}
