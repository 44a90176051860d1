//! The figures of the process as of one moment. Plain data; `metrics` writes it out.
//!
//! Labels given as `&'static str` must come from closed sets: no tenant, address or id may become a label.

use hdrhistogram::Histogram;
use rendezvous_shared::counter::Counters;
use rendezvous_shared::outcome::{DATAGRAM_OUTCOMES, DatagramOutcome, OutcomeKind};
use rendezvous_shared::store::{StoreStats, TransitionKind};

/// The datagram path's ends.
#[derive(Clone, Debug)]
pub struct DatagramFigures {
    /// Received, whatever became of them.
    pub received: u64,
    /// What became of them.
    pub outcomes: Counters<DatagramOutcome, DATAGRAM_OUTCOMES>,
    /// Those whose end is not known yet.
    pub in_flight: u64,
}

/// Which engine moves datagrams and why.
#[derive(Clone, Copy, Debug)]
pub struct EngineInfo {
    /// Its name.
    pub engine: &'static str,
    /// Why it was chosen.
    pub reason: &'static str,
}

/// One kind of transition.
#[derive(Clone, Debug)]
pub struct TransitionFigures {
    /// The kind.
    pub kind: TransitionKind,
    /// How many came to each end; ends left out count 0.
    pub outcomes: Vec<(OutcomeKind, u64)>,
    /// Nanoseconds each took within the store.
    pub duration_ns: Histogram<u64>,
}

/// All figures as of one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The datagram path's ends.
    pub datagrams: DatagramFigures,
    /// Datagrams the kernel dropped because a socket buffer was full.
    pub kernel_drops: u64,
    /// Bytes of receive buffer that the kernel granted, of all sockets, as SO_RCVBUF counts them.
    pub receive_buffer_len: u64,
    /// Rounds of the server's own question whether a socket hears, by how they ended.
    pub self_probes: [(&'static str, u64); 2],
    /// Failed sends by the name of the errno.
    pub send_errors: Vec<(&'static str, u64)>,
    /// Failed receives by the name of the errno.
    pub receive_errors: Vec<(&'static str, u64)>,
    /// NOTICEs and INTRODUCEs nobody asked for just then, that found no room to be sent.
    pub unasked_dropped: u64,
    /// Which engine moves datagrams and why.
    pub engine: EngineInfo,
    /// Times a multishot receive had to be armed again, by reason.
    pub engine_rearms: Vec<(&'static str, u64)>,
    /// Nanoseconds from receipt to answer, of datagrams that were answered.
    pub datagram_ns: Histogram<u64>,
    /// Each kind of transition, at most once.
    pub transitions: Vec<TransitionFigures>,
    /// Messages that wait for the store, of all lanes.
    pub store_queue_depth: u64,
    /// Transitions the store applied at once.
    pub store_batch_len: Histogram<u64>,
    /// How the store stands; `None` when it does not answer.
    pub store: Option<StoreStats>,
}

/// Longest latency recorded; longer ones count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// An empty histogram of latencies in nanoseconds, the one kind in use, so that any two can be added up: two
/// significant digits, about 25 KiB, never larger.
///
/// # Panics
/// Never: the bounds are constants that the library accepts, and a test makes one.
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "constant bounds; see above")]
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 2).expect("constant bounds")
}
