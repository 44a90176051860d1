//! What a server says when it is ready: where it listens, what it chose, what it can take, what to type next.

use std::net::SocketAddr;

use rendezvous_control::directory::ApiKey;
use rendezvous_core::store::footprint;
use rendezvous_net::{BufferGrant, EngineDecision};
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::Limits;

use crate::output::line;

/// What there is to say.
pub struct Banner<'a> {
    /// This start.
    pub instance: InstanceId,
    /// The public API, as bound.
    pub http: SocketAddr,
    /// The admin API, as bound.
    pub admin: SocketAddr,
    /// The UDP socket, as bound.
    pub udp: SocketAddr,
    /// What clients are told.
    pub advertised: &'a [String],
    /// Which sources are served.
    pub policy: AddressPolicy,
    /// What the kernel granted.
    pub receive_buffer: BufferGrant,
    /// What will move datagrams, and why.
    pub decision: &'a EngineDecision,
    /// The ceilings.
    pub limits: &'a Limits,
    /// The development tenant's key, if there is one.
    pub development_key: Option<&'a ApiKey>,
}

impl Banner<'_> {
    /// Prints it.
    pub fn print(&self) {
        let version = env!("CARGO_PKG_VERSION");
        line(format_args!("rendezvous {version}, instance {}", self.instance));
        line(format_args!("  http    http://{}  listings and attempts", self.http));
        line(format_args!("  admin   http://{}  metrics, health, drain", self.admin));
        line(format_args!(
            "  udp     {}  clients are told {}; {:?} sources are served",
            self.udp,
            self.advertised.join(", "),
            self.policy
        ));
        let BufferGrant { asked_len, granted_len } = self.receive_buffer;
        let hint = if self.receive_buffer.is_clipped() { "; raise net.core.rmem_max for more" } else { "" };
        line(format_args!("  buffer  {granted_len} of {asked_len} bytes granted for receiving{hint}"));
        let reason = self.decision.reason;
        line(format_args!("  engine  {} ({}): {}", self.decision.kind, reason.name(), reason.message()));
        self.print_limits();
        if let Some(key) = self.development_key {
            self.print_development(&key.to_text());
        }
        line("ready");
    }

    fn print_limits(&self) {
        let memory = footprint(self.limits);
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        line(format_args!(
            "  limits  {} listings, {} attempts: at most {} MiB of records, {} MiB of names and attributes",
            self.limits.listings,
            self.limits.attempts,
            mib(memory.records),
            mib(memory.texts)
        ));
    }

    fn print_development(&self, key: &str) {
        let program = program_path();
        let server = format!("http://{}", self.http);
        line("  tenant  dev, for development: anybody with this key may do everything");
        line(format_args!("  key     {key}"));
        line("watch two peers meet, each line in a terminal of its own:");
        line(format_args!("  {program} host --server {server} --key {key}"));
        line(format_args!("  {program} join --server {server} --key {key}"));
        line("look around:");
        line(format_args!("  curl -s -H 'Authorization: Bearer {key}' '{server}/v1/listings?protocol=demo'"));
        line(format_args!("  curl -s http://{}/metrics", self.admin));
    }
}

/// How to call this program again from the same folder.
fn program_path() -> String {
    let Ok(program) = std::env::current_exe() else { return "rendezvous".into() };
    let relative = std::env::current_dir().ok().and_then(|here| {
        let inside = program.strip_prefix(here).ok()?;
        Some(format!("./{}", inside.display()))
    });
    relative.unwrap_or_else(|| program.display().to_string())
}
