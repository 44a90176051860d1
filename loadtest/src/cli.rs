//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use hyper::Uri;

use crate::exit::Failure;

/// Loads a rendezvous server and verifies every introduction.
#[derive(Debug, Parser)]
#[command(name = "rendezvous-loadtest", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) plan: Plan,
}

/// The plans.
#[derive(Debug, Subcommand)]
pub(crate) enum Plan {
    /// Hosts keep their presence, joiners are introduced to them, each pair is verified.
    ///
    /// Exit code 0: all checks hold; 1: one does not; 64: bad arguments; 69: the server cannot be started or reached.
    Smoke(SmokeArgs),
}

/// `rendezvous-loadtest smoke`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SmokeArgs {
    /// Hosts, each with a socket of its own.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) hosts: u32,
    /// Joiners, each with a socket and one attempt.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) joiners: u32,
    /// Decides which joiner goes to which host; random when left out, and printed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The server to start; `rendezvous` beside this program when left out.
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
    pub(crate) server_binary: Option<PathBuf>,
    /// A server that runs already: its public API, as in http://127.0.0.1:7780.
    #[arg(long, value_name = "URL", requires_all = ["admin", "keys"])]
    pub(crate) server: Option<String>,
    /// The admin API of that server, for its metrics.
    #[arg(long, value_name = "URL", requires = "server")]
    pub(crate) admin: Option<String>,
    /// API keys for that server: TOML with `[[tenants]]`, each with `hosts` and `joiners`.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) keys: Option<PathBuf>,
    /// Allow a --server that is not on loopback. Load only what is yours.
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// The datagram engine of the server that is started.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) engine: Engine,
    /// Attempts started per second, whatever becomes of them; as fast as --concurrency lets when left out.
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: Option<u32>,
    /// Joiners at once.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: u32,
    /// Longest run, without the start and stop of the server; below the lease of 300 s, which nobody renews.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=240))]
    pub(crate) timeout_s: u64,
}

/// A datagram engine, by the name the server's configuration has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// io_uring if it works here, else recvmmsg.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// io_uring through the library tokio-uring, or nothing.
    TokioUring,
    /// recvmmsg and sendmmsg.
    Mmsg,
}

impl Engine {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::TokioUring => "tokio-uring",
            Self::Mmsg => "mmsg",
        }
    }
}

impl SmokeArgs {
    /// What clap cannot check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for url in [&self.server, &self.admin].into_iter().flatten() {
            let uri: Uri = url.parse().map_err(|_| Failure::Usage(format!("{url} is no URL")))?;
            if uri.scheme_str() != Some("http") {
                return Err(Failure::Usage(format!("{url} does not begin with http://")));
            }
            if !self.allow_remote && !is_loopback(uri.host().unwrap_or_default()) {
                return Err(Failure::Usage(format!("{url} is not on loopback; --allow-remote allows it")));
            }
        }
        Ok(())
    }

    pub(crate) const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }
}

/// A literal address only, so that no name decides where the load goes.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &[&str]) -> Result<SmokeArgs, String> {
        let args = ["rendezvous-loadtest", "smoke"].iter().chain(more);
        let Plan::Smoke(args) = Cli::try_parse_from(args).map_err(|error| error.to_string())?.plan;
        args.check().map_err(|error| error.to_string()).map(|()| args)
    }

    #[test]
    fn the_defaults_are_the_plan() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.hosts, args.joiners, args.timeout_s), (1000, 2000, 120));
    }

    #[test]
    fn only_loopback_unless_allowed() {
        let with = |url| {
            move |more: &[&str]| {
                let mut all = vec!["--server", url, "--admin", "http://127.0.0.1:1", "--keys", "k"];
                all.extend(more);
                parse(&all)
            }
        };
        assert!(with("http://127.0.0.1:7780")(&[]).is_ok());
        assert!(with("http://[::1]:7780")(&[]).is_ok());
        assert!(with("http://192.0.2.1:7780")(&[]).unwrap_err().contains("--allow-remote"));
        assert!(with("http://192.0.2.1:7780")(&["--allow-remote"]).is_ok());
        assert!(with("https://127.0.0.1:7780")(&[]).is_err());
    }

    #[test]
    fn counts_are_bounded_and_options_belong_together() {
        for bad in
            [&["--hosts", "0"][..], &["--joiners", "1000000"], &["--timeout-s", "241"], &["--admin", "x"]]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
