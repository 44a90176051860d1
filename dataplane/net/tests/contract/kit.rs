//! An engine, a peer, and bounded waits.

use std::net::{SocketAddr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rendezvous_net::{
    BoundSocket, Engine, EngineChoice, EngineCounters, EngineKind, EngineOptions, ErrnoCounts, Meta, Outbox,
    RearmReason, SocketOptions, WakeGate, Waker, bind, open, probe, wake_pair,
};

/// One turn waits so long; so many fruitless ones in a row mean that nothing more comes.
pub(crate) const TURN: Duration = Duration::from_millis(20);
const FRUITLESS_MAX: usize = 100;

const SMALL: EngineOptions =
    EngineOptions { buffers: 256, outbox_slots: 256, submission_entries: 64, completion_entries: 1024 };

/// Each engine, or `None` where it is knowingly left out.
pub(crate) fn uring() -> Option<EngineKind> {
    by_name(EngineChoice::Uring)
}

pub(crate) fn tokio_uring() -> Option<EngineKind> {
    by_name(EngineChoice::TokioUring)
}

pub(crate) fn mmsg() -> Option<EngineKind> {
    Some(EngineKind::Mmsg)
}

fn by_name(choice: EngineChoice) -> Option<EngineKind> {
    if std::env::var_os("RENDEZVOUS_NET_SKIP_URING").is_some() {
        return None;
    }
    let decision = probe(choice, SMALL);
    assert!(decision.honours_choice(), "{}: {}", decision.reason.message(), decision.detail);
    Some(decision.kind)
}

/// Runs a test in its own thread; fails it after 30 s.
pub(crate) fn bounded(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = sync_channel(1);
    let worker = thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match finished.recv_timeout(Duration::from_secs(30)) {
        Err(RecvTimeoutError::Timeout) => panic!("the engine hangs"),
        _ => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// An engine that prints what it counted when it goes.
pub(crate) struct Told(pub(crate) Box<dyn Engine>);

impl Deref for Told {
    type Target = dyn Engine;

    fn deref(&self) -> &(dyn Engine + 'static) {
        self.0.as_ref()
    }
}

impl DerefMut for Told {
    fn deref_mut(&mut self) -> &mut (dyn Engine + 'static) {
        self.0.as_mut()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        print(self.kind().name(), self.counters());
    }
}

/// Prints every counter that is not zero.
pub(crate) fn print(what: &str, counters: &EngineCounters) {
    let numbers = [
        ("received", counters.received),
        ("truncated", counters.received_truncated),
        ("sent", counters.sent),
        ("kernel_drops", counters.kernel_drops),
        ("outbox_full", counters.outbox_full),
        ("wakes", counters.wakes),
        ("enters_refused", counters.enters_refused),
    ];
    let rearms = RearmReason::ALL.map(|reason| (reason.name(), counters.rearms[reason as usize]));
    let numbers = numbers.into_iter().map(|(name, count)| (name.to_owned(), count));
    let numbers = numbers.chain(rearms.map(|(name, count)| (format!("rearms_{name}"), count)));
    let errors = |way: &'static str, counts: ErrnoCounts| {
        counts
            .iter()
            .map(move |(class, count)| (format!("{way}_{}", class.name()), count))
            .collect::<Vec<_>>()
    };
    let all = numbers.chain(errors("send", counters.send_errors));
    let seen = all.chain(errors("receive", counters.receive_errors)).filter(|(_, count)| *count > 0);
    let text: String = seen.map(|(name, count)| format!(" {name}={count}")).collect();
    println!("{what}:{text}");
}

pub(crate) struct World {
    pub(crate) engine: Told,
    pub(crate) gate: WakeGate,
    pub(crate) waker: Waker,
    pub(crate) socket: BoundSocket,
    pub(crate) peer: UdpSocket,
}

impl World {
    /// Engine on `address`, peer on the loopback of its family, both with roomy buffers.
    pub(crate) fn new(kind: EngineKind, address: &str) -> Self {
        Self::with(kind, address, SMALL, SocketOptions::default())
    }

    pub(crate) fn sized(kind: EngineKind, change: impl FnOnce(&mut EngineOptions)) -> Self {
        let mut options = SMALL;
        change(&mut options);
        Self::with(kind, "127.0.0.1:0", options, SocketOptions::default())
    }

    pub(crate) fn with(
        kind: EngineKind,
        address: &str,
        options: EngineOptions,
        socket_options: SocketOptions,
    ) -> Self {
        let socket = bind(address.parse().unwrap(), socket_options).unwrap();
        let (gate, waker) = wake_pair().unwrap();
        let engine = Told(open(kind, socket.try_clone().unwrap(), &gate, options).unwrap());
        assert_eq!(engine.kind(), kind);
        let peer = peer(if engine.local_addr().is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" });
        if !socket.is_wildcard() {
            peer.connect(socket.local_addr()).unwrap();
        }
        Self { engine, gate, waker, socket, peer }
    }

    pub(crate) fn port(&self) -> u16 {
        self.engine.local_addr().port()
    }

    /// Turns until `want` datagrams came or nothing more does; returns how many.
    pub(crate) fn serve(&mut self, want: usize, sink: &mut dyn FnMut(Meta, &[u8], &mut Outbox)) -> usize {
        let (mut served, mut fruitless) = (0, 0);
        while served < want && fruitless < FRUITLESS_MAX {
            self.engine.turn(Some(TURN)).unwrap();
            let handed = self.engine.receive(64, sink);
            served += handed;
            fruitless = if handed == 0 { fruitless + 1 } else { 0 };
        }
        served
    }

    /// Serves one datagram and gives what came.
    pub(crate) fn one(&mut self) -> (Meta, Vec<u8>) {
        let mut got = Vec::new();
        self.serve(1, &mut |meta, bytes, _| got.push((meta, bytes.to_vec())));
        assert_eq!(got.len(), 1, "one datagram was sent");
        got.remove(0)
    }

    /// Echoes `want` datagrams, at most 160 bytes of each, and flushes.
    pub(crate) fn echo(&mut self, want: usize) -> Vec<Meta> {
        let mut metas = Vec::new();
        let served = self.serve(want, &mut |meta, bytes, outbox| {
            metas.push(meta);
            reply(outbox, meta, &bytes[..bytes.len().min(160)]);
        });
        assert_eq!(served, want, "datagrams lost");
        self.flush();
        metas
    }

    pub(crate) fn flush(&mut self) {
        self.engine.turn(Some(Duration::ZERO)).unwrap();
        assert!(self.engine.outbox().is_empty());
    }
}

pub(crate) fn reply(outbox: &mut Outbox, to: Meta, bytes: &[u8]) {
    outbox
        .push(to.source, to.local, |slot| {
            slot[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        })
        .unwrap();
}

pub(crate) fn peer(address: &str) -> UdpSocket {
    let peer = UdpSocket::bind(address).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    peer
}

pub(crate) fn peer_to(target: &str, port: u16) -> UdpSocket {
    let target = SocketAddr::new(target.parse().unwrap(), port);
    let peer = peer(if target.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" });
    // Connected, so that it hears nothing from any other address.
    peer.connect(target).unwrap();
    peer
}

pub(crate) fn heard(peer: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let len = peer.recv(&mut buffer).expect("the peer waits for a reply");
    buffer[..len].to_vec()
}

pub(crate) fn hears_nothing(peer: &UdpSocket) {
    peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(peer.recv(&mut [0; 2048]).is_err(), "an unexpected datagram");
}
