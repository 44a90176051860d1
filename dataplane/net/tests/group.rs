//! A group of sockets on one port: who gets what, and who is refused.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rendezvous_net::{
    BindError, BoundSocket, Engine, EngineKind, EngineOptions, Outbox, SocketOptions, bind, bind_group, open,
    wake_pair,
};

const OPTIONS: SocketOptions = SocketOptions { receive_buffer_len: 1 << 18, send_buffer_len: 1 << 16 };
const ENGINE: EngineOptions =
    EngineOptions { buffers: 64, outbox_slots: 64, submission_entries: 64, completion_entries: 256 };

/// Not of those that the kernel gives to whoever asks for any port, so they are free again when nobody has them.
const KEPT: [&str; 2] = ["127.66.0.2:5101", "127.66.0.3:5102"];

/// A process that is being started holds every descriptor of its parent for a moment, hence ports that are to be free.
static NO_PROCESS_STARTS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    NO_PROCESS_STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn group(address: &str, count: usize) -> Vec<BoundSocket> {
    let group = bind_group(address.parse().unwrap(), count, OPTIONS).unwrap();
    assert_eq!(group.len(), count.max(1));
    assert!(group.iter().all(|socket| socket.local_addr() == group[0].local_addr()));
    group
}

fn is_refused(address: SocketAddr) {
    for count in [1, 3] {
        let refused = bind_group(address, count, OPTIONS).unwrap_err();
        assert!(matches!(refused, BindError::AddressInUse { .. }), "{count}: {refused}");
        assert!(refused.to_string().contains(&address.to_string()), "{refused}");
    }
    assert!(matches!(bind(address, OPTIONS), Err(BindError::AddressInUse { .. })));
}

/// Takes what came to each of the engines; gives the ports it came from.
fn sources(engines: &mut [Box<dyn Engine>]) -> Vec<BTreeMap<u16, usize>> {
    let mut all = Vec::new();
    for engine in engines {
        let mut ports = BTreeMap::new();
        for _ in 0..3 {
            engine.turn(Some(Duration::from_millis(20))).unwrap();
            engine.receive(usize::MAX, &mut |meta, _, _: &mut Outbox| {
                *ports.entry(meta.source.port()).or_default() += 1;
            });
        }
        all.push(ports);
    }
    all
}

fn everyone_gets_a_share(address: &str, to: Ipv4Addr) {
    const CLIENTS: usize = 200;
    let (gate, _waker) = wake_pair().unwrap();
    let group = group(address, 4);
    let to = SocketAddr::from((to, group[0].local_addr().port()));
    let open = |socket| open(EngineKind::Mmsg, socket, &gate, ENGINE).unwrap();
    let mut engines: Vec<_> = group.into_iter().map(open).collect();
    let clients: Vec<_> = (0..CLIENTS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut first = None;
    for round in 0..5 {
        for client in &clients {
            client.send_to(b"x", to).unwrap();
        }
        let seen = sources(&mut engines);
        let counts: Vec<usize> = seen.iter().map(BTreeMap::len).collect();
        println!("{address}, round {round}: {counts:?} clients");
        assert_eq!(counts.iter().sum::<usize>(), CLIENTS, "each client at one socket");
        assert!(counts.iter().all(|count| *count > 0));
        let homes: Vec<BTreeSet<u16>> = seen.into_iter().map(|ports| ports.into_keys().collect()).collect();
        assert_eq!(*first.get_or_insert_with(|| homes.clone()), homes, "the same socket each time");
    }
}

#[test]
fn every_socket_gets_a_share_and_every_client_one_socket() {
    everyone_gets_a_share("127.0.0.1:0", Ipv4Addr::LOCALHOST);
    everyone_gets_a_share("0.0.0.0:0", Ipv4Addr::new(127, 0, 0, 2));
    everyone_gets_a_share("[::]:0", Ipv4Addr::LOCALHOST);
}

#[test]
fn a_second_group_is_refused() {
    let _alone = alone();
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let group = group(address, 3);
        let bound = group[0].local_addr();
        is_refused(bound);
        // A wildcard overlaps, and so does an address under a wildcard.
        let other = if bound.ip().is_unspecified() { "127.0.0.1" } else { "::" };
        is_refused(SocketAddr::new(other.parse().unwrap(), bound.port()));
    }
    for _ in 0..3 {
        is_refused(group(KEPT[0], 3)[0].local_addr());
    }
    // One alone is no group, and none is one.
    is_refused(group("127.0.0.1:0", 1)[0].local_addr());
    is_refused(group("127.0.0.1:0", 0)[0].local_addr());
}

const TAKEN: &str = "RENDEZVOUS_NET_TAKEN_BY_ANOTHER_PROCESS";

/// Of the same user, so that the kernel would let it join.
#[test]
fn a_second_process_is_refused() {
    if let Ok(taken) = std::env::var(TAKEN) {
        return is_refused(taken.parse().unwrap());
    }
    let _alone = alone();
    let group = group("127.0.0.1:0", 3);
    let address = group[0].local_addr().to_string();
    let mut second = Command::new(std::env::current_exe().unwrap());
    second.args(["--exact", "a_second_process_is_refused"]).env(TAKEN, address);
    let output = second.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Two that start at once: one has the port with all its sockets, the other has none.
#[test]
fn of_two_at_once_one_is_refused() {
    let _alone = alone();
    let port: SocketAddr = KEPT[1].parse().unwrap();
    let start = Arc::new(Barrier::new(2));
    let mut served = [0; 2];
    for _ in 0..300 {
        let starters = [(); 2].map(|()| {
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                bind_group(port, 4, OPTIONS)
            })
        });
        // Both ends are kept until both are known, so that neither makes room for the other.
        let ends = starters.map(|starter| starter.join().unwrap());
        match ends.each_ref() {
            [Ok(_), Err(BindError::AddressInUse { .. })] => served[0] += 1,
            [Err(BindError::AddressInUse { .. }), Ok(_)] => served[1] += 1,
            both => panic!("{both:?}"),
        }
    }
    println!("the first {}, the second {} of 300 times", served[0], served[1]);
}

/// What the page on the decision says of it. Should a kernel refuse this one day, the page is to be changed.
#[test]
fn a_program_that_shares_by_itself_is_not_refused() {
    let group = group("127.0.0.1:0", 2);
    let stranger = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    stranger.set_reuse_port(true).unwrap();
    stranger.bind(&group[0].local_addr().into()).unwrap();
    // Unless nothing is shared.
    let alone = bind("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
    let stranger = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    stranger.set_reuse_port(true).unwrap();
    assert!(stranger.bind(&alone.local_addr().into()).is_err());
}
