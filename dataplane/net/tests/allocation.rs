//! Once built and warm, an engine allocates nothing, whatever passes through it, but for a library that does and gives
//! all of it back.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is test code")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::UdpSocket;
use std::time::Duration;

use rendezvous_net::{
    Engine, EngineChoice, EngineKind, EngineOptions, SocketOptions, bind, open, probe, wake_pair,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static RETURNED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator as it is; counting touches a thread-local integer only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is the one asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        RETURNED.set(RETURNED.get() + 1);
        // SAFETY: `pointer` came from `alloc` above, hence from the system, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn round(engine: &mut dyn Engine, peer: &UdpSocket) {
    let mut buffer = [0; 256];
    for _ in 0..20 {
        peer.send(&buffer[..128]).unwrap();
    }
    let mut served = 0;
    for _ in 0..100 {
        engine.turn(Some(Duration::from_millis(20))).unwrap();
        served += engine.receive(64, &mut |meta, bytes, outbox| {
            let _full = outbox.push("127.0.0.1:0".parse().unwrap(), None, |_| 1);
            let _full = outbox.push(meta.source, meta.local, |reply| {
                reply[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            });
        });
        if served == 20 {
            break;
        }
    }
    engine.turn(Some(Duration::ZERO)).unwrap();
    for _ in 0..20 {
        peer.recv(&mut buffer).unwrap();
    }
}

fn piles_nothing_up(kind: EngineKind, address: &str) {
    let options = EngineOptions { buffers: 16, ..EngineOptions::default() };
    let (gate, waker) = wake_pair().unwrap();
    let socket = bind(address.parse().unwrap(), SocketOptions::default()).unwrap();
    let mut engine = open(kind, socket, &gate, options).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.connect(("127.0.0.1", engine.local_addr().port())).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    round(engine.as_mut(), &peer);
    let (before, returned) = (ALLOCATIONS.get(), RETURNED.get());
    for _ in 0..50 {
        let sleep = gate.prepare_to_sleep();
        waker.wake();
        engine.turn(Some(Duration::from_secs(2))).unwrap();
        sleep.awake();
        round(engine.as_mut(), &peer);
    }
    let allocated = ALLOCATIONS.get() - before;
    if kind == EngineKind::TokioUring {
        println!("{allocated} allocations for {} datagrams", 50 * 20);
        // The library's own, for each operation; what matters is that they do not pile up. What the receives in flight
        // hold is more at one time than at another.
        assert!(RETURNED.get() - returned + 64 > allocated, "{}", RETURNED.get() - returned);
    } else {
        assert_eq!(allocated, 0);
    }
    assert_eq!(engine.counters().sent, 51 * 20);
    assert_eq!(engine.counters().send_errors.total(), 51 * 20);
}

#[test]
fn mmsg_allocates_nothing() {
    piles_nothing_up(EngineKind::Mmsg, "127.0.0.1:0");
    piles_nothing_up(EngineKind::Mmsg, "0.0.0.0:0");
}

#[test]
fn tokio_uring_gives_back_what_it_allocates() {
    if std::env::var_os("RENDEZVOUS_NET_SKIP_URING").is_some() {
        return;
    }
    piles_nothing_up(EngineKind::TokioUring, "127.0.0.1:0");
}

#[test]
fn uring_allocates_nothing() {
    if std::env::var_os("RENDEZVOUS_NET_SKIP_URING").is_some() {
        return;
    }
    assert_eq!(probe(EngineChoice::Uring, EngineOptions::default()).kind, EngineKind::Uring);
    piles_nothing_up(EngineKind::Uring, "127.0.0.1:0");
    piles_nothing_up(EngineKind::Uring, "0.0.0.0:0");
}
