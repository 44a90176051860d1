//! A store that has more due than it gives back at once: every lane is served meanwhile, and the thread sleeps as soon
//! as nothing is left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rendezvous_control::boundary::{Lane, StoreGateway};
use rendezvous_shared::store::{DrainView, Reply, Transition};
use shuttle::future::block_on;
use shuttle::thread::spawn;

use crate::kit::{Scripted, StoreThread, explore};
use crate::peers::registration;

fn answer(transition: &Transition) -> Reply {
    match transition {
        Transition::GetDrain => Reply::Drain(DrainView::Serving),
        _ => Reply::Reported,
    }
}

#[test]
fn every_lane_is_served_during_a_backlog_without_end() {
    explore(|| {
        let store = StoreThread::start(Scripted { backlog: None, ..Scripted::new(answer) }, Vec::new());
        let ask = |lane: Lane, transition: Transition| {
            let gateway = Arc::clone(&store.gateway);
            spawn(move || assert!(block_on(gateway.submit(lane, transition)).is_ok()))
        };
        let asked = [
            ask(Lane::Http, registration(1)),
            ask(Lane::Operator, Transition::GetDrain),
            ask(Lane::Http, registration(2)),
        ];
        asked.into_iter().for_each(|it| it.join().unwrap());
        store.stop();
    });
}

#[test]
fn the_store_thread_sleeps_once_a_backlog_is_worked_off() {
    const BACKLOG: usize = 5;
    explore(|| {
        let scripted = Scripted { backlog: Some(BACKLOG), ..Scripted::new(answer) };
        let expired = Arc::clone(&scripted.expired);
        let store = StoreThread::start(scripted, Vec::new());
        while expired.load(Ordering::SeqCst) < BACKLOG {
            shuttle::thread::yield_now();
        }
        // Nothing is due and nothing was asked: whatever the scheduler does, it does not go round again.
        (0..10).for_each(|_| shuttle::thread::yield_now());
        assert_eq!(expired.load(Ordering::SeqCst), BACKLOG);
        assert!(block_on(store.gateway.submit(Lane::Http, registration(1))).is_ok());
        store.stop();
        // One round for the transition, one at most that finds the lane's other end gone.
        assert!(expired.load(Ordering::SeqCst) <= BACKLOG + 2);
    });
}
