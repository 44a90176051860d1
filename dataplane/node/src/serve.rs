//! Starts every thread, watches over them, and takes them down in order.
//!
//! | thread | does | ends |
//! |---|---|---|
//! | main | starts the others, waits for the first to end | last |
//! | `ring-0` | datagrams | when told to, or when its engine cannot go on |
//! | `store` | every transition | when nobody can reach it any more |
//! | `control` | HTTP, signals, drain | after the drain that a signal began |

use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use rendezvous_control::boundary::{Readiness, ReadyState};
use rendezvous_control::directory::{ApiKey, Directory};
use rendezvous_control::snapshot::EngineInfo;
use rendezvous_control::{Control, ControlParts, HttpOptions};
use rendezvous_core::handler::{Handler, HandlerOptions};
use rendezvous_core::store::MemoryStore;
use rendezvous_net::{
    BindError, BoundSocket, EngineDecision, EngineOptions, SocketOptions, WakeGate, Waker, bind, open, probe,
    wake_pair,
};
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::UNPROVED_ANSWERS_PER_SECOND;
use tracing::{error, info, warn};

use crate::banner::Banner;
use crate::clock::{BootClock, Stopwatch};
use crate::config::{Config, ConfigError};
use crate::control_thread::{self, Listeners};
use crate::exit::ServeError;
use crate::gateway::{Gateway, NodeTimes};
use crate::mailbox::{RingMailbox, mailbox};
use crate::ring::{Ring, RingControl, RingOrders, ring_orders};
use crate::store_thread::{StoreActor, lanes};
use crate::telemetry::{NodeTelemetry, SharedTelemetry};

/// Time for callers to hear `service_unavailable` after a thread died, before the process ends.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// How often, and how far apart, a UDP port in use is tried again: a second in all.
const BIND_TRIES: u32 = 50;
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// What a thread tells the main thread.
enum Event {
    /// The ring's engine is open, or signals are awaited.
    Ready,
    /// A thread ended: well, or with a cause.
    Ended(&'static str, Result<(), String>),
}

/// What is bound and chosen before any thread runs.
struct Ground {
    http: TcpListener,
    admin: TcpListener,
    socket: BoundSocket,
    decision: EngineDecision,
}

/// Serves `config` until a signal ends it. `development_key` is the key of the development tenant, to be printed.
///
/// # Errors
/// When it cannot start, and when a thread that serves ended.
pub fn serve(config: &Config, development_key: Option<&ApiKey>) -> Result<(), ServeError> {
    config.check()?;
    let directory = Directory::new(&config.directory(), &config.limits).map_err(ConfigError::from)?;
    let ground = prepare(config)?;
    let (master, instance) = secrets()?;
    let clock = BootClock::start();
    let stopwatch = Stopwatch::new();
    let readiness = Arc::new(Readiness::new());
    let (events, ended) = bounded(8);
    let advertised = advertised(config, ground.socket.local_addr());

    let (gate, waker) = wake_pair().map_err(ServeError::system("make an eventfd"))?;
    let (ring_mailbox, store_mailbox) = mailbox(waker.clone());
    let (ring_control, orders) = ring_orders();
    let (lanes, lane_ends) = lanes();
    let ids = MasterKey::from_bytes(master.subkey("store ids", 0));
    let store = MemoryStore::new(config.limits, instance, ids);
    let actor = StoreActor::new(
        store,
        vec![store_mailbox],
        lane_ends,
        clock,
        stopwatch.clone(),
        Arc::clone(&readiness),
    );
    let store_thread = spawn("store", &events, move || {
        actor.run();
        Ok(())
    })?;

    let kept = ground.socket.try_clone().map_err(ServeError::system("keep the UDP socket"))?;
    let handler = Handler::new(
        HandlerOptions {
            instance,
            bound: ground.socket.local_addr(),
            policy: config.address_policy(),
            unproved_per_second: UNPROVED_ANSWERS_PER_SECOND,
        },
        master.clone(),
    );
    let parts = RingParts { gate, orders, handler, mailbox: ring_mailbox, clock, stopwatch };
    let ring_thread = spawn_ring(ground.socket, ground.decision.kind, parts, &events)?;
    wait_until_ready(&ended)?;

    let engine = EngineInfo { engine: ground.decision.kind.name(), reason: ground.decision.reason.name() };
    let telemetry = NodeTelemetry::new(
        ring_control.clone(),
        waker.clone(),
        kept.try_clone().map_err(ServeError::system("keep the UDP socket"))?,
        engine,
        lanes.clone(),
    );
    let gateway: Arc<Gateway> = Arc::new(Gateway::new(lanes));
    let control = Control::new(ControlParts {
        store: gateway.clone(),
        telemetry: Arc::new(SharedTelemetry(telemetry)),
        times: Arc::new(NodeTimes::new(clock)),
        readiness: Arc::clone(&readiness),
        directory,
        master_key: master,
        instance,
        udp_endpoints: advertised.clone(),
        version: env!("CARGO_PKG_VERSION"),
        options: HttpOptions { shutdown_grace: control_thread::GRACE, ..HttpOptions::new(&config.limits) },
    });
    let banner = Banner {
        instance,
        http: local_addr(&ground.http, config.listen.http),
        admin: local_addr(&ground.admin, config.listen.admin),
        udp: kept.local_addr(),
        advertised: &advertised,
        policy: config.address_policy(),
        receive_buffer: kept.receive_buffer(),
        decision: &ground.decision,
        limits: &config.limits,
        development_key,
    };
    let listeners = Listeners { public: ground.http, admin: ground.admin };
    let window = Duration::from_millis(config.drain.window_ms);
    let (shown, ready) = (Arc::clone(&readiness), events.clone());
    let control_thread = spawn("control", &events, move || {
        control_thread::run(control, gateway, &shown, listeners, window, || {
            let _ = ready.send(Event::Ready);
        })
    })?;
    wait_until_ready(&ended)?;
    readiness.set(ReadyState::Ready);
    banner.print();
    info!(instance = %instance, udp = %kept.local_addr(), "serving");
    notify(&[sd_notify::NotifyState::Ready]);

    let outcome = watch(&ended, &readiness);
    let threads = [("ring-0", ring_thread), ("store", store_thread), ("control", control_thread)];
    take_down(outcome, &ring_control, &waker, threads)
}

/// Binds and chooses all that can be refused.
fn prepare(config: &Config) -> Result<Ground, ServeError> {
    let listen = |key, address: SocketAddr| {
        let refused = |source| ServeError::Tcp { key, address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok::<_, ServeError>(listener)
    };
    let http = listen("listen.http", config.listen.http)?;
    let admin = listen("listen.admin", config.listen.admin)?;
    let options =
        SocketOptions { receive_buffer_len: config.dataplane.receive_buffer_len, ..SocketOptions::default() };
    let socket = bind_patiently(config.listen.udp, options)?;
    let decision = probe(config.dataplane.engine.into(), EngineOptions::default());
    if !decision.honours_choice() {
        let text = format!("uring: {} ({})", decision.reason.message(), decision.detail);
        return Err(ServeError::EngineRefused(text));
    }
    let (engine, reason) = (decision.kind.name(), decision.reason.name());
    if decision.reason.is_fallback() {
        warn!(engine, reason, detail = decision.detail, "{}", decision.reason.message());
    } else {
        info!(engine, reason, "datagram engine chosen");
    }
    Ok(Ground { http, admin, socket, decision })
}

/// Binds, and waits a moment for a port in use: the kernel takes the io_uring of a killed process apart after the
/// process is gone, and its socket with it, so a server that is started again at once would find its own port taken.
fn bind_patiently(address: SocketAddr, options: SocketOptions) -> Result<BoundSocket, BindError> {
    let mut tries = 0;
    loop {
        match bind(address, options) {
            Err(BindError::AddressInUse { .. }) if tries < BIND_TRIES => {
                tries += 1;
                std::thread::park_timeout(BIND_PAUSE);
            }
            Ok(socket) => {
                if tries > 0 {
                    info!(tries, "the UDP port was in use for a moment");
                }
                return Ok(socket);
            }
            refused => return refused,
        }
    }
}

/// Random for each start, so that nothing of another start is honoured.
fn secrets() -> Result<(MasterKey, InstanceId), ServeError> {
    let random = |bytes: &mut [u8]| {
        getrandom::fill(bytes)
            .map_err(|error| ServeError::System { step: "draw random bytes", source: error.into() })
    };
    let (mut master, mut instance) = ([0; 32], [0; 8]);
    random(&mut master)?;
    random(&mut instance)?;
    Ok((MasterKey::from_bytes(master), InstanceId(u64::from_be_bytes(instance))))
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

/// What the ring thread is made of, apart from its engine.
struct RingParts {
    gate: WakeGate,
    orders: RingOrders,
    handler: Handler,
    mailbox: RingMailbox,
    clock: BootClock,
    stopwatch: Stopwatch,
}

fn spawn_ring(
    socket: BoundSocket,
    kind: rendezvous_net::EngineKind,
    parts: RingParts,
    events: &Sender<Event>,
) -> Result<JoinHandle<()>, ServeError> {
    let ready = events.clone();
    spawn("ring-0", events, move || {
        let RingParts { gate, orders, handler, mailbox, clock, stopwatch } = parts;
        let engine = open(kind, socket, &gate, EngineOptions::default()).map_err(|it| chain(&it))?;
        let _ = ready.send(Event::Ready);
        Ring::new(engine, gate, orders, handler, mailbox, clock, stopwatch).run().map_err(|it| it.to_string())
    })
}

/// Runs `work` on a thread of that name; its end, a panic included, becomes an event.
fn spawn(
    name: &'static str,
    events: &Sender<Event>,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<JoinHandle<()>, ServeError> {
    let events = events.clone();
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("it panicked".into()));
        // The main thread is gone only when the process is.
        let _ = events.send(Event::Ended(name, result));
    };
    std::thread::Builder::new().name(name.into()).spawn(body).map_err(ServeError::system("start a thread"))
}

/// Waits until the thread started last serves; any that ends instead is the error.
fn wait_until_ready(ended: &Receiver<Event>) -> Result<(), ServeError> {
    match ended.recv() {
        Ok(Event::Ready) => Ok(()),
        Ok(Event::Ended(thread, result)) => {
            Err(ServeError::Thread { thread, cause: result.err().unwrap_or_else(|| "at once".into()) })
        }
        Err(_) => Err(ServeError::Thread { thread: "main", cause: "nobody is left to wait for".into() }),
    }
}

/// Waits for the first thread to end. Only the control thread may end well.
fn watch(ended: &Receiver<Event>, readiness: &Readiness) -> Result<(), ServeError> {
    loop {
        let (thread, result) = match ended.recv() {
            Ok(Event::Ready) => continue,
            Ok(Event::Ended(thread, result)) => (thread, result),
            Err(_) => ("main", Err("nobody is left to wait for".into())),
        };
        if thread == "control" && result.is_ok() {
            return Ok(());
        }
        readiness.set(ReadyState::Unavailable);
        let cause = result.err().unwrap_or_else(|| "nobody told it to".into());
        error!(thread, cause, "a thread that serves ended; the process stops");
        return Err(ServeError::Thread { thread, cause });
    }
}

/// After a drain every thread is joined; after a death callers get a moment to hear of it, and the process ends.
fn take_down(
    outcome: Result<(), ServeError>,
    ring: &RingControl,
    waker: &Waker,
    threads: [(&'static str, JoinHandle<()>); 3],
) -> Result<(), ServeError> {
    if outcome.is_err() {
        // The control thread goes on answering meanwhile; it is not waited for.
        let (_sender, never) = bounded::<()>(0);
        let _ = never.recv_timeout(LAST_WORDS);
        return outcome;
    }
    ring.stop.store(true, Ordering::Release);
    waker.wake();
    for (name, thread) in threads {
        if thread.join().is_err() {
            return Err(ServeError::Thread { thread: name, cause: "it panicked".into() });
        }
    }
    info!("stopped");
    Ok(())
}

/// Tells systemd, if it asked to be told.
pub(crate) fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd could not be notified");
    }
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
