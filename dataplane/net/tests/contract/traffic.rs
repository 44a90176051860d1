//! Datagrams in, datagrams out.

use rendezvous_net::{DATAGRAM_LEN_MAX, EngineKind};

use crate::kit::{World, heard};

/// Payload `number` of length `len`, recognisable from its first bytes to its last.
fn payload(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    let head = (number as u32).to_be_bytes();
    let head_len = len.min(4);
    bytes[..head_len].copy_from_slice(&head[..head_len]);
    bytes
}

fn echo_windows(kind: EngineKind, address: &str, datagrams: usize) {
    const WINDOW: usize = 50;
    let mut world = World::new(kind, address);
    for first in (0..datagrams).step_by(WINDOW) {
        let sent: Vec<_> = (first..first + WINDOW)
            .map(|number| payload(number, 4 + number * 37 % (DATAGRAM_LEN_MAX - 3)))
            .collect();
        for bytes in &sent {
            world.peer.send(bytes).unwrap();
        }
        let metas = world.echo(WINDOW);
        for (bytes, meta) in sent.iter().zip(metas) {
            assert_eq!(meta.source, world.peer.local_addr().unwrap());
            assert_eq!((meta.local, meta.truncated), (None, false));
            assert_eq!(heard(&world.peer), bytes[..bytes.len().min(160)]);
        }
    }
    let counters = world.engine.counters();
    assert_eq!((counters.received, counters.sent), (datagrams as u64, datagrams as u64));
    assert_eq!((counters.send_errors.total(), counters.receive_errors.total()), (0, 0));
    assert_eq!((counters.kernel_drops, counters.outbox_full, counters.rearms_total()), (0, 0, 0));
}

pub(crate) fn echoes_ten_thousand_mixed_sizes(kind: EngineKind) {
    echo_windows(kind, "127.0.0.1:0", 10_000);
}

pub(crate) fn echoes_over_ipv6(kind: EngineKind) {
    echo_windows(kind, "[::1]:0", 1_000);
}

pub(crate) fn empty_datagram_is_a_datagram(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    world.peer.send(&[]).unwrap();
    let metas = world.echo(1);
    assert!(!metas[0].truncated);
    assert_eq!(heard(&world.peer), []);
}

pub(crate) fn overlong_datagrams_are_flagged(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    for len in [1199, 1200, 1201, 1500, 1900, 1940, 2000, 2048, 2049, 9000] {
        let sent: Vec<u8> = (0..len).map(|index| (index * 7) as u8).collect();
        world.peer.send(&sent).unwrap();
        let (meta, bytes) = world.one();
        assert_eq!(meta.truncated, len > DATAGRAM_LEN_MAX, "{len} bytes");
        assert_eq!(bytes, sent[..len.min(DATAGRAM_LEN_MAX)], "{len} bytes");
    }
    // A whole one afterwards is whole.
    world.peer.send(b"short").unwrap();
    let (meta, bytes) = world.one();
    assert_eq!((meta.truncated, bytes.as_slice()), (false, b"short".as_slice()));
    assert_eq!(world.engine.counters().received_truncated, 8);
}

pub(crate) fn batch_max_is_kept_and_nothing_is_lost(kind: EngineKind) {
    let mut world = World::new(kind, "127.0.0.1:0");
    for number in 0..200 {
        world.peer.send(&payload(number, 100)).unwrap();
    }
    let mut got = Vec::new();
    assert_eq!(world.engine.receive(0, &mut |_, _, _| panic!("none was asked for")), 0);
    while got.len() < 200 {
        // For ever: with datagrams waiting it must not block, and with none left this would hang.
        world.engine.turn(None).unwrap();
        let handed = world.engine.receive(7, &mut |_, bytes, _| got.push(bytes.to_vec()));
        assert!(handed <= 7);
    }
    for (number, bytes) in got.iter().enumerate() {
        assert_eq!(*bytes, payload(number, 100));
    }
}
