//! Starts every thread, watches over them, and takes them down in order.
//!
//! | thread | does | ends |
//! |---|---|---|
//! | main | starts the others, waits for the first to end | last |
//! | `ring-0` | datagrams | when told to, or when its engine cannot go on |
//! | `store` | every transition | when nobody can reach it any more |
//! | `control` | HTTP, signals, drain | after the drain that a signal began |

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded, never};
use rendezvous_control::boundary::{Readiness, ReadyState};
use rendezvous_control::directory::{ApiKey, Directory};
use rendezvous_control::snapshot::EngineInfo;
use rendezvous_control::{Control, ControlParts, HttpOptions};
use rendezvous_core::handler::{Handler, HandlerOptions};
use rendezvous_core::store::MemoryStore;
use rendezvous_net::{BoundSocket, EngineDecision, WakeGate, Waker, open_decided, wake_pair};
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::{BATCHES_PER_RING, Limits, UNPROVED_ANSWERS_PER_SECOND};
use rendezvous_shared::store::EphemeralRendezvousStore;
use tracing::info;

use crate::banner::Banner;
use crate::clock::{BootClock, Stopwatch};
use crate::config::{Config, ConfigError};
use crate::control_thread::{self, Listeners};
use crate::drain;
use crate::exit::ServeError;
use crate::gateway::{Gateway, NodeTimes};
use crate::ground::{Ground, log_engine, prepare};
use crate::mailbox::{RingMailbox, StoreMailbox, mailbox};
use crate::output::line;
use crate::ring::{Ring, RingControl, RingOrders, engine_options, ring_orders};
use crate::store_thread::{Lanes, StoreActor, lanes};
use crate::systemd::notify;
use crate::telemetry::{NodeTelemetry, SharedTelemetry};
use crate::threads::{Event, note_panics_of, spawn, wait_until_ready, watch};

/// Time for callers to hear `service_unavailable` after a thread died, before the process ends.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What is random or counts for one start of the server; nothing of it outlives the process.
struct Start {
    master: MasterKey,
    instance: InstanceId,
    clock: BootClock,
    stopwatch: Stopwatch,
    readiness: Arc<Readiness>,
}

/// The datagram path at work: how to reach it, and what to join in the end.
struct Dataplane {
    ring: RingControl,
    waker: Waker,
    /// Another handle on the socket, for what the kernel counts.
    socket: BoundSocket,
    lanes: Lanes,
    /// The engine that serves, and why.
    decided: Receiver<EngineDecision>,
    threads: [(&'static str, JoinHandle<()>); 2],
}

/// Serves `config` until a signal ends it. `development_key` is the key of the development tenant, to be printed.
///
/// # Errors
/// When it cannot start, and when a thread that serves ended.
pub fn serve(config: &Config, development_key: Option<&ApiKey>) -> Result<(), ServeError> {
    serve_with(config, development_key, MemoryStore::new)
}

/// As [`serve`], over the store that `new_store` makes; tests hand in one that fails.
///
/// # Errors
/// As [`serve`].
pub fn serve_with<S>(
    config: &Config,
    development_key: Option<&ApiKey>,
    new_store: impl FnOnce(Limits, InstanceId, MasterKey) -> S,
) -> Result<(), ServeError>
where
    S: EphemeralRendezvousStore + Send + 'static,
{
    config.check()?;
    let directory = Directory::new(&config.directory(), &config.limits).map_err(ConfigError::from)?;
    let Ground { http, admin, socket, decision } = prepare(config)?;
    let start = Start::now()?;
    // Not the control thread's: what panics there is a request, which is caught.
    note_panics_of(&["ring-0", "store"], Arc::clone(&start.readiness));
    let (events, ended) = bounded(8);
    let ids = MasterKey::from_bytes(start.master.subkey("store ids", 0));
    let store = new_store(config.limits, start.instance, ids);
    let dataplane = start_dataplane(config, &start, store, socket, decision, &events)?;
    wait_until_ready(&ended)?;
    // Sent before the ring thread said that it serves.
    let decision = dataplane.decided.recv().map_err(|_| ServeError::Thread {
        thread: "ring-0",
        cause: "it did not say which engine it has".into(),
    })?;
    log_engine(&decision);

    let advertised = advertised(config, dataplane.socket.local_addr());
    let engine = EngineInfo { engine: decision.kind.name(), reason: decision.reason.name() };
    let gateway = Arc::new(Gateway::new(dataplane.lanes.clone(), Arc::clone(&start.readiness)));
    let control = control(config, &start, &dataplane, engine, directory, &gateway, &advertised)?;
    let banner = Banner {
        instance: start.instance,
        http: local_addr(&http, config.listen.http),
        admin: local_addr(&admin, config.listen.admin),
        udp: dataplane.socket.local_addr(),
        advertised: &advertised,
        policy: config.address_policy(),
        receive_buffer: dataplane.socket.receive_buffer(),
        decision: &decision,
        limits: &config.limits,
        development_key,
    };
    let (shown, ready) = (Arc::clone(&start.readiness), events.clone());
    let window = Duration::from_millis(config.drain.window_ms);
    let control_thread = spawn("control", &events, move || {
        let announce = || drop(ready.send(Event::Ready));
        control_thread::run(control, gateway, &shown, Listeners { public: http, admin }, window, announce)
    })?;
    wait_until_ready(&ended)?;
    start.readiness.set(ReadyState::Ready);
    // On a thread of its own that nobody waits for: standard output may be a pipe that nobody reads.
    let lines = banner.lines();
    let print = move || lines.iter().for_each(line);
    std::thread::Builder::new()
        .name("banner".into())
        .spawn(print)
        .map_err(ServeError::system("start a thread"))?;
    info!(instance = %start.instance, udp = %dataplane.socket.local_addr(), "serving");
    notify(&[sd_notify::NotifyState::Ready]);

    match watch(&ended, &start.readiness) {
        Ok(()) => take_down(dataplane, control_thread),
        Err(death) => {
            // The control thread goes on answering for a moment; it is not waited for.
            let _ = never::<()>().recv_timeout(LAST_WORDS);
            Err(death)
        }
    }
}

impl Start {
    fn now() -> Result<Self, ServeError> {
        let random = |bytes: &mut [u8]| {
            getrandom::fill(bytes)
                .map_err(|error| ServeError::System { step: "draw random bytes", source: error.into() })
        };
        let (mut master, mut instance) = ([0; 32], [0; 8]);
        random(&mut master)?;
        random(&mut instance)?;
        Ok(Self {
            master: MasterKey::from_bytes(master),
            instance: InstanceId(u64::from_be_bytes(instance)),
            clock: BootClock::start(),
            stopwatch: Stopwatch::new(),
            readiness: Arc::new(Readiness::new()),
        })
    }
}

/// Starts the store thread and the ring thread.
fn start_dataplane<S: EphemeralRendezvousStore + Send + 'static>(
    config: &Config,
    start: &Start,
    store: S,
    socket: BoundSocket,
    decision: EngineDecision,
    events: &Sender<Event>,
) -> Result<Dataplane, ServeError> {
    let (gate, waker) = wake_pair().map_err(ServeError::system("make an eventfd"))?;
    let (ring_mailbox, store_mailbox) = mailbox(BATCHES_PER_RING, waker.clone());
    let (ring, orders) = ring_orders();
    let (lanes, store_thread) = start_store(start, store, store_mailbox, events)?;
    let kept = socket.try_clone().map_err(ServeError::system("keep the UDP socket"))?;
    let options = HandlerOptions {
        instance: start.instance,
        bound: socket.local_addr(),
        policy: config.address_policy(),
        unproved_per_second: UNPROVED_ANSWERS_PER_SECOND,
    };
    let parts = RingParts {
        gate,
        orders,
        handler: Handler::new(options, start.master.clone()),
        mailbox: ring_mailbox,
        clock: start.clock,
        stopwatch: start.stopwatch.clone(),
    };
    let (decide, decided) = bounded(1);
    let ring_thread = start_ring(socket, decision, decide, parts, events)?;
    let threads = [("ring-0", ring_thread), ("store", store_thread)];
    Ok(Dataplane { ring, waker, socket: kept, lanes, decided, threads })
}

fn start_store<S: EphemeralRendezvousStore + Send + 'static>(
    start: &Start,
    store: S,
    mailbox: StoreMailbox,
    events: &Sender<Event>,
) -> Result<(Lanes, JoinHandle<()>), ServeError> {
    let (lanes, lane_ends) = lanes();
    let (stopwatch, readiness) = (start.stopwatch.clone(), Arc::clone(&start.readiness));
    let actor = StoreActor::new(store, vec![mailbox], lane_ends, start.clock, stopwatch, readiness);
    let thread = spawn("store", events, move || {
        actor.run();
        Ok(())
    })?;
    Ok((lanes, thread))
}

/// What the ring thread is made of, apart from its engine.
struct RingParts {
    gate: WakeGate,
    orders: RingOrders,
    handler: Handler,
    mailbox: RingMailbox,
    clock: BootClock,
    stopwatch: Stopwatch,
}

fn start_ring(
    socket: BoundSocket,
    decision: EngineDecision,
    decide: Sender<EngineDecision>,
    parts: RingParts,
    events: &Sender<Event>,
) -> Result<JoinHandle<()>, ServeError> {
    let ready = events.clone();
    spawn("ring-0", events, move || {
        let RingParts { gate, orders, handler, mailbox, clock, stopwatch } = parts;
        let (engine, decision) =
            open_decided(decision, socket, &gate, engine_options()).map_err(|it| chain(&it))?;
        // There is room for the one decision.
        let _ = decide.send(decision);
        let _ = ready.send(Event::Ready);
        Ring::new(engine, gate, orders, handler, mailbox, clock, stopwatch).run().map_err(|it| it.to_string())
    })
}

fn control(
    config: &Config,
    start: &Start,
    dataplane: &Dataplane,
    engine: EngineInfo,
    directory: Directory,
    gateway: &Arc<Gateway>,
    advertised: &[String],
) -> Result<Control, ServeError> {
    let socket = dataplane.socket.try_clone().map_err(ServeError::system("keep the UDP socket"))?;
    let telemetry = NodeTelemetry::new(
        dataplane.ring.clone(),
        dataplane.waker.clone(),
        socket,
        engine,
        dataplane.lanes.clone(),
    );
    let shutdown_grace = drain::grace(Duration::from_millis(config.drain.window_ms));
    Ok(Control::new(ControlParts {
        store: Arc::clone(gateway) as Arc<_>,
        telemetry: Arc::new(SharedTelemetry(telemetry)),
        times: Arc::new(NodeTimes::new(start.clock)),
        readiness: Arc::clone(&start.readiness),
        directory,
        master_key: start.master.clone(),
        instance: start.instance,
        udp_endpoints: advertised.to_vec(),
        version: env!("CARGO_PKG_VERSION"),
        options: HttpOptions { shutdown_grace, ..HttpOptions::new(&config.limits) },
    }))
}

/// What clients are told: what is configured, else what is bound.
fn advertised(config: &Config, bound: SocketAddr) -> Vec<String> {
    let configured = &config.listen.advertise;
    let addresses = if configured.is_empty() { std::slice::from_ref(&bound) } else { configured.as_slice() };
    addresses.iter().map(ToString::to_string).collect()
}

fn local_addr(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}

/// After a drain: the control thread is over, so nobody reaches the store but the ring, which is told to stop.
fn take_down(dataplane: Dataplane, control: JoinHandle<()>) -> Result<(), ServeError> {
    let Dataplane { ring, waker, lanes, threads, .. } = dataplane;
    ring.stop.store(true, Ordering::Release);
    waker.wake();
    drop(lanes);
    for (thread, handle) in std::iter::once(("control", control)).chain(threads) {
        if handle.join().is_err() {
            return Err(ServeError::Thread { thread, cause: "it panicked".into() });
        }
    }
    info!("stopped");
    Ok(())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
