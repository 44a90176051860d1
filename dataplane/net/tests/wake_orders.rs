//! The wake protocol in every order that the memory model permits, by loom: no wake is lost, and a sleep costs one
//! system call at most.
//!
//! `src/wake/flag.rs` itself is compiled here once more, over loom's atomics instead of the standard library's. What
//! stands for the queue is as weak as a queue can be, so the fences of the flag must do all the work. The eventfd is
//! stood in for by a counter under a lock, which a read takes whole and waits for, as the kernel's does.
#![cfg(test)]

use loom::sync::atomic::{self, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

#[path = "../src/wake/flag.rs"]
mod flag;

use flag::SleepFlag;

/// One sleeper, and what its wakers share with it.
struct Gate {
    flag: SleepFlag,
    /// Items ever put in. Relaxed on both sides.
    queue: AtomicUsize,
    /// The count of the eventfd, and how often it was written.
    event: Mutex<(usize, usize)>,
    written: Condvar,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            flag: SleepFlag::new(),
            queue: AtomicUsize::new(0),
            event: Mutex::new((0, 0)),
            written: Condvar::new(),
        })
    }

    /// A waker's part, as the store thread does it: the item first, the wake after.
    fn put(&self) {
        self.queue.fetch_add(1, Ordering::Relaxed);
        if self.flag.take() {
            let mut event = self.event.lock().unwrap();
            *event = (event.0 + 1, event.1 + 1);
            self.written.notify_one();
        }
    }

    /// The sleeper's part, as the ring thread does it, until it has seen `items`; returns how often it slept.
    fn sleep_until(&self, items: usize) -> usize {
        let (mut seen, mut announced) = (0, 0);
        while seen < items {
            self.flag.announce();
            announced += 1;
            if self.queue.load(Ordering::Relaxed) == seen {
                // Nobody else wakes it: were a wake lost, it would wait for ever, which loom reports as a deadlock.
                let mut event = self.event.lock().unwrap();
                while event.0 == 0 {
                    event = self.written.wait(event).unwrap();
                }
                event.0 = 0;
            }
            self.flag.withdraw();
            seen = self.queue.load(Ordering::Relaxed);
        }
        announced
    }

    fn writes(&self) -> usize {
        self.event.lock().unwrap().1
    }
}

/// `wakers` threads put one item each, `in_turn` times over, and one sleeper waits for all of them.
fn no_wake_is_lost(wakers: usize, in_turn: usize) {
    let gate = Gate::new();
    let put = |gate: Arc<Gate>| move || (0..in_turn).for_each(|_| gate.put());
    let threads: Vec<_> = (0..wakers).map(|_| thread::spawn(put(Arc::clone(&gate)))).collect();
    let announced = gate.sleep_until(wakers * in_turn);
    threads.into_iter().for_each(|it| it.join().unwrap());
    assert!(gate.writes() <= announced, "{} system calls for {announced} sleeps", gate.writes());
}

#[test]
fn one_waker_wakes_a_sleeper() {
    loom::model(|| no_wake_is_lost(1, 1));
}

#[test]
fn a_waker_wakes_a_sleeper_again() {
    loom::model(|| no_wake_is_lost(1, 2));
}

/// The store and the control thread both wake a ring. Three threads have too many orders to try all: only those in
/// which a thread is interrupted at most four times.
#[test]
fn either_of_two_wakers_wakes_a_sleeper() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| no_wake_is_lost(2, 1));
}

/// The wake after the ring was told of it: nobody writes to a thread that is awake.
#[test]
fn a_thread_that_is_awake_costs_no_system_call() {
    loom::model(|| {
        let gate = Gate::new();
        gate.flag.announce();
        gate.flag.withdraw();
        let waker = Arc::clone(&gate);
        thread::spawn(move || waker.put()).join().unwrap();
        assert_eq!(gate.writes(), 0);
    });
}

/// Of two that come together, one writes.
#[test]
fn two_wakers_write_once_for_one_sleep() {
    loom::model(|| {
        let gate = Gate::new();
        gate.flag.announce();
        let waker = Arc::clone(&gate);
        let other = thread::spawn(move || waker.put());
        gate.put();
        other.join().unwrap();
        assert_eq!(gate.writes(), 1);
    });
}
