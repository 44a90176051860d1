//! Boxes between a ring and the store: none is lost, none comes twice, each reply finds its datagram, and a datagram is
//! refused exactly when every box is out.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rendezvous_core::handler::{Handler, HandlerOptions};
use rendezvous_net::{
    Engine, EngineCounters, EngineKind, Meta, Outbox, SocketOptions, bind, open, wake_pair as eventfd,
};
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::limits::BATCH_LEN_MAX;
use rendezvous_shared::outcome::DatagramOutcome;
use rendezvous_shared::store::{PresenceGrant, Reply, Transition};
use shuttle::sync::{Condvar, Mutex};

use crate::clock::{BootClock, Stopwatch};
use crate::kit::{Door, Scripted, StoreThread, Watched, explore};
use crate::mailbox::{StoreMailbox, mailbox};
use crate::peers::{Client, INSTANCE, mark, master};
use crate::ring::{Ring, RingControl, RingReport, engine_options, ring_orders};
use crate::sync::{Bell, Waker, oneshot, wake_pair};

/// The fewest there may be: every other box is the last one.
const BOXES: usize = 2;

/// A real engine on a real socket that sleeps where the scheduler sees it.
struct SteppedEngine {
    engine: Box<dyn Engine>,
    bell: Arc<Bell>,
    progress: Arc<Progress>,
}

/// What an engine has done, for those who wait for it without waking its thread.
#[derive(Default)]
struct Progress {
    /// Handed over to the ring, and sent.
    counts: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Progress {
    fn note(&self, counters: &EngineCounters) {
        *self.counts.lock().unwrap() = (counters.received, counters.sent);
        self.changed.notify_all();
    }

    fn wait_until(&self, enough: impl Fn((u64, u64)) -> bool) {
        let mut counts = self.counts.lock().unwrap();
        while !enough(*counts) {
            counts = self.changed.wait(counts).unwrap();
        }
    }
}

impl Engine for SteppedEngine {
    fn kind(&self) -> EngineKind {
        self.engine.kind()
    }

    fn local_addr(&self) -> SocketAddr {
        self.engine.local_addr()
    }

    fn outbox(&mut self) -> &mut Outbox {
        self.engine.outbox()
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.engine.turn(Some(Duration::ZERO))?;
        self.progress.note(self.engine.counters());
        if timeout != Some(Duration::ZERO) {
            self.bell.sleep(self.engine.counters().received);
            self.engine.turn(Some(Duration::ZERO))?;
        }
        Ok(())
    }

    fn receive(&mut self, max: usize, sink: &mut dyn FnMut(Meta, &[u8], &mut Outbox)) -> usize {
        let received = self.engine.receive(max, sink);
        self.progress.note(self.engine.counters());
        received
    }

    fn counters(&self) -> &EngineCounters {
        self.engine.counters()
    }
}

/// A ring thread at work, and the ways to it.
struct RingThread {
    server: SocketAddr,
    bell: Arc<Bell>,
    progress: Arc<Progress>,
    control: RingControl,
    waker: Waker,
    thread: shuttle::thread::JoinHandle<()>,
}

impl RingThread {
    fn start() -> (Self, StoreMailbox) {
        let socket = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
        let server = socket.local_addr();
        let (gate, waker, bell) = wake_pair();
        let (ring_end, store_end) = mailbox(BOXES, waker.clone());
        let (control, orders) = ring_orders();
        let progress = Arc::new(Progress::default());
        let (own_bell, own_progress) = (Arc::clone(&bell), Arc::clone(&progress));
        let thread = shuttle::thread::spawn(move || {
            let (unused, _) = eventfd().unwrap();
            let engine = open(EngineKind::Mmsg, socket, &unused, engine_options()).unwrap();
            let engine = Box::new(SteppedEngine { engine, bell: own_bell, progress: own_progress });
            let options = HandlerOptions {
                unproved_per_second: 1,
                keys_max: 64,
                ..HandlerOptions::new(INSTANCE, server, AddressPolicy::Test)
            };
            let handler = Handler::new(options, master());
            let clock = BootClock::start();
            Ring::new(engine, gate, orders, handler, ring_end, clock, Stopwatch::new()).run().unwrap();
        });
        (Self { server, bell, progress, control, waker, thread }, store_end)
    }

    fn client(&self, number: u64) -> Client {
        Client::new(number, self.server, Arc::clone(&self.bell))
    }

    fn report(&self) -> Box<RingReport> {
        let (reply, report) = oneshot::channel();
        assert!(self.control.report_requests.try_send((RingReport::empty(), reply)).is_ok());
        self.waker.wake();
        shuttle::future::block_on(report).expect("a ring that lives")
    }

    fn stop(self) {
        self.control.stop.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.join().expect("a ring that ends well");
    }
}

/// Says to each PRESENCE what no other is told.
fn marking() -> Watched<Scripted<impl FnMut(&Transition) -> Reply>> {
    Watched::new(Scripted::new(|transition: &Transition| {
        let Transition::RefreshPresence(request) = transition else { panic!("{transition:?}") };
        Reply::Presence(PresenceGrant {
            lease_remaining: mark(request.proof.key_id, request.proof.sequence),
            presence_remaining: Duration::ZERO,
            draining: false,
            pending: None,
        })
    }))
}

fn expected(range: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn every_datagram_ends_once_with_its_own_answer() {
    const EACH: u64 = 4;
    explore(|| {
        let (ring, store_end) = RingThread::start();
        let store = StoreThread::start(marking(), vec![store_end]);
        let clients = [1, 2].map(|number| Arc::new(ring.client(number)));
        let senders = clients.clone().map(|client| {
            shuttle::thread::spawn(move || (1..=EACH).for_each(|sequence| client.send(sequence)))
        });
        // Nobody wakes the ring here: only the store does, once a box is back. Were one wake or one box lost, or the
        // last box kept for ever, this would never end.
        ring.progress.wait_until(|(_, sent)| sent == 2 * EACH);
        senders.into_iter().for_each(|it| it.join().unwrap());
        for client in &clients {
            let mut answered = client.answered();
            answered.sort_unstable();
            assert_eq!(answered, expected(1..=EACH), "each once");
        }
        let report = ring.report();
        assert_eq!((report.received, report.in_flight), (2 * EACH, 0));
        assert_eq!(report.outcomes.get(DatagramOutcome::PresenceAccepted), 2 * EACH);
        assert_eq!(report.outcomes.total(), 2 * EACH);
        ring.stop();
        store.stop();
    });
}

#[test]
fn a_datagram_is_refused_exactly_when_every_box_is_out() {
    // More than a whole box, whatever the first one held when it went.
    const DATAGRAMS: u64 = 2 * BATCH_LEN_MAX as u64 + 4;
    explore(|| {
        let (ring, store_end) = RingThread::start();
        let marking = marking();
        let (door, log): (Arc<Door>, _) = (Arc::clone(&marking.door), Arc::clone(&marking.log));
        door.shut();
        let store = StoreThread::start(marking, vec![store_end]);
        let client = Arc::new(ring.client(1));
        let sender = {
            let client = Arc::clone(&client);
            shuttle::thread::spawn(move || (1..=DATAGRAMS).for_each(|sequence| client.send(sequence)))
        };
        // The store is held up in the first batch, or about to be.
        ring.progress.wait_until(|(received, _)| received == DATAGRAMS);
        let stalled = ring.report();
        let busy = stalled.outcomes.get(DatagramOutcome::StoreBusy);
        assert_eq!(stalled.in_flight + busy, DATAGRAMS);
        door.wait_for_somebody();
        let first = log.lock().unwrap().len() as u64;
        let room = first + BATCH_LEN_MAX as u64;
        assert_eq!(busy, DATAGRAMS.saturating_sub(room), "the first box held {first}");
        // All boxes were out; they go on as before.
        door.open();
        ring.progress.wait_until(|(_, sent)| sent == DATAGRAMS - busy);
        client.send(DATAGRAMS + 1);
        ring.progress.wait_until(|(_, sent)| sent == DATAGRAMS - busy + 1);
        sender.join().unwrap();
        let mut answered = client.answered();
        answered.sort_unstable();
        assert_eq!(answered.pop(), Some(DATAGRAMS + 1));
        assert_eq!(answered, expected(1..=DATAGRAMS - busy), "the first to come were served, each once");
        let report = ring.report();
        assert_eq!((report.in_flight, report.outcomes.total()), (0, DATAGRAMS + 1));
        ring.stop();
        store.stop();
    });
}
