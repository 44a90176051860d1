//! Gathers the figures of all threads, each in one snapshot of its own making.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use rendezvous_control::boundary::{BoxFuture, Telemetry};
use rendezvous_control::snapshot::{
    DatagramFigures, EngineInfo, Snapshot, TransitionFigures, latency_histogram,
};
use rendezvous_net::{BoundSocket, EngineCounters, RearmReason, Waker};
use tokio::sync::{Mutex, Semaphore, oneshot};

use crate::ring::{RingControl, RingReport};
use crate::store_thread::{Lanes, Order, StoreReport};

/// How long a thread may take to report; a stalled one leaves the last figures standing.
const REPORT_WAIT: Duration = Duration::from_millis(500);

/// What is asked of the ring and store threads at each scrape.
pub struct NodeTelemetry {
    ring: RingControl,
    waker: Waker,
    socket: BoundSocket,
    engine: EngineInfo,
    lanes: Lanes,
    /// The one place of the operator lane that is kept for reports.
    report_place: Arc<Semaphore>,
    last: Mutex<Last>,
}

/// The newest figures, and latencies summed up over all reports.
struct Last {
    ring: Box<RingReport>,
    latency: Histogram<u64>,
    store: Option<Box<StoreReport>>,
}

impl NodeTelemetry {
    /// Telemetry of one ring and the store.
    #[must_use]
    pub fn new(
        ring: RingControl,
        waker: Waker,
        socket: BoundSocket,
        engine: EngineInfo,
        lanes: Lanes,
    ) -> Arc<Self> {
        let last = Last { ring: RingReport::empty(), latency: latency_histogram(), store: None };
        let report_place = Arc::new(Semaphore::new(1));
        Arc::new(Self { ring, waker, socket, engine, lanes, report_place, last: Mutex::new(last) })
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
        if let Some(report) = self.ask_ring().await {
            // Both have the same bounds, so this cannot fail; if it did, the counts would still be right.
            let _ = last.latency.add(&report.latency);
            last.ring = report;
        }
        let store = self.ask_store().await;
        let answers = store.is_some();
        if store.is_some() {
            last.store = store;
        }
        self.snapshot(&last, answers)
    }

    async fn ask_ring(&self) -> Option<Box<RingReport>> {
        let (reply, report) = oneshot::channel();
        self.ring.report_requests.try_send((RingReport::empty(), reply)).ok()?;
        self.waker.wake();
        tokio::time::timeout(REPORT_WAIT, report).await.ok()?.ok()
    }

    async fn ask_store(&self) -> Option<Box<StoreReport>> {
        let (reply, report) = oneshot::channel();
        // A report that a stalled store did not take out yet keeps the place: no more than one is ever in the lane.
        let place = Arc::clone(&self.report_place).try_acquire_owned().ok()?;
        self.lanes.operator.try_send(Order::Report(reply, Some(place))).ok()?;
        tokio::time::timeout(REPORT_WAIT, report).await.ok()?.ok()
    }

    fn snapshot(&self, last: &Last, store_answers: bool) -> Snapshot {
        let ring = &last.ring;
        let store = last.store.as_deref();
        Snapshot {
            datagrams: DatagramFigures {
                received: ring.received,
                outcomes: ring.outcomes,
                in_flight: ring.in_flight,
            },
            kernel_drops: self.kernel_drops(&ring.engine),
            send_errors: ring.engine.send_errors.iter().map(|(class, count)| (class.name(), count)).collect(),
            receive_errors: ring
                .engine
                .receive_errors
                .iter()
                .map(|(class, count)| (class.name(), count))
                .collect(),
            unasked_dropped: ring.unasked_dropped,
            engine: self.engine,
            engine_rearms: RearmReason::ALL
                .iter()
                .map(|reason| (reason.name(), ring.engine.rearms[*reason as usize]))
                .collect(),
            datagram_ns: last.latency.clone(),
            transitions: store.map(transitions).unwrap_or_default(),
            store_queue_depth: store.map_or(0, |it| it.queue_depth as u64),
            store_batch_len: store.map_or_else(latency_histogram, |it| it.batch_len.clone()),
            store: store.filter(|_| store_answers).map(|it| it.stats.clone()),
        }
    }

    /// The socket's own count is exact at once; the engine's lags until the next datagram but does not wrap.
    fn kernel_drops(&self, engine: &EngineCounters) -> u64 {
        self.socket.memory().map_or(engine.kernel_drops, |it| engine.kernel_drops.max(it.drops.into()))
    }
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
