//! The store thread: the only writer. It waits for work or for the next deadline, and applies what came.
//!
//! `wait` may block; `round` never does. The operator lane is emptied first in every
//! round, then a bounded number of HTTP transitions, then the batches of the rings, so a flood on one lane starves
//! no other.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use rendezvous_control::boundary::{Readiness, ReadyState};
use rendezvous_control::snapshot::latency_histogram;
use rendezvous_shared::counter::{Counters, Label};
use rendezvous_shared::limits::{HTTP_BURST_MAX, HTTP_LANE_MAX, OPERATOR_LANE_MAX};
use rendezvous_shared::outcome::OutcomeKind;
use rendezvous_shared::store::{
    DrainView, EphemeralRendezvousStore, Reply, StoreStats, Transition, TransitionKind,
};
use rendezvous_shared::time::{Clock, Instant};
use tokio::sync::OwnedSemaphorePermit;

use crate::clock::{BootClock, Stamp, Stopwatch};
use crate::mailbox::StoreMailbox;
use crate::spin::Spin;
use crate::sync::{Receiver, Select, Sender, TryRecvError, bounded, oneshot};

/// Longest sleep of an idle store. Deadlines are on a clock that goes on while the machine is suspended, the sleep is
/// not: this bounds how late it notices.
const IDLE_MAX: Duration = Duration::from_millis(500);

/// Counts of one kind of transition by outcome.
pub type OutcomeCounters = Counters<OutcomeKind, { <OutcomeKind as Label>::ALL.len() }>;

/// Something asked of the store thread by the control plane.
pub enum Order {
    /// A transition, skipped when the asker is gone before it starts; and its place in the lane, free from then on.
    Apply(Box<Transition>, oneshot::Sender<Reply>, Option<OwnedSemaphorePermit>),
    /// A report; and its place in the lane.
    Report(oneshot::Sender<Box<StoreReport>>, Option<OwnedSemaphorePermit>),
}

/// What the store thread counted, in one snapshot.
#[derive(Clone, Debug)]
pub struct StoreReport {
    /// How the store stands.
    pub stats: StoreStats,
    /// Ends of transitions by kind.
    pub transitions: Vec<(TransitionKind, OutcomeCounters)>,
    /// Time of transitions by kind, in nanoseconds; of those that came in a batch, their share of it.
    pub latency: Vec<(TransitionKind, Histogram<u64>)>,
    /// Transitions in a ring's message.
    pub batch_len: Histogram<u64>,
    /// Messages that wait, of all lanes.
    pub queue_depth: usize,
}

/// The control plane's end of both lanes.
#[derive(Clone)]
pub struct Lanes {
    /// Drain, reports: never behind the others. First, so that it is the first to be gone: that ends the store thread.
    pub operator: Sender<Order>,
    /// HTTP transitions.
    pub http: Sender<Order>,
    closed: Arc<AtomicBool>,
}

impl Lanes {
    /// Whether the store thread is gone. Asked after an order was put into a lane, since nobody may take it out any
    /// more: every reply there will ever be is there then.
    #[must_use]
    pub fn are_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// The store thread's end of both lanes.
pub struct LaneEnds {
    http: Receiver<Order>,
    operator: Receiver<Order>,
    closed: Arc<AtomicBool>,
}

impl Drop for LaneEnds {
    /// Those who wait in a lane are told by the end of their order. A channel keeps its messages for as long as there is
    /// anybody who could send more, so they are taken out here; who comes after that sees the flag.
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        for lane in [&self.operator, &self.http] {
            while lane.try_recv().is_ok() {}
        }
    }
}

/// Both ends of the lanes.
#[must_use]
pub fn lanes() -> (Lanes, LaneEnds) {
    let (http, http_end) = bounded(HTTP_LANE_MAX);
    let (operator, operator_end) = bounded(OPERATOR_LANE_MAX);
    let closed = Arc::new(AtomicBool::new(false));
    let ends = LaneEnds { http: http_end, operator: operator_end, closed: Arc::clone(&closed) };
    (Lanes { operator, http, closed }, ends)
}

/// The store and all that speaks to it.
pub struct StoreActor<S> {
    /// Lasts as long as the process: to take a large one apart takes half a second, for which the end after a panic
    /// would have to wait.
    store: ManuallyDrop<S>,
    rings: Vec<StoreMailbox>,
    lanes: LaneEnds,
    clock: BootClock,
    stopwatch: Stopwatch,
    readiness: Arc<Readiness>,
    spin: Spin,
    looked: Stamp,
    /// Goes up with each round, for whoever watches whether there are any.
    beat: Arc<AtomicU64>,
    transitions: Vec<OutcomeCounters>,
    latency: Vec<Histogram<u64>>,
    batch_len: Histogram<u64>,
    replies: Vec<Reply>,
}

impl<S: EphemeralRendezvousStore> StoreActor<S> {
    /// An actor around `store`; `readiness` turns false in the step that begins a drain.
    #[must_use]
    pub fn new(
        store: S,
        rings: Vec<StoreMailbox>,
        lanes: LaneEnds,
        clock: BootClock,
        stopwatch: Stopwatch,
        readiness: Arc<Readiness>,
    ) -> Self {
        let kinds = TransitionKind::ALL.len();
        let looked = stopwatch.stamp();
        Self {
            store: ManuallyDrop::new(store),
            rings,
            lanes,
            clock,
            stopwatch,
            readiness,
            spin: Spin::new(false),
            looked,
            beat: Arc::default(),
            transitions: vec![OutcomeCounters::new(); kinds],
            latency: (0..kinds).map(|_| latency_histogram()).collect(),
            batch_len: latency_histogram(),
            replies: Vec::with_capacity(1),
        }
    }

    /// The same, looking again for a moment instead of sleeping when `spin` says so.
    #[must_use]
    pub fn with_spin(mut self, spin: Spin) -> Self {
        self.spin = spin;
        self
    }

    /// What goes up with each round.
    #[must_use]
    pub fn beat(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.beat)
    }

    /// Serves until the other end of the lanes is gone.
    pub fn run(mut self) {
        loop {
            if !self.spin.again() {
                self.wait();
            }
            let Some(found) = self.round() else { return };
            let now = self.stopwatch.stamp();
            self.spin.looked(self.stopwatch.between(self.looked, now), found);
            self.looked = now;
        }
    }

    /// Blocks until there is work, something is due, or a moment passed.
    fn wait(&self) {
        let mut select = Select::new();
        select.recv(&self.lanes.operator);
        select.recv(&self.lanes.http);
        for ring in &self.rings {
            select.recv(&ring.from_ring);
        }
        let now = self.clock.now();
        let sleep = self.store.next_deadline().map_or(IDLE_MAX, |at| at.since(now)).min(IDLE_MAX);
        // Which of them is ready does not matter: a round looks at all, in the order of their weight.
        let _ = select.ready_timeout(sleep);
    }

    /// Applies what is there, reading the clock once; whether there was anything. None when the lanes have no other
    /// end any more.
    fn round(&mut self) -> Option<bool> {
        self.beat.fetch_add(1, Ordering::Relaxed);
        let mut found = false;
        let now = self.clock.now();
        self.store.expire(now);
        loop {
            match self.lanes.operator.try_recv() {
                Ok(order) => self.obey(now, order),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        for _ in 0..HTTP_BURST_MAX {
            let Ok(order) = self.lanes.http.try_recv() else { break };
            self.obey(now, order);
        }
        for ring in 0..self.rings.len() {
            found |= self.serve_ring(now, ring);
        }
        Some(found)
    }

    fn obey(&mut self, now: Instant, order: Order) {
        match order {
            // The asker gave up before the transition started: it changes nothing.
            Order::Apply(transition, reply, _place) if reply.is_closed() => {
                self.transitions[transition.kind().index()].count(OutcomeKind::Abandoned);
            }
            Order::Apply(transition, reply, place) => {
                drop(place);
                let started = self.stopwatch.stamp();
                self.store.apply(now, std::slice::from_ref(&transition), &mut self.replies);
                let elapsed = self.stopwatch.between(started, self.stopwatch.stamp());
                if let Some(answer) = self.replies.pop() {
                    if matches!(answer, Reply::Drain(DrainView::Draining { .. } | DrainView::Drained)) {
                        self.readiness.set(ReadyState::Draining);
                    }
                    self.count(transition.kind(), answer.kind(), elapsed);
                    // An asker that gave up meanwhile learns the result when it asks again.
                    let _ = reply.send(answer);
                }
            }
            Order::Report(reply, _place) => {
                let _ = reply.send(Box::new(self.report()));
            }
        }
    }

    /// Applies what a ring sent up to now; one wake for all of it. Whether there was anything.
    fn serve_ring(&mut self, now: Instant, ring: usize) -> bool {
        let waiting = self.rings[ring].from_ring.len();
        for _ in 0..waiting {
            let Ok(mut batch) = self.rings[ring].from_ring.try_recv() else { break };
            let started = self.stopwatch.stamp();
            self.store.apply(now, &batch.transitions, &mut batch.replies);
            let elapsed = self.stopwatch.between(started, self.stopwatch.stamp());
            let len = batch.transitions.len().max(1);
            let share = elapsed / len as u32;
            for (transition, reply) in batch.transitions.iter().zip(&batch.replies) {
                self.count(transition.kind(), reply.kind(), share);
            }
            self.batch_len.saturating_record(len as u64);
            // Room for every box there is; it fails only when the ring is gone.
            let _ = self.rings[ring].to_ring.try_send(batch);
        }
        if waiting > 0 {
            self.rings[ring].waker.wake();
        }
        waiting > 0
    }

    fn count(&mut self, kind: TransitionKind, outcome: OutcomeKind, elapsed: Duration) {
        self.transitions[kind.index()].count(outcome);
        self.latency[kind.index()].saturating_record(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
    }

    fn report(&self) -> StoreReport {
        let waiting: usize = self.rings.iter().map(|ring| ring.from_ring.len()).sum();
        let by_kind = |index: usize| TransitionKind::ALL[index];
        StoreReport {
            stats: self.store.stats(),
            transitions: self.transitions.iter().enumerate().map(|(i, it)| (by_kind(i), *it)).collect(),
            latency: self.latency.iter().enumerate().map(|(i, it)| (by_kind(i), it.clone())).collect(),
            batch_len: self.batch_len.clone(),
            queue_depth: waiting + self.lanes.http.len() + self.lanes.operator.len(),
        }
    }
}
