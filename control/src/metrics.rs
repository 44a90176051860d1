//! `/metrics`: one [`Snapshot`] as OpenMetrics text.
//!
//! Every label comes from a closed set. Histograms are kept as HdrHistograms (two significant digits)
//! and shown in classic buckets with fixed bounds; `_sum` is the sum of the recorded values as the histogram
//! resolves them, so it is exact to the histogram's precision only.

use std::fmt::Error;

use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rendezvous_shared::counter::Label;
use rendezvous_shared::outcome::{IntroductionResult, OutcomeKind};
use rendezvous_shared::store::{DrainView, StoreStats, TransitionKind};

use crate::serve::ConnectionFigures;
use crate::snapshot::Snapshot;

/// The content type of what [`encode`] writes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of duration buckets in nanoseconds, 1 µs to 10 s: from a datagram in cache to a stuck request.
const DURATION_BOUNDS_NS: [u64; 22] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// Bounds of batch lengths.
const BATCH_BOUNDS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) snapshot: Snapshot,
    pub(crate) requests: Vec<(&'static str, Histogram<u64>)>,
    pub(crate) connections: ConnectionFigures,
}

/// The text of `/metrics`.
pub(crate) fn encode(figures: Figures) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("rendezvous");
    registry.register_collector(Box::new(figures));
    let mut out = String::with_capacity(64 * 1024);
    text::encode(&mut out, &registry)?;
    Ok(out)
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut out = Writer(encoder);
        self.datagrams(&mut out)?;
        self.engine(&mut out)?;
        self.transitions(&mut out)?;
        if let Some(stats) = &self.snapshot.store {
            pools(&mut out, stats)?;
            store(&mut out, stats)?;
        }
        self.introductions(&mut out)?;
        self.http(&mut out)
    }
}

impl Figures {
    fn datagrams(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let it = &self.snapshot.datagrams;
        out.counters(
            "udp_datagrams",
            "Datagrams by what became of them",
            it.outcomes.iter().map(|(outcome, count)| ([("outcome", outcome.name())], count)),
        )?;
        out.counter(
            "udp_datagrams_received",
            "Datagrams received: the sum over outcomes plus those in flight",
            it.received,
        )?;
        out.gauge("udp_datagrams_in_flight", "Datagrams whose end is not known yet", it.in_flight)?;
        out.counter(
            "udp_kernel_drops",
            "Datagrams dropped by the kernel, the socket buffer being full",
            self.snapshot.kernel_drops,
        )?;
        out.gauge(
            "udp_receive_buffer_bytes",
            "Receive buffer that the kernel granted, of all sockets",
            self.snapshot.receive_buffer_len,
        )?;
        out.counters(
            "self_probes",
            "Rounds of the server's own question whether a socket hears",
            self.snapshot.self_probes.map(|(result, count)| ([("result", result)], count)),
        )?;
        out.counters(
            "udp_send_errors",
            "Failed sends by errno",
            self.snapshot.send_errors.iter().map(|&(errno, count)| ([("errno", errno)], count)),
        )?;
        out.counters(
            "udp_receive_errors",
            "Failed receives by errno",
            self.snapshot.receive_errors.iter().map(|&(errno, count)| ([("errno", errno)], count)),
        )?;
        out.counter(
            "udp_unasked_dropped",
            "NOTICEs and INTRODUCEs nobody asked for just then, that found no room to be sent",
            self.snapshot.unasked_dropped,
        )?;
        out.histograms(
            "datagram_seconds",
            "From receipt to answer, of datagrams that were answered",
            &DURATION_BOUNDS_NS,
            NANOS,
            [(None, &self.snapshot.datagram_ns)],
        )
    }

    fn engine(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let it = self.snapshot.engine;
        let mut metric = out.0.encode_descriptor(
            "engine",
            "The datagram engine and why it runs",
            None,
            MetricType::Info,
        )?;
        metric.encode_info(&[("engine", it.engine), ("reason", it.reason)])?;
        out.counters(
            "engine_rearms",
            "Times the receive was armed again, by reason",
            self.snapshot.engine_rearms.iter().map(|&(reason, count)| ([("reason", reason)], count)),
        )
    }

    fn transitions(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let all = &self.snapshot.transitions;
        let count = |kind, outcome| {
            let of_kind = all.iter().filter(move |it| it.kind == kind).flat_map(|it| &it.outcomes);
            of_kind.filter(move |it| it.0 == outcome).map(|it| it.1).sum()
        };
        let pairs = TransitionKind::ALL
            .iter()
            .flat_map(|&kind| OutcomeKind::ALL.iter().map(move |&outcome| (kind, outcome)));
        out.counters(
            "transitions",
            "Transitions applied by the store, by kind and outcome",
            pairs.map(|(kind, outcome)| {
                ([("transition", kind.name()), ("outcome", outcome.name())], count(kind, outcome))
            }),
        )?;
        out.histograms(
            "transition_seconds",
            "Time a transition takes within the store",
            &DURATION_BOUNDS_NS,
            NANOS,
            all.iter().map(|it| (Some(("transition", it.kind.name())), &it.duration_ns)),
        )?;
        out.gauge(
            "store_queue_depth",
            "Messages that wait for the store, of all lanes; one of a ring holds up to 64 transitions",
            self.snapshot.store_queue_depth,
        )?;
        out.histograms(
            "store_batch_size",
            "Transitions applied at once",
            &BATCH_BOUNDS,
            ONE,
            [(None, &self.snapshot.store_batch_len)],
        )
    }

    fn introductions(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let Some(stats) = &self.snapshot.store else { return Ok(()) };
        let binds = self.snapshot.transitions.iter().filter(|it| it.kind == TransitionKind::Bind);
        let refused = binds
            .flat_map(|it| &it.outcomes)
            .filter(|it| !matches!(it.0, OutcomeKind::Applied | OutcomeKind::Replayed))
            .map(|it| it.1)
            .sum();
        let count = |result| match result {
            IntroductionResult::Introduced => stats.introductions,
            IntroductionResult::Replayed => stats.introductions_replayed,
            IntroductionResult::Refused => refused,
        };
        out.counters(
            "introductions",
            "What binds came to",
            IntroductionResult::ALL.iter().map(|&it| ([("result", it.name())], count(it))),
        )
    }

    fn http(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.histograms(
            "http_request_seconds",
            "From a request's head to its answer",
            &DURATION_BOUNDS_NS,
            NANOS,
            self.requests.iter().map(|(route, histogram)| (Some(("route", *route)), histogram)),
        )?;
        let it = self.connections;
        out.gauge("http_connections", "Connections open", it.open)?;
        out.counters(
            "http_connections_refused",
            "Connections closed at once because a ceiling was reached",
            [
                ([("reason", "connections")], it.refused_total),
                ([("reason", "connections_per_address")], it.refused_per_address),
            ],
        )?;
        out.counter("http_accept_errors", "Failed accepts, followed by a pause", it.accept_errors)
    }
}

fn pools(out: &mut Writer<'_>, stats: &StoreStats) -> Result<(), Error> {
    let by_pool = |figure: fn(&rendezvous_shared::store::PoolUsage) -> usize| {
        stats.pools.iter().map(move |it| ([("pool", it.pool.name())], figure(it) as u64))
    };
    out.gauges("pool_used", "Entries held", by_pool(|it| it.used))?;
    out.gauges("pool_limit", "The ceiling of the pool", by_pool(|it| it.limit))?;
    out.gauges("pool_high_water", "The most entries ever held", by_pool(|it| it.high_water))
}

fn store(out: &mut Writer<'_>, stats: &StoreStats) -> Result<(), Error> {
    out.gauge("presence_fresh", "Listings with a fresh presence", stats.presence_fresh as u64)?;
    out.gauge("listings_visible", "Public listings that can be joined", stats.listings_visible as u64)?;
    let state = match stats.drain {
        DrainView::Serving => 0,
        DrainView::Draining { .. } => 1,
        DrainView::Drained => 2,
    };
    out.gauge("drain_state", "0 serving, 1 draining, 2 drained", state)?;
    out.counters(
        "attempt_outcomes",
        "How attempts ended",
        stats.attempt_reasons.iter().map(|(reason, count)| ([("reason", reason.name())], count)),
    )?;
    out.counter(
        "attempt_results_dropped",
        "Results of finished attempts not kept, their pool being full",
        stats.results_dropped,
    )
}

/// Divides what is recorded into what is shown.
const NANOS: f64 = 1e9;
const ONE: f64 = 1.0;

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        count(&mut self.0.encode_descriptor(name, help, None, MetricType::Counter)?, value)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        series.into_iter().try_for_each(|(labels, value)| count(&mut metric.encode_family(&labels)?, value))
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        series.into_iter().try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
    }

    fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[u64],
        divisor: f64,
        series: impl IntoIterator<Item = (Option<(&'static str, &'static str)>, &'h Histogram<u64>)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (label, histogram) in series {
            let (sum, buckets) = classic(histogram, bounds, divisor);
            let write = |metric: &mut MetricEncoder<'_>| {
                metric.encode_histogram::<NoLabelSet>(sum, histogram.len(), &buckets, None)
            };
            match label {
                Some(label) => write(&mut metric.encode_family(&[label])?)?,
                None => write(&mut metric)?,
            }
        }
        Ok(())
    }
}

fn count(metric: &mut MetricEncoder<'_>, value: u64) -> Result<(), Error> {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// The sum, and how many values fell into each bucket (not cumulative), the last without bound.
#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
fn classic(histogram: &Histogram<u64>, bounds: &[u64], divisor: f64) -> (f64, Vec<(f64, u64)>) {
    let mut buckets: Vec<(f64, u64)> = bounds.iter().map(|&it| (it as f64 / divisor, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    let mut sum = 0.0;
    for step in histogram.iter_recorded() {
        // A value stands for all that the histogram does not tell from it; the lowest of them decides, so
        // that a value recorded exactly at a bound counts as within it.
        let lowest = histogram.lowest_equivalent(step.value_iterated_to());
        let place = bounds.partition_point(|&bound| bound < lowest);
        buckets[place].1 += step.count_at_value();
        sum += histogram.median_equivalent(lowest) as f64 * step.count_at_value() as f64;
    }
    (sum / divisor, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_within_it() {
        let mut histogram = crate::snapshot::latency_histogram();
        for value in [1, 1_000, 1_100, 10_000_000_000, 59_000_000_000] {
            histogram.record(value).unwrap();
        }
        let (sum, buckets) = classic(&histogram, &DURATION_BOUNDS_NS, NANOS);
        let at = |index: usize| buckets[index].1;
        assert_eq!((at(0), at(1), at(21), at(22)), (2, 1, 1, 1));
        assert_eq!(buckets.iter().map(|it| it.1).sum::<u64>(), 5);
        assert!((sum - 69.0).abs() < 0.7, "{sum}");
    }
}
