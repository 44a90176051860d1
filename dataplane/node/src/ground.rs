//! What can be refused by the system, bound and chosen before any thread runs.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crossbeam::channel::never;
use rendezvous_net::{BindError, EngineDecision, SocketOptions, bind, bind_group, probe};
use tracing::{info, warn};

use crate::config::Config;
use crate::dataplane::Sockets;
use crate::exit::ServeError;
use crate::ring::engine_options;

/// How often, and how far apart, a UDP port in use is tried again: a second in all.
const BIND_TRIES: u32 = 50;
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// Listeners, socket and engine.
pub(crate) struct Ground {
    /// Of the public API.
    pub(crate) http: TcpListener,
    /// Of the admin API.
    pub(crate) admin: TcpListener,
    /// Of datagrams.
    pub(crate) sockets: Sockets,
    /// The engine that is to move them, and why; a ring thread may have to fall back.
    pub(crate) decision: EngineDecision,
}

/// Binds and chooses all that can be refused.
pub(crate) fn prepare(config: &Config) -> Result<Ground, ServeError> {
    let listen = |key, address: SocketAddr| {
        let refused = |source| ServeError::Tcp { key, address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok::<_, ServeError>(listener)
    };
    let http = listen("listen.http", config.listen.http)?;
    let admin = listen("listen.admin", config.listen.admin)?;
    let options =
        SocketOptions { receive_buffer_len: config.dataplane.receive_buffer_len, ..SocketOptions::default() };
    let group = bind_patiently(|| bind_group(config.listen.udp, config.dataplane.threads, options))?;
    let bound = group[0].local_addr();
    let probe_socket = match config.listen.probe_port {
        Some(port) => Some(bind_patiently(|| bind(SocketAddr::new(bound.ip(), port), options))?),
        None => None,
    };
    let sockets = Sockets { group, probe: probe_socket };
    let decision = probe(config.dataplane.engine.into(), engine_options());
    if !decision.honours_choice() {
        let text = format!("{}: {} ({})", decision.choice, decision.reason.message(), decision.detail);
        return Err(ServeError::EngineRefused(text));
    }
    Ok(Ground { http, admin, sockets, decision })
}

/// Says which engine moves datagrams.
pub(crate) fn log_engine(decision: &EngineDecision) {
    let (engine, reason) = (decision.kind.name(), decision.reason.name());
    if decision.reason.is_fallback() {
        warn!(engine, reason, detail = decision.detail, "{}", decision.reason.message());
    } else {
        info!(engine, reason, "datagram engine chosen");
    }
}

/// Binds, and waits a moment for a port in use: the kernel takes the io_uring of a killed process apart after the
/// process is gone, and its socket with it, so a server that is started again at once would find its own port taken.
fn bind_patiently<T>(bind: impl Fn() -> Result<T, BindError>) -> Result<T, BindError> {
    let mut tries = 0;
    loop {
        match bind() {
            Err(BindError::AddressInUse { .. }) if tries < BIND_TRIES => {
                tries += 1;
                let _ = never::<()>().recv_timeout(BIND_PAUSE);
            }
            Ok(socket) => {
                if tries > 0 {
                    info!(tries, "the UDP port was in use for a moment");
                }
                return Ok(socket);
            }
            refused => return refused,
        }
    }
}
