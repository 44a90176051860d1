//! Host, joiner and link against a modelled network and server.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test; clippy takes only test functions for one"
)]
#![expect(dead_code, reason = "the world is used in part")]

mod world;

use std::cell::Cell;
use std::rc::Rc;

use rendezvous_client::host::HostEvent;
use rendezvous_client::joiner::JoinerEvent;
use rendezvous_client::{AttemptEvent, Machine, Refused};
use rendezvous_shared::id::InstanceId;
use rendezvous_shared::wire::{Code, Kind, ReportResult};
use world::server::{self, Server};
use world::{HOST, JOINER, World, addr, ms};

fn is(kind: Kind, bytes: &[u8]) -> bool {
    bytes.get(5) == Some(&(kind as u8))
}

/// A world with a host that is present and a joiner that begins.
fn both(seed: u64) -> World {
    let mut world = World::new(seed).with_host(seed);
    assert!(world.run_until(ms(2_000), World::present), "seed {seed}");
    world.add_joiner(seed + 1);
    world
}

#[test]
fn peers_meet_talk_and_report() {
    let mut world = both(1);
    assert!(world.run_until(ms(1_000), World::both_connected));
    let now = world.now;
    let attempt = world.attempt();
    assert_eq!(world.host.as_mut().unwrap().send(now, attempt, b"from host"), Ok(1));
    assert_eq!(world.joiner.as_mut().unwrap().send(now, b"from joiner"), Ok(1));
    world.run(ms(2_000));
    let got = |payload: &[u8]| AttemptEvent::Message { ordinal: 1, payload: payload.to_vec() };
    assert!(world.joined().any(|it| *it == got(b"from host")));
    assert!(world.hosted().any(|it| *it == got(b"from joiner")));
    let server = world.server.as_ref().unwrap();
    assert_eq!(server.introductions, 1);
    assert_eq!(server.reports, [ReportResult::Connected.to_byte(); 2]);
    assert!(world.joined().any(|it| *it == AttemptEvent::Reported { acknowledged: true }));
    let trip = world.joined().find_map(|it| match it {
        AttemptEvent::Connected { round_trip, .. } => *round_trip,
        _ => None,
    });
    assert!(trip.is_some_and(|trip| trip > ms(0) && trip <= ms(40)), "{trip:?}");
}

#[test]
fn thirty_percent_loss_duplicates_and_reordering_still_introduce() {
    for seed in 0..200 {
        let mut world = World::new(seed).with_host(seed);
        (world.loss, world.duplicates, world.delay_max_ms) = (0.3, 0.2, 120);
        assert!(world.run_until(ms(15_000), World::present), "seed {seed}");
        world.add_joiner(seed + 1);
        assert!(world.run_until(ms(15_000), World::both_connected), "seed {seed}: {:?}", world.joiner_events);
        assert_eq!(world.server.as_ref().unwrap().introductions, 1);
        let connected = world.joined().filter(|it| matches!(it, AttemptEvent::Connected { .. })).count();
        assert_eq!(connected, 1);
    }
}

#[test]
fn the_first_introductions_may_be_lost() {
    let mut world = both(3);
    let left = Rc::new(Cell::new(2));
    world.drop = Some(Box::new(move |_, _, bytes| {
        let hit = is(Kind::Introduce, bytes) && left.get() > 0;
        left.set(left.get() - i32::from(hit));
        hit
    }));
    let start = world.now;
    assert!(world.run_until(ms(5_000), World::both_connected));
    assert!(world.now.since(start) < ms(1_000), "{:?}", world.now.since(start));
}

#[test]
fn any_single_datagram_may_be_lost() {
    for lost in 0..40 {
        let mut world = World::new(lost).with_host(lost);
        let count = Rc::new(Cell::new(0));
        world.drop = Some(Box::new(move |_, _, _| {
            count.set(count.get() + 1);
            count.get() == lost + 1
        }));
        assert!(world.run_until(ms(2_000), World::present));
        world.add_joiner(lost + 1);
        assert!(world.run_until(ms(3_000), World::both_connected), "datagram {lost} lost");
    }
}

#[test]
fn a_silent_server_is_asked_slower_and_from_another_port() {
    let mut world = World::new(5).with_host(5);
    assert!(world.run_until(ms(2_000), World::present));
    world.server = None;
    world.sent.clear();
    world.host_events.clear();
    let ported = |world: &World| world.host_events.contains(&HostEvent::ChangePort);
    assert!(world.run_until(ms(40_000), ported));
    let presences = world.sent.iter().filter(|(.., bytes)| is(Kind::Presence, bytes)).count();
    assert_eq!(presences, 3, "three silences, then HELLO");
    world.sent.clear();
    world.run(ms(60_000));
    assert!((9..=20).contains(&world.sent.len()), "{} in a minute", world.sent.len());
    // Back again, with all it knew: the host finds it by itself.
    world.host_events.clear();
    let mut server = Server::new(1);
    server.register(world.now);
    world.server = Some(server);
    world.run(ms(8_000));
    assert!(world.host_events.iter().any(|it| matches!(it, HostEvent::PresenceRefused(_))));
}

#[test]
fn a_restarted_server_is_noticed_within_a_refresh_and_new_credentials_are_used() {
    for seed in 0..20 {
        let mut world = World::new(seed).with_host(seed);
        assert!(world.run_until(ms(2_000), World::present));
        world.server = Some(Server::new(2));
        let start = world.now;
        let noticed = |world: &World| {
            world.host_events.contains(&HostEvent::InstanceChanged { instance: InstanceId(2) })
        };
        assert!(world.run_until(ms(10_000), noticed), "seed {seed}");
        assert!(world.now.since(start) < ms(9_500), "{:?}", world.now.since(start));
        world.sent.clear();
        world.run(ms(5_000));
        assert!(world.sent.len() <= 25, "it goes on at its pace: {}", world.sent.len());
        let credentials = world.server.as_mut().unwrap().register(world.now);
        world.host_events.clear();
        let now = world.now;
        world.host.as_mut().unwrap().replace(now, credentials);
        assert!(world.run_until(ms(1_000), World::present));
        world.add_joiner(seed);
        assert!(world.run_until(ms(2_000), World::both_connected));
    }
}

#[test]
fn a_renewed_key_is_taken_over_without_a_gap_for_joiners() {
    let mut world = both(7);
    world.loss = 0.0;
    let now = world.now;
    let key = world.server.as_mut().unwrap().new_key(now.after(ms(1)));
    world.host.as_mut().unwrap().update_key(now, key);
    assert!(world.run_until(ms(2_000), World::both_connected), "{:?}", world.host_events);
    world.run(ms(30_000));
    assert!(!world.host_events.iter().any(|it| matches!(it, HostEvent::PresenceRefused(_))));
}

#[test]
fn a_refusal_ends_the_joiner_at_once() {
    let mut world = both(8);
    world.server.as_mut().unwrap().refuse_bind = Some((Code::Conflict as u8, 4));
    let refused = Refused { code: Code::Conflict, detail: 4 };
    assert_eq!(refused.to_string(), "conflict/endpoint_already_bound");
    assert!(
        world.run_until(ms(2_000), |world| world.joined().any(|it| *it == AttemptEvent::Refused(refused)))
    );
    assert!(world.joiner.as_ref().unwrap().is_over());
    world.host = None;
    world.sent.clear();
    world.run(ms(30_000));
    assert!(!world.sent.iter().any(|(_, from, ..)| *from == addr(JOINER)));
}

#[test]
fn an_absent_host_times_the_joiner_out() {
    let mut world = both(9);
    world.host = None;
    world.run(ms(30_000));
    let events: Vec<_> = world.joined().collect();
    // Bound is renewed by the model at each answer, so the end comes with the server's silence.
    assert_eq!(events, [&AttemptEvent::Bound]);
    world.server = None;
    world.run(ms(30_000));
    assert_eq!(world.joined().last(), Some(&AttemptEvent::TimedOut));
    assert_eq!(world.joiner.as_ref().unwrap().next_timeout(), rendezvous_shared::time::Instant::MAX);
}

#[test]
fn a_silent_peer_ends_the_punching_in_bounded_time() {
    let mut world = both(10);
    world.drop = Some(Box::new(|_, _, bytes| is(Kind::Punch, bytes)));
    world.run(ms(6_000));
    assert!(world.joined().any(|it| *it == AttemptEvent::PeerSilent));
    assert!(world.hosted().any(|it| *it == AttemptEvent::PeerSilent));
    assert_eq!(world.server.as_ref().unwrap().reports, [ReportResult::PeerSilent.to_byte(); 2]);
    assert!(world.joiner.as_ref().unwrap().is_over());
    world.sent.clear();
    world.run(ms(30_000));
    assert!(!world.sent.iter().any(|(.., bytes)| is(Kind::Punch, bytes)));
}

#[test]
fn one_way_alone_is_not_connected() {
    let mut world = both(11);
    world.drop = Some(Box::new(|from, _, bytes| is(Kind::Punch, bytes) && from == addr(JOINER)));
    world.run(ms(8_000));
    for event in world.joined().chain(world.hosted()) {
        assert!(!matches!(event, AttemptEvent::Connected { .. }));
    }
}

#[test]
fn the_link_goes_on_without_the_server_and_closes_when_the_peer_is_gone() {
    let mut world = both(12);
    assert!(world.run_until(ms(2_000), World::both_connected));
    world.server = None;
    (world.loss, world.delay_max_ms, world.duplicates) = (0.1, 400, 0.3);
    world.run(ms(120_000));
    for number in 1..=50 {
        let now = world.now;
        assert_eq!(world.joiner.as_mut().unwrap().send(now, &[number]), Ok(u32::from(number)));
        world.run(ms(100));
    }
    world.run(ms(1_000));
    let mut ordinals: Vec<u32> = world
        .hosted()
        .filter_map(|it| match it {
            AttemptEvent::Message { ordinal, payload } => {
                assert_eq!(u32::from(payload[0]), *ordinal);
                Some(*ordinal)
            }
            _ => None,
        })
        .collect();
    let arrived = ordinals.len();
    ordinals.sort_unstable();
    ordinals.dedup();
    assert_eq!(ordinals.len(), arrived, "each at most once");
    assert!(arrived >= 35, "{arrived}");
    world.host = None;
    world.run(ms(60_000));
    assert_eq!(world.joined().last(), Some(&AttemptEvent::Closed));
    world.sent.clear();
    world.run(ms(60_000));
    assert!(world.sent.is_empty());
}

#[test]
fn forged_and_replayed_datagrams_change_nothing() {
    let mut world = World::new(13).with_host(13);
    assert!(world.run_until(ms(2_000), World::present));
    let challenge = world.sent.iter().find(|(.., bytes)| is(Kind::Challenge, bytes)).unwrap().3.clone();
    let ack = world.sent.iter().find(|(.., bytes)| is(Kind::Ack, bytes)).unwrap().3.clone();
    world.host_events.clear();
    let timeout = world.host.as_ref().unwrap().next_timeout();
    let mut other_nonce = challenge.clone();
    other_nonce[8] ^= 1;
    let mut other_instance = challenge.clone();
    other_instance[16] ^= 1;
    let mut bad_mac = ack.clone();
    *bad_mac.last_mut().unwrap() ^= 1;
    bad_mac[48] = 1;
    for forged in [challenge, other_nonce, other_instance, ack.clone(), bad_mac, vec![], vec![0; 1201]] {
        let now = world.now;
        world.host.as_mut().unwrap().handle_datagram(now, server::addr(), &forged);
        world.host.as_mut().unwrap().handle_datagram(now, addr(JOINER), &forged);
    }
    assert_eq!(world.host.as_ref().unwrap().next_timeout(), timeout);
    world.run(ms(100));
    assert_eq!(world.host_events, []);
    // A notice with a bad MAC starts nothing, and neither does a genuine answer from another address.
    world.add_joiner(14);
    world.drop = Some(Box::new(|_, _, bytes| is(Kind::Notice, bytes)));
    world.run(ms(500));
    let mut notice = world.sent.iter().find(|(.., bytes)| is(Kind::Notice, bytes)).unwrap().3.clone();
    let now = world.now;
    world.host.as_mut().unwrap().handle_datagram(now, addr(JOINER), &notice);
    notice[8] ^= 1;
    world.host.as_mut().unwrap().handle_datagram(now, server::addr(), &notice);
    world.run(ms(300));
    assert!(!world.sent.iter().any(|(_, from, _, bytes)| *from == addr(HOST) && is(Kind::Bind, bytes)));
}

#[test]
fn a_stranger_at_the_peers_address_is_named_as_such() {
    let mut world = both(15);
    world.drop = Some(Box::new(|_, _, bytes| is(Kind::Punch, bytes)));
    world.run(ms(800));
    let mut punch = world
        .sent
        .iter()
        .find(|(_, from, _, b)| *from == addr(HOST) && is(Kind::Punch, b))
        .unwrap()
        .3
        .clone();
    *punch.last_mut().unwrap() ^= 1;
    let now = world.now;
    world.joiner.as_mut().unwrap().handle_datagram(now, addr(HOST), &punch);
    world.run(ms(6_000));
    assert!(world.joined().any(|it| *it == AttemptEvent::PeerUnrecognised));
}

#[test]
fn closing_says_bye_and_then_nothing() {
    let mut world = both(16);
    assert!(world.run_until(ms(2_000), World::both_connected));
    let now = world.now;
    world.host.as_mut().unwrap().close(now);
    let closed = |world: &World| world.host_events.contains(&HostEvent::Closed { acknowledged: true });
    assert!(world.run_until(ms(1_000), closed));
    assert!(world.server.as_ref().unwrap().byes >= 1);
    world.sent.clear();
    world.joiner = None;
    world.run(ms(60_000));
    assert!(!world.sent.iter().any(|(_, from, ..)| *from == addr(HOST)));
}

#[test]
fn a_joiner_sees_its_server_restart_and_goes_on_until_told() {
    let mut world = both(17);
    world.server = Some(Server::new(2));
    world.host = None;
    world.run(ms(5_000));
    let changed = JoinerEvent::InstanceChanged { instance: InstanceId(2) };
    assert!((1..=8).contains(&world.joiner_events.iter().filter(|it| **it == changed).count()));
    world.joiner.as_mut().unwrap().close();
    world.sent.clear();
    world.run(ms(30_000));
    assert!(world.sent.is_empty());
}

#[test]
fn a_forged_challenge_of_another_instance_only_raises_the_question() {
    let mut world = World::new(20).with_host(20);
    let hello = |world: &World, from| {
        let nonce =
            |(_, at, _, b): &(_, _, _, Vec<u8>)| (*at == addr(from) && is(Kind::Hello, b)).then(|| b.clone());
        world.sent.iter().rev().find_map(nonce).unwrap()
    };
    let forged = |hello: &[u8]| {
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(&[0x52, 0x44, 0x56, 0x5a, 1, Kind::Challenge as u8, 0, 48]);
        bytes[8..16].copy_from_slice(&hello[40..48]);
        bytes[23] = 99;
        bytes
    };
    world.run(ms(0));
    let (now, bytes) = (world.now, forged(&hello(&world, HOST)));
    for _ in 0..3 {
        world.host.as_mut().unwrap().handle_datagram(now, server::addr(), &bytes);
    }
    assert!(world.run_until(ms(200), World::present), "the genuine answer counts all the same");
    let changed = HostEvent::InstanceChanged { instance: InstanceId(99) };
    assert_eq!(world.host_events.iter().filter(|it| **it == changed).count(), 1);
    world.add_joiner(21);
    world.run(ms(0));
    let (now, bytes) = (world.now, forged(&hello(&world, JOINER)));
    world.joiner.as_mut().unwrap().handle_datagram(now, server::addr(), &bytes);
    assert!(world.run_until(ms(1_000), World::both_connected));
    assert!(world.joiner_events.contains(&JoinerEvent::InstanceChanged { instance: InstanceId(99) }));
}

#[test]
fn a_hosts_port_stays_while_a_link_needs_it() {
    let mut world = both(18);
    assert!(world.run_until(ms(2_000), World::both_connected));
    let attempt = world.attempt();
    world.server = None;
    for number in 1..=60_u32 {
        let now = world.now;
        assert_eq!(world.host.as_mut().unwrap().send(now, attempt, b"tick"), Ok(number));
        assert_eq!(world.joiner.as_mut().unwrap().send(now, b"tock"), Ok(number));
        world.run(ms(1_000));
    }
    let ported = |world: &World| world.host_events.contains(&HostEvent::ChangePort);
    assert!(!ported(&world), "the link would die with the port");
    assert!(!world.joiner_events.contains(&JoinerEvent::ChangePort));
    let messages = |it: &&AttemptEvent| matches!(it, AttemptEvent::Message { .. });
    assert_eq!((world.hosted().filter(messages).count(), world.joined().filter(messages).count()), (60, 60));
    // The peer goes, the link closes, the server is still silent: now the port may change.
    world.joiner = None;
    assert!(world.run_until(ms(60_000), ported));
    assert_eq!(world.hosted().last(), Some(&AttemptEvent::Closed));
}

#[test]
fn a_link_follows_its_peer_but_no_delayed_or_replayed_datagram() {
    const MOVED: &str = "203.0.115.1:5001";
    const ELSEWHERE: &str = "203.0.116.1:6000";
    let mut world = both(19);
    assert!(world.run_until(ms(2_000), World::both_connected));
    // Past the trailing punches, which go where the peer was first heard.
    world.run(ms(2_000));
    let attempt = world.attempt();
    let say = |world: &mut World| {
        let now = world.now;
        world.joiner.as_mut().unwrap().send(now, b"tick").unwrap();
        world.joiner.as_mut().unwrap().poll_transmit().unwrap().bytes().to_vec()
    };
    let (first, second, third) = (say(&mut world), say(&mut world), say(&mut world));
    let punches = |world: &World| -> Vec<_> {
        let own = world.sent.iter().filter(|(_, from, _, b)| *from == addr(JOINER) && is(Kind::Punch, b));
        own.map(|(.., bytes)| bytes.clone()).collect()
    };
    // Where the host's next message goes after each of these came from there.
    let steps = [
        (first.clone(), MOVED, MOVED),
        (first.clone(), ELSEWHERE, MOVED),
        (third, JOINER, JOINER),
        (second, ELSEWHERE, JOINER),
        (first, MOVED, JOINER),
    ];
    let replays = punches(&world).into_iter().map(|punch| (punch, ELSEWHERE, JOINER));
    for (datagram, from, goes_to) in steps.into_iter().chain(replays) {
        let (now, host) = (world.now, world.host.as_mut().unwrap());
        host.handle_datagram(now, addr(from), &datagram);
        while host.poll_transmit().is_some() {}
        host.send(now, attempt, b"tock").unwrap();
        assert_eq!(host.poll_transmit().unwrap().to, addr(goes_to));
    }
}
