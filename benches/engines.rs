//! What does a datagram there and back cost each engine? The floor is recvmmsg and sendmmsg, which stand in the first
//! row and, as a measure of the noise, in the second.
//!
//! All echo servers live at once on one core, and one generator on another drives them in turn, in slices of 50 ms. The
//! time of a server's thread in a slice is divided by that of the first row's in the same cycle, so what slows the machine
//! for longer than a cycle slows both. Once with 256 datagrams outstanding, once with 20,000 a second.
//!
//! What it cannot show: an interface of a network, latency, more than one ring.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a benchmark prints, and has nobody to report an error to"
)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use rendezvous_net::{EngineKind, EngineOptions, SocketOptions, bind, open, wake_pair};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

const CYCLES: usize = 30;
const SLICE: Duration = Duration::from_millis(50);
const OUTSTANDING: usize = 256;
const GAP: Duration = Duration::from_micros(50);
const REQUEST: [u8; 64] = [7; 64];

struct Server {
    name: &'static str,
    address: SocketAddr,
    thread: i32,
    /// Nanoseconds a datagram, of each cycle.
    costs: Vec<f64>,
}

fn main() {
    let engines = [
        ("mmsg", EngineKind::Mmsg),
        ("mmsg again", EngineKind::Mmsg),
        ("uring", EngineKind::Uring),
        ("tokio-uring", EngineKind::TokioUring),
    ];
    let mut servers: Vec<Server> = engines.into_iter().map(|(name, kind)| start(name, kind)).collect();
    pin(0);
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    for (what, slice) in
        [("256 outstanding", saturated as fn(&UdpSocket, SocketAddr) -> u64), ("20,000 a second", paced)]
    {
        for cycle in 0..=CYCLES {
            for server in &mut servers {
                let before = cpu_ns(server.thread);
                let served = slice(&peer, server.address);
                let spent = cpu_ns(server.thread) - before;
                // The first warms up.
                if cycle > 0 && served > 0 {
                    server.costs.push(spent as f64 / served as f64);
                }
            }
        }
        print(what, &mut servers);
    }
}

/// An echo server on the second core, for as long as the process lives.
fn start(name: &'static str, kind: EngineKind) -> Server {
    let (started, wait) = sync_channel(1);
    thread::spawn(move || {
        pin(1);
        let socket = bind("127.0.0.1:0".parse().expect("an address"), SocketOptions::default());
        let (gate, _waker) = wake_pair().expect("an eventfd");
        let mut engine =
            open(kind, socket.expect("a socket"), &gate, EngineOptions::default()).expect("the engine works");
        started.send((engine.local_addr(), gettid().as_raw_nonzero().get())).expect("main waits");
        loop {
            engine.turn(None).expect("the engine goes on");
            engine.receive(64, &mut |meta, bytes, outbox| {
                let _full = outbox.push(meta.source, meta.local, |reply| {
                    reply[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                });
            });
        }
    });
    let (address, thread) = wait.recv().expect("the server starts");
    Server { name, address, thread, costs: Vec::new() }
}

fn saturated(peer: &UdpSocket, to: SocketAddr) -> u64 {
    let (started, mut served, mut outstanding) = (Instant::now(), 0, 0);
    let mut hear = |outstanding: &mut usize| match peer.recv(&mut [0; 256]) {
        Ok(_) => {
            served += 1;
            *outstanding -= 1;
        }
        // Lost, all of them.
        Err(_) => *outstanding = 0,
    };
    while started.elapsed() < SLICE {
        while outstanding < OUTSTANDING {
            outstanding += usize::from(peer.send_to(&REQUEST, to).is_ok());
        }
        while outstanding > OUTSTANDING - 64 {
            hear(&mut outstanding);
        }
    }
    while outstanding > 0 {
        hear(&mut outstanding);
    }
    served
}

fn paced(peer: &UdpSocket, to: SocketAddr) -> u64 {
    let (started, mut sent, mut served) = (Instant::now(), 0, 0);
    peer.set_nonblocking(true).expect("a mode");
    while started.elapsed() < SLICE {
        if started.elapsed() >= GAP * sent {
            let _ = peer.send_to(&REQUEST, to);
            sent += 1;
        }
        served += u64::from(peer.recv(&mut [0; 256]).is_ok());
    }
    peer.set_nonblocking(false).expect("a mode");
    while served < u64::from(sent) && peer.recv(&mut [0; 256]).is_ok() {
        served += 1;
    }
    served
}

fn print(what: &str, servers: &mut [Server]) {
    println!("\n{what:<18} ratio   (10 %, 90 %)      ns a datagram");
    let floor = servers[0].costs.clone();
    for server in servers {
        let costs = std::mem::take(&mut server.costs);
        if costs.len() != floor.len() {
            println!("{:<18} did not answer in each cycle", server.name);
            continue;
        }
        let ratios = sorted(costs.iter().zip(&floor).map(|(cost, floor)| cost / floor).collect());
        let at = |tenths: usize| ratios[(ratios.len() - 1) * tenths / 10];
        let ns = sorted(costs)[floor.len() / 2];
        println!("{:<18} {:.2}    ({:.2}, {:.2})      {ns:.0}", server.name, at(5), at(1), at(9));
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// What the kernel says a thread has spent.
fn cpu_ns(thread: i32) -> u64 {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = std::fs::read_to_string(path).expect("the thread lives");
    text.split_whitespace().next().and_then(|it| it.parse().ok()).expect("a number")
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // With one core alone the figures are of one core.
    let _ = sched_setaffinity(None, &cores);
}
