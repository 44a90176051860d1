//! The binary `rendezvous-loadtest`: many hosts and joiners against a rendezvous server, every introduction verified.
//!
//! | module | holds |
//! |---|---|
//! | `cli` | the command line |
//! | `smoke` | the plan `smoke` from start to end |
//! | `setup` | tenants, keys and the server's configuration |
//! | `server` | the server process: start, addresses, SIGTERM |
//! | `host`, `joiner`, `witness` | the peers, and what watches their datagrams |
//! | `ledger` | what happened to each attempt, host and request |
//! | `metrics` | the server's counters, fetched and parsed |
//! | `checks` | what must hold, each with a name |
//! | `report`, `table` | what is printed |
//! | `descriptors` | `RLIMIT_NOFILE` |
//!
//! What it cannot do: it renews no lease (a run is shorter than the longest lease), speaks plain HTTP only, uses one
//! address family, and does not work across a NAT, because it compares the addresses handed out with its own.
#![forbid(unsafe_code)]

mod checks;
mod cli;
mod descriptors;
mod exit;
mod host;
mod joiner;
mod ledger;
mod metrics;
mod output;
mod report;
mod server;
mod setup;
mod smoke;
mod table;
mod witness;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Plan};
use crate::exit::Failure;
use crate::output::complain;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no error.
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let Plan::Smoke(args) = cli.plan;
    let code = match run(&args) {
        Ok(true) => exit::OK,
        Ok(false) => exit::CHECK_FAILED,
        Err(failure) => {
            complain(format_args!("rendezvous-loadtest: {failure}"));
            failure.code()
        }
    };
    ExitCode::from(code)
}

/// One thread is enough: the work is small next to the server's, and nothing needs a lock.
fn run(args: &cli::SmokeArgs) -> Result<bool, Failure> {
    args.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Internal(format!("no runtime: {error}")))?;
    tokio::task::LocalSet::new().block_on(&runtime, smoke::run(args))
}
