//! Small queues, small buffers, sudden ends.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use rendezvous_net::{EngineKind, RearmReason, SocketOptions, open};

use crate::kit::{Told, World, heard};

fn burst(world: &mut World, datagrams: u32) {
    for number in 0..datagrams {
        world.peer.send(&number.to_be_bytes()).unwrap();
    }
    let mut expected = 0_u32;
    let served = world.serve(datagrams as usize, &mut |_, bytes, _| {
        assert_eq!(bytes, expected.to_be_bytes());
        expected += 1;
    });
    assert_eq!(served, datagrams as usize, "the socket kept them all");
}

pub(crate) fn four_buffers_survive_a_burst(kind: EngineKind) {
    let mut world = World::sized(kind, |options| options.buffers = 4);
    for _ in 0..3 {
        burst(&mut world, 200);
    }
    if kind == EngineKind::Uring {
        assert!(world.engine.counters().rearms[RearmReason::NoBuffers as usize] > 0);
    }
    assert_eq!(world.engine.counters().receive_errors.total(), 0);
}

pub(crate) fn tiny_completion_queue_survives_a_burst(kind: EngineKind) {
    let mut world = World::sized(kind, |options| {
        options.submission_entries = 2;
        options.completion_entries = 4;
    });
    for _ in 0..3 {
        burst(&mut world, 200);
    }
    if kind == EngineKind::Uring {
        assert!(world.engine.counters().rearms[RearmReason::LostMore as usize] > 0);
    }
    // Refusals overflow it too, and are all counted in the end.
    for _ in 0..50 {
        world.engine.outbox().push("127.0.0.1:0".parse().unwrap(), None, |_| 1).unwrap();
    }
    for _ in 0..50 {
        world.flush();
    }
    let counters = world.engine.counters();
    assert_eq!((counters.sent, counters.send_errors.total()), (0, 50));
}

/// More datagrams than a 16-bit count of buffers holds.
pub(crate) fn buffers_go_round_many_times(kind: EngineKind) {
    let mut world = World::sized(kind, |options| options.buffers = 128);
    for _ in 0..700 {
        burst(&mut world, 100);
    }
    assert_eq!(world.engine.counters().received, 70_000);
}

pub(crate) fn kernel_drops_are_exact(kind: EngineKind) {
    const SENT: u64 = 300;
    let small = SocketOptions { receive_buffer_len: 8192, ..SocketOptions::default() };
    let options = rendezvous_net::EngineOptions { buffers: 256, ..Default::default() };
    let mut world = World::with(kind, "127.0.0.1:0", options, small);
    for number in 0..SENT {
        world.peer.send(&number.to_be_bytes()).unwrap();
    }
    let queued = world.socket.memory().unwrap();
    assert!(queued.receive_queued_len > 0 && queued.drops > 0);
    let received = world.serve(SENT as usize, &mut |_, _, _| {}) as u64;
    assert_eq!(received + u64::from(queued.drops), SENT);
    // The drops came after the last datagram that fitted; the next one tells of them.
    world.peer.send(b"tell").unwrap();
    world.one();
    let counters = world.engine.counters();
    assert_eq!(counters.received, received + 1);
    assert_eq!(counters.kernel_drops, SENT - received);
    assert_eq!(u64::from(world.socket.memory().unwrap().drops), SENT - received);
    assert_eq!(drops_by_proc(&world), SENT - received);
}

/// The kernel's own table, by inode.
fn drops_by_proc(world: &World) -> u64 {
    let link = format!("/proc/self/fd/{}", world.socket.as_fd().as_raw_fd());
    let inode = fs::metadata(link).unwrap().ino().to_string();
    let table = fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    let line = table.lines().find(|line| line.split_whitespace().nth(9) == Some(&inode)).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// More often than a thread has places for ring descriptors (16), with an operation in flight each time.
pub(crate) fn rebuilt_on_the_same_socket_it_hears(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    let options = rendezvous_net::EngineOptions { buffers: 16, outbox_slots: 16, ..Default::default() };
    for round in 0..40_u8 {
        world.peer.send(&[round]).unwrap();
        world.echo(1);
        assert_eq!(heard(&world.peer), [round]);
        let socket = world.socket.try_clone().unwrap();
        // The old one goes only after the new one is there, then before; a datagram in between is for the new one.
        if round % 2 == 0 {
            world.engine = Told(open(kind, socket, &world.gate, options).unwrap());
        } else {
            let World { engine, gate, waker, socket: kept, peer } = world;
            drop(engine);
            peer.send(b"between").unwrap();
            let engine = Told(open(kind, socket, &gate, options).unwrap());
            world = World { engine, gate, waker, socket: kept, peer };
            assert_eq!(world.one().1, b"between");
        }
    }
}
