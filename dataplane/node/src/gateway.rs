//! The control plane's way to the store thread.

use std::sync::Arc;

use rendezvous_control::boundary::{BoxFuture, Lane, Readiness, ReadyState, StoreGateway, Times, WallAnchor};
use rendezvous_shared::limits::{HTTP_LANE_MAX, LANE_WAIT, OPERATOR_LANE_MAX};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{Reply, Transition};
use rendezvous_shared::time::{Clock, Instant};
use tokio::sync::Semaphore;

use crate::clock::{BootClock, wall_nanos};
use crate::store_thread::{Lanes, Order};
use crate::sync::{oneshot, timeout};

/// Hands transitions over and awaits their replies. A lane has as many places as its channel has room. A place goes
/// into the channel with its transition and is free again once the store took that out, whatever became of the asker:
/// so the channel is never full.
pub struct Gateway {
    lanes: Lanes,
    http: Arc<Semaphore>,
    operator: Arc<Semaphore>,
    readiness: Arc<Readiness>,
}

impl Gateway {
    /// A gateway into `lanes`; one for each process. `readiness` is false before a caller hears that the store is gone.
    #[must_use]
    pub fn new(lanes: Lanes, readiness: Arc<Readiness>) -> Self {
        // One place of the operator lane is kept for reports.
        let places = |count| Arc::new(Semaphore::new(count));
        Self { lanes, http: places(HTTP_LANE_MAX), operator: places(OPERATOR_LANE_MAX - 1), readiness }
    }
}

impl StoreGateway for Gateway {
    fn submit(&self, lane: Lane, transition: Transition) -> BoxFuture<Result<Reply, Refusal>> {
        let places = match lane {
            Lane::Http => &self.http,
            Lane::Operator => &self.operator,
        };
        Box::pin(submit(
            self.lanes.clone(),
            lane,
            Arc::clone(places),
            Arc::clone(&self.readiness),
            transition,
        ))
    }
}

async fn submit(
    lanes: Lanes,
    lane: Lane,
    places: Arc<Semaphore>,
    readiness: Arc<Readiness>,
    transition: Transition,
) -> Result<Reply, Refusal> {
    let place = timeout(LANE_WAIT, places.acquire_owned()).await;
    let place = place.ok().and_then(Result::ok).ok_or(Refusal::ServiceUnavailable)?;
    let (reply, mut answer) = oneshot::channel();
    let gone = || {
        readiness.set(ReadyState::Unavailable);
        Refusal::ServiceUnavailable
    };
    let sender = match lane {
        Lane::Http => &lanes.http,
        Lane::Operator => &lanes.operator,
    };
    // With a place there is room, and the store drops no reply: each of these fails only when the store thread is gone.
    sender.try_send(Order::Apply(Box::new(transition), reply, Some(place))).map_err(|_| gone())?;
    if lanes.are_closed() {
        return answer.try_recv().map_err(|_| gone());
    }
    answer.await.map_err(|_| gone())
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
