//! The handler with a real store behind it and datagrams made by hand.

mod binding;
mod floods;
mod hostile;
mod repeats;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use rendezvous_shared::credential::{Direction, KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::{AddressPolicy, Endpoint};
use rendezvous_shared::id::{AttemptId, InstanceId, PrincipalId, TenantId};
use rendezvous_shared::limits::{self, Limits};
use rendezvous_shared::outcome::DatagramOutcome;
use rendezvous_shared::store::{
    AttemptGrant, Caller, CreateAttempt, DescriptionParts, EphemeralRendezvousStore, IdempotencyKey,
    ListingDescription, ListingGrant, Quotas, RegisterListing, Reply, Transition, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Answer as Parsed, Cookie, Header, Kind, WireEndpoint};
use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::{U16, U64};

use super::{Action, Handler, HandlerOptions, Received};
use crate::store::MemoryStore;

const INSTANCE: InstanceId = InstanceId(0x1157);
const SERVER: &str = "9.9.9.250:7777";
const PROBE_PORT: u16 = 7778;
const QUOTAS: Quotas =
    Quotas { listings_per_owner: 100, listings_per_tenant: 100, attempts_per_tenant: 100_000 };

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn master() -> MasterKey {
    MasterKey::from_bytes([0x5e; 32])
}

/// One end of one received datagram: its outcome and what was sent for it.
#[derive(Debug)]
struct End {
    outcome: DatagramOutcome,
    sent: Vec<(SocketAddr, Vec<u8>)>,
    /// The local address that each is to leave from.
    from: Vec<Option<IpAddr>>,
}

impl End {
    fn new<'a>(outcome: DatagramOutcome, answers: impl IntoIterator<Item = &'a super::Answer>) -> Self {
        let (sent, from) = answers.into_iter().map(|it| (encoded(it), it.from())).unzip();
        Self { outcome, sent, from }
    }

    fn is_silent(&self) -> bool {
        self.sent.is_empty()
    }

    /// Its only answer.
    fn answer(&self) -> &[u8] {
        assert_eq!(self.sent.len(), 1, "{self:?}");
        &self.sent[0].1
    }
}

fn encoded(answer: &super::Answer) -> (SocketAddr, Vec<u8>) {
    let mut out = [0; limits::ANSWER_LEN_MAX];
    let len = answer.encode(&mut out);
    assert!(len <= limits::ANSWER_LEN_MAX);
    (answer.to(), out[..len].to_vec())
}

/// A server: handler, store, time by hand.
struct Server {
    now: Instant,
    handler: Handler,
    store: MemoryStore,
    creates: u128,
}

impl Server {
    fn new() -> Self {
        Self::with(AddressPolicy::Public, limits::UNPROVED_ANSWERS_PER_SECOND)
    }

    fn with(policy: AddressPolicy, unproved_per_second: u32) -> Self {
        let options = HandlerOptions {
            own: vec![endpoint("9.9.9.251:7777")],
            probe_port: Some(PROBE_PORT),
            unproved_per_second,
            keys_max: 1_024,
            ..HandlerOptions::new(INSTANCE, at(SERVER), policy)
        };
        Self {
            now: Instant::from_millis(1_000_000),
            handler: Handler::new(options, master()),
            store: MemoryStore::new(Limits::DEFAULT, INSTANCE, MasterKey::from_bytes([1; 32])),
            creates: 0,
        }
    }

    fn sleep(&mut self, by: Duration) {
        self.now = self.now.after(by);
    }

    fn apply(&mut self, transition: Transition) -> Reply {
        let mut replies = Vec::new();
        self.store.apply(self.now, &[transition], &mut replies);
        self.store.check_invariants();
        replies.pop().unwrap()
    }

    fn idempotency(&mut self) -> IdempotencyKey {
        self.creates += 1;
        IdempotencyKey { key: self.creates.to_be_bytes(), fingerprint: [0; 16] }
    }

    fn caller(principal: u32) -> Caller {
        Caller { tenant: TenantId(1), principal: PrincipalId(principal), operator: false }
    }

    fn register(&mut self) -> ListingGrant {
        let parts = DescriptionParts {
            protocol: "game/1".into(),
            name: String::new(),
            visibility: Visibility::Public,
            player_capacity: 2,
            attributes: Vec::new(),
            slot: None,
        };
        let description = ListingDescription::new(&parts).unwrap();
        let request = RegisterListing {
            caller: Self::caller(1),
            quotas: QUOTAS,
            idempotency: self.idempotency(),
            description,
            lease: limits::LEASE_MAX,
        };
        match self.apply(Transition::RegisterListing(Box::new(request))) {
            Reply::Registered(grant) => *grant,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, host: &ListingGrant) -> AttemptGrant {
        let request = CreateAttempt {
            caller: Self::caller(2),
            quotas: QUOTAS,
            idempotency: self.idempotency(),
            listing: host.view.id,
            note: None,
            lifetime: limits::ATTEMPT_DEFAULT,
        };
        match self.apply(Transition::CreateAttempt(Box::new(request))) {
            Reply::AttemptCreated(grant) => *grant,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, source: SocketAddr, bytes: &[u8]) -> End {
        self.receive_at(None, source, bytes)
    }

    fn receive_at(&mut self, local: Option<IpAddr>, source: SocketAddr, bytes: &[u8]) -> End {
        let received = Received { source, local, truncated: false, bytes };
        match self.handler.on_datagram(self.now, &received) {
            Action::Silence(outcome) => End::new(outcome, []),
            Action::Answer(answer, outcome) => End::new(outcome, [&answer]),
            Action::Submit(transition, pending) => {
                let reply = self.apply(transition);
                let settled = self.handler.on_reply(self.now, &pending, &reply);
                End::new(settled.outcome, [&settled.answer, &settled.unasked].into_iter().flatten())
            }
        }
    }

    fn repeats(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.unasked_repeats().iter().map(encoded).collect()
    }

    /// What is repeated now, as the store has it.
    fn unasked_repeats(&mut self) -> Vec<super::Answer> {
        let mut sent = Vec::new();
        while let Some((remind, due)) = self.handler.next_repeat(self.now) {
            let reply = self.apply(Transition::Remind(remind));
            sent.extend(self.handler.on_reminded(self.now, due, &reply));
        }
        sent
    }

    /// A client at `source` that has said HELLO.
    fn client(&mut self, key_id: KeyId, source: &str) -> Client {
        let secret = master().secret(&key_id);
        let cookie = Cookie::new_zeroed();
        let mut client = Client { key_id, secret, source: at(source), cookie, session: 1, sequence: 0 };
        client.cookie = self.cookie_at(&client, client.source);
        client
    }

    fn cookie_at(&mut self, client: &Client, source: SocketAddr) -> Cookie {
        let end = self.receive(source, &client.hello(limits::HELLO_LEN_MIN));
        assert_eq!(end.outcome, DatagramOutcome::Challenged);
        let Ok(Parsed::Challenge(challenge)) = wire::parse_answer(end.answer()) else { panic!("{end:?}") };
        assert_eq!((challenge.nonce.get(), challenge.instance.get()), (0xabcd, INSTANCE.0));
        challenge.cookie
    }

    /// A present host, an attempt, and its joiner.
    fn pair(&mut self) -> (Client, Client, AttemptId) {
        let grant = self.register();
        let mut host = self.client(grant.lease.presence_key, "9.9.9.1:4000");
        assert_eq!(self.receive(host.source, &host.presence()).outcome, DatagramOutcome::PresenceAccepted);
        let attempt = self.create(&grant);
        let joiner = self.client(attempt.joiner_key, "9.9.9.2:5000");
        (host, joiner, attempt.id)
    }
}

/// A client that seals by hand what it is told to.
#[derive(Clone)]
struct Client {
    key_id: KeyId,
    secret: Secret,
    source: SocketAddr,
    cookie: Cookie,
    session: u64,
    sequence: u64,
}

impl Client {
    fn hello(&self, len: usize) -> Vec<u8> {
        let header = Header::new(Kind::Hello, len);
        sealed(&wire::Hello { header, key_id: self.key_id, nonce: U64::new(0xabcd) }, len, &self.secret)
    }

    /// The proof of its next datagram.
    fn proof(&mut self, kind: Kind, len: usize) -> wire::Proof {
        self.sequence += 1;
        wire::Proof {
            header: Header::new(kind, len),
            key_id: self.key_id,
            cookie: self.cookie,
            session: U64::new(self.session),
            sequence: U64::new(self.sequence),
        }
    }

    fn presence(&mut self) -> Vec<u8> {
        let len = limits::PRESENCE_LEN_MIN;
        sealed(&wire::Presence { proof: self.proof(Kind::Presence, len) }, len, &self.secret)
    }

    fn bye(&mut self) -> Vec<u8> {
        let len = limits::REPORT_LEN_MIN;
        sealed(&wire::Bye { proof: self.proof(Kind::Bye, len) }, len, &self.secret)
    }

    /// The secret of its role in `attempt`.
    fn right(&self, attempt: AttemptId) -> Secret {
        match self.key_id.role() {
            Some(rendezvous_shared::id::Role::Host) => self.secret.attempt_right(attempt),
            _ => self.secret.clone(),
        }
    }

    fn bind(&mut self, attempt: AttemptId) -> Vec<u8> {
        self.bind_with(attempt, |_| ())
    }

    fn bind_with(&mut self, attempt: AttemptId, change: impl FnOnce(&mut wire::Bind)) -> Vec<u8> {
        let len = limits::BIND_LEN_MIN;
        let mut bind = wire::Bind {
            proof: self.proof(Kind::Bind, len),
            attempt: attempt.to_bytes(),
            rtt_ms: U16::ZERO,
            reserved: [0; 2],
            second: WireEndpoint::NONE,
            second_cookie: Cookie::new_zeroed(),
            lan: [WireEndpoint::NONE; 2],
            probe_cookie: Cookie::new_zeroed(),
        };
        change(&mut bind);
        sealed(&bind, len, &self.right(attempt))
    }

    fn report(&mut self, attempt: AttemptId, result: u8) -> Vec<u8> {
        let len = limits::REPORT_LEN_MIN;
        let mut report = wire::Report::new_zeroed();
        (report.proof, report.attempt, report.result) =
            (self.proof(Kind::Report, len), attempt.to_bytes(), result);
        sealed(&report, len, &self.right(attempt))
    }
}

fn sealed<T: zerocopy::IntoBytes + zerocopy::Immutable>(layout: &T, len: usize, secret: &Secret) -> Vec<u8> {
    let mut out = vec![0; len];
    assert_eq!(wire::seal(layout, len, Direction::ToServer, secret, &mut out), len);
    out
}

fn endpoint(text: &str) -> Endpoint {
    at(text).into()
}

#[test]
fn presence_is_proved_step_by_step() {
    let mut server = Server::new();
    let grant = server.register();
    let mut host = server.client(grant.lease.presence_key, "9.9.9.1:4000");
    for _ in 0..3 {
        let end = server.receive(host.source, &host.presence());
        assert_eq!((end.outcome, end.sent[0].0), (DatagramOutcome::PresenceAccepted, host.source));
        let Ok(Parsed::Ack(ack)) = wire::parse_answer(end.answer()) else { panic!("{end:?}") };
        assert!(ack.verify(Direction::ToClient, &host.secret));
        let body = ack.body;
        assert_eq!((body.session.get(), body.sequence.get(), body.code), (1, host.sequence, 0));
        assert_eq!(body.presence_remaining_ms.get(), 30_000);
        assert_eq!(body.refresh_ms.get(), 10_000);
        // The cookie of each answer serves for the next datagram, so proof never lapses.
        host.cookie = body.cookie;
        server.sleep(Duration::from_secs(25));
    }
    let end = server.receive(host.source, &host.bye());
    assert_eq!(end.outcome, DatagramOutcome::ByeAccepted);
    let Ok(Parsed::Ack(ack)) = wire::parse_answer(end.answer()) else { panic!("{end:?}") };
    assert_eq!(ack.body.presence_remaining_ms.get(), 0);
    assert_eq!(server.store.stats().presence_fresh, 0);
}

#[test]
fn a_refusal_of_the_store_is_told_in_words_of_the_protocol() {
    let mut server = Server::new();
    let (mut host, mut joiner, attempt) = server.pair();
    let code = |end: &End| match wire::parse_answer(end.answer()) {
        Ok(Parsed::Ack(it)) => (it.body.code, it.body.detail),
        Ok(Parsed::Bound(it)) => (it.body.code, it.body.detail),
        other => panic!("{other:?}"),
    };
    let early = server.receive(joiner.source, &joiner.report(attempt, 1));
    assert_eq!((early.outcome, code(&early).0), (DatagramOutcome::RefusedConflict, 3));
    let other = AttemptId::new(9, attempt.handle());
    let unknown = server.receive(joiner.source, &joiner.bind(other));
    assert_eq!((unknown.outcome, code(&unknown)), (DatagramOutcome::RefusedNotFound, (1, 0)));
    server.sleep(limits::ATTEMPT_DEFAULT);
    let late = server.receive(joiner.source, &joiner.bind(attempt));
    assert_eq!((late.outcome, code(&late)), (DatagramOutcome::RefusedExpired, (2, 0)));
    let window = Duration::ZERO;
    server.apply(Transition::BeginDrain(rendezvous_shared::store::BeginDrain { window }));
    let drained = server.receive(host.source, &host.presence());
    assert_eq!((drained.outcome, code(&drained)), (DatagramOutcome::RefusedDraining, (6, 0)));
    assert!(drained.answer().len() < limits::PRESENCE_LEN_MIN);
}
