//! The datagram path at work: ring threads, the store thread, and what goes between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded};
use rendezvous_core::handler::{Handler, HandlerOptions, SelfProbe};
use rendezvous_net::{BoundSocket, EngineDecision, WakeGate, Waker, open_decided, wake_pair};
use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::limits::{
    BATCHES_PER_RING, KEYS_REMEMBERED_MAX, PROBE_ANSWERS_PER_SECOND, RINGS_MAX, UNPROVED_ANSWERS_PER_SECOND,
};
use rendezvous_shared::store::EphemeralRendezvousStore;

use crate::config::Config;
use crate::exit::ServeError;
use crate::mailbox::{RingMailbox, StoreMailbox, mailbox};
use crate::placement::{Placement, allowed_cpus, pin};
use crate::ring::{Ring, RingControl, RingOrders, engine_options, ring_orders};
use crate::serve::Start;
use crate::spin::Spin;
use crate::store_thread::{Lanes, StoreActor, lanes};
use crate::threads::{Event, spawn};

/// Names of the ring threads; there are at most so many.
pub(crate) const RING_NAMES: [&str; 16] = [
    "ring-0", "ring-1", "ring-2", "ring-3", "ring-4", "ring-5", "ring-6", "ring-7", "ring-8", "ring-9",
    "ring-10", "ring-11", "ring-12", "ring-13", "ring-14", "ring-15",
];
/// Name of the thread that serves the probe port.
pub(crate) const PROBE_NAME: &str = "ring-probe";
/// Boxes of the ring of the probe port, which submits nothing: as few as a mailbox may have.
const PROBE_BATCHES: usize = 2;

const _: () = assert!(RING_NAMES.len() == RINGS_MAX);

/// One ring thread, from outside.
#[derive(Clone)]
pub(crate) struct RingHandle {
    pub(crate) name: &'static str,
    pub(crate) control: RingControl,
    pub(crate) waker: Waker,
    /// Another handle on its socket, for what the kernel counts.
    pub(crate) socket: Arc<BoundSocket>,
}

/// The datagram path at work: how to reach it, and what to join in the end.
pub(crate) struct Dataplane {
    /// Those of the group, then that of the probe port, if there is one.
    pub(crate) rings: Vec<RingHandle>,
    pub(crate) lanes: Lanes,
    /// Goes up with each round of the store thread.
    pub(crate) store_beat: Arc<AtomicU64>,
    /// The engine of each ring, and why; told before the ring says that it serves.
    decided: Receiver<EngineDecision>,
    pub(crate) threads: Vec<(&'static str, JoinHandle<()>)>,
}

/// Sockets that rings are to serve.
pub(crate) struct Sockets {
    /// On one address and port, one for each ring.
    pub(crate) group: Vec<BoundSocket>,
    /// On the probe port.
    pub(crate) probe: Option<BoundSocket>,
}

impl Sockets {
    /// The address and port of the group.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.group[0].local_addr()
    }
}

impl Dataplane {
    /// Where the group is bound.
    pub(crate) fn bound(&self) -> SocketAddr {
        self.rings[0].socket.local_addr()
    }

    /// The engine that serves: of a ring that had to fall back, if there is one.
    pub(crate) fn decision(&self) -> Result<EngineDecision, ServeError> {
        let mut decisions: Vec<_> = self.decided.try_iter().collect();
        decisions.sort_by_key(|it| !it.reason.is_fallback());
        decisions.into_iter().next().ok_or_else(|| ServeError::Thread {
            thread: RING_NAMES[0],
            cause: "it did not say which engine it has".into(),
        })
    }

    /// The probe port, as bound.
    pub(crate) fn probe_port(&self) -> Option<u16> {
        let probe = self.rings.iter().find(|ring| ring.name == PROBE_NAME)?;
        Some(probe.socket.local_addr().port())
    }

    /// Tells every ring to stop and drops what reaches the store; its threads then end.
    pub(crate) fn stop(self) -> Vec<(&'static str, JoinHandle<()>)> {
        for ring in &self.rings {
            ring.control.stop.store(true, Ordering::Release);
            ring.waker.wake();
        }
        self.threads
    }
}

/// Starts the store thread and the ring threads; each ring sends [`Event::Ready`] when it serves.
pub(crate) fn start<S: EphemeralRendezvousStore + Send + 'static>(
    config: &Config,
    start: &Start,
    store: S,
    sockets: Sockets,
    decision: EngineDecision,
    events: &Sender<Event>,
) -> Result<Dataplane, ServeError> {
    let placement = Placement::new(&config.dataplane, &allowed_cpus());
    let handlers = Handlers::new(config, start, &sockets);
    let (mut seeds, mut store_ends) = (Vec::new(), Vec::new());
    for (number, (name, socket)) in RING_NAMES.into_iter().zip(sockets.group).enumerate() {
        let (seed, store_end) = RingSeed::new(name, socket, BATCHES_PER_RING, handlers.of_ring(number))?;
        seeds.push(seed);
        store_ends.push(store_end);
    }
    if let Some(socket) = sockets.probe {
        let handler = handlers.of_probe(socket.local_addr());
        // The other end of its mailbox is dropped: it submits nothing.
        seeds.push(RingSeed::new(PROBE_NAME, socket, PROBE_BATCHES, handler)?.0);
    }
    let (lanes, store_beat, store_thread) = start_store(start, store, store_ends, &placement, events)?;
    let (decide, decided) = bounded(seeds.len());
    let mut dataplane = Dataplane { rings: Vec::new(), lanes, store_beat, decided, threads: Vec::new() };
    for (number, seed) in seeds.into_iter().enumerate() {
        let cpu = placement.rings.get(number).copied().flatten();
        dataplane.rings.push(seed.handle.clone());
        let decisions = (decision.clone(), decide.clone());
        dataplane.threads.push(seed.start(decisions, start, cpu, Spin::new(placement.spin), events)?);
    }
    // Joined last: it ends when nobody can reach it any more.
    dataplane.threads.push(("store", store_thread));
    Ok(dataplane)
}

fn start_store<S: EphemeralRendezvousStore + Send + 'static>(
    start: &Start,
    store: S,
    rings: Vec<StoreMailbox>,
    placement: &Placement,
    events: &Sender<Event>,
) -> Result<(Lanes, Arc<AtomicU64>, JoinHandle<()>), ServeError> {
    let (lanes, lane_ends) = lanes();
    let (stopwatch, readiness) = (start.stopwatch.clone(), Arc::clone(&start.readiness));
    let actor = StoreActor::new(store, rings, lane_ends, start.clock, stopwatch, readiness)
        .with_spin(Spin::new(placement.spin));
    let (cpu, beat) = (placement.store, actor.beat());
    let thread = spawn("store", events, move || {
        pin("store", cpu);
        actor.run();
        Ok(())
    })?;
    Ok((lanes, beat, thread))
}

/// Makes the handlers of all sockets of one server.
struct Handlers {
    common: HandlerOptions,
    master: MasterKey,
    token: [u8; 32],
}

impl Handlers {
    fn new(config: &Config, start: &Start, sockets: &Sockets) -> Self {
        let bound = sockets.local_addr();
        let probe_port = sockets.probe.as_ref().map(|socket| socket.local_addr().port());
        let rings = sockets.group.len() as u32;
        let reserved = probe_port.map_or(0, |_| PROBE_ANSWERS_PER_SECOND);
        let common = HandlerOptions {
            own: own_endpoints(config, bound, probe_port),
            probe_port,
            // All sockets together keep to the one ceiling.
            unproved_per_second: (UNPROVED_ANSWERS_PER_SECOND - reserved) / rings,
            keys_max: (config.limits.listings + config.limits.attempts).min(KEYS_REMEMBERED_MAX),
            ..HandlerOptions::new(start.instance, bound, config.address_policy())
        };
        Self { common, master: start.master.clone(), token: start.probe_token }
    }

    fn of_ring(&self, number: usize) -> Handler {
        let self_probe = Some(SelfProbe::new(self.token, number as u8));
        Handler::new(HandlerOptions { self_probe, ..self.common.clone() }, self.master.clone())
    }

    fn of_probe(&self, bound: SocketAddr) -> Handler {
        let options = HandlerOptions {
            bound,
            hello_only: true,
            unproved_per_second: PROBE_ANSWERS_PER_SECOND,
            self_probe: Some(SelfProbe::new(self.token, u8::MAX)),
            ..self.common.clone()
        };
        Handler::new(options, self.master.clone())
    }
}

/// What a datagram may not come from: where this server can be reached, as far as it knows.
fn own_endpoints(config: &Config, bound: SocketAddr, probe_port: Option<u16>) -> Vec<Endpoint> {
    let mut ips: Vec<_> = config.listen.advertise.iter().map(SocketAddr::ip).collect();
    if bound.ip().is_unspecified() {
        ips.extend(if_addrs::get_if_addrs().into_iter().flatten().map(|it| it.ip()));
    } else {
        ips.push(bound.ip());
    }
    ips.sort();
    ips.dedup();
    let ports = || std::iter::once(bound.port()).chain(probe_port);
    let bound_ports = ips.iter().flat_map(|ip| ports().map(|port| Endpoint::new(*ip, port)));
    // A NAT in front may show another port than what is bound.
    let advertised = config.listen.advertise.iter().map(|it| Endpoint::from(*it));
    bound_ports.chain(advertised).collect()
}

/// What one ring thread starts from; the engine is opened on the thread itself.
struct RingSeed {
    handle: RingHandle,
    gate: WakeGate,
    orders: RingOrders,
    mailbox: RingMailbox,
    handler: Handler,
    socket: BoundSocket,
}

impl RingSeed {
    fn new(
        name: &'static str,
        socket: BoundSocket,
        boxes: usize,
        handler: Handler,
    ) -> Result<(Self, StoreMailbox), ServeError> {
        let (gate, waker) = wake_pair().map_err(ServeError::system("make an eventfd"))?;
        let (mailbox, store_end) = mailbox(boxes, waker.clone());
        let (control, orders) = ring_orders();
        let kept = socket.try_clone().map_err(ServeError::system("keep the UDP socket"))?;
        let handle = RingHandle { name, control, waker, socket: Arc::new(kept) };
        Ok((Self { handle, gate, orders, mailbox, handler, socket }, store_end))
    }

    fn start(
        self,
        (decision, decide): (EngineDecision, Sender<EngineDecision>),
        start: &Start,
        cpu: Option<usize>,
        spin: Spin,
        events: &Sender<Event>,
    ) -> Result<(&'static str, JoinHandle<()>), ServeError> {
        let (clock, stopwatch, ready) = (start.clock, start.stopwatch.clone(), events.clone());
        let name = self.handle.name;
        let thread = spawn(name, events, move || {
            pin(name, cpu);
            let Self { gate, orders, mailbox, handler, socket, .. } = self;
            let (engine, decision) =
                open_decided(decision, socket, &gate, engine_options()).map_err(|it| chain(&it))?;
            // There is room for the decision of each ring.
            let _ = decide.send(decision);
            let _ = ready.send(Event::Ready);
            let ring = Ring::new(engine, gate, orders, handler, mailbox, clock, stopwatch).with_spin(spin);
            ring.run().map_err(|it| it.to_string())
        })?;
        Ok((name, thread))
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
