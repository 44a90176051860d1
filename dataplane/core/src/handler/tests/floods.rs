//! Ceilings on what strangers get, and on what one who proved himself gets.

use super::*;
use crate::handler::Load;

/// HELLOs of a key whose secret the sender does not know.
fn stranger(known: &Client) -> Client {
    Client { secret: Secret::from_bytes([0; 32]), ..known.clone() }
}

/// Addresses all over the internet.
fn anywhere(step: u32) -> SocketAddr {
    let [a, b, c, d] = step.wrapping_mul(2_654_435_761).to_be_bytes();
    SocketAddr::from(([11 + a % 80, b, c, d], 4_000))
}

#[test]
fn a_flood_of_hellos_is_answered_up_to_the_ceiling_and_known_keys_still_get_through() {
    let mut server = Server::with(AddressPolicy::Public, 2_000);
    let known = server.register().lease.presence_key;
    let known = server.client(known, "9.9.9.1:4000");
    let (flood, hello) = (stranger(&known).hello(160), known.hello(160));
    let mut answered = 0;
    for step in 0..100_000u32 {
        server.sleep(Duration::from_micros(10));
        let end = server.receive(anywhere(step), &flood);
        answered += usize::from(!end.is_silent());
        let limited = [DatagramOutcome::UnprovedCeiling, DatagramOutcome::SourceLimited];
        assert!(end.is_silent() == limited.contains(&end.outcome), "{end:?}");
        if step % 10_000 == 9_999 {
            assert!(!server.receive(known.source, &hello).is_silent(), "a known key was kept out");
        }
    }
    assert!((900..=1_101).contains(&answered), "{answered} in a second of half of 2,000");
    assert_eq!(server.handler.next_timeout(), None, "nothing is kept for a stranger");
}

/// The flood comes from all around the honest host, and names its key.
#[test]
fn a_flood_from_the_hosts_own_network_keeps_strangers_out_and_not_the_host() {
    let mut server = Server::new();
    let key_id = server.register().lease.presence_key;
    let mut host = server.client(key_id, "9.9.9.1:4000");
    let flood = stranger(&host).hello(160);
    let mut answered = 0;
    for step in 0..20_000u32 {
        server.sleep(Duration::from_micros(50));
        let source = SocketAddr::from(([9, 9, 9, (step % 256) as u8], 5_000));
        answered += u32::from(!server.receive(source, &flood).is_silent());
    }
    let (per_second, burst) = limits::SOURCE_BUDGETS[1];
    assert!((per_second..=per_second + burst + 1).contains(&answered), "{answered}");
    // Neither its HELLO nor what it proves is refused; a stranger of another network is served.
    assert!(!server.receive(host.source, &host.hello(160)).is_silent());
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
    assert!(!server.receive(at("12.1.2.3:4000"), &flood).is_silent());
}

/// Bad MACs from a proved address are that address's own affair: even its neighbour behind the same NAT is heard.
#[test]
fn nobody_is_locked_out_by_guessing() {
    let mut server = Server::new();
    let key_id = server.register().lease.presence_key;
    let mut host = server.client(key_id, "9.9.9.1:4000");
    let mut guesser = Client { source: at("9.9.9.1:4001"), ..host.clone() };
    guesser.cookie = server.cookie_at(&host, guesser.source);
    guesser.secret = Secret::from_bytes([0; 32]);
    for _ in 0..100_000 {
        server.sleep(Duration::from_micros(10));
        assert_eq!(server.receive(guesser.source, &guesser.presence()).outcome, DatagramOutcome::BadMac);
    }
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
    assert!(!server.receive(host.source, &host.hello(160)).is_silent());
    // What the guesser loses is the way to another cookie.
    let end = server.receive(guesser.source, &guesser.hello(160));
    assert_eq!((end.outcome, end.is_silent()), (DatagramOutcome::SourceLimited, true));
}

#[test]
fn the_whole_ceiling_holds_for_known_keys_too() {
    let mut server = Server::with(AddressPolicy::Public, 2_000);
    let known: Vec<_> = (0..100).map(|_| server.register().lease.presence_key).collect();
    let clients: Vec<_> = (0..100).map(|i| server.client(known[i], &format!("9.9.{i}.1:4000"))).collect();
    let mut answered = 0;
    server.sleep(Duration::from_secs(10));
    for step in 0..100_000 {
        server.sleep(Duration::from_micros(10));
        let client = &clients[step % 100];
        answered += usize::from(!server.receive(client.source, &client.hello(160)).is_silent());
    }
    assert!((1_900..=2_202).contains(&answered), "{answered} in a second");
}

/// A key's holder cannot take the others' share of the reserved half.
#[test]
fn one_key_has_its_own_share_of_hellos_and_datagrams() {
    let mut server = Server::new();
    let key_id = server.register().lease.presence_key;
    let mut host = server.client(key_id, "9.9.9.1:4000");
    server.sleep(Duration::from_secs(10));
    let hellos = (0..1_000).filter(|_| !server.receive(host.source, &host.hello(160)).is_silent()).count();
    // Beyond its own it is a stranger, with what its address has.
    assert_eq!(hellos as u32, limits::HELLO_BUDGET.1 + limits::SOURCE_BUDGETS[0].1);
    let ends: Vec<_> = (0..1_000).map(|_| server.receive(host.source, &host.presence()).outcome).collect();
    let accepted = ends.iter().filter(|it| **it == DatagramOutcome::PresenceAccepted).count();
    assert_eq!(accepted as u32, limits::HOST_KEY_BUDGET.1);
    assert_eq!(ends[999], DatagramOutcome::KeyLimited);
    let other = server.register().lease.presence_key;
    let mut other = server.client(other, "9.9.9.2:4000");
    assert_eq!(server.receive(other.source, &other.presence()).outcome, DatagramOutcome::PresenceAccepted);
}

/// One who listens repeats a datagram of the host, from its address: the host goes on all the same.
#[test]
fn repeats_of_what_the_host_sent_do_not_keep_it_out() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let (presence, bind) = (host.presence(), joiner.bind(attempt));
    server.receive(host.source, &presence);
    server.receive(joiner.source, &bind);
    let mut reached = 0;
    for _ in 0..10_000 {
        assert_eq!(server.receive(host.source, &presence).outcome, DatagramOutcome::StaleSequence);
        reached += u32::from(server.receive(joiner.source, &bind).outcome == DatagramOutcome::BindAccepted);
    }
    assert_eq!(reached, limits::REPEAT_BUDGET.1, "a repeated BIND is answered, a few times a second");
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
    assert_eq!(server.receive(joiner.source, &joiner.bind(attempt)).outcome, DatagramOutcome::BindAccepted);
}

#[test]
fn a_dead_key_is_told_so_without_asking_the_store_again() {
    let mut server = Server::new();
    let grant = server.register();
    let mut host = server.client(grant.lease.presence_key, "9.9.9.1:4000");
    server.receive(host.source, &host.presence());
    let (caller, listing) = (Server::caller(1), grant.view.id);
    server.apply(Transition::DeleteListing(rendezvous_shared::store::DeleteListing { caller, listing }));
    let mut asked = 0;
    for _ in 0..3 {
        let bytes = host.presence();
        let received = Received { source: host.source, local: None, truncated: false, bytes: &bytes };
        let (outcome, answer) = match server.handler.on_datagram(server.now, &received) {
            Action::Answer(answer, outcome) => (outcome, answer),
            Action::Submit(transition, pending) => {
                asked += 1;
                let reply = server.apply(transition);
                let settled = server.handler.on_reply(server.now, &pending, &reply);
                (settled.outcome, settled.answer.unwrap())
            }
            other @ Action::Silence(_) => panic!("{other:?}"),
        };
        let (_, bytes) = encoded(&answer);
        let Ok(Parsed::Ack(ack)) = wire::parse_answer(&bytes) else { panic!("{bytes:?}") };
        assert!(ack.verify(Direction::ToClient, &host.secret));
        assert_eq!((outcome, ack.body.code), (DatagramOutcome::RefusedNotFound, 1));
    }
    assert_eq!(asked, 1);
}

#[test]
fn overload_sheds_in_the_order_of_the_protocol() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let grant = server.register();
    let mut new_host = server.client(grant.lease.presence_key, "9.9.9.3:4000");
    let hello = host.hello(160);
    let table = [
        (Load::Light, [false; 4]),
        (Load::Half, [true, false, false, false]),
        (Load::FiveEighths, [true, true, false, false]),
        (Load::ThreeQuarters, [true, true, true, false]),
    ];
    for (load, shed) in table.into_iter().rev() {
        server.handler.set_load(load);
        let ends = [
            server.receive(at("9.9.9.7:4000"), &hello).outcome == DatagramOutcome::ShedHello,
            server.receive(joiner.source, &joiner.bind(attempt)).outcome == DatagramOutcome::ShedBind,
            server.receive(new_host.source, &new_host.presence()).outcome == DatagramOutcome::ShedPresence,
            server.receive(host.source, &host.presence()).outcome != DatagramOutcome::PresenceAccepted
                || server.receive(host.source, &host.bind(attempt)).is_silent(),
        ];
        assert_eq!(ends, shed, "{load:?}");
    }
}
