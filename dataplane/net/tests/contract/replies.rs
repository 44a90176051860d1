//! The way out.

use rendezvous_net::{EngineKind, EngineOptions, ErrnoClass, OutboxFull, SocketOptions};

use crate::kit::{World, heard, hears_nothing, peer_to};

pub(crate) fn refused_replies_are_counted_and_passed_over(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    let good = world.peer.local_addr().unwrap();
    let destinations = [
        "127.0.0.1:0".parse().unwrap(),
        good,
        "[2001:db8::1]:9".parse().unwrap(),
        good,
        "255.255.255.255:9".parse().unwrap(),
        good,
    ];
    for (number, to) in destinations.into_iter().enumerate() {
        let outcome = world.engine.outbox().push(to, None, |slot| {
            slot[0] = number as u8;
            1
        });
        assert_eq!(outcome, Ok(()));
    }
    world.flush();
    for number in [1, 3, 5] {
        assert_eq!(heard(&world.peer), [number]);
    }
    let counters = world.engine.counters();
    assert_eq!(counters.sent, 3);
    assert_eq!(counters.send_errors.total(), 3, "{:?}", counters.send_errors);
    assert_eq!(counters.send_errors.get(ErrnoClass::Invalid), 1, "port 0");
    assert_eq!(counters.send_errors.get(ErrnoClass::FamilyUnsupported), 1, "IPv6 on an IPv4 socket");
    assert_eq!(counters.send_errors.get(ErrnoClass::AccessDenied), 1, "broadcast");
    // And on it goes.
    world.peer.send(b"still there").unwrap();
    world.echo(1);
    assert_eq!(heard(&world.peer), b"still there");
}

pub(crate) fn full_outbox_refuses_and_recovers(kind: EngineKind) {
    let mut world = World::sized(kind, |options| options.outbox_slots = 4);
    let to = world.peer.local_addr().unwrap();
    assert_eq!(world.engine.outbox().capacity(), 4);
    for round in 0..3_u64 {
        for number in 0..6 {
            let outcome = world.engine.outbox().push(to, None, |slot| {
                assert!(number < 4, "called although full");
                slot[0] = number;
                1
            });
            assert_eq!(outcome, if number < 4 { Ok(()) } else { Err(OutboxFull) });
        }
        assert_eq!(world.engine.outbox().len(), 4);
        world.flush();
        for number in 0..4 {
            assert_eq!(heard(&world.peer), [number]);
        }
        assert_eq!(world.engine.counters().outbox_full, (round + 1) * 2);
    }
    hears_nothing(&world.peer);
}

/// Small submission queue, large outbox, several rounds: slots are used again while order and bytes stay.
fn flush_many(mut world: World, target: &str) {
    let peer = peer_to(target, world.port());
    let to = peer.local_addr().unwrap();
    for round in 0..10_u8 {
        for number in 0..100_u8 {
            let from = Some(target.parse().unwrap());
            world
                .engine
                .outbox()
                .push(to, from, |slot| {
                    slot[..150].fill(number);
                    slot[0] = round;
                    150
                })
                .unwrap();
        }
        world.flush();
        for number in 0..100 {
            let mut expected = [number; 150];
            expected[0] = round;
            assert_eq!(heard(&peer), expected);
        }
    }
    assert_eq!(world.engine.counters().sent, 1000);
}

const FEW: EngineOptions =
    EngineOptions { buffers: 64, outbox_slots: 101, submission_entries: 4, completion_entries: 16 };

pub(crate) fn more_replies_than_the_submission_queue_takes(kind: EngineKind) {
    flush_many(World::with(kind, "127.0.0.1:0", FEW, SocketOptions::default()), "127.0.0.1");
}

pub(crate) fn more_replies_with_packet_info_than_the_submission_queue_takes(kind: EngineKind) {
    flush_many(World::with(kind, "0.0.0.0:0", FEW, SocketOptions::default()), "127.0.0.2");
}
