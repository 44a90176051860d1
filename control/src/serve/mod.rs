//! Listeners: accept within ceilings, give each connection its deadlines, end with grace.

mod connection;
mod gate;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rendezvous_shared::limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use gate::ConnectionFigures;
use gate::Gate;
pub(crate) use gate::Gates;

use crate::{Control, routes};

/// Pause after a failed accept. Out of descriptors, the next accept fails at once: without a pause the thread
/// would do nothing else.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Failed accepts for one line in the log.
const ACCEPT_ERRORS_PER_LINE: u64 = 1_000;

/// What a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Listings, attempts, health.
    Public,
    /// Drain, metrics, health detail. On a loopback address metrics and health detail need no key; drain
    /// always needs one with the scope `operate`.
    Admin,
}

/// Deadlines and ceilings of connections and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Time for the first bytes, and for the whole head, of a request; also how long HTTP/1 may stay idle.
    pub header_timeout: Duration,
    /// Time for a request's body.
    pub body_timeout: Duration,
    /// A connection on which no request starts for this long, and none runs, is ended.
    pub idle_timeout: Duration,
    /// What running requests get to finish once the listener stops or the connection is ended.
    pub shutdown_grace: Duration,
    /// Time for the store's, or the telemetry's, answer.
    pub store_timeout: Duration,
    /// A long poll asks the store again after this.
    pub poll_interval: Duration,
    /// Requests that may wait in a long poll; one more is answered at once.
    pub long_polls_max: usize,
    /// Connections of the admin listener.
    pub admin_connections_max: usize,
    /// Connections of the public listener.
    pub connections_max: usize,
    /// Connections of one address, or of one IPv6 /64.
    pub connections_per_address_max: usize,
}

impl HttpOptions {
    /// The defaults, with the ceilings of `limits`.
    #[must_use]
    pub const fn new(limits: &limits::Limits) -> Self {
        Self {
            header_timeout: limits::HEADER_TIMEOUT,
            body_timeout: limits::BODY_TIMEOUT,
            idle_timeout: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(5),
            store_timeout: Duration::from_secs(5),
            // A host that waits learns of a joiner a quarter of a second late at most; NOTICE is the fast way.
            poll_interval: Duration::from_millis(200),
            long_polls_max: 256,
            admin_connections_max: limits::ADMIN_CONNECTIONS_MAX,
            connections_max: limits.connections,
            connections_per_address_max: limits.connections_per_address,
        }
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self::new(&limits::Limits::DEFAULT)
    }
}

impl Control {
    /// Serves `surface` on `listener` until `shutdown` holds `true` or its sender is gone; then accepts nothing
    /// more, ends idle connections at once, lets running requests finish for
    /// [`HttpOptions::shutdown_grace`], and returns.
    ///
    /// Must run within a tokio runtime with I/O and time enabled; a current-thread one will do.
    pub async fn serve(&self, surface: Surface, listener: TcpListener, shutdown: watch::Receiver<bool>) {
        let router = match surface {
            Surface::Public => routes::public(Arc::clone(&self.app)),
            Surface::Admin => {
                let open = listener.local_addr().is_ok_and(|it| it.ip().to_canonical().is_loopback());
                routes::admin(Arc::clone(&self.app), open)
            }
        };
        self.accept_until(listener, self.gates.of(surface), &router, shutdown).await;
    }

    async fn accept_until(
        &self,
        listener: TcpListener,
        gate: &Arc<Gate>,
        router: &Router,
        shutdown: watch::Receiver<bool>,
    ) {
        let mut stop = shutdown.clone();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                // What a connection task returns was logged by it; here it is only reaped.
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    // Above a ceiling the stream is dropped, and so closed.
                    Ok((stream, peer)) => if let Some(permit) = Gate::enter(gate, peer.ip()) {
                        self.admit(stream, permit, router, &shutdown, &mut connections);
                    },
                    Err(error) => {
                        if let Some(pause) = refused_accept(gate, &error) {
                            tokio::time::sleep(pause).await;
                        }
                    }
                },
            }
        }
        // Whoever comes now is refused by the kernel, at once.
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        // Each connection keeps the same deadline; this one is for the case that one does not.
        if tokio::time::timeout(self.app.options.shutdown_grace * 2, all).await.is_err() {
            connections.shutdown().await;
        }
    }

    fn admit(
        &self,
        stream: TcpStream,
        permit: gate::Permit,
        router: &Router,
        shutdown: &watch::Receiver<bool>,
        connections: &mut JoinSet<()>,
    ) {
        // Answers are written whole; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        let (router, options, shutdown) = (router.clone(), self.app.options, shutdown.clone());
        connections.spawn(async move {
            connection::run(stream, router, &options, shutdown).await;
            drop(permit);
        });
    }
}

/// Counts a failed accept and returns the pause it asks for. One line for each thousand: out of descriptors it fails
/// ten times a second.
fn refused_accept(gate: &Gate, error: &io::Error) -> Option<Duration> {
    let pause = pause_after(error)?;
    let before = gate.count_accept_error();
    if before.is_multiple_of(ACCEPT_ERRORS_PER_LINE) {
        tracing::warn!(%error, before, "accept failed");
    }
    Some(pause)
}

/// How long to leave the listener alone after `error`; not at all when it was about one connection only.
fn pause_after(error: &io::Error) -> Option<Duration> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock => None,
        _ => Some(ACCEPT_PAUSE),
    }
}

/// Resolves once `shutdown` holds `true` or its sender is gone.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // Either end of the wait means the same.
    let _ = shutdown.wait_for(|&it| it).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_descriptors_pauses_and_an_aborted_connection_does_not() {
        let emfile = io::Error::from_raw_os_error(24);
        let aborted = io::Error::from_raw_os_error(103);
        assert_eq!(pause_after(&emfile), Some(ACCEPT_PAUSE));
        assert_eq!(pause_after(&aborted), None);
    }
}
