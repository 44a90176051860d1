//! The HTTP control plane of the rendezvous server: listeners, routes, authentication, errors and metrics.
//!
//! | module | holds |
//! |---|---|
//! | [`boundary`] | what the process must hand in: store, telemetry, time, readiness |
//! | [`snapshot`] | the figures telemetry delivers |
//! | [`directory`] | tenants, principals, API keys, scopes, quotas |
//! | [`Control`] | the service: `serve` one listener with it for each [`Surface`] |
//!
//! A request goes: `serve` (connection limits, deadlines) → `http::observe` (time, log, panic) → `routes`
//! (authenticate, parse, submit a [`Transition`](rendezvous_shared::store::Transition), render the reply).
//!
//! What this crate cannot do: it decides nothing about authority beyond who the caller is and which scopes it
//! has; that is the store's. It reads no clock, starts no thread, speaks no TLS and reloads nothing yet. A
//! request whose head hyper itself cannot parse (bad syntax, too many or too long header fields) is answered
//! by hyper with an empty body, not with `application/problem+json`.
#![forbid(unsafe_code)]

pub mod boundary;
pub mod directory;
mod http;
mod metrics;
mod routes;
mod serve;
pub mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use serve::{ConnectionFigures, HttpOptions, Surface};

use boundary::{Readiness, StoreGateway, Telemetry, Times};
use directory::Directory;
use rendezvous_shared::api::UdpBody;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;

/// All that a [`Control`] is made of.
pub struct ControlParts {
    /// The way to the store thread.
    pub store: Arc<dyn StoreGateway>,
    /// The process's figures.
    pub telemetry: Arc<dyn Telemetry>,
    /// Monotonic time and its anchor in wall time.
    pub times: Arc<dyn Times>,
    /// What `/readyz` says; shared with the process.
    pub readiness: Arc<Readiness>,
    /// Who may call.
    pub directory: Directory,
    /// The root of every secret of this instance.
    pub master_key: MasterKey,
    /// This start of the server.
    pub instance: InstanceId,
    /// Where clients are to send datagrams.
    pub udp: UdpBody,
    /// The version of the product.
    pub version: &'static str,
    /// Deadlines and ceilings of connections and requests.
    pub options: HttpOptions,
}

/// The control plane. Clones share everything, the ceilings on connections too.
#[derive(Clone)]
pub struct Control {
    app: Arc<routes::App>,
    gates: serve::Gates,
}

impl Control {
    /// The control plane made of `parts`. Nothing runs before [`Control::serve`].
    #[must_use]
    pub fn new(parts: ControlParts) -> Self {
        let gates = serve::Gates::new(&parts.options);
        Self { app: Arc::new(routes::App::new(parts, gates.clone())), gates }
    }
}
