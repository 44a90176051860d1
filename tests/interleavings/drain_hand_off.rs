//! The drain: not ready before anybody hears of it, nothing new after it, what was begun is finished, and operators are
//! heard whatever floods the other lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use rendezvous_control::boundary::{Lane, ReadyState, StoreGateway};
use rendezvous_shared::id::Role;
use rendezvous_shared::limits::HTTP_BURST_MAX;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{BeginDrain, BindAnswer, DrainView, Reply, Transition};
use shuttle::future::block_on;
use shuttle::thread::spawn;

use crate::drain::drain;
use crate::kit::{Scripted, StoreThread, WINDOW, Watched, explore};
use crate::mailbox::{RingMailbox, mailbox};
use crate::peers::{Meeting, creation, registration, small_store};
use crate::sync::wake_pair;

const BEGIN: Transition = Transition::BeginDrain(BeginDrain { window: WINDOW });

#[test]
fn readiness_is_false_before_a_drain_is_acknowledged() {
    explore(|| {
        let store = StoreThread::start(Watched::new(small_store()), Vec::new());
        let ask = |transition: Transition| {
            let (gateway, readiness) = (Arc::clone(&store.gateway), Arc::clone(&store.readiness));
            spawn(move || {
                let reply = block_on(gateway.submit(Lane::Operator, transition));
                let Ok(Reply::Drain(view)) = reply else { panic!("{reply:?}") };
                // Whoever is told, not only who began it.
                assert!(view == DrainView::Serving || readiness.get() == ReadyState::Draining, "{view:?}");
            })
        };
        let asked = [ask(BEGIN), ask(Transition::GetDrain), ask(Transition::GetDrain)];
        asked.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(store.readiness.get(), ReadyState::Draining);
        store.stop();
    });
}

#[test]
fn nothing_is_begun_after_a_drain_was_acknowledged() {
    explore(|| {
        let mut memory = small_store();
        let meeting = Meeting::arrange(&mut memory);
        let store = StoreThread::start(Watched::new(memory), Vec::new());
        let acknowledged = Arc::new(AtomicBool::new(false));
        let newcomer = |first: u64| {
            let (gateway, acknowledged) = (Arc::clone(&store.gateway), Arc::clone(&acknowledged));
            spawn(move || {
                for number in first..first + 3 {
                    let late = acknowledged.load(Ordering::SeqCst);
                    let wanted = if number % 2 == 0 {
                        registration(number)
                    } else {
                        creation(number, meeting.listing)
                    };
                    match block_on(gateway.submit(Lane::Http, wanted)) {
                        Ok(Reply::Refused(Refusal::Draining { .. })) => {}
                        Ok(Reply::Registered(_) | Reply::AttemptCreated(_)) if !late => {}
                        other => panic!("late: {late}, {other:?}"),
                    }
                }
            })
        };
        let newcomers = [newcomer(1), newcomer(10)];
        assert!(block_on(store.gateway.submit(Lane::Operator, BEGIN)).is_ok());
        acknowledged.store(true, Ordering::SeqCst);
        newcomers.into_iter().for_each(|it| it.join().unwrap());
        store.stop();
    });
}

#[test]
fn a_signal_waits_for_what_was_begun_and_no_longer() {
    explore(|| {
        let mut memory = small_store();
        let meeting = Meeting::arrange(&mut memory);
        let store = StoreThread::start(Watched::new(memory), Vec::new());
        let (gateway, bound, reported) =
            (Arc::clone(&store.gateway), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let peer = |role: Role| {
            let (gateway, bound) = (Arc::clone(&gateway), Arc::clone(&bound));
            let reported = Arc::clone(&reported);
            spawn(move || {
                let reply = block_on(gateway.submit(Lane::Http, meeting.bind(role)));
                let Ok(Reply::Bind(answer)) = reply else { panic!("{reply:?}") };
                let introduced = matches!(answer, BindAnswer::Introduced { .. });
                bound.fetch_add(if introduced { 10 } else { 1 }, Ordering::SeqCst);
                while bound.load(Ordering::SeqCst) != 11 {
                    shuttle::thread::yield_now();
                }
                let reply = block_on(gateway.submit(Lane::Http, meeting.report(role)));
                assert!(matches!(reply, Ok(Reply::Reported)), "{reply:?}");
                reported.fetch_add(1, Ordering::SeqCst);
            })
        };
        let peers = [peer(Role::Host), peer(Role::Joiner)];
        // As the control thread does when a signal comes.
        block_on(drain(&gateway, WINDOW));
        let reply = block_on(gateway.submit(Lane::Operator, Transition::GetDrain));
        let Ok(Reply::Drain(DrainView::Draining { attempts, .. })) = reply else { panic!("{reply:?}") };
        assert_eq!(attempts, 0);
        assert_eq!(bound.load(Ordering::SeqCst), 11, "bound and introduced, before the process may end");
        peers.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(reported.load(Ordering::SeqCst), 2);
        drop(gateway);
        store.stop();
    });
}

#[test]
fn operators_are_heard_while_others_flood() {
    const FLOOD: usize = 3 * HTTP_BURST_MAX;
    const BOXES: usize = 3;
    explore(|| {
        let applied = Arc::new(AtomicUsize::new(0));
        let heard_at = Arc::new(AtomicUsize::new(0));
        let (count, at) = (Arc::clone(&applied), Arc::clone(&heard_at));
        let scripted = Scripted::new(move |transition: &Transition| match transition {
            Transition::GetDrain => {
                at.store(count.load(Ordering::SeqCst), Ordering::SeqCst);
                Reply::Drain(DrainView::Serving)
            }
            _ => {
                count.fetch_add(1, Ordering::SeqCst);
                Reply::Reported
            }
        });
        let (_gate, waker, _bell) = wake_pair();
        let (ring, store_end) = mailbox(BOXES, waker);
        let store = StoreThread::start(Watched::new(scripted), vec![store_end]);
        let mut flood: Vec<_> =
            (0..FLOOD as u64).map(|number| store.gateway.submit(Lane::Http, registration(number))).collect();
        flood.iter_mut().for_each(|it| assert!(it.now_or_never().is_none_or(|it| it.is_ok())));
        let ring = spawn(move || flood_with_boxes(ring));
        let mut asked = store.gateway.submit(Lane::Operator, Transition::GetDrain);
        let reply = (&mut asked).now_or_never();
        // It stands in its lane now, if it was not answered at once.
        let before = applied.load(Ordering::SeqCst);
        let reply = reply.unwrap_or_else(|| block_on(asked));
        assert!(matches!(reply, Ok(Reply::Drain(_))), "{reply:?}");
        let waited_for = heard_at.load(Ordering::SeqCst).saturating_sub(before);
        let round = HTTP_BURST_MAX + BOXES;
        assert!(waited_for <= round, "{waited_for} others went first: more than one round");
        drop(flood);
        ring.join().unwrap();
        store.stop();
    });
}

/// Sends every box the moment it is back, with one transition in it.
fn flood_with_boxes(mut ring: RingMailbox) {
    let mut left = 40;
    while left > 0 {
        while let Ok(mut batch) = ring.from_store.try_recv() {
            batch.clear();
            ring.free.push(batch);
        }
        match ring.free.pop() {
            Some(mut batch) => {
                batch.transitions.push(registration(left));
                assert!(ring.to_store.try_send(batch).is_ok(), "room for every box there is");
                left -= 1;
            }
            None => shuttle::thread::yield_now(),
        }
    }
}
