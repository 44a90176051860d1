//! What systemd is told, if it asked to be told.

use tracing::warn;

/// Tells it; a failure is no reason to stop serving.
pub(crate) fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd could not be notified");
    }
}
