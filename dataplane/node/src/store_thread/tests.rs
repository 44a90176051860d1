//! Who gives up when, and what the store thread has done by then.

use std::cell::RefCell;
use std::rc::Rc;

use rendezvous_core::store::MemoryStore;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::{InstanceId, PrincipalId, TenantId};
use rendezvous_shared::limits::Limits;
use rendezvous_shared::store::{
    BeginDrain, Caller, DescriptionParts, IdempotencyKey, ListingDescription, Quotas, RegisterListing,
    Visibility,
};

use super::*;

/// A store whose asker goes away while it applies.
struct Deserted {
    store: MemoryStore,
    asker: Rc<RefCell<Option<oneshot::Receiver<Reply>>>>,
}

impl EphemeralRendezvousStore for Deserted {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        self.asker.borrow_mut().take();
        self.store.apply(now, batch, replies);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.store.next_deadline()
    }

    fn expire(&mut self, now: Instant) {
        self.store.expire(now);
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}

fn store() -> MemoryStore {
    let limits =
        Limits { listings: 8, listing_records: 8, attempts: 8, attempt_records: 8, ..Limits::DEFAULT };
    MemoryStore::new(limits, InstanceId(7), MasterKey::from_bytes([5; 32]))
}

fn actor<S: EphemeralRendezvousStore>(store: S) -> (StoreActor<S>, Lanes, Arc<Readiness>) {
    let (lanes, ends) = lanes();
    let readiness = Arc::new(Readiness::new());
    readiness.set(ReadyState::Ready);
    let stopwatch = Stopwatch::new();
    let actor =
        StoreActor::new(store, Vec::new(), ends, BootClock::start(), stopwatch, Arc::clone(&readiness));
    (actor, lanes, readiness)
}

fn registration() -> Transition {
    let description = ListingDescription::new(&DescriptionParts {
        protocol: "game/1".to_owned(),
        name: "a session".to_owned(),
        visibility: Visibility::Public,
        player_capacity: 8,
        attributes: Vec::new(),
        slot: None,
    })
    .unwrap();
    Transition::RegisterListing(Box::new(RegisterListing {
        caller: Caller { tenant: TenantId(1), principal: PrincipalId(1), operator: false },
        quotas: Quotas { listings_per_owner: 8, listings_per_tenant: 8, attempts_per_tenant: 8 },
        idempotency: IdempotencyKey { key: [1; 16], fingerprint: [1; 16] },
        description,
        lease: Duration::from_secs(60),
    }))
}

fn counted(report: &StoreReport, kind: TransitionKind, outcome: OutcomeKind) -> u64 {
    report.transitions[kind.index()].1.get(outcome)
}

/// "Cancellation is checked again after acquiring the lock. A cancellation observed makes no change": here the store
/// thread's turn is the lock.
#[test]
fn an_asker_that_left_before_its_turn_changes_nothing() {
    let (mut actor, lanes, _) = actor(store());
    let before = format!("{:?}", actor.store.stats());
    let (reply, asker) = oneshot::channel();
    lanes.http.try_send(Order::Apply(Box::new(registration()), reply, None)).unwrap();
    drop(asker);
    assert!(actor.round());
    assert_eq!(format!("{:?}", actor.store.stats()), before);
    let report = actor.report();
    assert_eq!(counted(&report, TransitionKind::RegisterListing, OutcomeKind::Abandoned), 1);
    assert_eq!(counted(&report, TransitionKind::RegisterListing, OutcomeKind::Applied), 0);
}

/// "Once a synchronous transition starts, it completes atomically": its result is there for whoever asks again.
#[test]
fn what_was_begun_is_done_though_nobody_waits() {
    let (reply, asker) = oneshot::channel();
    let asker = Rc::new(RefCell::new(Some(asker)));
    let (mut actor, lanes, _) = actor(Deserted { store: store(), asker: Rc::clone(&asker) });
    lanes.http.try_send(Order::Apply(Box::new(registration()), reply, None)).unwrap();
    assert!(actor.round());
    assert!(asker.borrow().is_none(), "the asker left in the midst of it");
    let (reply, mut again) = oneshot::channel();
    lanes.http.try_send(Order::Apply(Box::new(registration()), reply, None)).unwrap();
    assert!(actor.round());
    let reply = again.try_recv().unwrap();
    assert!(matches!(&reply, Reply::Registered(grant) if grant.replayed), "{reply:?}");
    assert_eq!(counted(&actor.report(), TransitionKind::RegisterListing, OutcomeKind::Applied), 1);
}

/// "Readiness is false while draining": from the step that began it, before its asker has the answer.
#[test]
fn readiness_falls_in_the_step_that_begins_a_drain() {
    let (mut actor, lanes, readiness) = actor(store());
    let (reply, mut asker) = oneshot::channel();
    let drain = Transition::BeginDrain(BeginDrain { window: Duration::from_secs(5) });
    lanes.operator.try_send(Order::Apply(Box::new(drain), reply, None)).unwrap();
    assert_eq!(readiness.get(), ReadyState::Ready);
    assert!(actor.round());
    assert_eq!(readiness.get(), ReadyState::Draining);
    assert!(matches!(asker.try_recv(), Ok(Reply::Drain(DrainView::Draining { .. }))));
}

/// "Drain, revoke, health: never starved by the others": what an operator asks is done before all that waits.
#[test]
fn operators_come_first() {
    let (mut actor, lanes, _) = actor(store());
    let (reply, mut registered) = oneshot::channel();
    lanes.http.try_send(Order::Apply(Box::new(registration()), reply, None)).unwrap();
    let (reply, _drained) = oneshot::channel();
    let drain = Transition::BeginDrain(BeginDrain { window: Duration::from_secs(5) });
    lanes.operator.try_send(Order::Apply(Box::new(drain), reply, None)).unwrap();
    assert!(actor.round());
    let refused = registered.try_recv().unwrap();
    assert_eq!(refused.kind(), OutcomeKind::Draining, "{refused:?}");
}
