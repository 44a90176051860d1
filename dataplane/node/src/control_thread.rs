//! The control thread: both HTTP listeners, signals, and the drain that a signal begins.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use rendezvous_control::boundary::{Readiness, ReadyState};
use rendezvous_control::{Control, Surface};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::drain::drain;
use crate::gateway::Gateway;
use crate::systemd::notify;

/// The bound TCP listeners.
pub struct Listeners {
    /// Of the public API.
    pub public: TcpListener,
    /// Of the admin API.
    pub admin: TcpListener,
}

/// Serves until a signal came and the drain it began is over. `ready` is called once signals are awaited.
///
/// # Errors
/// When the runtime or the signal handlers cannot be had.
pub fn run(
    control: Control,
    gateway: Arc<Gateway>,
    readiness: &Readiness,
    listeners: Listeners,
    window: Duration,
    ready: impl FnOnce(),
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(|error| format!("no signal handlers: {error}"))?;
        let (stop, stopped) = watch::channel(false);
        let listener = |it| tokio::net::TcpListener::from_std(it).map_err(|error| error.to_string());
        let public = listener(listeners.public)?;
        let admin = listener(listeners.admin)?;
        ready();
        let serving = async {
            tokio::join!(
                control.serve(Surface::Public, public, stopped.clone()),
                control.serve(Surface::Admin, admin, stopped)
            )
        };
        let ending = async {
            let name = signals.next().await;
            info!(signal = name, window_ms = window.as_millis() as u64, "draining");
            readiness.set(ReadyState::Draining);
            notify(&[sd_notify::NotifyState::Stopping]);
            tokio::select! {
                () = drain(&gateway, window) => {}
                name = signals.next() => warn!(signal = name, "a second signal ends the drain"),
            }
            // The receivers live as long as the listeners do.
            let _ = stop.send(true);
        };
        tokio::join!(serving, ending);
        Ok(())
    })
}

/// The signals that end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
