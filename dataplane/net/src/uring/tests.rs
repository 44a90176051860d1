//! What only the inside of the engine shows: its restrictions, and completions that no network can be made to cause.

use std::net::UdpSocket;

use super::*;
use crate::counters::ErrnoClass;
use crate::socket::{SocketOptions, bind};
use crate::wake::wake_pair;

const SMALL: EngineOptions =
    EngineOptions { buffers: 16, outbox_slots: 16, submission_entries: 8, completion_entries: 64 };

fn left_out() -> bool {
    std::env::var_os("RENDEZVOUS_NET_SKIP_URING").is_some()
}

fn engine() -> UringEngine {
    let (gate, _waker) = wake_pair().unwrap();
    let socket = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
    UringEngine::new(socket, &gate, SMALL).unwrap()
}

/// One datagram there and back.
fn echoes(engine: &mut UringEngine) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    peer.connect(engine.local_addr()).unwrap();
    peer.send(b"x").unwrap();
    for _ in 0..100 {
        engine.turn(Some(Duration::from_millis(20))).unwrap();
        let echo = &mut |meta: Meta, _: &[u8], outbox: &mut Outbox| {
            outbox.push(meta.source, meta.local, |_| 1).unwrap();
        };
        if engine.receive(1, echo) > 0 {
            break;
        }
    }
    engine.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(peer.recv(&mut [0; 8]).unwrap(), 1);
}

/// A thread has 16 places for ring descriptors; a drop that keeps its own runs out of them.
#[test]
fn a_drop_takes_everything_back() {
    if left_out() {
        return;
    }
    for round in 0..40 {
        let mut engine = engine();
        assert!(engine.ring.registered, "round {round}: no place is left");
        engine.turn(Some(Duration::ZERO)).unwrap();
        assert!(engine.receive_armed && engine.wake_armed);
        if round % 2 == 0 {
            assert!(engine.quiesce(), "the kernel did not let go");
        }
    }
}

/// Puts a foreign entry into the queue, and gives the result of its completion.
fn result_of(engine: &mut UringEngine, entry: squeue::Entry) -> i32 {
    const FOREIGN: u64 = 99;
    // SAFETY: none of the entries of these tests points at memory.
    unsafe { engine.ring.sq.push(&entry.user_data(FOREIGN)) }.unwrap();
    engine.enter(true, Some(Duration::from_secs(2))).unwrap();
    engine.ring.cq.sync();
    let entry = engine.ring.cq.next().expect("a completion");
    assert_eq!(entry.user_data(), FOREIGN);
    entry.result()
}

#[test]
fn what_the_engine_does_not_use_is_forbidden_to_its_ring() {
    if left_out() {
        return;
    }
    let mut engine = engine();
    let fixed = squeue::Flags::FIXED_FILE;
    let forbidden = [
        ("no operation", opcode::Nop::new().build().flags(fixed)),
        ("another socket", opcode::Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).build().flags(fixed)),
        ("closing a file", opcode::Close::new(SOCKET).build()),
        ("a shutdown", opcode::Shutdown::new(SOCKET, libc::SHUT_RDWR).build()),
        ("a file that is not registered", {
            opcode::Read::new(io_uring::types::Fd(0), std::ptr::null_mut(), 0).build()
        }),
        ("a link", {
            let read = opcode::Read::new(EVENT, std::ptr::null_mut(), 0).build();
            read.flags(squeue::Flags::IO_LINK)
        }),
    ];
    for (what, entry) in forbidden {
        let result = result_of(&mut engine, entry);
        println!("{what}: {result}");
        assert_eq!(result, -libc::EACCES, "{what}");
    }
    // Nor more files, buffers or another personality.
    let refused = engine.ring.submitter.register_files(&[0]).unwrap_err();
    println!("registering a file: {refused}");
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    let refused = engine.ring.submitter.register_personality().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    echoes(&mut engine);
}

/// Most errnos of a send or a receive can be caused by a network, and `tests/contract` does. Here all of them come in
/// as completions, at the one place where completions come in.
#[test]
fn it_goes_on_after_every_errno() {
    if left_out() {
        return;
    }
    let mut engine = engine();
    engine.turn(Some(Duration::ZERO)).unwrap();
    let mut told = 0;
    for errno in (1..134).filter(|errno| *errno != libc::ENOBUFS && !is_fatal_receive(*errno)) {
        engine.on_completion(SEND, -errno, 0);
        engine.on_completion(RECEIVE, -errno, cqueue_more());
        told += 1;
        assert_eq!(engine.counters.receive_errors.total(), told);
        assert_eq!(engine.counters.send_errors.total(), told);
    }
    for class in ErrnoClass::ALL {
        println!("{}: {} sends", class.name(), engine.counters.send_errors.get(class));
        assert!(
            class == ErrnoClass::Invalid || class == ErrnoClass::NoBuffers || {
                engine.counters.send_errors.get(class) > 0
            }
        );
    }
    assert_eq!(engine.counters.rearms_total(), 0, "each said that more is to come");
    echoes(&mut engine);
    for errno in [libc::EBADF, libc::ENOTSOCK, libc::EFAULT, libc::EINVAL] {
        engine.on_completion(RECEIVE, -errno, cqueue_more());
        engine.on_completion(RECEIVE, -errno, 0);
        // It is over, and the engine's owner is told.
        let error = engine.turn(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
    }
}

/// IORING_CQE_F_MORE.
const fn cqueue_more() -> u32 {
    1 << 1
}
