//! The drain that a signal begins.

use std::time::Duration;

use rendezvous_control::boundary::{Lane, StoreGateway};
use rendezvous_shared::store::{BeginDrain, DrainView, Reply, Transition};
use tracing::warn;

use crate::gateway::Gateway;
use crate::sync::{sleep, timeout};

/// The most that running HTTP requests get to finish.
const GRACE_MAX: Duration = Duration::from_secs(2);
/// How often the drain is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What running HTTP requests get to finish once the drain is over, so that all ends within the window.
#[must_use]
pub fn grace(window: Duration) -> Duration {
    GRACE_MAX.min(window / 2)
}

/// Begins the drain and waits until no attempt is live, or the deadline came. A store that does not answer is waited
/// for no longer than one that does.
pub async fn drain(gateway: &Gateway, window: Duration) {
    let window = window.saturating_sub(grace(window));
    if timeout(window, drained(gateway, window)).await.is_err() {
        warn!("the drain deadline came");
    }
}

async fn drained(gateway: &Gateway, window: Duration) {
    let mut next = Transition::BeginDrain(BeginDrain { window });
    loop {
        match gateway.submit(Lane::Operator, next.clone()).await {
            Ok(Reply::Drain(DrainView::Draining { attempts, .. })) if attempts > 0 => {
                next = Transition::GetDrain;
            }
            Err(_) => {}
            Ok(_) => return,
        }
        sleep(POLL).await;
    }
}
