//! The server's counters: `/metrics` fetched and parsed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::exit::Failure;

const ANSWER_LEN_MAX: usize = 4 << 20;
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Samples by their full name, labels included, as in `rendezvous_udp_datagrams_total{outcome="challenged"}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(BTreeMap<String, f64>);

impl Samples {
    /// Reads the text format; a line that is no sample is left out.
    pub(crate) fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                return None;
            }
            // Our labels come from closed sets and hold no blank and no brace.
            let end = line.find('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let (name, rest) = line.split_at(end);
            Some((name.to_owned(), rest.split_whitespace().next()?.parse().ok()?))
        };
        Self(text.lines().filter_map(sample).collect())
    }

    /// The sample of exactly that name.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|value| whole(*value))
    }

    /// The sum over all labels of `name`; `None` when there is no such sample.
    pub(crate) fn sum(&self, name: &str) -> Option<u64> {
        let mut found = self.series(name).map(|(_, value)| value).peekable();
        found.peek()?;
        Some(found.sum())
    }

    /// Each series of `name` with its labels, braces included.
    pub(crate) fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.0.iter().filter_map(move |(full, value)| {
            let labels = full.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, whole(*value)))
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, exact up to 2^53")]
const fn whole(value: f64) -> u64 {
    value as u64
}

/// Fetches the metrics of the admin API at `admin`.
pub(crate) async fn fetch(admin: &str) -> Result<Samples, Failure> {
    let url = format!("{}/metrics", admin.trim_end_matches('/'));
    let uri: Uri = url.parse().map_err(|_| Failure::Usage(format!("{url} is no URL")))?;
    let exchange = async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let response = client.get(uri).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("status {status}"));
        }
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await;
        let bytes = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Samples::parse(&String::from_utf8_lossy(&bytes)))
    };
    match tokio::time::timeout(FETCH_MAX, exchange).await {
        Ok(Ok(samples)) => Ok(samples),
        Ok(Err(error)) => Err(Failure::Unavailable(format!("{url}: {error}"))),
        Err(_) => Err(Failure::Unavailable(format!("{url}: no answer within 5 s"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = "# HELP rendezvous_udp_datagrams x\n# TYPE rendezvous_udp_datagrams counter\n\
                    rendezvous_udp_datagrams_total{outcome=\"a\"} 3\n\
                    rendezvous_udp_datagrams_total{outcome=\"b\"} 4\n\
                    rendezvous_udp_datagrams_total_not 9\n\
                    rendezvous_udp_datagrams_in_flight 0\n\
                    half_a_line\n\
                    rendezvous_x_seconds_sum 1.5e0 1700000000\n# EOF\n";
        let samples = Samples::parse(text);
        assert_eq!(samples.sum("rendezvous_udp_datagrams_total"), Some(7));
        assert_eq!(samples.get("rendezvous_udp_datagrams_total{outcome=\"b\"}"), Some(4));
        assert_eq!(samples.get("rendezvous_udp_datagrams_in_flight"), Some(0));
        assert_eq!(samples.get("rendezvous_x_seconds_sum"), Some(1));
        assert_eq!(samples.sum("half_a_line"), None);
    }
}
