//! What a server says when it is ready: where it listens, what it chose, what it can take, what to type next.

use std::net::SocketAddr;

use rendezvous_control::directory::ApiKey;
use rendezvous_core::store::footprint;
use rendezvous_net::{BufferGrant, EngineDecision};
use rendezvous_shared::api::UdpBody;
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::Limits;

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
    /// Ring threads.
    pub rings: usize,
    /// What clients are told.
    pub advertised: &'a UdpBody,
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
    /// Its lines; the last is `ready`.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let version = env!("CARGO_PKG_VERSION");
        let mut lines = vec![format!("rendezvous {version}, instance {}", self.instance)];
        lines.push(format!("  http    http://{}  listings and attempts", self.http));
        lines.push(format!("  admin   http://{}  metrics, health, drain", self.admin));
        lines.push(format!(
            "  udp     {}  clients are told {}; address policy {}",
            self.udp,
            self.advertised.endpoints.join(", "),
            format!("{:?}", self.policy).to_lowercase()
        ));
        if !self.advertised.probe_endpoints.is_empty() {
            lines.push(format!("  probe   {}", self.advertised.probe_endpoints.join(", ")));
        }
        if self.rings > 1 {
            let how = "the kernel's hash of both addresses and ports tells which";
            lines.push(format!("  rings   {} threads on that port; {how}", self.rings));
        }
        let BufferGrant { asked_len, granted_len } = self.receive_buffer;
        let hint = if self.receive_buffer.is_clipped() { "; raise net.core.rmem_max for more" } else { "" };
        lines.push(format!("  buffer  {granted_len} of {asked_len} bytes granted for receiving{hint}"));
        let reason = self.decision.reason;
        lines.push(format!("  engine  {} ({}): {}", self.decision.kind, reason.name(), reason.message()));
        self.add_limits(&mut lines);
        if let Some(key) = self.development_key {
            self.add_development(&mut lines, &key.to_text());
        }
        lines.push("ready".to_owned());
        lines
    }

    fn add_limits(&self, lines: &mut Vec<String>) {
        let memory = footprint(self.limits);
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        lines.push(format!(
            "  limits  {} listings, {} attempts: at most {} MiB of records, {} MiB of names and attributes",
            self.limits.listings,
            self.limits.attempts,
            mib(memory.records),
            mib(memory.texts)
        ));
    }

    fn add_development(&self, lines: &mut Vec<String>, key: &str) {
        let program = program_path();
        let server = format!("http://{}", self.http);
        lines.push("  tenant  dev, for development: anybody with this key may do everything".to_owned());
        lines.push(format!("  key     {key}"));
        lines.push("watch two peers meet, each line in a terminal of its own:".to_owned());
        lines.push(format!("  {program} host --server {server} --key {key}"));
        lines.push(format!("  {program} join --server {server} --key {key}"));
        lines.push("look around:".to_owned());
        lines
            .push(format!("  curl -s -H 'Authorization: Bearer {key}' '{server}/v1/listings?protocol=demo'"));
        lines.push(format!("  curl -s http://{}/metrics", self.admin));
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
