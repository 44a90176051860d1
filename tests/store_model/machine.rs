//! The two stores side by side: the model decides what the answer is, the real store must give it.

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use rendezvous_core::store::{MemoryStore, Pace};
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::{InstanceId, ListingId};
use rendezvous_shared::limits::{GAUGE_LAG_MAX, Limits};
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{EphemeralRendezvousStore, Reply, StoreStats, Transition};
use rendezvous_shared::time::Instant;
use rendezvous_testkit::model::{FreshListing, NaiveStore};

use crate::reached;
use crate::setups;
use crate::side::Side;
use crate::steps::{Setup, Step, Wait};
use crate::strategies;

/// Calls of `expire` after which everything due must be given back: more than the small stores ever hold.
const EXPIRE_CALLS_MAX: usize = 10_000;

thread_local! {
    /// Made once: it has some hundred parts, and each step is drawn from it.
    static STEP: BoxedStrategy<Step> = strategies::step();
}

/// The model, what is known of it, and the time.
#[derive(Clone)]
pub(crate) struct Model {
    setup: Setup,
    side: Side<NaiveStore>,
    /// When the last step began and when it was over.
    from: Instant,
    now: Instant,
    /// What the last step was answered.
    last: Vec<Reply>,
    /// What could be joined, and when that was looked at: as far back as a gauge may lag.
    seen: VecDeque<(Instant, Vec<FreshListing>)>,
}

impl core::fmt::Debug for Model {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.setup.fmt(f)
    }
}

impl Model {
    fn new(setup: Setup) -> Self {
        let start = Instant::from_nanos(setup.start);
        let side = Side::new(NaiveStore::new(setup.limits));
        Self { setup, side, from: start, now: start, last: Vec::new(), seen: VecDeque::new() }
    }

    fn wait(&mut self, wait: Wait) {
        self.from = match wait {
            Wait::No => self.now,
            Wait::For(time) => self.now.after(time),
            Wait::ToDeadline { nth, nanos } => {
                let mut deadlines = self.side.store.deadlines();
                deadlines.retain(|&it| it >= self.now);
                deadlines.sort();
                deadlines.dedup();
                let last = deadlines.len().saturating_sub(1);
                let deadline = deadlines.get(last.min(nth.into())).copied().unwrap_or(self.now);
                self.now.max(Instant::from_nanos(deadline.as_nanos().saturating_add_signed(nanos.into())))
            }
        };
        self.now = self.from;
    }

    fn take(&mut self, step: &Step) {
        if let Step::Ask(wait, _) | Step::Expire { wait, .. } = step {
            self.wait(*wait);
        } else {
            self.from = self.now;
        }
        if let Step::Scene(asks) = step {
            self.last.clear();
            for (wait, ask) in asks {
                self.now = self.now.after(*wait);
                self.side.store.expire(self.now);
                self.last.extend(self.side.batch(self.now, core::slice::from_ref(ask)));
                self.look();
            }
            return;
        }
        self.side.store.expire(self.now);
        self.last = self.side.take(self.from, step);
        self.now = self.from.after(Side::<NaiveStore>::duration(step));
        self.look();
    }

    /// Looks at what can be joined now.
    fn look(&mut self) {
        self.side.store.expire(self.now);
        self.seen.push_back((self.now, self.side.store.fresh_listings()));
        let (now, seen) = (self.now, &mut self.seen);
        // One that was followed by another within the lag may still be what a gauge tells of.
        while seen.get(1).is_some_and(|next| next.0.after(GAUGE_LAG_MAX) <= now) {
            seen.pop_front();
        }
    }

    /// The least that the gauges of fresh and of visible listings must tell: those whose end is not near.
    fn gauges_min(&self) -> (usize, usize) {
        let fresh = self.side.store.fresh_listings().into_iter();
        let lasting: Vec<_> = fresh.filter(|it| it.until > self.now.after(GAUGE_LAG_MAX)).collect();
        (lasting.len(), lasting.iter().filter(|it| it.public).count())
    }

    /// The most that the gauges of fresh and of visible listings may tell.
    fn gauges_max(&self) -> (usize, usize) {
        let mut fresh = Vec::<(ListingId, bool)>::new();
        for it in self.seen.iter().flat_map(|(_, fresh)| fresh) {
            if it.until.after(GAUGE_LAG_MAX) > self.now && !fresh.contains(&(it.id, it.public)) {
                fresh.push((it.id, it.public));
            }
        }
        (fresh.len(), fresh.iter().filter(|it| it.1).count())
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        setups::setup().prop_map(Self::new).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        STEP.with(BoxedStrategy::clone)
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.take(step);
        state
    }
}

/// A store that can be compared with the model.
pub(crate) trait Real: EphemeralRendezvousStore + 'static {
    /// An empty one.
    fn empty(limits: Limits) -> Self;

    /// Looks at what must hold within it between two calls.
    fn check(&self);
}

impl Real for MemoryStore {
    fn empty(limits: Limits) -> Self {
        Self::new(limits, InstanceId(7), MasterKey::from_bytes([5; 32]))
    }

    fn check(&self) {
        self.check_invariants();
    }
}

/// The store, but what is over stays until its place is needed, and is given back one thing a call.
pub(crate) struct Reluctant(MemoryStore);

impl Real for Reluctant {
    fn empty(limits: Limits) -> Self {
        let pace = Pace { per_transition: 0, per_call: 1 };
        Self(MemoryStore::with_pace(limits, InstanceId(7), MasterKey::from_bytes([5; 32]), pace))
    }

    fn check(&self) {
        self.0.check_invariants();
    }
}

impl EphemeralRendezvousStore for Reluctant {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        self.0.apply(now, batch, replies);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }

    fn expire(&mut self, now: Instant) {
        self.0.expire(now);
    }

    fn stats(&self) -> StoreStats {
        self.0.stats()
    }
}

impl Real for NaiveStore {
    fn empty(limits: Limits) -> Self {
        Self::new(limits)
    }

    fn check(&self) {}
}

/// The store `S` against the model.
pub(crate) struct Compared<S>(PhantomData<S>);

impl<S: Real> StateMachineTest for Compared<S> {
    type SystemUnderTest = Side<S>;
    type Reference = Model;

    fn init_test(model: &Model) -> Side<S> {
        Side::new(S::empty(model.setup.limits))
    }

    fn apply(mut real: Side<S>, model: &Model, step: Step) -> Side<S> {
        let replies = real.take(model.from, &step);
        let at = model.from.as_nanos();
        assert_eq!(replies.len(), model.last.len(), "at {at} ns, {step:?}: as many answers");
        for (ordinal, (reply, expected)) in replies.iter().zip(&model.last).enumerate() {
            assert!(
                reply == expected,
                "at {at} ns, answer {ordinal} to {step:?}\nmodel: {expected:?}\nstore: {reply:?}"
            );
            reached::reply(reply);
        }
        if let Step::Ask(_, asks) = &step {
            asks.iter().zip(&replies).for_each(|(ask, reply)| reached::ask(ask, reply));
        }
        match step {
            Step::Expire { times, .. } => (0..times).for_each(|_| real.store.expire(model.now)),
            Step::Settle => settle(&mut real.store, model),
            _ => {}
        }
        real
    }

    fn check_invariants(real: &Side<S>, model: &Model) {
        real.store.check();
        let (stats, expected) = (real.store.stats(), model.side.store.stats());
        for (pool, expected) in stats.pools.iter().zip(&expected.pools) {
            assert_eq!((pool.pool, pool.limit), (expected.pool, expected.limit));
            assert!(pool.used <= pool.limit && pool.high_water <= pool.limit, "over its limit: {pool:?}");
            assert!(pool.used <= pool.high_water, "more than ever: {pool:?}");
            // The result of an attempt that is due is made when the attempt is given back.
            let held = pool.used >= expected.used || pool.pool == Pool::AttemptResults;
            assert!(held, "what lives is not held: {pool:?}, {expected:?}");
        }
        assert_eq!(stats.introductions, expected.introductions);
        assert_eq!(stats.introductions_replayed, expected.introductions_replayed);
    }

    fn teardown(mut real: Side<S>, model: Model) {
        settle(&mut real.store, &model);
        reached::stats(&real.store.stats());
        let later = model.now.after(EVERYTHING_IS_OVER);
        while real.store.next_deadline().is_some_and(|at| at <= later) {
            real.store.expire(later);
        }
        for pool in real.store.stats().pools.iter().filter(|it| it.pool != Pool::Revocations) {
            assert_eq!(pool.used, 0, "an hour later something is left: {pool:?}");
        }
    }
}

/// After which nothing lives but what an operator barred for long.
const EVERYTHING_IS_OVER: Duration = Duration::from_secs(3_600);

/// Gives back all that is due; then the two hold the same.
fn settle(store: &mut impl Real, model: &Model) {
    let mut calls = 0;
    store.expire(model.now);
    while store.next_deadline().is_some_and(|at| at <= model.now) {
        store.expire(model.now);
        calls += 1;
        assert!(calls < EXPIRE_CALLS_MAX, "`expire` gets nowhere: {:?}", store.next_deadline());
    }
    store.check();
    let holds = model.side.store.stats().pools.iter().any(|it| it.used > 0);
    assert!(!holds || store.next_deadline().is_some(), "would sleep over what it holds");
    let (real, expected) = (store.stats(), model.side.store.stats());
    let (least, most) = (model.gauges_min(), model.gauges_max());
    let within = |what: &str, gauge: usize, least: usize, most: usize| {
        assert!((least..=most).contains(&gauge), "{what}: {gauge} is not within {least} to {most}");
    };
    let results =
        |stats: &StoreStats| stats.pools.iter().find(|it| it.pool == Pool::AttemptResults).map(|it| it.used);
    assert!(results(&real) >= results(&expected), "a result is not held");
    within("presence_fresh", real.presence_fresh, least.0, most.0);
    within("listings_visible", real.listings_visible, least.1, most.1);
    assert_eq!(comparable(real), comparable(expected), "store, model: what the two hold, at {:?}", model.now);
}

/// Without peaks, which depend on when what is due was given back, and so do the places of results; and without gauges
/// that may lag.
fn comparable(mut stats: StoreStats) -> StoreStats {
    stats.pools.iter_mut().for_each(|it| it.high_water = 0);
    stats.pools.iter_mut().filter(|it| it.pool == Pool::AttemptResults).for_each(|it| it.used = 0);
    StoreStats { presence_fresh: 0, listings_visible: 0, ..stats }
}
