//! Callers that give up: before their transition starts they changed nothing, later it completes, and either way their
//! place in the lane is free again.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use rendezvous_control::boundary::{BoxFuture, Lane, ReadyState, StoreGateway};
use rendezvous_shared::limits::HTTP_LANE_MAX;
use rendezvous_shared::outcome::{OutcomeKind, Refusal};
use rendezvous_shared::store::{Reply, Transition};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::spawn;

use crate::gateway::Gateway;
use crate::kit::{Scripted, StoreThread, Watched, ended, explore};
use crate::peers::{number_of, registration};
use crate::sync::{set_impatient, sleep, step};

type Call = BoxFuture<Result<Reply, Refusal>>;

fn call(gateway: &Gateway, number: u64) -> Call {
    gateway.submit(Lane::Http, registration(number))
}

/// Waits for a moment of random length.
async fn patience() {
    for _ in 0..thread_rng().gen_range(0..8) {
        sleep(std::time::Duration::ZERO).await;
    }
}

#[test]
fn giving_up_before_the_start_changes_nothing_and_later_stops_nothing() {
    const CALLERS: u64 = 4;
    explore(|| {
        let [gone, completed] = [(); 2].map(|()| Arc::new(Mutex::new(BTreeSet::new())));
        let (gone_by, completed_by) = (Arc::clone(&gone), Arc::clone(&completed));
        let store = StoreThread::start(
            Scripted::new(move |transition: &Transition| {
                let number = number_of(transition);
                assert!(!gone_by.lock().unwrap().contains(&number), "nobody waits for {number} any more");
                step();
                assert!(completed_by.lock().unwrap().insert(number), "{number} is applied once");
                Reply::Reported
            }),
            Vec::new(),
        );
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let call = call(&store.gateway, number);
                let (gone, completed) = (Arc::clone(&gone), Arc::clone(&completed));
                spawn(move || {
                    // The call is asked first, so it always stands in its lane before it is given up.
                    let answer = block_on(async {
                        match select(call, pin!(patience())).await {
                            Either::Left((answer, _)) => Some(answer),
                            Either::Right(((), _)) => None,
                        }
                    });
                    match answer {
                        Some(answer) => {
                            assert!(matches!(answer, Ok(Reply::Reported)), "{answer:?}");
                            assert!(completed.lock().unwrap().contains(&number));
                        }
                        None => assert!(gone.lock().unwrap().insert(number)),
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|it| it.join().unwrap());
        // A call of our own comes after all of theirs.
        assert!(block_on(call(&store.gateway, CALLERS)).is_ok());
        let report = store.report();
        let done = completed.lock().unwrap().len() as u64;
        assert_eq!(ended(&report, OutcomeKind::Applied), done);
        assert_eq!(ended(&report, OutcomeKind::Abandoned), CALLERS + 1 - done);
        store.stop();
    });
}

/// As many calls as the lane has places stand in it, and one more does not.
fn assert_all_places_free(store: &StoreThread, first: u64) -> Vec<Call> {
    let mut calls: Vec<_> = (first..).take(HTTP_LANE_MAX + 1).map(|it| call(&store.gateway, it)).collect();
    calls.iter_mut().for_each(|it| assert!(it.now_or_never().is_none()));
    assert_eq!(store.lanes.http.len(), HTTP_LANE_MAX);
    calls
}

#[test]
fn no_place_in_the_lane_is_lost() {
    explore(|| {
        let watched = Watched::new(Scripted::new(|_: &Transition| Reply::Reported));
        let door = Arc::clone(&watched.door);
        door.shut();
        let store = StoreThread::start(watched, Vec::new());
        // The store is held up in this one, which has left the lane.
        let mut held = call(&store.gateway, 0);
        assert!((&mut held).now_or_never().is_none());
        door.wait_for_somebody();
        let mut calls = assert_all_places_free(&store, 1);
        // Others wait for a place: each gives up, or is told to, or gets the place of one that is served.
        set_impatient(true);
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let call = call(&store.gateway, 1_000 + number);
                spawn(move || {
                    block_on(async {
                        match select(call, pin!(patience())).await {
                            Either::Left((answer, _)) => {
                                matches!(answer, Ok(Reply::Reported) | Err(Refusal::ServiceUnavailable))
                            }
                            Either::Right(((), _)) => true,
                        }
                    })
                })
            })
            .collect();
        // Half of those in the lane give up too.
        calls.truncate(HTTP_LANE_MAX / 2);
        door.open();
        waiting.into_iter().for_each(|it| assert!(it.join().unwrap()));
        set_impatient(false);
        assert!(matches!(block_on(held), Ok(Reply::Reported)));
        for call in calls {
            assert!(matches!(block_on(call), Ok(Reply::Reported)));
        }
        // And all over again.
        door.shut();
        let mut held = call(&store.gateway, 2_000);
        assert!((&mut held).now_or_never().is_none());
        door.wait_for_somebody();
        drop(assert_all_places_free(&store, 2_001));
        door.open();
        assert!(block_on(held).is_ok());
        store.stop();
    });
}

/// What a panic does: the actor is dropped wherever it was.
#[test]
fn everybody_is_told_that_the_store_is_gone() {
    explore(|| {
        let (store, actor) = StoreThread::without_thread(Scripted::new(|_: &Transition| Reply::Reported));
        let callers: Vec<_> = (0..3)
            .map(|number| {
                let call = call(&store.gateway, number);
                let readiness = Arc::clone(&store.readiness);
                spawn(move || {
                    assert_eq!(block_on(call), Err(Refusal::ServiceUnavailable));
                    assert_eq!(readiness.get(), ReadyState::Unavailable, "before anybody is told");
                })
            })
            .collect();
        drop(actor);
        callers.into_iter().for_each(|it| it.join().unwrap());
    });
}
