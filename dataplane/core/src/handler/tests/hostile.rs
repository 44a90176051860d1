//! What is not a good datagram: only documented outcomes, and answers only where they are allowed.

use super::*;

/// Headers of IP and UDP, for the smaller family.
const HEADERS: usize = 28;

/// Datagrams and bytes sent for one unproved datagram are at most those received.
fn assert_not_amplified(end: &End, received: usize) {
    let sent: usize = end.sent.iter().map(|(_, bytes)| bytes.len() + HEADERS).sum();
    assert!(end.sent.len() <= 1 && sent <= received + HEADERS, "{received} became {sent}");
}

#[test]
fn every_type_and_length_comes_to_a_documented_end() {
    let mut server = Server::new();
    let key_id = server.register().lease.presence_key;
    let client = server.client(key_id, "9.9.9.1:4000");
    for kind in 0..=255u8 {
        for len in (0..=1500usize).filter(|len| kind < 6 || len % 37 == 0) {
            let mut bytes = vec![0; len];
            let good = client.hello(limits::HELLO_LEN_MIN);
            let head = good.len().min(len);
            bytes[..head].copy_from_slice(&good[..head]);
            if len >= 8 {
                bytes[5] = kind;
                bytes[6..8].copy_from_slice(&(len as u16).to_be_bytes());
            }
            let end = server.receive(client.source, &bytes);
            assert_not_amplified(&end, len);
            let documented = match end.outcome {
                DatagramOutcome::Challenged => kind == 1 && (160..=1200).contains(&len),
                DatagramOutcome::UnprovedCeiling => kind == 1 && (160..=1200).contains(&len),
                DatagramOutcome::Empty => len == 0,
                DatagramOutcome::TooShort => len < 352,
                DatagramOutcome::Oversized => len > 1200 || (matches!(kind, 4 | 5) && len > 256),
                DatagramOutcome::BadType => !(1..=5).contains(&kind),
                // Padding that is not zero: the MAC of the HELLO is in it. Zero cookies are stale.
                DatagramOutcome::BadField | DatagramOutcome::StaleCookie => (1..=5).contains(&kind),
                _ => false,
            };
            assert!(documented, "type {kind}, length {len}: {:?}", end.outcome);
            assert_eq!(end.is_silent(), end.outcome != DatagramOutcome::Challenged);
        }
    }
}

#[test]
fn one_wrong_byte_anywhere_is_silent() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let datagrams = [
        (host.source, host.presence()),
        (host.source, host.bye()),
        (host.source, host.bind(attempt)),
        (joiner.source, joiner.bind(attempt)),
        (joiner.source, joiner.report(attempt, 1)),
    ];
    let before = server.store.stats();
    for (source, good) in &datagrams {
        for at in 0..good.len() {
            let mut forged = good.clone();
            forged[at] ^= 0x10;
            let end = server.receive(*source, &forged);
            assert!(end.is_silent(), "byte {at}: {:?}", end.outcome);
        }
        for len in 0..good.len() {
            assert!(server.receive(*source, &good[..len]).is_silent());
        }
    }
    assert_eq!(server.store.stats(), before, "nothing of it reached the store");
    for (source, good) in &datagrams {
        assert!(!server.receive(*source, good).is_silent(), "the genuine one still counts");
    }
}

#[test]
fn defects_have_names() {
    let mut server = Server::new();
    let key_id = server.register().lease.presence_key;
    let mut host = server.client(key_id, "9.9.9.1:4000");
    let good = host.presence();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let mut outcome = |source: &str, bytes: &[u8]| server.receive(at(source), bytes).outcome;
    assert_eq!(outcome("9.9.9.1:4000", &with(0, b'X')), DatagramOutcome::BadMagic);
    assert_eq!(outcome("9.9.9.1:4000", &with(4, 2)), DatagramOutcome::BadVersion);
    assert_eq!(outcome("9.9.9.1:4000", &with(7, 161)), DatagramOutcome::BadLength);
    assert_eq!(outcome("9.9.9.1:4000", &with(8, 3)), DatagramOutcome::BadKey);
    assert_eq!(outcome("9.9.9.1:4000", &with(159, good[159] ^ 1)), DatagramOutcome::BadMac);
    assert_eq!(outcome("9.9.9.1:4000", &with(50, good[50] ^ 1)), DatagramOutcome::BadCookie);
    assert_eq!(outcome("9.9.9.1:4001", &good), DatagramOutcome::BadCookie, "another port");
    assert_eq!(outcome("9.9.9.3:4000", &good), DatagramOutcome::BadCookie, "another address");
    let truncated = Received { source: host.source, local: None, truncated: true, bytes: &good };
    let action = server.handler.on_datagram(server.now, &truncated);
    assert!(matches!(action, Action::Silence(DatagramOutcome::Oversized)));
    for (sequence, expected) in [(0, DatagramOutcome::BadSequence), (u64::MAX, DatagramOutcome::BadSequence)]
    {
        host.sequence = sequence.wrapping_sub(1);
        let mut bytes = vec![];
        if sequence == 0 {
            // `proof` adds one, so wrap by hand.
            let mut proof = host.proof_with(0);
            proof.sequence = U64::new(0);
            bytes.extend(sealed(&wire::Presence { proof }, 160, &host.secret));
        } else {
            bytes.extend(host.presence());
        }
        assert_eq!(server.receive(host.source, &bytes).outcome, expected);
    }
}

impl Client {
    fn proof_with(&self, sequence: u64) -> wire::Proof {
        wire::Proof {
            header: Header::new(Kind::Presence, limits::PRESENCE_LEN_MIN),
            key_id: self.key_id,
            cookie: self.cookie,
            session: U64::new(self.session),
            sequence: U64::new(sequence),
        }
    }
}

#[test]
fn our_own_answers_are_no_requests() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let mut answers = vec![];
    answers.extend(server.receive(joiner.source, &joiner.hello(160)).sent);
    answers.extend(server.receive(joiner.source, &joiner.bind(attempt)).sent);
    answers.extend(server.receive(host.source, &host.presence()).sent);
    answers.extend(server.receive(host.source, &host.bind(attempt)).sent);
    assert!(answers.len() >= 7, "CHALLENGE, BOUND, NOTICE, ACK, NOTICE, INTRODUCE, INTRODUCE");
    for (to, bytes) in answers {
        for source in [to, host.source, joiner.source, at(SERVER)] {
            let end = server.receive(source, &bytes);
            assert!(end.is_silent(), "{end:?}");
        }
    }
}

#[test]
fn keys_of_other_times_and_places() {
    let mut server = Server::new();
    let grant = server.register();
    let good = grant.lease.presence_key;
    let other = KeyId::new(
        rendezvous_shared::id::Role::Host,
        good.tenant(),
        InstanceId(1),
        good.handle(),
        good.expires(),
    );
    let mut host = server.client(other, "9.9.9.1:4000");
    let end = server.receive(host.source, &host.presence());
    assert!(end.is_silent() && end.outcome == DatagramOutcome::BadKey, "HELLO was challenged, this is not");
    let expired =
        KeyId::new(rendezvous_shared::id::Role::Host, good.tenant(), INSTANCE, good.handle(), server.now);
    let mut host = server.client(expired, "9.9.9.1:4000");
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::BadKey);
    // A joiner's key proves no presence, whatever its MAC.
    let (_, mut joiner, _) = server.pair();
    assert_eq!(server.receive(joiner.source, &joiner.presence()).outcome, DatagramOutcome::BadKey);
    assert_eq!(server.receive(joiner.source, &joiner.bye()).outcome, DatagramOutcome::BadKey);
    // A key somebody made up, for an object that exists: its secret cannot be derived outside.
    let mut thief = server.client(good, "9.9.9.7:4000");
    thief.secret = Secret::from_bytes([0; 32]);
    assert_eq!(server.receive(thief.source, &thief.presence()).outcome, DatagramOutcome::BadMac);
    // The cookie of one key is no cookie of another at the same address.
    let mut host = server.client(good, "9.9.9.7:4000");
    host.cookie = joiner.cookie;
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::BadCookie);
}

#[test]
fn replays_and_old_cookies_are_silent() {
    let mut server = Server::new();
    let grant = server.register();
    let mut host = server.client(grant.lease.presence_key, "9.9.9.1:4000");
    let first = host.presence();
    let second = host.presence();
    assert_eq!(server.receive(host.source, &second).outcome, DatagramOutcome::PresenceAccepted);
    for replay in [&first, &second] {
        let end = server.receive(host.source, replay);
        assert!(end.is_silent() && end.outcome == DatagramOutcome::StaleSequence);
    }
    server.sleep(limits::PROOF_AGE_MAX + Duration::from_millis(1));
    let end = server.receive(host.source, &host.presence());
    assert!(end.is_silent() && end.outcome == DatagramOutcome::StaleCookie);
}

#[test]
fn sources_that_take_no_part() {
    let table = [
        (SERVER, DatagramOutcome::OwnAddress),
        ("[::ffff:9.9.9.250]:7777", DatagramOutcome::OwnAddress),
        ("9.9.9.1:0", DatagramOutcome::BadSourcePort),
        ("9.9.9.1:53", DatagramOutcome::BadSourcePort),
        ("9.9.9.1:1023", DatagramOutcome::BadSourcePort),
        ("9.9.9.1:1024", DatagramOutcome::Challenged),
        ("9.9.9.250:7778", DatagramOutcome::Challenged),
        ("127.0.0.1:4000", DatagramOutcome::AddressPolicy),
        ("[::ffff:10.0.0.1]:4000", DatagramOutcome::AddressPolicy),
        ("[64:ff9b::a00:1]:4000", DatagramOutcome::AddressPolicy),
        ("224.0.0.1:4000", DatagramOutcome::AddressPolicy),
        ("[2600::1]:4000", DatagramOutcome::Challenged),
    ];
    let mut server = Server::new();
    let key_id = server.register().lease.presence_key;
    let hello = server.client(key_id, "9.9.9.1:4000").hello(160);
    for (source, expected) in table {
        let end = server.receive(at(source), &hello);
        assert_eq!(end.outcome, expected, "{source}");
        assert_eq!(end.is_silent(), expected != DatagramOutcome::Challenged);
    }
    let asked = Some("9.9.9.240".parse().unwrap());
    let end = server.receive_at(asked, at("9.9.9.240:7777"), &hello);
    assert_eq!(end.outcome, DatagramOutcome::OwnAddress, "bound to a wildcard: the address that was asked");
    for (policy, ip, served) in [
        (AddressPolicy::Lan, "10.0.0.1:4000", true),
        (AddressPolicy::Lan, "127.0.0.1:4000", false),
        (AddressPolicy::Test, "127.0.0.1:4000", true),
    ] {
        let mut server = Server::with(policy, 1_000);
        assert_eq!(!server.receive(at(ip), &hello).is_silent(), served, "{policy:?} {ip}");
    }
}

/// What the ring remembers of sequences must hold up nothing that the store would take.
#[test]
fn a_leap_too_far_does_not_keep_the_host_out() {
    let mut server = Server::new();
    let (mut host, ..) = server.pair();
    let sequence = host.sequence;
    host.sequence += limits::SEQUENCE_JUMP_MAX + 1;
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::StaleSequence);
    host.sequence = sequence;
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
    // So is a session whose first sequence is out of range.
    let mut other = host.clone();
    server.sleep(Duration::from_secs(1));
    other.cookie = server.cookie_at(&host, host.source);
    (other.session, other.sequence) = (2, limits::SEQUENCE_JUMP_MAX);
    assert_eq!(server.receive(host.source, &other.presence()).outcome, DatagramOutcome::StaleSequence);
    assert_eq!(server.receive(host.source, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
}
