//! The store thread panics: nobody is given a reply that no store gave, `/readyz` says so at once, and the process ends
//! with code 70 within a second.
//!
//! The process is this test's own binary, started once more to serve over a store that panics when it is asked to
//! register a listing of a certain name. So the product needs no switch to fail by.
#![cfg(test)]

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use rendezvous_control::boundary::{Lane, Readiness, ReadyState, StoreGateway};
use rendezvous_control::directory::ApiKey;
use rendezvous_core::store::MemoryStore;
use rendezvous_net::wake_pair;
use rendezvous_node::clock::{BootClock, Stopwatch};
use rendezvous_node::config::Config;
use rendezvous_node::gateway::Gateway;
use rendezvous_node::mailbox::mailbox;
use rendezvous_node::serve::serve_with;
use rendezvous_node::store_thread::{StoreActor, lanes};
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::{InstanceId, PrincipalId, TenantId};
use rendezvous_shared::limits::{self, HTTP_LANE_MAX, Limits};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    Caller, DescriptionParts, EphemeralRendezvousStore, IdempotencyKey, ListingDescription, Quotas,
    RegisterListing, Reply, StoreStats, Transition, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_testkit::clock::Deadline;
use rendezvous_testkit::http;
use rendezvous_testkit::process::Running;
use rendezvous_testkit::server::{KEY, Server, call};

/// Without it the child's test does nothing.
const CHILD: &str = "RENDEZVOUS_TEST_CHILD";
/// The name that no store survives.
const FATAL: &str = "fatal";
const SOON: Duration = Duration::from_secs(20);

/// A real store until it is asked for something fatal.
struct Mortal {
    store: MemoryStore,
    /// Something to do before it panics.
    last_words: Box<dyn FnMut() + Send>,
}

impl EphemeralRendezvousStore for Mortal {
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>) {
        let is_fatal =
            |it: &Transition| matches!(it, Transition::RegisterListing(it) if it.description.name() == FATAL);
        if batch.iter().any(is_fatal) {
            (self.last_words)();
            panic!("planted");
        }
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

fn registration(name: &str) -> Transition {
    let parts = DescriptionParts {
        protocol: "p".into(),
        name: name.into(),
        visibility: Visibility::Public,
        player_capacity: 2,
        attributes: Vec::new(),
        slot: None,
    };
    Transition::RegisterListing(Box::new(RegisterListing {
        caller: Caller { tenant: TenantId(1), principal: PrincipalId(1), operator: false },
        quotas: Quotas { listings_per_owner: 100, listings_per_tenant: 100, attempts_per_tenant: 100 },
        idempotency: IdempotencyKey { key: [0; 16], fingerprint: [0; 16] },
        description: ListingDescription::new(&parts).unwrap(),
        lease: limits::LEASE_MAX,
    }))
}

/// A gateway, a ring's mailbox and a store between them, on threads. The store panics in a transition of HTTP or in a
/// batch of the ring while both lanes are full, further callers wait for a place, and a batch waits for its turn.
fn a_store_dies_with_everybody_waiting(in_a_batch: bool) {
    let (entered, has_entered) = sync_channel(1);
    let (release, released) = sync_channel(1);
    let last_words = Box::new(move || {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    let store = MemoryStore::new(Limits::DEFAULT, InstanceId(1), MasterKey::from_bytes([1; 32]));
    let (_gate, waker) = wake_pair().unwrap();
    let (mut ring, store_end) = mailbox(2, waker);
    let (lanes, lane_ends) = lanes();
    let readiness = Arc::new(Readiness::new());
    readiness.set(ReadyState::Ready);
    let gateway = Gateway::new(lanes, Arc::clone(&readiness));
    let actor = StoreActor::new(
        Mortal { store, last_words },
        vec![store_end],
        lane_ends,
        BootClock::start(),
        Stopwatch::new(),
        Arc::clone(&readiness),
    );
    let thread = std::thread::spawn(move || actor.run());
    let mut hand_over = |name| {
        let mut batch = ring.free.pop().unwrap();
        batch.transitions.push(registration(name));
        ring.to_store.try_send(batch).unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut calls = Vec::new();
        let mut call = |lane, name| {
            let mut call = gateway.submit(lane, registration(name));
            assert!((&mut call).now_or_never().is_none());
            calls.push(call);
        };
        if in_a_batch {
            hand_over(FATAL)
        } else {
            call(Lane::Http, FATAL)
        }
        has_entered.recv().unwrap();
        hand_over("waits");
        (0..HTTP_LANE_MAX).for_each(|_| call(Lane::Http, "waits"));
        call(Lane::Operator, "waits");
        // These wait for a place, and may be told that there is none before the panic is through.
        let waiting = [(); 3].map(|()| gateway.submit(Lane::Http, registration("waits")));
        release.send(()).unwrap();
        let told = calls.into_iter().map(|call| {
            let readiness = &readiness;
            async move {
                assert_eq!(call.await, Err(Refusal::ServiceUnavailable), "no store gave this reply");
                assert_eq!(readiness.get(), ReadyState::Unavailable, "before anybody is told");
            }
        });
        let (waiting, _) = tokio::join!(join_all(waiting), join_all(told));
        assert_eq!(waiting, [const { Err(Refusal::ServiceUnavailable) }; 3]);
        for lane in [Lane::Http, Lane::Operator] {
            let late = gateway.submit(lane, registration("late")).now_or_never();
            assert_eq!(late, Some(Err(Refusal::ServiceUnavailable)), "refused at once");
        }
    });
    assert!(thread.join().is_err());
    assert!(ring.from_store.try_recv().is_err(), "a batch that no store applied comes back to nobody");
    let kept = ring.free.pop();
    assert!(
        kept.is_none_or(|batch| ring.to_store.try_send(batch).is_err()),
        "the ring is told by its channel"
    );
}

#[test]
fn nobody_is_given_a_reply_that_no_store_gave() {
    a_store_dies_with_everybody_waiting(false);
    a_store_dies_with_everybody_waiting(true);
}

#[test]
#[ignore = "no test of its own: the test below runs it as a process, and judges how that ends"]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut config = Config::default();
    let free = "127.0.0.1:0".parse().unwrap();
    (config.listen.http, config.listen.admin, config.listen.udp) = (free, free, free);
    let key = ApiKey::parse(KEY).unwrap();
    config.add_development_tenant(&key);
    let result = serve_with(&config, Some(&key), |limits, instance, ids| Mortal {
        store: MemoryStore::new(limits, instance, ids),
        last_words: Box::new(|| ()),
    });
    let error = result.expect_err("a store that panicked is no good end");
    std::process::exit(error.exit_code() as i32);
}

/// How long it took, from the request that is fatal.
#[derive(Debug)]
struct Death {
    not_ready: Duration,
    told: Duration,
    ended: Duration,
}

/// A server dies of one registration, and takes its time to print a backtrace.
fn a_server_dies() -> Death {
    let binary = std::env::current_exe().unwrap();
    let mut command = Command::new(&binary);
    command.args(["--ignored", "--exact", "the_child", "--nocapture"]);
    command.env(CHILD, "1").env("RUST_BACKTRACE", "1").env_remove("RUST_LOG");
    let mut server = Server::watch(Running::spawn("server", &mut command), &binary);
    let http = server.http;
    let register = move |key: &str, name: &str| {
        let body = format!(r#"{{"protocol": "p", "name": "{name}", "player_capacity": 2}}"#);
        call(http, "POST", "/v1/listings", &[&format!("Idempotency-Key: {key}")], &body)
    };
    let ready = || http::request(http, "GET", "/readyz", &[], "").unwrap().status;
    assert_eq!((register("a", "lives").status, ready()), (201, 200));
    let end = Deadline::after(SOON);
    let asking = std::thread::spawn(move || (register("b", FATAL), SOON - end.remaining()));
    while ready() != 503 {}
    let not_ready = SOON - end.remaining();
    let (refused, told) = asking.join().unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("\"service_unavailable\""), "{refused:?}");
    assert_eq!(ready(), 503, "and it stays so");
    let (status, lines) = server.process.wait(SOON);
    assert_eq!(status.code(), Some(70), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("planted")), "{lines:#?}");
    Death { not_ready, told, ended: SOON - end.remaining() }
}

#[test]
fn readiness_is_false_within_100_ms_and_the_process_ends_with_code_70_within_a_second() {
    // A test machine may stall for longer than what is promised; it does not do so three times in a row.
    let deaths: Vec<_> = (0..3).map(|_| a_server_dies()).collect();
    println!("{deaths:#?}");
    assert!(deaths.iter().all(|it| it.told < it.ended), "nobody was cut off: {deaths:?}");
    assert!(deaths.iter().any(|it| it.not_ready < Duration::from_millis(100)), "{deaths:?}");
    assert!(deaths.iter().any(|it| it.ended < Duration::from_secs(1)), "{deaths:?}");
}
