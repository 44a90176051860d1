//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rendezvous_client::driver::{Families, Network};

use crate::config::EngineName;

/// A rendezvous server for games: hosts publish listings, joiners are introduced to them, nothing is relayed.
///
/// Without a command it serves with defaults: loopback only, in memory, with a development tenant whose key it
/// prints.
#[derive(Debug, Parser)]
#[command(name = "rendezvous", version, propagate_version = true)]
pub struct Cli {
    /// What to do; `serve` when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve.
    Serve(ServeArgs),
    /// Check a configuration file and say what is wrong with it.
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Say what this kernel, container and limits allow, and which engine will run and why.
    Doctor {
        /// The engine to ask for.
        #[arg(long, value_enum, default_value = "auto")]
        engine: EngineName,
    },
    /// Make API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Host a listing by hand: publish it, answer joiners, exchange messages with each.
    Host(HostArgs),
    /// Join a listing by hand and exchange messages with its host.
    Join(JoinArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
}

/// `rendezvous serve`.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file; without one the defaults and a development tenant are used.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Overrides `listen.http`.
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// Overrides `listen.admin`.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Overrides `listen.udp`.
    #[arg(long, value_name = "ADDRESS")]
    pub udp: Option<SocketAddr>,
    /// Overrides `dataplane.engine`.
    #[arg(long, value_enum)]
    pub engine: Option<EngineName>,
}

/// `rendezvous key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key; prints it once, and what to put into the configuration.
    New,
}

/// How a peer reaches a server.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The public API.
    #[arg(long, default_value = "http://127.0.0.1:7780", value_name = "URL")]
    pub server: String,
    /// The API key. On a shared machine use the environment: other users can read command lines.
    #[arg(long, env = "RENDEZVOUS_KEY", hide_env_values = true, value_name = "KEY")]
    pub key: String,
    /// The game's protocol.
    #[arg(long, default_value = "demo")]
    pub protocol: String,
    /// Messages to send to each peer.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub messages: u32,
    /// Time between messages, in milliseconds.
    #[arg(long, default_value_t = 500, value_name = "MS")]
    pub interval_ms: u64,
    /// Use IPv4 only.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Do not name this machine's private addresses to a peer behind the same public address.
    #[arg(long)]
    pub no_lan: bool,
}

impl ServerArgs {
    /// How the peer uses its networks.
    #[must_use]
    pub fn network(&self) -> Network {
        let families = match (self.ipv4, self.ipv6) {
            (true, _) => Families::V4,
            (_, true) => Families::V6,
            _ => Families::Any,
        };
        Network { families, lan: !self.no_lan }
    }

    /// Time between messages.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

/// `rendezvous host`.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Which server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The listing's name.
    #[arg(long, default_value = "a demo session")]
    pub name: String,
    /// Keep it out of browsing; it is joined by its code.
    #[arg(long)]
    pub unlisted: bool,
    /// A name under which a restarted host takes over its own listing.
    #[arg(long)]
    pub slot: Option<String>,
}

/// `rendezvous join`.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// Which server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The listing; the first one found by browsing when neither this nor a code is given.
    #[arg(long, value_name = "ID", conflicts_with = "code")]
    pub listing: Option<rendezvous_shared::id::ListingId>,
    /// The code of an unlisted listing.
    #[arg(long, value_name = "CODE")]
    pub code: Option<rendezvous_shared::id::JoinCode>,
    /// A line shown to the host.
    #[arg(long)]
    pub note: Option<String>,
}
