//! From BIND to INTRODUCE.

use super::*;
use rendezvous_shared::credential::PunchSecret;
use rendezvous_shared::endpoint::Mapping;

/// What an INTRODUCE tells `client`, after checking who made it.
fn introduce(client: &Client, attempt: AttemptId, bytes: &[u8]) -> (wire::Introduce, PunchSecret) {
    let Ok(Parsed::Introduce(it)) = wire::parse_answer(bytes) else { panic!("no INTRODUCE") };
    let right = client.right(attempt);
    assert!(it.verify(Direction::ToClient, &right), "not for this client");
    assert_eq!(it.body.attempt, attempt.to_bytes());
    let masked = PunchSecret::from_bytes(it.body.punch_masked);
    let punch = right.mask(attempt, masked);
    assert_ne!(punch, masked);
    (*it.body, punch)
}

#[test]
fn both_peers_learn_each_other_and_one_secret() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let end = server.receive(joiner.source, &joiner.bind(attempt));
    assert_eq!((end.outcome, end.sent.len()), (DatagramOutcome::BindAccepted, 2));
    assert_eq!((end.sent[0].0, end.sent[1].0), (joiner.source, host.source));
    let Ok(Parsed::Bound(bound)) = wire::parse_answer(&end.sent[0].1) else { panic!("no BOUND") };
    assert!(bound.verify(Direction::ToClient, &joiner.secret));
    assert_eq!((bound.body.code, bound.body.flags, bound.body.remaining_ms.get()), (0, 0, 20_000));
    let Ok(Parsed::Notice(notice)) = wire::parse_answer(&end.sent[1].1) else { panic!("no NOTICE") };
    assert!(notice.verify(Direction::ToClient, &host.secret));
    assert_eq!((notice.body.attempt, notice.body.ordinal), (attempt.to_bytes(), 1));
    host.cookie = notice.body.cookie;
    let received = host.bind(attempt);
    let end = server.receive(host.source, &received);
    assert_eq!(end.outcome, DatagramOutcome::Introduced);
    let sent: usize = end.sent.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(sent <= received.len(), "BIND pays for its answers");
    let (to_host, host_punch) = introduce(&host, attempt, &end.sent[0].1);
    let (to_joiner, joiner_punch) = introduce(&joiner, attempt, &end.sent[1].1);
    assert_eq!((end.sent[0].0, to_host.peer.get()), (host.source, Some(joiner.source.into())));
    assert_eq!((end.sent[1].0, to_joiner.peer.get()), (joiner.source, Some(host.source.into())));
    assert!(host_punch == joiner_punch && host_punch == master().punch_secret(attempt));
    // The next cookies serve.
    (host.cookie, joiner.cookie) = (to_host.cookie, to_joiner.cookie);
    for client in [&mut host, &mut joiner] {
        let end = server.receive(client.source, &client.bind(attempt));
        assert_eq!((end.outcome, end.sent.len()), (DatagramOutcome::Introduced, 1));
        introduce(client, attempt, &end.sent[0].1);
        let end = server.receive(client.source, &client.report(attempt, 1));
        assert_eq!(end.outcome, DatagramOutcome::ReportAccepted);
    }
    assert_eq!(server.store.stats().introductions, 1);
}

#[test]
fn a_host_binds_by_its_right_in_the_attempt_only() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let mut plain = host.clone();
    let len = limits::BIND_LEN_MIN;
    let mut bind = wire::Bind::new_zeroed();
    (bind.proof, bind.attempt) = (plain.proof(Kind::Bind, len), attempt.to_bytes());
    let end = server.receive(host.source, &sealed(&bind, len, &host.secret));
    assert!(end.is_silent() && end.outcome == DatagramOutcome::BadMac, "the presence secret is no right");
    let other = AttemptId::new(3, attempt.handle());
    let bytes = sealed(&bind, len, &host.right(other));
    assert_eq!(server.receive(host.source, &bytes).outcome, DatagramOutcome::BadMac);
    // What a joiner binds from elsewhere with a good cookie is refused, and goes to it alone.
    server.receive(joiner.source, &joiner.bind(attempt));
    let mut moved = server.client(joiner.key_id, "9.9.9.3:5000");
    moved.sequence = 100;
    let end = server.receive(moved.source, &moved.bind(attempt));
    assert_eq!((end.outcome, end.sent[0].0), (DatagramOutcome::RefusedConflict, moved.source));
    assert_eq!(server.receive(host.source, &host.bind(attempt)).outcome, DatagramOutcome::Introduced);
}

#[test]
fn a_second_family_needs_a_cookie_of_its_own() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let second = at("[2600::2]:5000");
    let good = server.cookie_at(&joiner, second);
    let first = joiner.cookie;
    let mut with = |server: &mut Server, second: SocketAddr, cookie: Cookie| {
        let bytes = joiner.bind_with(attempt, |it| {
            (it.second, it.second_cookie) = (Some(Endpoint::from(second)).into(), cookie);
        });
        server.receive(joiner.source, &bytes)
    };
    let table = [
        (at("[2600::2]:5001"), good, DatagramOutcome::BadCookie),
        (second, first, DatagramOutcome::BadCookie),
        (second, Cookie::new_zeroed(), DatagramOutcome::BadField),
        (at("9.9.9.2:5001"), good, DatagramOutcome::BadField),
        (at("[2600::2]:53"), good, DatagramOutcome::BadSourcePort),
        (at("[fe80::2]:5000"), good, DatagramOutcome::AddressPolicy),
    ];
    for (second, cookie, expected) in table {
        let end = with(&mut server, second, cookie);
        assert!(end.is_silent() && end.outcome == expected, "{second}: {:?}", end.outcome);
    }
    assert_eq!(with(&mut server, second, good).outcome, DatagramOutcome::BindAccepted);
    let host_second = at("[2600::1]:4000");
    let cookie = server.cookie_at(&host, host_second);
    let bytes = host.bind_with(attempt, |it| {
        (it.second, it.second_cookie) = (Some(Endpoint::from(host_second)).into(), cookie);
    });
    let end = server.receive(host.source, &bytes);
    let (to_host, _) = introduce(&host, attempt, &end.sent[0].1);
    assert_eq!(
        (to_host.peer.get(), to_host.peer_second.get()),
        (Some(endpoint("9.9.9.2:5000")), Some(endpoint("[2600::2]:5000")))
    );
}

#[test]
fn candidates_are_private_or_the_bind_is_silent() {
    let mut server = Server::new();
    let (_, mut joiner, attempt) = server.pair();
    for bad in ["8.8.8.8:5000", "127.0.0.1:5000", "192.168.0.1:1023", "169.254.0.1:5000", "[2600::1]:5000"] {
        let bytes = joiner.bind_with(attempt, |it| it.lan[0] = Some(endpoint(bad)).into());
        let end = server.receive(joiner.source, &bytes);
        assert!(end.is_silent() && end.outcome == DatagramOutcome::BadField, "{bad}");
    }
    let bytes = joiner.bind_with(attempt, |it| it.lan[0] = Some(endpoint("192.168.0.1:5000")).into());
    assert_eq!(server.receive(joiner.source, &bytes).outcome, DatagramOutcome::BindAccepted);
}

/// Where each answer goes to and leaves from.
fn ways(end: &End) -> Vec<(SocketAddr, Option<IpAddr>)> {
    end.sent.iter().map(|(to, _)| *to).zip(end.from.iter().copied()).collect()
}

#[test]
fn an_unasked_answer_leaves_from_the_address_its_receiver_asked() {
    let local = |text: &str| -> Option<IpAddr> { Some(text.parse().unwrap()) };
    let (two, three, four) = (local("9.9.9.252"), local("9.9.9.253"), local("9.9.9.254"));
    // NOTICE, with the repeats of it, and INTRODUCE to the host.
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    server.receive_at(two, host.source, &host.presence());
    let end = server.receive_at(three, joiner.source, &joiner.bind(attempt));
    assert_eq!(ways(&end), [(joiner.source, three), (host.source, two)]);
    server.sleep(limits::RESEND_INTERVAL);
    let repeated: Vec<_> = server.unasked_repeats().iter().map(|it| (it.to(), it.from())).collect();
    assert_eq!(repeated, [(host.source, two)]);
    let end = server.receive_at(four, host.source, &host.presence());
    assert_eq!(ways(&end), [(host.source, four), (host.source, four)], "the one it last asked");
    // INTRODUCE to whoever bound first, at the address it last asked.
    let end = server.receive_at(two, host.source, &host.bind(attempt));
    assert_eq!(ways(&end), [(host.source, two), (joiner.source, three)]);
    let (key_id, attempt) = server.create_again(attempt);
    let mut joiner = server.client(key_id, "[2600::2]:5000");
    let second = at("9.9.9.2:5000");
    let cookie = server.cookie_at(&joiner, second);
    server.receive_at(two, host.source, &host.bind(attempt));
    server.receive_at(four, host.source, &host.bind(attempt));
    let bytes = joiner.bind_with(attempt, |it| {
        (it.second, it.second_cookie) = (Some(Endpoint::from(second)).into(), cookie);
    });
    let six = local("2600::250");
    let end = server.receive_at(six, joiner.source, &bytes);
    assert_eq!(ways(&end), [(joiner.source, six), (host.source, four)]);
    // The other family's address is none to leave from.
    let (key_id, attempt) = server.create_again(attempt);
    let mut joiner = server.client(key_id, "[2600::2]:5000");
    let end = server.receive_at(six, joiner.source, &joiner.bind(attempt));
    assert_eq!(ways(&end), [(joiner.source, six), (host.source, four)]);
}

impl Server {
    /// Another attempt at the listing of `attempt`.
    pub(super) fn create_again(&mut self, attempt: AttemptId) -> (KeyId, AttemptId) {
        use rendezvous_shared::store::{GetAttempt, GetListing, ListingLocator};
        let caller = Self::caller(1);
        let Reply::Attempt(view) = self.apply(Transition::GetAttempt(GetAttempt { caller, attempt })) else {
            panic!("no attempt")
        };
        let locator = ListingLocator::Id(view.listing);
        let Reply::Listing(view) = self.apply(Transition::GetListing(GetListing { caller, locator })) else {
            panic!("no listing")
        };
        let lease = view.lease;
        let grant = self.create(&ListingGrant { view: *view, lease, replayed: false });
        (grant.joiner_key, grant.id)
    }
}

/// The cookie of the probe port tells whether a NAT gave the same address and port towards it.
#[test]
fn a_mapping_is_learnt_from_the_probe_ports_cookie() {
    let seen_at_probe = [("9.9.9.2:5000", Mapping::Stable), ("9.9.9.2:5001", Mapping::Varies)];
    for (seen, expected) in seen_at_probe {
        let mut server = Server::new();
        let (_, mut joiner, attempt) = server.pair();
        let mut probe = crate::handler::Cookies::new(&master(), PROBE_PORT);
        let cookie = probe.issue(server.now, &joiner.key_id, endpoint(seen));
        let mapping_of = |server: &mut Server, joiner: &mut Client, cookie: Cookie| {
            let bytes = joiner.bind_with(attempt, |it| it.probe_cookie = cookie);
            let received = Received { source: joiner.source, local: None, truncated: false, bytes: &bytes };
            match server.handler.on_datagram(server.now, &received) {
                Action::Submit(Transition::Bind(bind), _) => bind.mapping,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(mapping_of(&mut server, &mut joiner, cookie), expected, "{seen}");
        assert_eq!(mapping_of(&mut server, &mut joiner, Cookie::new_zeroed()), Mapping::Unknown);
        let before = Instant::from_millis(server.now.as_millis() - 30_001);
        let old = probe.issue(before, &joiner.key_id, endpoint(seen));
        assert_eq!(mapping_of(&mut server, &mut joiner, old), Mapping::Unknown, "too old to say anything");
    }
}
