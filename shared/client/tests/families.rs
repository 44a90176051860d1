//! Both address families, private candidates, and what a machine knows of its own addresses.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test; clippy takes only test functions for one"
)]
#![expect(dead_code, reason = "the world is used in part")]

mod world;

use std::net::SocketAddr;

use rendezvous_client::host::HostEvent;
use rendezvous_client::joiner::JoinerEvent;
use rendezvous_client::peer::{Link, LinkConfig};
use rendezvous_client::{AttemptEvent, Machine, OwnAddresses};
use rendezvous_shared::credential::Secret;
use rendezvous_shared::id::{AttemptId, Handle, Role};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::Kind;
use world::server::{self, Bound};
use world::{HOST, HOST_6, JOINER, JOINER_6, World, addr, ms};

const LAN: &str = "192.168.7.9:4000";

fn own(v4: Option<&str>, v6: Option<&str>, lan: Option<&str>) -> OwnAddresses {
    let endpoint = |text: &str| addr(text).into();
    OwnAddresses { v4: v4.map(endpoint), v6: v6.map(endpoint), lan: [None, lan.map(endpoint)] }
}

fn server_6() -> SocketAddr {
    server::addr_for(addr(HOST_6))
}

/// A host with presence in both families, behind a NAT for IPv4.
fn dual(seed: u64) -> World {
    let mut world = World::new(seed).with_host(seed);
    let host = world.host.as_mut().unwrap();
    host.set_second_server(world.now, Some(server_6()));
    host.set_own(own(None, Some(HOST_6), Some(LAN)));
    world.run(ms(1_000));
    assert!(world.present());
    world
}

fn add_joiner(world: &mut World, seed: u64, addresses: OwnAddresses, both: bool) {
    world.add_joiner(seed);
    let now = world.now;
    let joiner = world.joiner.as_mut().unwrap();
    if both {
        joiner.set_second_server(now, server_6());
    }
    joiner.set_own(addresses);
}

fn bound(world: &World, role: Role) -> Bound {
    world.server.as_ref().unwrap().bound(world.attempt(), role).unwrap().clone()
}

fn presences_of(world: &World, from: &str) -> usize {
    let of = |sent: &&(_, SocketAddr, SocketAddr, Vec<u8>)| {
        sent.1 == addr(from) && sent.3[5] == Kind::Presence as u8
    };
    world.sent.iter().filter(of).count()
}

fn all_of(world: &World, family_4: bool) -> usize {
    world.sent.iter().filter(|(_, from, ..)| from.is_ipv4() == family_4).count()
}

#[test]
fn a_host_keeps_presence_in_both_families_each_at_its_own_pace() {
    let mut world = dual(1);
    world.run(ms(60_000));
    for from in [HOST, HOST_6] {
        let count = presences_of(&world, from);
        assert!((6..=9).contains(&count), "{count} from {from} in a minute");
    }
}

#[test]
fn peers_with_both_families_name_both_and_meet() {
    let mut world = dual(2);
    add_joiner(&mut world, 3, own(None, Some(JOINER_6), None), true);
    assert!(world.run_until(ms(2_000), World::both_connected));
    let (host, joiner) = (bound(&world, Role::Host), bound(&world, Role::Joiner));
    assert_eq!((host.at, host.second), (addr(HOST), Some(addr(HOST_6))));
    assert_eq!((joiner.at, joiner.second), (addr(JOINER), Some(addr(JOINER_6))));
    assert_eq!(host.lan, [addr(LAN)], "candidates come first, whichever was left out");
    let punched = |to: &str| world.sent.iter().any(|it| it.2 == addr(to) && it.3[5] == Kind::Punch as u8);
    assert!([HOST, HOST_6, JOINER, JOINER_6].into_iter().all(punched), "each endpoint gets a punch");
}

#[test]
fn one_family_in_common_is_enough() {
    // The joiner's only family is the host's second.
    let mut world = dual(4);
    let credentials = world.server.as_mut().unwrap().create_attempt(world.now);
    let credentials = rendezvous_client::JoinerCredentials { server: server_6(), ..credentials };
    world.joiner = Some(rendezvous_client::joiner::Joiner::new(credentials, 5, world.now));
    assert!(world.run_until(ms(2_000), World::both_connected), "{:?}", world.joiner_events);
    let host = bound(&world, Role::Host);
    assert_eq!((host.at, host.second), (addr(HOST_6), None), "IPv4 behind a NAT is not named");
}

#[test]
fn a_family_that_does_not_work_costs_a_joiner_little() {
    for broken_4 in [true, false] {
        let mut world = dual(6);
        add_joiner(&mut world, 7, own(None, Some(JOINER_6), None), true);
        let dead = addr(if broken_4 { JOINER } else { JOINER_6 });
        world.drop = Some(Box::new(move |from, to, _| from == dead || to == dead));
        let start = world.now;
        assert!(world.run_until(ms(2_000), World::both_connected), "IPv4 broken: {broken_4}");
        assert!(world.now.since(start) < ms(1_000), "{:?}", world.now.since(start));
        let at = bound(&world, Role::Joiner).at;
        assert_eq!(at, addr(if broken_4 { JOINER_6 } else { JOINER }));
    }
}

#[test]
fn a_second_endpoint_that_the_server_sees_elsewhere_is_left_out_in_the_end() {
    let mut world = dual(8);
    world.server.as_mut().unwrap().sees_second_elsewhere = true;
    add_joiner(&mut world, 9, own(None, Some(JOINER_6), None), true);
    assert!(world.run_until(ms(12_000), World::both_connected), "{:?}", world.joiner_events);
    assert_eq!(bound(&world, Role::Joiner).second, None);
    let repeats = world.sent.iter().filter(|it| it.1 == addr(JOINER) && it.3[5] == Kind::Bind as u8);
    assert!(repeats.count() > 8, "it was tried");
}

#[test]
fn repeats_of_a_bind_say_the_same_whatever_becomes_of_the_second_family() {
    let mut world = dual(10);
    // The host never learns of the attempt, so the joiner repeats its BIND until it is over.
    let deaf = move |_, to: SocketAddr, bytes: &[u8]| {
        [HOST, HOST_6].map(addr).contains(&to) && bytes[5] == Kind::Notice as u8
    };
    world.drop = Some(Box::new(deaf));
    add_joiner(&mut world, 11, own(None, Some(JOINER_6), None), true);
    world.run(ms(3_000));
    assert!(world.joined().any(|it| *it == AttemptEvent::Bound));
    let dead = addr(JOINER_6);
    world.drop = Some(Box::new(move |from, to, bytes| from == dead || to == dead || deaf(from, to, bytes)));
    // The model asserts that no BIND differs, and puts the attempt's end off by 20 s with each answer.
    world.run(ms(60_000));
    assert!(world.joined().any(|it| *it == AttemptEvent::TimedOut), "{:?}", world.joiner_events);
}

#[test]
fn the_second_port_changes_alone_when_only_its_family_is_silent() {
    let mut world = dual(12);
    let dead = addr(HOST_6);
    world.drop = Some(Box::new(move |from, to, _| from == dead || to == dead));
    world.host_events.clear();
    let changed = |world: &World| world.host_events.contains(&HostEvent::ChangeSecondPort);
    assert!(world.run_until(ms(40_000), changed));
    assert!(!world.host_events.contains(&HostEvent::ChangePort));
    assert!(world.host.as_ref().unwrap().is_present(), "the other family does");
    world.sent.clear();
    world.run(ms(60_000));
    assert!((9..=20).contains(&all_of(&world, false)), "{} in a minute", all_of(&world, false));
}

#[test]
fn a_new_registration_begins_in_one_family_and_takes_the_other_again() {
    let mut world = dual(14);
    world.server = Some(server::Server::new(2));
    let credentials = world.server.as_mut().unwrap().register(world.now);
    let now = world.now;
    let host = world.host.as_mut().unwrap();
    host.replace(now, credentials);
    host.set_second_server(now, Some(server_6()));
    host.set_own(own(None, Some(HOST_6), None));
    world.sent.clear();
    world.run(ms(1_000));
    assert_eq!([presences_of(&world, HOST), presences_of(&world, HOST_6)], [1, 1]);
    add_joiner(&mut world, 15, own(None, Some(JOINER_6), None), true);
    assert!(world.run_until(ms(2_000), World::both_connected));
    assert!(!world.joiner_events.iter().any(|it| matches!(it, JoinerEvent::InstanceChanged { .. })));
}

#[test]
fn one_bye_ends_presence_by_whichever_family_is_proved() {
    let mut world = dual(16);
    let dead = addr(HOST);
    world.drop = Some(Box::new(move |from, to, _| from == dead || to == dead));
    world.run(ms(60_000));
    let now = world.now;
    world.host.as_mut().unwrap().close(now);
    world.run(ms(1_000));
    assert_eq!(world.server.as_ref().unwrap().byes, 1);
    assert!(world.host_events.contains(&HostEvent::Closed { acknowledged: true }));
}

#[test]
fn a_private_candidate_gets_three_punches_beside_those_to_the_public_endpoint() {
    let lan = addr(LAN).into();
    let config = LinkConfig {
        attempt: AttemptId::new(1, Handle(1)),
        role: Role::Joiner,
        key: Secret::from_bytes([7; 32]),
        peer: addr(HOST).into(),
        second: None,
        lan: [Some(lan), None],
        start_in: ms(0),
        retry: ms(100),
        retry_max: 20,
        keep_alive: ms(10_000),
    };
    let mut now = Instant::from_millis(1);
    let mut link = Link::new(config, 1, now);
    let mut sent = Vec::new();
    while link.next_timeout() < Instant::MAX {
        now = now.max(link.next_timeout());
        link.handle_timeout(now);
        sent.extend(std::iter::from_fn(|| link.poll_transmit()).map(|it| it.to));
    }
    let count = |to: &str| sent.iter().filter(|it| **it == addr(to)).count();
    assert_eq!((count(LAN), count(HOST), sent.len()), (3, 20, 23));
}

#[test]
fn candidates_follow_a_joiner_to_another_port_until_they_are_bound() {
    let mut world = dual(18);
    add_joiner(&mut world, 19, own(None, None, Some("192.168.7.7:5000")), false);
    world.joiner.as_mut().unwrap().set_own(own(None, None, Some("192.168.7.7:5002")));
    assert!(world.run_until(ms(2_000), World::both_connected));
    assert_eq!(bound(&world, Role::Joiner).lan, [addr("192.168.7.7:5002")]);
    assert!(world.joiner.as_ref().unwrap().next_timeout() > world.now);
}
