//! Starts every thread, watches over them, and takes them down in order.
//!
//! | thread | does | ends |
//! |---|---|---|
//! | main | starts the others, waits for the first to end | last |
//! | `ring-0`, `ring-1`, … | datagrams | when told to, or when its engine cannot go on |
//! | `ring-probe` | HELLOs to the probe port, if there is one | likewise |
//! | `hearing` | asks whether the sockets hear | when the others are told to |
//! | `store` | every transition | when nobody can reach it any more |
//! | `control` | HTTP, signals, drain | after the drain that a signal began |

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Sender, bounded, never};
use rendezvous_control::boundary::{Readiness, ReadyState};
use rendezvous_control::directory::{ApiKey, Directory};
use rendezvous_control::snapshot::EngineInfo;
use rendezvous_control::{Control, ControlParts, HttpOptions};
use rendezvous_core::store::MemoryStore;
use rendezvous_shared::api::UdpBody;
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::limits::{Limits, RINGS_MAX};
use rendezvous_shared::store::EphemeralRendezvousStore;
use tracing::info;

use crate::banner::Banner;
use crate::clock::{BootClock, Stopwatch};
use crate::config::{Config, ConfigError};
use crate::control_thread::{self, Listeners};
use crate::dataplane::{self, Dataplane};
use crate::drain;
use crate::exit::ServeError;
use crate::gateway::{Gateway, NodeTimes};
use crate::ground::{Ground, log_engine, prepare};
use crate::hearing::{Hearing, Listener};
use crate::output::line;
use crate::systemd::notify;
use crate::telemetry::{NodeTelemetry, SharedTelemetry};
use crate::threads::{Event, note_panics_of, spawn, wait_until_ready, watch};

/// Time for callers to hear `service_unavailable` after a thread died, before the process ends.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What is random or counts for one start of the server; nothing of it outlives the process.
pub(crate) struct Start {
    pub(crate) master: MasterKey,
    pub(crate) instance: InstanceId,
    pub(crate) clock: BootClock,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) readiness: Arc<Readiness>,
    /// By which a ring knows the server's own questions.
    pub(crate) probe_token: [u8; 32],
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
    let Ground { http, admin, sockets, decision } = prepare(config)?;
    let start = Start::now()?;
    // Not the control thread's: what panics there is a request, which is caught.
    note_panics_of(|thread| thread == "store" || thread.starts_with("ring-"), Arc::clone(&start.readiness));
    // Each thread has two things to tell: that it serves, and that it ended.
    let (events, ended) = bounded(2 * (RINGS_MAX + 3));
    let ids = MasterKey::from_bytes(start.master.subkey("store ids", 0));
    let store = new_store(config.limits, start.instance, ids);
    let dataplane = dataplane::start(config, &start, store, sockets, decision, &events)?;
    dataplane.rings.iter().try_for_each(|_| wait_until_ready(&ended))?;
    let decision = dataplane.decision()?;
    log_engine(&decision);

    let udp = advertised(config, &dataplane);
    let engine = EngineInfo { engine: decision.kind.name(), reason: decision.reason.name() };
    let gateway = Arc::new(Gateway::new(dataplane.lanes.clone(), Arc::clone(&start.readiness)));
    let hearing = Arc::new(Hearing::default());
    let telemetry =
        NodeTelemetry::new(dataplane.rings.clone(), engine, Arc::clone(&hearing), dataplane.lanes.clone());
    let control = control(config, &start, telemetry, directory, &gateway, &udp);
    let banner = Banner {
        instance: start.instance,
        http: local_addr(&http, config.listen.http),
        admin: local_addr(&admin, config.listen.admin),
        udp: dataplane.bound(),
        rings: config.dataplane.threads,
        advertised: &udp,
        policy: config.address_policy(),
        receive_buffer: dataplane.rings[0].socket.receive_buffer(),
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
    let listener = start_listener(config, &start, &dataplane, hearing, &events)?;
    // On a thread of its own that nobody waits for: standard output may be a pipe that nobody reads.
    let lines = banner.lines();
    let print = move || lines.iter().for_each(line);
    std::thread::Builder::new()
        .name("banner".into())
        .spawn(print)
        .map_err(ServeError::system("start a thread"))?;
    info!(instance = %start.instance, udp = %dataplane.bound(), "serving");
    notify(&[sd_notify::NotifyState::Ready]);

    match watch(&ended, &start.readiness) {
        Ok(()) => {
            drop(listener);
            take_down(dataplane, control_thread)
        }
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
        let (mut master, mut instance, mut probe_token) = ([0; 32], [0; 8], [0; 32]);
        random(&mut master)?;
        random(&mut instance)?;
        random(&mut probe_token)?;
        Ok(Self {
            master: MasterKey::from_bytes(master),
            instance: InstanceId(u64::from_be_bytes(instance)),
            clock: BootClock::start(),
            stopwatch: Stopwatch::new(),
            readiness: Arc::new(Readiness::new()),
            probe_token,
        })
    }
}

fn control(
    config: &Config,
    start: &Start,
    telemetry: Arc<NodeTelemetry>,
    directory: Directory,
    gateway: &Arc<Gateway>,
    udp: &UdpBody,
) -> Control {
    let shutdown_grace = drain::grace(Duration::from_millis(config.drain.window_ms));
    Control::new(ControlParts {
        store: Arc::clone(gateway) as Arc<_>,
        telemetry: Arc::new(SharedTelemetry(telemetry)),
        times: Arc::new(NodeTimes::new(start.clock)),
        readiness: Arc::clone(&start.readiness),
        directory,
        master_key: start.master.clone(),
        instance: start.instance,
        udp: udp.clone(),
        version: env!("CARGO_PKG_VERSION"),
        options: HttpOptions { shutdown_grace, ..HttpOptions::new(&config.limits) },
    })
}

/// Starts the thread that asks whether the sockets hear; it ends when what is returned is dropped.
fn start_listener(
    config: &Config,
    start: &Start,
    dataplane: &Dataplane,
    hearing: Arc<Hearing>,
    events: &Sender<Event>,
) -> Result<Option<Sender<()>>, ServeError> {
    let period = Duration::from_millis(config.dataplane.self_probe_ms);
    if period.is_zero() {
        return Ok(None);
    }
    let listener = Listener {
        token: start.probe_token,
        period,
        hearing,
        readiness: Arc::clone(&start.readiness),
        store_beat: Arc::clone(&dataplane.store_beat),
    };
    let (stop, stopped) = bounded(0);
    let rings = dataplane.rings.clone();
    spawn("hearing", events, move || {
        listener.run(&rings, &stopped);
        // Nobody waits for it, and its end is not the end of anything.
        Ok(())
    })?;
    Ok(Some(stop))
}

/// What clients are told: what is configured, else what is bound; and the same with the probe port.
fn advertised(config: &Config, dataplane: &Dataplane) -> UdpBody {
    let configured = &config.listen.advertise;
    let bound = [dataplane.bound()];
    let addresses = if configured.is_empty() { bound.as_slice() } else { configured.as_slice() };
    let probe = dataplane.probe_port();
    let with_probe = |it: &SocketAddr| probe.map(|port| SocketAddr::new(it.ip(), port).to_string());
    UdpBody {
        endpoints: addresses.iter().map(ToString::to_string).collect(),
        probe_endpoints: addresses.iter().filter_map(with_probe).collect(),
    }
}

fn local_addr(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}

/// After a drain: the control thread is over, so nobody reaches the store but the rings, which are told to stop.
fn take_down(dataplane: Dataplane, control: JoinHandle<()>) -> Result<(), ServeError> {
    for (thread, handle) in std::iter::once(("control", control)).chain(dataplane.stop()) {
        if handle.join().is_err() {
            return Err(ServeError::Thread { thread, cause: "it panicked".into() });
        }
    }
    info!("stopped");
    Ok(())
}
