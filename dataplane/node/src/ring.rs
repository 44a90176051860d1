//! The ring thread: datagrams in, cheap refusals and answers out, the rest to the store and back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use rendezvous_control::snapshot::latency_histogram;
use rendezvous_core::handler::{Action, Answer, Handler, Load, Received};
use rendezvous_net::{Engine, EngineCounters, EngineOptions, Outbox};
use rendezvous_shared::counter::Counters;
use rendezvous_shared::limits::{ANSWER_LEN_MAX, BATCH_LEN_MAX, DATAGRAM_LEN_MAX};
use rendezvous_shared::outcome::{DATAGRAM_OUTCOMES, DatagramOutcome};
use rendezvous_shared::store::Transition;
use rendezvous_shared::time::{Clock, Instant};

use crate::clock::{BootClock, Stamp, Stopwatch};
use crate::mailbox::{Asked, Batch, RingMailbox};
use crate::spin::Spin;
use crate::sync::{Receiver, Sender, WakeGate, bounded, oneshot};

/// Datagrams taken from the engine before answers go out.
const RECEIVE_MAX: usize = 256;
/// Answers one batch can become: to each sender, and to another peer of each.
const ANSWERS_PER_BATCH: usize = 2 * BATCH_LEN_MAX;
/// Unasked repeats for which the store is asked in one turn, two boxes of them; the others go with the next, which does not
/// wait.
const REPEATS_MAX: usize = 2 * BATCH_LEN_MAX;
/// Places in the engine's outbox: for all that one turn surely produces, and as many batches again as usually come
/// back together. Batches wait, unopened, for as long as there is no room for their answers.
const OUTBOX_SLOTS: usize = RECEIVE_MAX + 4 * ANSWERS_PER_BATCH;

const _: () = assert!(rendezvous_net::REPLY_LEN_MAX >= ANSWER_LEN_MAX, "every answer fits into a slot");
const _: () =
    assert!(rendezvous_net::DATAGRAM_LEN_MAX == DATAGRAM_LEN_MAX, "nothing of the protocol is truncated");

/// The engine as a ring thread needs it.
#[must_use]
pub fn engine_options() -> EngineOptions {
    EngineOptions { outbox_slots: OUTBOX_SLOTS, ..EngineOptions::default() }
}

/// What a ring thread counted, in one snapshot. The box travels from the asker to the ring and back, so that
/// answering allocates nothing.
#[derive(Debug)]
pub struct RingReport {
    /// Datagrams handed over by the engine.
    pub received: u64,
    /// Ends of datagrams.
    pub outcomes: Counters<DatagramOutcome, DATAGRAM_OUTCOMES>,
    /// Datagrams whose end is with the store.
    pub in_flight: u64,
    /// What the engine counted.
    pub engine: EngineCounters,
    /// Unasked datagrams that found no room in the outbox, or no box to ask the store in what they should say.
    pub unasked_dropped: u64,
    /// From receipt to answer, of answered datagrams since the last report. The asker sends an empty one along.
    pub latency: Histogram<u64>,
}

impl RingReport {
    /// An empty report to be filled.
    #[must_use]
    pub fn empty() -> Box<Self> {
        Box::new(Self {
            received: 0,
            outcomes: Counters::new(),
            in_flight: 0,
            engine: EngineCounters::default(),
            unasked_dropped: 0,
            latency: latency_histogram(),
        })
    }
}

/// An empty report, and where to send it once it is filled.
pub type ReportRequest = (Box<RingReport>, oneshot::Sender<Box<RingReport>>);

/// How others reach a ring thread.
#[derive(Clone)]
pub struct RingControl {
    /// Set, then wake, to end the thread.
    pub stop: Arc<AtomicBool>,
    /// Reports to be filled; one at a time.
    pub report_requests: Sender<ReportRequest>,
}

/// The ring thread's end of [`RingControl`].
pub struct RingOrders {
    stop: Arc<AtomicBool>,
    report_requests: Receiver<ReportRequest>,
}

/// Both ends of the orders of one ring.
#[must_use]
pub fn ring_orders() -> (RingControl, RingOrders) {
    let stop = Arc::new(AtomicBool::new(false));
    let (report_requests, requests) = bounded(1);
    (RingControl { stop: Arc::clone(&stop), report_requests }, RingOrders { stop, report_requests: requests })
}

/// All that a ring thread owns.
pub struct Ring {
    engine: Box<dyn Engine>,
    gate: WakeGate,
    orders: RingOrders,
    spin: Spin,
    looked: Stamp,
    state: RingState,
}

/// What the datagram path works on, apart from the engine that lends it the bytes.
struct RingState {
    handler: Handler,
    mailbox: RingMailbox,
    filling: Option<Box<Batch>>,
    /// Boxes there are.
    boxes: usize,
    clock: BootClock,
    stopwatch: Stopwatch,
    received: u64,
    outcomes: Counters<DatagramOutcome, DATAGRAM_OUTCOMES>,
    in_flight: u64,
    unasked_dropped: u64,
    latency: Histogram<u64>,
}

impl Ring {
    /// Built on the thread that runs it: the engine is bound to that thread.
    #[must_use]
    pub fn new(
        engine: Box<dyn Engine>,
        gate: WakeGate,
        orders: RingOrders,
        handler: Handler,
        mailbox: RingMailbox,
        clock: BootClock,
        stopwatch: Stopwatch,
    ) -> Self {
        let state = RingState {
            handler,
            boxes: mailbox.free.len(),
            mailbox,
            filling: None,
            clock,
            stopwatch,
            received: 0,
            outcomes: Counters::new(),
            in_flight: 0,
            unasked_dropped: 0,
            latency: latency_histogram(),
        };
        let looked = state.stopwatch.stamp();
        Self { engine, gate, orders, spin: Spin::new(false), looked, state }
    }

    /// The same, looking again for a moment instead of sleeping when `spin` says so.
    #[must_use]
    pub fn with_spin(mut self, spin: Spin) -> Self {
        self.spin = spin;
        self
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When the engine cannot go on.
    pub fn run(mut self) -> io::Result<()> {
        while !self.orders.stop.load(Ordering::Acquire) {
            self.wait()?;
            let found = self.step();
            let now = self.state.stopwatch.stamp();
            self.spin.looked(self.state.stopwatch.between(self.looked, now), found);
            self.looked = now;
        }
        // What was answered last still goes out.
        self.engine.turn(Some(Duration::ZERO))
    }

    /// Sends what is queued, then blocks until there is something to do.
    fn wait(&mut self) -> io::Result<()> {
        if self.spin.again() {
            return self.engine.turn(Some(Duration::ZERO));
        }
        let timeout = self.state.handler.next_timeout().map(|at| at.since(self.state.clock.now()));
        let sleep = self.gate.prepare_to_sleep();
        let busy = !self.state.mailbox.from_store.is_empty()
            || !self.orders.report_requests.is_empty()
            || self.orders.stop.load(Ordering::Acquire);
        let result = self.engine.turn(if busy { Some(Duration::ZERO) } else { timeout });
        sleep.awake();
        result
    }

    /// One round of work; whether there was any.
    fn step(&mut self) -> bool {
        let now = self.state.clock.now();
        self.state.handler.set_load(self.state.load());
        let mut found = self.receive(now) > 0;
        self.state.repeat(now);
        let outbox = self.engine.outbox();
        // What is left waits for the next turn, which sends these and does not block.
        while outbox.capacity() - outbox.len() >= ANSWERS_PER_BATCH
            && let Ok(batch) = self.state.mailbox.from_store.try_recv()
        {
            self.state.settle(now, batch, outbox);
            found = true;
        }
        self.state.hand_over();
        if let Ok((report, reply)) = self.orders.report_requests.try_recv()
            && let Err(report) = reply.send(self.report(report))
        {
            // The asker went away; what it was given belongs into the next report. The bounds are the same, so it fits.
            let _ = self.state.latency.add(&report.latency);
        }
        found
    }

    fn receive(&mut self, now: Instant) -> usize {
        let started = self.state.stopwatch.stamp();
        let mut answered = 0;
        let state = &mut self.state;
        let received = self.engine.receive(RECEIVE_MAX, &mut |meta, bytes, outbox| {
            let datagram =
                Received { source: meta.source, local: meta.local, truncated: meta.truncated, bytes };
            answered += u64::from(state.on_datagram(now, started, &datagram, outbox));
        });
        state.hand_over();
        if answered > 0 {
            let elapsed = state.stopwatch.between(started, state.stopwatch.stamp());
            state.latency.saturating_record_n(nanos(elapsed), answered);
        }
        received
    }

    fn report(&mut self, mut report: Box<RingReport>) -> Box<RingReport> {
        let state = &mut self.state;
        report.received = state.received;
        report.outcomes = state.outcomes;
        report.in_flight = state.in_flight;
        report.unasked_dropped = state.unasked_dropped;
        report.engine = *self.engine.counters();
        std::mem::swap(&mut report.latency, &mut state.latency);
        report
    }
}

impl RingState {
    /// Brings one datagram to its end, or into the batch being filled; returns whether it was answered.
    fn on_datagram(
        &mut self,
        now: Instant,
        started: Stamp,
        datagram: &Received<'_>,
        outbox: &mut Outbox,
    ) -> bool {
        self.received += 1;
        let (outcome, answered) = match self.handler.on_datagram(now, datagram) {
            Action::Silence(outcome) => (outcome, false),
            Action::Answer(answer, outcome) => match push(outbox, &answer) {
                true => (outcome, true),
                false => (DatagramOutcome::OutboxFull, false),
            },
            Action::Submit(transition, pending) => {
                if let Some(batch) = self.batch(started) {
                    batch.push(transition, Asked::Datagram(pending));
                    self.in_flight += 1;
                    return false;
                }
                (DatagramOutcome::StoreBusy, false)
            }
        };
        self.outcomes.count(outcome);
        answered
    }

    /// How far the store is behind: by the boxes that it has.
    fn load(&self) -> Load {
        let here = self.mailbox.free.len() + usize::from(self.filling.is_some());
        Load::of(self.boxes - here, self.boxes)
    }

    /// The batch to add to; a full one is handed over first. None when every box is with the store.
    fn batch(&mut self, started: Stamp) -> Option<&mut Batch> {
        if self.filling.as_ref().is_some_and(|batch| batch.is_full()) {
            self.hand_over();
        }
        if self.filling.is_none() {
            let mut batch = self.mailbox.free.pop()?;
            batch.received = started;
            self.filling = Some(batch);
        }
        self.filling.as_deref_mut()
    }

    /// Hands over what was collected. The last box is kept back until it is full or another one is free again, so
    /// that the store always has whole batches to work on before a datagram ends as `store_busy`.
    fn hand_over(&mut self) {
        let no_other = self.mailbox.free.is_empty();
        let Some(batch) = self.filling.take_if(|batch| batch.is_full() || !no_other) else { return };
        // There is room for every box there is, so this fails only when the store thread is gone.
        if let Err(refused) = self.mailbox.to_store.try_send(batch) {
            let mut batch = refused.into_inner();
            for asked in &batch.asked {
                if let Asked::Datagram(_) = asked {
                    self.in_flight -= 1;
                    self.outcomes.count(DatagramOutcome::StoreBusy);
                } else {
                    self.unasked_dropped += 1;
                }
            }
            batch.clear();
            self.mailbox.free.push(batch);
        }
    }

    /// Turns the replies of a batch into answers.
    fn settle(&mut self, now: Instant, mut batch: Box<Batch>, outbox: &mut Outbox) {
        let mut answered = 0;
        for (asked, reply) in batch.asked.iter().zip(&batch.replies) {
            let unasked = match asked {
                Asked::Repeat(due) => self.handler.on_reminded(now, *due, reply),
                Asked::Datagram(pending) => {
                    let settled = self.handler.on_reply(now, pending, reply);
                    let sent = settled.answer.as_ref().map(|answer| push(outbox, answer));
                    answered += u64::from(sent == Some(true));
                    let full = sent == Some(false);
                    self.outcomes.count(if full { DatagramOutcome::OutboxFull } else { settled.outcome });
                    self.in_flight -= 1;
                    settled.unasked
                }
            };
            if unasked.is_some_and(|answer| !push(outbox, &answer)) {
                self.unasked_dropped += 1;
            }
        }
        let elapsed = self.stopwatch.between(batch.received, self.stopwatch.stamp());
        if answered > 0 {
            self.latency.saturating_record_n(nanos(elapsed), answered);
        }
        batch.clear();
        self.mailbox.free.push(batch);
    }

    /// Asks the store what the repeats say that are due. With no box left they are left out.
    fn repeat(&mut self, now: Instant) {
        for _ in 0..REPEATS_MAX {
            let Some((remind, due)) = self.handler.next_repeat(now) else { return };
            let started = self.stopwatch.stamp();
            if let Some(batch) = self.batch(started) {
                batch.push(Transition::Remind(remind), Asked::Repeat(due));
            } else {
                self.handler.leave_out(now, due);
                self.unasked_dropped += 1;
            }
        }
    }
}

/// Queues an answer; false when the outbox is full.
fn push(outbox: &mut Outbox, answer: &Answer) -> bool {
    outbox.push(answer.to(), answer.from(), |out| answer.encode(out)).is_ok()
}

fn nanos(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
