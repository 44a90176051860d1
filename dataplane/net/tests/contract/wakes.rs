//! Waiting, and being woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rendezvous_net::EngineKind;

use crate::kit::{TURN, World, heard, hears_nothing};

/// Never over in a test that passes; ends one that would wait for ever.
const LONG: Duration = Duration::from_secs(10);

pub(crate) fn timeout_returns(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    for timeout in [Duration::ZERO, Duration::from_nanos(1), TURN, TURN] {
        world.engine.turn(Some(timeout)).unwrap();
        assert_eq!(world.engine.receive(64, &mut |_, _, _| panic!("nobody sent")), 0);
    }
    assert_eq!(world.engine.counters().wakes, 0);
}

pub(crate) fn another_thread_wakes_it(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    for round in 1..=50 {
        let sleep = world.gate.prepare_to_sleep();
        let waker = world.waker.clone();
        let other = thread::spawn(move || assert!(waker.wake()));
        let mut turns = 0;
        while world.engine.counters().wakes < round {
            assert!(turns < 5, "the wake of round {round} was lost");
            world.engine.turn(Some(LONG)).unwrap();
            turns += 1;
        }
        sleep.awake();
        other.join().unwrap();
    }
    assert_eq!(world.engine.counters().wakes, 50);
}

/// After traffic it sleeps again: an engine that returns at once would spin thousands of times until the wake.
pub(crate) fn it_sleeps_after_traffic(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    for round in 1..=3 {
        world.peer.send(b"traffic").unwrap();
        world.echo(1);
        assert_eq!(heard(&world.peer), b"traffic");
        let sleep = world.gate.prepare_to_sleep();
        let (waker, peer) = (world.waker.clone(), world.peer.try_clone().unwrap());
        let other = thread::spawn(move || {
            hears_nothing(&peer); // 50 ms of it
            assert!(waker.wake());
        });
        let mut turns = 0;
        while world.engine.counters().wakes < round {
            assert!(turns < 5, "{turns} turns without a cause, or the wake was lost");
            world.engine.turn(Some(LONG)).unwrap();
            turns += 1;
        }
        sleep.awake();
        other.join().unwrap();
    }
}

/// The protocol of the module `wake`, both sides at full speed. The other thread goes on only when its item was
/// seen, so one lost wake stops both for ever: this test then never ends. A timeout would only hide the loss.
pub(crate) fn no_wake_is_lost(kind: EngineKind) {
    const ITEMS: u64 = 30_000;
    let mut world = World::new(kind, "127.0.0.1:0");
    let put = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let producer = {
        let (put, seen, waker) = (Arc::clone(&put), Arc::clone(&seen), world.waker.clone());
        thread::spawn(move || {
            let mut written = 0_u64;
            for item in 1..=ITEMS {
                // Relaxed, so that nothing but the protocol's fences orders it.
                put.store(item, Ordering::Relaxed);
                written += u64::from(waker.wake());
                let mut spins = 0_u32;
                while seen.load(Ordering::Relaxed) < item {
                    spins += 1;
                    if spins > 100 { thread::yield_now() } else { std::hint::spin_loop() }
                }
                // Drifts across the window in which the owner falls asleep.
                for _ in 0..item % 257 {
                    std::hint::spin_loop();
                }
            }
            written
        })
    };
    let mut last = 0;
    while last < ITEMS {
        let sleep = world.gate.prepare_to_sleep();
        let timeout = if put.load(Ordering::Relaxed) > last { Some(Duration::ZERO) } else { None };
        world.engine.turn(timeout).unwrap();
        sleep.awake();
        last = put.load(Ordering::Relaxed);
        seen.store(last, Ordering::Relaxed);
    }
    let written = producer.join().unwrap();
    assert!(written > 0, "it never slept, so the test shows nothing");
    // One write is one wake at most; the last may not be taken yet.
    assert!(world.engine.counters().wakes <= written);
}

pub(crate) fn a_waker_outlives_the_engine(kind: EngineKind) {
    let World { engine, gate, waker, .. } = World::new(kind, "127.0.0.1:0");
    let sleep = gate.prepare_to_sleep();
    drop(engine);
    assert!(waker.wake());
    sleep.awake();
    drop(gate);
    assert!(!waker.wake());
}
