//! Waking the ring thread from another thread, without a system call while it is busy.
//!
//! The protocol, in the order each side must keep:
//!
//! | ring thread (owner of the gate) | another thread |
//! |---|---|
//! | 1. `prepare_to_sleep`: flag = true; fence | a. put the reply into the queue |
//! | 2. look at the queue once more | b. `wake`: fence; if flag was true, clear it and write the eventfd |
//! | 3. `turn`: block only if the queue was empty | |
//! | 4. `awake`: flag = false | |
//!
//! Both fences are sequentially consistent, so one comes before the other: either (b) sees the flag and writes, or
//! (2) sees the reply and does not block. Nothing is lost. The eventfd counts, so a write that lands before the
//! block ends that block. A wake that overtakes step 4 costs one turn that finds nothing, which is harmless.
//!
//! The flag and its fences are [`flag::SleepFlag`]; `tests/wake_orders.rs` tries every order of them.

mod flag;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, atomic};

use rustix::event::{EventfdFlags, eventfd};

use flag::SleepFlag;

/// Makes the two ends: the gate for the ring thread, the waker for everyone else.
pub fn wake_pair() -> io::Result<(WakeGate, Waker)> {
    // Blocking on purpose: a read of a non-blocking eventfd by io_uring fails with EAGAIN instead of waiting.
    let shared = Arc::new(Shared { sleeping: SleepFlag::new(), event: eventfd(0, EventfdFlags::CLOEXEC)? });
    Ok((WakeGate(Arc::clone(&shared)), Waker(shared)))
}

/// Wakes the ring thread. Cheap to clone; outlives the engine harmlessly.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Wakes the ring thread if it sleeps or is about to; call it after the queue was written, once a batch.
    /// Returns whether that took a system call.
    pub fn wake(&self) -> bool {
        let asleep = self.0.sleeping.take();
        if asleep {
            // It can fail only if the counter stands at u64::MAX - 1, when the owner is as good as woken.
            let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
        }
        asleep
    }
}

/// The ring thread's side: announces sleep. One for each ring thread.
#[derive(Debug)]
pub struct WakeGate(Arc<Shared>);

impl WakeGate {
    /// Announces that the thread is about to block. Look at every queue after this call and before the turn that
    /// blocks, and pass `Some(Duration::ZERO)` if one holds something.
    pub fn prepare_to_sleep(&self) -> Sleep<'_> {
        self.0.sleeping.announce();
        Sleep { shared: &self.0 }
    }

    /// The eventfd, kept alive by the engine that waits on it.
    pub(crate) fn event(&self) -> WakeEvent {
        WakeEvent(Arc::clone(&self.0))
    }
}

/// Announced sleep; ends when dropped.
#[derive(Debug)]
#[must_use = "sleep ends when this is dropped; hold it across the turn"]
pub struct Sleep<'a> {
    shared: &'a Shared,
}

impl Sleep<'_> {
    /// Ends the sleep: from here a wake costs no system call.
    pub fn awake(self) {}
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.shared.sleeping.withdraw();
    }
}

/// The engine's hold on the eventfd.
#[derive(Debug)]
pub(crate) struct WakeEvent(Arc<Shared>);

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

#[derive(Debug)]
struct Shared {
    sleeping: SleepFlag,
    event: OwnedFd,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_wake_costs_a_call_only_when_asleep() {
        let (gate, waker) = wake_pair().unwrap();
        assert!(!waker.wake());
        let sleep = gate.prepare_to_sleep();
        assert!(waker.wake());
        assert!(!waker.clone().wake(), "one write is enough");
        sleep.awake();
        assert!(!waker.wake());
    }

    /// The two sides race once a round, over and over: the owner must see the item or the waker the flag. Fails
    /// without the fences, on x86 too (stores wait in the store buffer).
    #[test]
    fn one_side_always_sees_the_other() {
        const ROUNDS: u64 = 200_000;
        let (gate, waker) = wake_pair().unwrap();
        let [start, item, verdict] = [const { AtomicU64::new(0) }; 3];
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait_for(&start, round);
                    item.store(round, Ordering::Relaxed);
                    let woke = waker.wake();
                    verdict.store(round * 2 + u64::from(woke), Ordering::Release);
                }
            });
            let (mut both, mut lost) = (0, 0);
            for round in 1..=ROUNDS {
                start.store(round, Ordering::Release);
                // Scans the time the other side needs to notice the start.
                for _ in 0..round % 61 {
                    std::hint::spin_loop();
                }
                let sleep = gate.prepare_to_sleep();
                let seen = item.load(Ordering::Relaxed) == round;
                wait_for(&verdict, round * 2);
                let woke = verdict.load(Ordering::Acquire) % 2 == 1;
                sleep.awake();
                lost += u64::from(!seen && !woke);
                both += u64::from(seen && woke);
            }
            // Not asserted, since a single core never shows it.
            println!("{both} of {ROUNDS} rounds were close");
            assert_eq!(lost, 0, "asleep with an item and no wake");
        });
    }

    fn wait_for(value: &AtomicU64, at_least: u64) {
        let mut spins = 0_u32;
        while value.load(Ordering::Acquire) < at_least {
            spins += 1;
            if spins > 1000 { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}
