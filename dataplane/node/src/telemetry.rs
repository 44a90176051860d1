//! Gathers the figures of all threads, each in one snapshot of its own making.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use rendezvous_control::boundary::{BoxFuture, Telemetry};
use rendezvous_control::snapshot::{
    DatagramFigures, EngineInfo, Snapshot, TransitionFigures, latency_histogram,
};
use rendezvous_net::{EngineCounters, ErrnoClass, ErrnoCounts, RearmReason};
use rendezvous_shared::counter::Counters;
use tokio::sync::{Mutex, Semaphore, oneshot};

use crate::dataplane::RingHandle;
use crate::hearing::Hearing;
use crate::ring::RingReport;
use crate::store_thread::{Lanes, Order, StoreReport};

/// How long a thread may take to report; a stalled one leaves the last figures standing.
const REPORT_WAIT: Duration = Duration::from_millis(500);

/// What is asked of the ring and store threads at each scrape.
pub struct NodeTelemetry {
    rings: Vec<RingHandle>,
    engine: EngineInfo,
    hearing: Arc<Hearing>,
    lanes: Lanes,
    /// The one place of the operator lane that is kept for reports.
    report_place: Arc<Semaphore>,
    last: Mutex<Last>,
}

/// The newest figures, and latencies summed up over all reports.
struct Last {
    /// In the order of the rings.
    rings: Vec<RingReport>,
    latency: Histogram<u64>,
    store: Option<Box<StoreReport>>,
}

impl NodeTelemetry {
    /// Telemetry of the rings and the store.
    #[must_use]
    pub(crate) fn new(
        rings: Vec<RingHandle>,
        engine: EngineInfo,
        hearing: Arc<Hearing>,
        lanes: Lanes,
    ) -> Arc<Self> {
        let reports = rings.iter().map(|_| *RingReport::empty()).collect();
        let last = Last { rings: reports, latency: latency_histogram(), store: None };
        let report_place = Arc::new(Semaphore::new(1));
        Arc::new(Self { rings, engine, hearing, lanes, report_place, last: Mutex::new(last) })
    }
}

/// Telemetry shared with the control plane.
pub struct SharedTelemetry(pub Arc<NodeTelemetry>);

impl Telemetry for SharedTelemetry {
    fn snapshot(&self) -> BoxFuture<Snapshot> {
        let node = Arc::clone(&self.0);
        Box::pin(async move { node.gather().await })
    }
}

impl NodeTelemetry {
    async fn gather(&self) -> Snapshot {
        // One scrape at a time: a ring has room for one request.
        let mut last = self.last.lock().await;
        // All are asked before any is waited for, so that a stalled one costs its own time only.
        let asked: Vec<_> = self.rings.iter().map(ask_ring).collect();
        for (number, report) in asked.into_iter().enumerate() {
            let Some(report) = report else { continue };
            if let Ok(Ok(report)) = tokio::time::timeout(REPORT_WAIT, report).await {
                // Both have the same bounds, so this cannot fail; if it did, the counts would still be right.
                let _ = last.latency.add(&report.latency);
                last.rings[number] = *report;
            }
        }
        let store = self.ask_store().await;
        let answers = store.is_some();
        if store.is_some() {
            last.store = store;
        }
        self.snapshot(&last, answers)
    }

    async fn ask_store(&self) -> Option<Box<StoreReport>> {
        let (reply, report) = oneshot::channel();
        // A report that a stalled store did not take out yet keeps the place: no more than one is ever in the lane.
        let place = Arc::clone(&self.report_place).try_acquire_owned().ok()?;
        self.lanes.operator.try_send(Order::Report(reply, Some(place))).ok()?;
        tokio::time::timeout(REPORT_WAIT, report).await.ok()?.ok()
    }

    fn snapshot(&self, last: &Last, store_answers: bool) -> Snapshot {
        let sum = |of: fn(&RingReport) -> u64| last.rings.iter().map(of).sum();
        let mut outcomes = Counters::new();
        last.rings.iter().for_each(|ring| outcomes.add_all(&ring.outcomes));
        let store = last.store.as_deref();
        let buffers = self.rings.iter().map(|ring| ring.socket.receive_buffer());
        Snapshot {
            datagrams: DatagramFigures {
                received: sum(|ring| ring.received),
                outcomes,
                in_flight: sum(|ring| ring.in_flight),
            },
            kernel_drops: self
                .rings
                .iter()
                .zip(&last.rings)
                .map(|(it, report)| it.kernel_drops(report))
                .sum(),
            receive_buffer_len: buffers.map(|it| it.granted_len as u64).sum(),
            send_errors: errnos(&last.rings, |engine| &engine.send_errors),
            receive_errors: errnos(&last.rings, |engine| &engine.receive_errors),
            unasked_dropped: sum(|ring| ring.unasked_dropped),
            self_probes: self.hearing.rounds(),
            engine: self.engine,
            engine_rearms: RearmReason::ALL
                .iter()
                .map(|&reason| {
                    let count = last.rings.iter().map(|ring| ring.engine.rearms[reason as usize]).sum();
                    (reason.name(), count)
                })
                .collect(),
            datagram_ns: last.latency.clone(),
            transitions: store.map(transitions).unwrap_or_default(),
            store_queue_depth: store.map_or(0, |it| it.queue_depth as u64),
            store_batch_len: store.map_or_else(latency_histogram, |it| it.batch_len.clone()),
            store: store.filter(|_| store_answers).map(|it| it.stats.clone()),
        }
    }
}

fn ask_ring(ring: &RingHandle) -> Option<oneshot::Receiver<Box<RingReport>>> {
    let (reply, report) = oneshot::channel();
    ring.control.report_requests.try_send((RingReport::empty(), reply)).ok()?;
    ring.waker.wake();
    Some(report)
}

impl RingHandle {
    /// The socket's own count is exact at once; the engine's lags until the next datagram but does not wrap.
    fn kernel_drops(&self, report: &RingReport) -> u64 {
        let drops = report.engine.kernel_drops;
        self.socket.memory().map_or(drops, |it| drops.max(it.drops.into()))
    }
}

/// Errors of all rings, by errno.
fn errnos(rings: &[RingReport], of: fn(&EngineCounters) -> &ErrnoCounts) -> Vec<(&'static str, u64)> {
    let count = |class| rings.iter().map(|ring| of(&ring.engine).get(class)).sum();
    ErrnoClass::ALL.into_iter().map(|class| (class.name(), count(class))).collect()
}

fn transitions(report: &StoreReport) -> Vec<TransitionFigures> {
    let with_latency = report.transitions.iter().zip(&report.latency);
    with_latency
        .map(|((kind, outcomes), (_, duration_ns))| TransitionFigures {
            kind: *kind,
            outcomes: outcomes.iter().collect(),
            duration_ns: duration_ns.clone(),
        })
        .collect()
}
