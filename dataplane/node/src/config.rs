//! Configuration: a TOML file, strict, with every default standing here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rendezvous_control::directory::{
    ApiKey, DirectoryConfig, KeyConfig, PrincipalConfig, Scope, TenantConfig,
};
use rendezvous_net::EngineChoice;
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::limits::{ContradictoryLimits, DRAIN_MAX, Limits, RINGS_MAX};
use serde::{Deserialize, Serialize};

/// The whole configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// The datagram path.
    pub dataplane: Dataplane,
    /// Ceilings.
    pub limits: Limits,
    /// Drain.
    pub drain: Drain,
    /// The log.
    pub log: Log,
    /// Who may call.
    pub tenants: Vec<TenantConfig>,
}

/// Where to listen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// The public API.
    pub http: SocketAddr,
    /// Health detail, metrics, drain.
    pub admin: SocketAddr,
    /// Datagrams.
    pub udp: SocketAddr,
    /// A second UDP port, by which clients can show that their NAT's mapping does not vary by destination.
    pub probe_port: Option<u16>,
    /// The UDP addresses that clients are given; needed when `udp` is a wildcard.
    pub advertise: Vec<SocketAddr>,
    /// Serve the public API without TLS on an address that is not loopback. Keys are handed out there.
    pub insecure_http: bool,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            http: loopback(7780),
            admin: loopback(7781),
            udp: loopback(7777),
            probe_port: None,
            advertise: Vec::new(),
            insecure_http: false,
        }
    }
}

/// The datagram path.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dataplane {
    /// `auto`, `uring`, `tokio-uring` or `mmsg`.
    pub engine: EngineName,
    /// `public`, `lan` or `test`; when left out `test` on loopback, else `public`.
    pub address_policy: Option<PolicyName>,
    /// Bytes of receive buffer to ask the kernel for, of each ring.
    pub receive_buffer_len: usize,
    /// Ring threads, each with a socket of its own on the one port.
    pub threads: usize,
    /// The CPU of each ring thread; when left out one is chosen, if there are enough.
    pub cpus: Vec<usize>,
    /// The CPU of the store thread.
    pub store_cpu: Option<usize>,
    /// How often the server asks itself whether its sockets hear; 0 is never.
    pub self_probe_ms: u64,
}

impl Default for Dataplane {
    fn default() -> Self {
        Self {
            engine: EngineName::Auto,
            address_policy: None,
            receive_buffer_len: 8 << 20,
            threads: 1,
            cpus: Vec::new(),
            store_cpu: None,
            self_probe_ms: 2_000,
        }
    }
}

/// An engine, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// io_uring if it works here, else recvmmsg.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// io_uring through the library tokio-uring, or nothing; not on a wildcard address.
    #[serde(rename = "tokio-uring")]
    TokioUring,
    /// recvmmsg and sendmmsg.
    Mmsg,
}

impl From<EngineName> for EngineChoice {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Auto => Self::Auto,
            EngineName::Uring => Self::Uring,
            EngineName::TokioUring => Self::TokioUring,
            EngineName::Mmsg => Self::Mmsg,
        }
    }
}

/// An address policy, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Globally routable sources only.
    Public,
    /// Private ranges too.
    Lan,
    /// Loopback too.
    Test,
}

/// Drain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// Time that running attempts get, at most 30,000 ms.
    pub window_ms: u64,
}

impl Default for Drain {
    fn default() -> Self {
        Self { window_ms: DRAIN_MAX.as_millis() as u64 }
    }
}

/// The log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// A filter such as `info` or `rendezvous_control=debug,info`.
    pub filter: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A configuration that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or has a key or a value that is not known. The line itself is not shown: it may hold a
    /// secret that was put into the wrong place.
    #[error("{path}: line {line}: {message}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What.
        message: String,
    },
    /// Limits that cannot hold together.
    #[error(transparent)]
    Limits(#[from] ContradictoryLimits),
    /// A rule between values.
    #[error("{key}: {rule}")]
    Rule {
        /// The key to change.
        key: &'static str,
        /// What it must be.
        rule: String,
    },
    /// `RENDEZVOUS_DEV_KEY` is no API key.
    #[error(
        "RENDEZVOUS_DEV_KEY is not an API key of the form rvk_<id>_<secret>; `rendezvous key new` makes one"
    )]
    DevKey,
    /// A tenant, principal or key is wrong.
    #[error("{0}")]
    Directory(#[from] rendezvous_control::directory::DirectoryError),
}

impl Config {
    /// Reads a file; [`Config::check`] is the caller's to call, after overrides.
    ///
    /// # Errors
    /// What is wrong with it, with the place.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        let config = Self::parse(&text).map_err(|(line, message)| ConfigError::Malformed {
            path: path.into(),
            line,
            message,
        })?;
        if config.tenants.is_empty() {
            return Err(ConfigError::Rule {
                key: "tenants",
                rule: "at least one [[tenants]] is needed, or nobody could call; see docs/operating.md"
                    .into(),
            });
        }
        Ok(config)
    }

    /// Reads TOML; what is wrong with it is given with its line.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
            (before.matches('\n').count() + 1, error.message().to_owned())
        })
    }

    /// Checks the relations between values.
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rule = |key, rule: String| Err(ConfigError::Rule { key, rule });
        self.limits.check()?;
        let listen = &self.listen;
        if !listen.http.ip().is_loopback() && !listen.insecure_http {
            let text = "serves keys without TLS outside loopback; set listen.insecure_http = true if a proxy adds TLS";
            return rule("listen.http", text.into());
        }
        if !listen.admin.ip().is_loopback() {
            return rule(
                "listen.admin",
                "must be a loopback address: metrics and health need no key there".into(),
            );
        }
        if listen.udp.ip().is_unspecified() && listen.advertise.is_empty() {
            return rule(
                "listen.advertise",
                "is needed when listen.udp is a wildcard: clients must be told an address".into(),
            );
        }
        if listen.udp.ip().is_unspecified() && self.dataplane.engine == EngineName::TokioUring {
            return rule(
                "dataplane.engine",
                "tokio-uring cannot serve a wildcard, since it would answer from any address; name one address in listen.udp"
                    .into(),
            );
        }
        if let Some(address) = listen.advertise.iter().find(|it| it.ip().is_unspecified() || it.port() == 0) {
            return rule("listen.advertise", format!("{address} is no address that a client can send to"));
        }
        if listen.probe_port.is_some_and(|port| port != 0 && port == listen.udp.port()) {
            return rule("listen.probe_port", "must be another port than listen.udp's".into());
        }
        self.check_dataplane()?;
        let drain_max = DRAIN_MAX.as_millis();
        if u128::from(self.drain.window_ms) > drain_max {
            return rule("drain.window_ms", format!("{} is above {drain_max}", self.drain.window_ms));
        }
        Ok(())
    }

    fn check_dataplane(&self) -> Result<(), ConfigError> {
        let rule = |key, rule: String| Err(ConfigError::Rule { key, rule });
        let Dataplane { threads, cpus, self_probe_ms, .. } = &self.dataplane;
        if !(1..=RINGS_MAX).contains(threads) {
            return rule("dataplane.threads", format!("{threads} is not within 1 to {RINGS_MAX}"));
        }
        if cpus.len() > *threads {
            return rule("dataplane.cpus", format!("names {} CPUs for {threads} threads", cpus.len()));
        }
        if (1..100).contains(self_probe_ms) {
            return rule("dataplane.self_probe_ms", format!("{self_probe_ms} is below 100; 0 is never"));
        }
        Ok(())
    }

    /// The address policy in force.
    #[must_use]
    pub fn address_policy(&self) -> AddressPolicy {
        match self.dataplane.address_policy {
            Some(PolicyName::Public) => AddressPolicy::Public,
            Some(PolicyName::Lan) => AddressPolicy::Lan,
            Some(PolicyName::Test) => AddressPolicy::Test,
            None if self.listen.udp.ip().is_loopback() => AddressPolicy::Test,
            None => AddressPolicy::Public,
        }
    }

    /// The directory's part.
    #[must_use]
    pub fn directory(&self) -> DirectoryConfig {
        DirectoryConfig { tenants: self.tenants.clone() }
    }

    /// Adds the development tenant with one principal that may do everything, and `key`.
    pub fn add_development_tenant(&mut self, key: &ApiKey) {
        self.tenants.push(TenantConfig {
            name: "dev".into(),
            quotas: None,
            principals: vec![PrincipalConfig {
                name: "developer".into(),
                scopes: vec![
                    Scope::ListingWrite,
                    Scope::AttemptWrite,
                    Scope::Read,
                    Scope::Operate,
                    Scope::Metrics,
                ],
                keys: vec![KeyConfig { id: key.id().into(), secret_blake3: key.fingerprint().to_hex() }],
                quotas: None,
            }],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text).map_err(|(line, message)| format!("line {line}: {message}"))
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = parse("").unwrap();
        assert!(config.check().is_ok());
        assert_eq!(config.address_policy(), AddressPolicy::Test);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = parse("[limits]\nlistings = 5\nlistngs = 6\n").unwrap_err();
        assert!(error.contains("line 3") && error.contains("listngs"), "{error}");
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_repeated() {
        let error = parse("[listen]\nsecret = 'rvk_abc_0123456789abcdef'\n").unwrap_err();
        assert!(error.contains("line 2") && error.contains("secret"), "{error}");
        assert!(!error.contains("rvk_"), "{error}");
    }

    #[test]
    fn each_rule_names_its_key() {
        for (text, key) in [
            ("[listen]\nhttp = '0.0.0.0:7780'", "listen.http"),
            ("[listen]\nadmin = '0.0.0.0:7781'", "listen.admin"),
            ("[listen]\nudp = '0.0.0.0:7777'", "listen.advertise"),
            ("[listen]\nadvertise = ['0.0.0.0:1']", "listen.advertise"),
            ("[listen]\nprobe_port = 7777", "listen.probe_port"),
            ("[dataplane]\nthreads = 0", "dataplane.threads"),
            ("[dataplane]\nthreads = 17", "dataplane.threads"),
            ("[dataplane]\ncpus = [0, 1]", "dataplane.cpus"),
            ("[dataplane]\nself_probe_ms = 99", "dataplane.self_probe_ms"),
            (
                "[listen]\nudp = '[::]:7777'\nadvertise = ['192.0.2.1:7777']\n[dataplane]\nengine = 'tokio-uring'",
                "dataplane.engine",
            ),
            ("[drain]\nwindow_ms = 30001", "drain.window_ms"),
            ("[limits]\nattempt_records = 1", "limits.attempt_records"),
        ] {
            let error = parse(text).unwrap().check().unwrap_err().to_string();
            assert!(error.starts_with(key), "{text}: {error}");
        }
    }
}
