//! Runs a world under many schedules, and the threads and stores that worlds are made of.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rendezvous_control::boundary::{Readiness, ReadyState};
use rendezvous_shared::outcome::OutcomeKind;
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, StoreStats, Transition};
use rendezvous_shared::time::Instant;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Condvar;
use shuttle::{Config, MaxSteps, Runner};

use crate::clock::{BootClock, Stopwatch};
use crate::gateway::Gateway;
use crate::mailbox::StoreMailbox;
use crate::store_thread::{Lanes, Order, StoreActor, StoreReport, lanes};
use crate::sync::{oneshot, set_impatient, step};

/// Schedules of each kind, unless `INTERLEAVINGS` says otherwise.
const SCHEDULES: usize = 1_000;
/// Switches at the wrong moment that PCT looks for.
const DEPTH: usize = 3;

/// Runs `world` under as many schedules of each kind.
pub(crate) fn explore(world: fn()) {
    let given = std::env::var("INTERLEAVINGS").ok();
    let schedules = given.map_or(SCHEDULES, |it| it.parse().expect("a number of schedules"));
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    // A world that goes round in circles is one that hangs.
    config.max_steps = MaxSteps::FailAfter(200_000);
    // The wake flag's weaker orders are loom's business.
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(world);
    Runner::new(PctScheduler::new(DEPTH, schedules), config).run(world);
}

/// The ways to a store thread, at work unless it was never started.
pub(crate) struct StoreThread {
    pub(crate) lanes: Lanes,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) readiness: Arc<Readiness>,
    thread: Option<shuttle::thread::JoinHandle<()>>,
}

impl StoreThread {
    pub(crate) fn start<S>(store: S, rings: Vec<StoreMailbox>) -> Self
    where
        S: EphemeralRendezvousStore + Send + 'static,
    {
        let (mut started, actor) = Self::with_rings(store, rings);
        started.thread = Some(shuttle::thread::spawn(move || actor.run()));
        started
    }

    pub(crate) fn without_thread<S: EphemeralRendezvousStore>(store: S) -> (Self, StoreActor<S>) {
        Self::with_rings(store, Vec::new())
    }

    fn with_rings<S: EphemeralRendezvousStore>(store: S, rings: Vec<StoreMailbox>) -> (Self, StoreActor<S>) {
        set_impatient(false);
        let (lanes, ends) = lanes();
        let readiness = Arc::new(Readiness::new());
        readiness.set(ReadyState::Ready);
        let (clock, stopwatch) = (BootClock::start(), Stopwatch::new());
        let actor = StoreActor::new(store, rings, ends, clock, stopwatch, Arc::clone(&readiness));
        let gateway = Arc::new(Gateway::new(lanes.clone(), Arc::clone(&readiness)));
        (Self { lanes, gateway, readiness, thread: None }, actor)
    }

    pub(crate) fn report(&self) -> StoreReport {
        let (reply, report) = oneshot::channel();
        assert!(self.lanes.operator.try_send(Order::Report(reply, None)).is_ok());
        *shuttle::future::block_on(report).expect("a store thread that lives")
    }

    /// Takes it down as the server does: nobody reaches it any more.
    pub(crate) fn stop(self) {
        drop((self.lanes, self.gateway));
        if let Some(thread) = self.thread {
            thread.join().expect("a store thread that ends well");
        }
    }
}

/// How many transitions of all kinds came to that end.
pub(crate) fn ended(report: &StoreReport, outcome: OutcomeKind) -> u64 {
    report.transitions.iter().map(|(_, counts)| counts.get(outcome)).sum()
}

/// A door that a store can be held up at.
#[derive(Default)]
pub(crate) struct Door {
    state: shuttle::sync::Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Door {
    pub(crate) fn shut(&self) {
        self.state.lock().unwrap().0 = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    /// Waits until it is open.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        while state.0 {
            state.1 = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
        state.1 = false;
    }

    /// Waits until somebody waits at it.
    pub(crate) fn wait_for_somebody(&self) {
        let mut state = self.state.lock().unwrap();
        while !state.1 {
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// A store that takes its time within every transition, behind a door, and keeps a log of what it was asked.
pub(crate) struct Watched<S> {
    pub(crate) inner: S,
    pub(crate) door: Arc<Door>,
    pub(crate) log: Arc<Mutex<Vec<Transition>>>,
}

impl<S> Watched<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, door: Arc::default(), log: Arc::default() }
    }
}

impl<S: EphemeralRendezvousStore> EphemeralRendezvousStore for Watched<S> {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        self.log.lock().unwrap().extend_from_slice(batch);
        self.door.pass();
        self.inner.apply(now, batch, replies);
        step();
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }

    fn expire(&mut self, now: Instant) {
        self.inner.expire(now);
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}

/// A store that answers each transition by a function, and has nothing due unless `backlog` says so.
pub(crate) struct Scripted<F> {
    pub(crate) answer: F,
    /// Steps of expiry that are due.
    pub(crate) backlog: Option<usize>,
    /// Steps of expiry that were asked for.
    pub(crate) expired: Arc<std::sync::atomic::AtomicUsize>,
}

impl<F: FnMut(&Transition) -> Reply> Scripted<F> {
    pub(crate) fn new(answer: F) -> Self {
        Self { answer, backlog: Some(0), expired: Arc::default() }
    }
}

impl<F: FnMut(&Transition) -> Reply> EphemeralRendezvousStore for Scripted<F> {
    fn apply(&mut self, _now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        replies.extend(batch.iter().map(&mut self.answer));
    }

    fn next_deadline(&self) -> Option<Instant> {
        (self.backlog != Some(0)).then_some(Instant::ZERO)
    }

    fn expire(&mut self, _now: Instant) {
        self.expired.fetch_add(1, Ordering::SeqCst);
        self.backlog = self.backlog.map(|it| it.saturating_sub(1));
    }

    fn stats(&self) -> StoreStats {
        super::peers::small_store().stats()
    }
}

/// Long enough for any drain here; no time passes.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
