//! The figures of `/metrics`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::http;

/// One scrape: series to value.
#[derive(Clone, Debug)]
pub struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Scrapes the admin listener.
    ///
    /// # Panics
    /// When it does not answer with figures.
    #[must_use]
    pub fn of(admin: SocketAddr) -> Self {
        let response = http::request(admin, "GET", "/metrics", &[], "").expect("the admin listener answers");
        assert_eq!(response.status, 200, "{response:?}");
        let series = response.body.lines().filter(|line| !line.starts_with('#'));
        let parsed = series.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(parsed.collect())
    }

    /// The value of a series, named as it stands there, without the prefix `rendezvous_`.
    ///
    /// # Panics
    /// When there is no such series.
    #[must_use]
    pub fn get(&self, series: &str) -> u64 {
        let value = self.0.get(&format!("rendezvous_{series}"));
        *value.unwrap_or_else(|| panic!("no series {series} in {:#?}", self.0)) as u64
    }

    /// Datagrams that came to `outcome`.
    #[must_use]
    pub fn outcome(&self, outcome: &str) -> u64 {
        self.get(&format!("udp_datagrams_total{{outcome=\"{outcome}\"}}"))
    }

    /// Whether a series with this name and label text is there.
    #[must_use]
    pub fn has(&self, name: &str, label: &str) -> bool {
        self.0
            .keys()
            .any(|series| series.starts_with(&format!("rendezvous_{name}{{")) && series.contains(label))
    }

    /// Checks that every received datagram is accounted for.
    ///
    /// # Panics
    /// When one is not.
    pub fn check_accounts(&self) {
        let ends: f64 = self
            .0
            .iter()
            .filter(|(name, _)| name.starts_with("rendezvous_udp_datagrams_total{"))
            .map(|it| it.1)
            .sum();
        let (received, in_flight) =
            (self.get("udp_datagrams_received_total"), self.get("udp_datagrams_in_flight"));
        assert_eq!(received, ends as u64 + in_flight, "received = ends + in flight");
    }
}
