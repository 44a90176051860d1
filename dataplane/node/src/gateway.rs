//! The control plane's way to the store thread.

use std::sync::Arc;

use crossbeam::channel::Sender;
use rendezvous_control::boundary::{BoxFuture, Lane, StoreGateway, Times, WallAnchor};
use rendezvous_shared::limits::{HTTP_LANE_MAX, LANE_WAIT, OPERATOR_LANE_MAX};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};
use rendezvous_shared::time::{Clock, Instant};
use tokio::sync::{Semaphore, oneshot};

use crate::clock::{BootClock, wall_nanos};
use crate::store_thread::{Lanes, Order};

/// Hands transitions over and awaits their replies. A lane has as many places as its channel has room. A place goes
/// into the channel with its transition and is free again once the store took that out, whatever became of the asker:
/// so the channel is never full.
pub struct Gateway {
    lanes: Lanes,
    http: Arc<Semaphore>,
    operator: Arc<Semaphore>,
}

impl Gateway {
    /// A gateway into `lanes`; one for each process.
    #[must_use]
    pub fn new(lanes: Lanes) -> Self {
        // One place of the operator lane is kept for reports.
        let places = |count| Arc::new(Semaphore::new(count));
        Self { lanes, http: places(HTTP_LANE_MAX), operator: places(OPERATOR_LANE_MAX - 1) }
    }
}

impl StoreGateway for Gateway {
    fn submit(&self, lane: Lane, transition: Transition) -> BoxFuture<Result<Reply, Refusal>> {
        let (sender, places) = match lane {
            Lane::Http => (self.lanes.http.clone(), Arc::clone(&self.http)),
            Lane::Operator => (self.lanes.operator.clone(), Arc::clone(&self.operator)),
        };
        Box::pin(submit(sender, places, transition))
    }
}

async fn submit(
    sender: Sender<Order>,
    places: Arc<Semaphore>,
    transition: Transition,
) -> Result<Reply, Refusal> {
    let unavailable = Refusal::ServiceUnavailable;
    let place = tokio::time::timeout(LANE_WAIT, places.acquire_owned()).await;
    let place = place.ok().and_then(Result::ok).ok_or(unavailable)?;
    let (reply, answer) = oneshot::channel();
    sender.try_send(Order::Apply(Box::new(transition), reply, Some(place))).map_err(|_| unavailable)?;
    answer.await.map_err(|_| unavailable)
}

/// Time as the control plane gets it.
pub struct NodeTimes {
    clock: BootClock,
    anchor: WallAnchor,
}

impl NodeTimes {
    /// Anchors `clock` in wall time, now.
    #[must_use]
    pub fn new(clock: BootClock) -> Self {
        let zero = wall_nanos() - i128::from(clock.now().as_nanos());
        let unix_ms_at_zero = i64::try_from(zero / 1_000_000).unwrap_or(0);
        Self { clock, anchor: WallAnchor { unix_ms_at_zero } }
    }
}

impl Times for NodeTimes {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wall(&self) -> WallAnchor {
        self.anchor
    }
}

#[cfg(test)]
mod tests;
