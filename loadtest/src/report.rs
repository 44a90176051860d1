//! The closing tables and the verdicts.

use crate::checks::{Check, ServerFigures};
use crate::ledger::{Ledger, Summary, Timed};
use crate::output::line;
use crate::table::render;

/// Prints all of it.
pub(crate) fn print(ledger: &Ledger, client: &Summary, server: &ServerFigures, checks: &[Check]) {
    line("");
    line(counts(client));
    line("");
    line(latencies(ledger));
    line("");
    line(beside(client, server));
    line("");
    for check in checks {
        let verdict = if check.held { "ok    " } else { "FAILED" };
        line(format_args!("  {verdict}  {}: {}", check.name, check.detail));
    }
}

fn counts(it: &Summary) -> String {
    let mut rows: Vec<Vec<String>> = [
        ("hosts present", it.hosts_present),
        ("attempts", it.wanted),
        ("created", it.created),
        ("introduced", it.introduced),
        ("connected", it.connected),
        ("lost", it.lost.values().sum()),
    ]
    .into_iter()
    .map(|(name, count)| vec![name.to_owned(), count.to_string()])
    .collect();
    rows.extend(it.lost.iter().map(|(why, count)| vec![format!("lost: {why}"), count.to_string()]));
    let refused = it.refused.iter();
    rows.extend(
        refused.map(|((what, code), count)| vec![format!("refused: {what} {code}"), count.to_string()]),
    );
    rows.push(vec!["INTRODUCE repeats".to_owned(), it.repeats.to_string()]);
    rows.push(vec!["changes of port".to_owned(), it.port_changes.to_string()]);
    render(&["client", "count"], &rows)
}

/// In milliseconds.
fn latencies(ledger: &Ledger) -> String {
    let rows: Vec<Vec<String>> = Timed::ALL
        .into_iter()
        .map(|(what, name)| {
            let it = ledger.histogram(what);
            let mut row = vec![name.to_owned()];
            row.extend([0.5, 0.9, 0.99, 0.999].map(|quantile| ms(it.value_at_quantile(quantile))));
            row.extend([ms(it.max()), it.len().to_string()]);
            row
        })
        .collect();
    render(&["latency, ms", "p50", "p90", "p99", "p99.9", "max", "count"], &rows)
}

fn ms(us: u64) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}

/// Server counters (what they rose by) beside client counts.
fn beside(client: &Summary, server: &ServerFigures) -> String {
    let rise = |name: &str| server.rise(name).to_string();
    let row = |name: &str, server: String, client: String| vec![name.to_owned(), server, client];
    let mut rows = vec![
        row(
            "datagrams to the server",
            rise("rendezvous_udp_datagrams_received_total"),
            client.datagrams_sent.to_string(),
        ),
        row("kernel drops", rise("rendezvous_udp_kernel_drops_total"), String::new()),
        row("send errors", rise("rendezvous_udp_send_errors_total"), String::new()),
        row(
            "introductions",
            rise("rendezvous_introductions_total{result=\"introduced\"}"),
            client.introduced.to_string(),
        ),
        row(
            "introductions repeated",
            rise("rendezvous_introductions_total{result=\"replayed\"}"),
            client.repeats.to_string(),
        ),
    ];
    for name in ["rendezvous_udp_datagrams_total", "rendezvous_attempt_outcomes_total"] {
        let short = name.trim_start_matches("rendezvous_").trim_end_matches("_total");
        for (labels, _) in server.after.series(name) {
            let rose = server.rise(&format!("{name}{labels}"));
            if rose > 0 {
                rows.push(row(&format!("{short}{labels}"), rose.to_string(), String::new()));
            }
        }
    }
    render(&["server beside client", "server", "client"], &rows)
}
