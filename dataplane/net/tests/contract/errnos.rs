//! Every answer but yes, each for a real reason where there is one, and after each the engine serves on.

use std::io;
use std::mem::size_of_val;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rendezvous_net::{EngineCounters, EngineKind, EngineOptions, ErrnoClass, SocketOptions};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

use crate::kit::{TURN, World, heard, hears_nothing, print};
use crate::network::{self, HOME};
use crate::supervise::supervise;

const OPTIONS: EngineOptions =
    EngineOptions { buffers: 64, outbox_slots: 64, submission_entries: 16, completion_entries: 256 };

fn at_home(kind: EngineKind, socket: SocketOptions) -> World {
    World::with(kind, &format!("{HOME}:0"), OPTIONS, socket)
}

fn queue(world: &mut World, to: &str, replies: usize) {
    for _ in 0..replies {
        world.engine.outbox().push(to.parse().unwrap(), None, |_| 160).unwrap();
    }
}

/// Turns until `done`, without sleeping; fails when that never comes.
fn turn_until(world: &mut World, what: &str, done: impl Fn(&EngineCounters) -> bool) {
    for _ in 0..1000 {
        world.engine.turn(Some(Duration::from_millis(1))).unwrap();
        if done(world.engine.counters()) {
            return;
        }
    }
    panic!("{what}: never counted, {:?}", world.engine.counters());
}

fn serves(world: &mut World) {
    world.peer.send(b"still there").unwrap();
    world.echo(1);
    assert_eq!(heard(&world.peer), b"still there");
}

/// What the routes, filters and interfaces of a machine do to a reply.
pub(crate) fn sends_refused_by_the_network(kind: EngineKind) {
    if !network::enter() {
        return;
    }
    let mut world = at_home(kind, SocketOptions::default());
    // Whoever forbids fragments is told what does not fit; ours are not forbidden, so it goes in two.
    queue(&mut world, network::NARROW, 1);
    world.flush();
    assert_eq!(world.engine.counters().sent, 1);
    set_ip_mtu_discover(&world.socket, Ipv4PathMtuDiscovery::DO).unwrap();
    for (to, class) in [
        (network::PROHIBITED, ErrnoClass::AccessDenied),
        (network::UNREACHABLE, ErrnoClass::HostUnreachable),
        (network::BLACK_HOLE, ErrnoClass::Invalid),
        (network::NO_ROUTE, ErrnoClass::NetUnreachable),
        (network::FILTERED, ErrnoClass::NotPermitted),
        (network::NARROW, ErrnoClass::MessageTooLong),
        ("255.255.255.255:9", ErrnoClass::AccessDenied),
        ("10.66.0.1:0", ErrnoClass::Invalid),
        ("[2001:db8::1]:9", ErrnoClass::FamilyUnsupported),
    ] {
        let before = *world.engine.counters();
        queue(&mut world, to, 3);
        world.flush();
        let counters = world.engine.counters();
        print(to, counters);
        assert_eq!(counters.send_errors.get(class), before.send_errors.get(class) + 3, "{to}");
        assert_eq!(counters.send_errors.total(), before.send_errors.total() + 3, "{to}");
        assert_eq!(counters.sent, before.sent, "{to}");
        serves(&mut world);
    }
    assert_eq!(world.engine.counters().receive_errors.total(), 0);
}

/// A queue that is full is told only to whoever asks for errors, as this product does not.
pub(crate) fn sends_refused_by_a_full_queue(kind: EngineKind) {
    if !network::enter() {
        return;
    }
    let mut world = at_home(kind, SocketOptions::default());
    for (asked, refused) in [(0, 0), (1, 3)] {
        set(&world, libc::IPPROTO_IP, libc::IP_RECVERR, asked);
        let before = world.engine.counters().send_errors;
        queue(&mut world, network::QUEUE_FULL, 3);
        world.flush();
        let counters = world.engine.counters();
        print(network::QUEUE_FULL, counters);
        assert_eq!(
            counters.send_errors.get(ErrnoClass::NoBuffers),
            before.get(ErrnoClass::NoBuffers) + refused
        );
        serves(&mut world);
    }
}

/// Replies wait for a neighbour that does not answer until the send buffer is full. Two engines let the rest go; the
/// library cannot, and waits with them, while it receives all the same.
pub(crate) fn a_full_send_buffer(kind: EngineKind) {
    if !network::enter() {
        return;
    }
    let mut world = at_home(kind, SocketOptions { send_buffer_len: 4096, ..SocketOptions::default() });
    queue(&mut world, network::SILENT, 60);
    world.engine.turn(Some(Duration::ZERO)).unwrap();
    let counters = *world.engine.counters();
    print(network::SILENT, &counters);
    assert!(counters.sent > 0 && counters.sent < 60);
    if kind == EngineKind::TokioUring {
        assert_eq!(counters.send_errors.total(), 0);
    } else {
        assert_eq!(counters.send_errors.get(ErrnoClass::WouldBlock), 60 - counters.sent);
        assert_eq!(counters.send_errors.total(), 60 - counters.sent);
    }
    world.peer.send(b"heard meanwhile").unwrap();
    assert_eq!(world.one().1, b"heard meanwhile");
    // The neighbour is there at last, and takes what waited for it.
    network::feed("ip", &["-batch", "-"], "neigh replace 10.66.9.2 lladdr 02:00:00:00:00:02 dev silent\n");
    let sent = if kind == EngineKind::TokioUring { 60 } else { counters.sent };
    turn_until(&mut world, "what waited", |counters| counters.sent == sent);
    serves(&mut world);
    print("afterwards", world.engine.counters());
}

/// What a stranger's ICMP messages can make of a receive and of a send. They reach a socket that is connected, as ours
/// never is, so this one is made so for a while.
pub(crate) fn errors_caused_by_icmp(kind: EngineKind) {
    if !network::enter() {
        return;
    }
    for (port, family, with, errno) in network::REJECTING {
        let home = if family == "ipv4" { "10.66.0.1" } else { "::1" };
        let rejecting = SocketAddr::new(home.parse().unwrap(), port);
        // Its own choice: a port that the kernel chose would be gone once the socket is connected no longer.
        let address = SocketAddr::new(home.parse().unwrap(), 5000).to_string();
        let mut world = World::with(kind, &address, OPTIONS, SocketOptions::default());
        let class = ErrnoClass::of(errno);

        // Unconnected, nothing is heard of it.
        queue(&mut world, &rejecting.to_string(), 5);
        world.flush();
        world.engine.turn(Some(TURN)).unwrap();
        assert_eq!(world.engine.counters().receive_errors.total(), 0, "{with}");
        assert_eq!(world.engine.counters().sent, 5, "{with}");

        rustix::net::connect(&world.socket, &rejecting).unwrap();
        for round in 1..=3 {
            queue(&mut world, &rejecting.to_string(), 1);
            turn_until(&mut world, with, |counters| counters.receive_errors.get(class) == round);
        }
        // Of replies in a row, a send is told what became of the one before it. Sendmmsg then stops before that one,
        // with the error told and gone, so the next call sends it.
        let sent = world.engine.counters().sent;
        queue(&mut world, &rejecting.to_string(), 10);
        turn_until(&mut world, with, |counters| counters.sent + counters.send_errors.total() == sent + 10);
        let told = world.engine.counters().send_errors;
        assert_eq!(told.get(class) > 0, kind != EngineKind::Mmsg, "{with}");
        assert_eq!(told.get(class), told.total(), "{with}");
        for _ in 0..3 {
            world.engine.turn(Some(Duration::from_millis(1))).unwrap();
        }
        print(with, world.engine.counters());
        rustix::net::connect_unspec(&world.socket).unwrap();
        serves(&mut world);
    }
}

/// Every errno there is, to the calls of the engine that makes calls: a supervisor lets one of them fail. Completions
/// of a ring cannot be reached from outside; tests inside of those engines feed them in where they arrive.
pub(crate) fn any_errno_of_a_system_call(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    let [send, receive] = supervise([libc::SYS_sendmmsg, libc::SYS_recvmmsg]);
    let good = world.peer.local_addr().unwrap().to_string();
    let fatal = [libc::EBADF, libc::ENOTSOCK, libc::EFAULT, libc::EINVAL];
    let again = [libc::EINTR, libc::EAGAIN];
    for errno in 1..134 {
        let before = *world.engine.counters();
        queue(&mut world, &good, 2);
        send.fail_once(errno);
        world.flush();
        // Interrupted, it tries again; else one is lost, and the other is not.
        let lost = u64::from(errno != libc::EINTR);
        let counters = *world.engine.counters();
        let class = ErrnoClass::of(errno);
        assert_eq!(counters.send_errors.get(class), before.send_errors.get(class) + lost, "{errno}");
        assert_eq!(counters.sent, before.sent + 2 - lost, "{errno}");
        (lost..2).for_each(|_| assert_eq!(heard(&world.peer).len(), 160));

        receive.fail_once(errno);
        let outcome = world.engine.turn(Some(Duration::ZERO));
        assert!(receive.has_failed(), "{errno}");
        let told = world.engine.counters().receive_errors.get(class) - before.receive_errors.get(class);
        if fatal.contains(&errno) {
            assert_eq!(outcome.unwrap_err().raw_os_error(), Some(errno));
            assert_eq!(told, 0);
        } else {
            outcome.unwrap();
            assert_eq!(told, u64::from(!again.contains(&errno)), "{errno}");
        }
        serves(&mut world);
    }
    print("all errnos", world.engine.counters());
    hears_nothing(&world.peer);
}

/// The kernel is short of something, or a signal came, and an enter submitted nothing: no reply is lost, none is sent
/// twice, and no slot is used again before the kernel has read it.
pub(crate) fn an_enter_that_is_refused(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    let [enter] = supervise([libc::SYS_io_uring_enter]);
    let to = world.peer.local_addr().unwrap();
    let put = |world: &mut World, number: u8| {
        world.engine.outbox().push(to, None, |slot| {
            slot[..160].fill(number);
            160
        })
    };
    let mut refused = 0;
    for (round, errno) in
        [libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR].into_iter().cycle().take(12).enumerate()
    {
        let (first, second) = (2 * round as u8, 2 * round as u8 + 1);
        put(&mut world, first).unwrap();
        enter.fail_once(errno);
        world.engine.turn(Some(Duration::ZERO)).unwrap();
        assert!(enter.has_failed());
        refused += u64::from(errno != libc::EINTR);
        assert_eq!(world.engine.counters().enters_refused, refused);
        assert_eq!(world.engine.outbox().len(), 1, "the kernel has not read it");
        put(&mut world, second).unwrap();
        world.flush();
        for number in [first, second] {
            assert_eq!(heard(&world.peer), [number; 160]);
        }
        assert_eq!(world.engine.counters().sent, 2 * (round as u64 + 1));
    }
    serves(&mut world);
    // What is for ever is told: such as EBADR, completions that the kernel had no memory to keep.
    for errno in [libc::EBADR, libc::ENXIO, libc::EBADF] {
        queue(&mut world, "127.0.0.1:9", 1);
        enter.fail_once(errno);
        assert_eq!(world.engine.turn(Some(Duration::ZERO)).unwrap_err().raw_os_error(), Some(errno));
    }
}

fn set(world: &World, level: i32, name: i32, value: i32) {
    let fd = world.socket.as_fd().as_raw_fd();
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` outlives the call, and `len` is its size.
    let outcome = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}
