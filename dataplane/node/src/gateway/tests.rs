//! Who gives up while it waits for a place in a lane, and a store that is not there.

use std::task::{Context, Poll, Waker};

use rendezvous_shared::store::DrainView;

use super::*;
use crate::store_thread::lanes;

/// Takes the first step of a call.
fn step(call: &mut BoxFuture<Result<Reply, Refusal>>) -> Poll<Result<Reply, Refusal>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// "Cancellation is checked before waiting for the lock": who leaves while the lane is full hands nothing over, and
/// its turn goes to the next.
#[tokio::test]
async fn an_asker_that_left_while_it_waited_hands_nothing_over() {
    let (lanes, ends) = lanes();
    let gateway = Gateway::new(lanes);
    let submit = || gateway.submit(Lane::Http, Transition::GetDrain);
    let mut waiting: Vec<_> = (0..HTTP_LANE_MAX + 2).map(|_| submit()).collect();
    for call in &mut waiting {
        assert!(step(call).is_pending());
    }
    assert_eq!(ends.waiting(), HTTP_LANE_MAX, "the lane is full, and no longer than that");
    let last = waiting.pop();
    drop(waiting.pop());
    drop(last);
    let taken: Vec<_> = std::iter::from_fn(|| ends.take()).collect();
    assert_eq!(taken.len(), HTTP_LANE_MAX);
    drop(taken);
    let mut next = submit();
    assert!(step(&mut next).is_pending());
    assert_eq!(ends.waiting(), 1, "those who left hold no place");
}

/// "New join authorization returns ServiceUnavailable when the atomic store is unavailable": when it is gone, when it
/// goes, and when it does not come to it.
#[tokio::test]
async fn a_store_that_is_not_there_is_unavailable() {
    let unavailable = Err(Refusal::ServiceUnavailable);
    let (open, ends) = lanes();
    let gateway = Gateway::new(open);
    let mut waiting: Vec<_> =
        (0..HTTP_LANE_MAX).map(|_| gateway.submit(Lane::Http, Transition::GetDrain)).collect();
    assert!(waiting.iter_mut().all(|call| step(call).is_pending()));
    assert_eq!(gateway.submit(Lane::Http, Transition::GetDrain).await, unavailable, "it does not come to it");
    let mut drain = gateway.submit(Lane::Operator, Transition::GetDrain);
    assert!(step(&mut drain).is_pending(), "the operator's lane is another");
    drop(ends);
    assert_eq!(drain.await, unavailable, "it goes");
    for call in waiting {
        assert_eq!(call.await, unavailable);
    }
    assert_eq!(gateway.submit(Lane::Http, Transition::GetDrain).await, unavailable, "it is gone");
}

/// The answer comes back to who asked.
#[tokio::test]
async fn an_answer_comes_back() {
    let (lanes, ends) = lanes();
    let mut call = Gateway::new(lanes).submit(Lane::Http, Transition::GetDrain);
    assert!(step(&mut call).is_pending());
    let Some(Order::Apply(_, reply, _)) = ends.take() else { panic!("nothing was handed over") };
    assert!(reply.send(Reply::Drain(DrainView::Serving)).is_ok());
    assert_eq!(call.await, Ok(Reply::Drain(DrainView::Serving)));
}
