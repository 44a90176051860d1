//! The ring thread allocates nothing, over a million mixed datagrams, good and bad, on both engines.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rendezvous_control::boundary::Readiness;
use rendezvous_core::handler::{Handler, HandlerOptions};
use rendezvous_core::store::MemoryStore;
use rendezvous_net::{EngineKind, SocketOptions, bind, open, wake_pair};
use rendezvous_node::clock::{BootClock, Stopwatch};
use rendezvous_node::mailbox::mailbox;
use rendezvous_node::ring::{Ring, RingReport, engine_options, ring_orders};
use rendezvous_node::store_thread::{Lanes, Order, StoreActor, lanes};
use rendezvous_shared::credential::{Direction, KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::id::{AttemptId, InstanceId, ListingId, PrincipalId, TenantId};
use rendezvous_shared::limits::{self, BATCHES_PER_RING, Limits};
use rendezvous_shared::outcome::DatagramOutcome;
use rendezvous_shared::store::{
    Caller, CreateAttempt, DescriptionParts, IdempotencyKey, ListingDescription, Quotas, RegisterListing,
    Reply, Transition, Visibility,
};
use rendezvous_shared::wire::{
    self, Answer, Bind, Cookie, Header, Hello, Kind, Presence, Proof, Report, ReportResult, WireEndpoint,
};
use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

const DATAGRAMS: u64 = 1_000_000;
/// Bad datagrams sent with each answered one. No answer of the first tells that the ring keeps up, the second does.
const BAD_PER_GOOD: u64 = 15;
/// So many that none of their keys goes beyond its budget.
const HOSTS: u32 = 512;

const CALLER: Caller = Caller { tenant: TenantId(1), principal: PrincipalId(1), operator: false };
const QUOTAS: Quotas =
    Quotas { listings_per_owner: 1_000, listings_per_tenant: 1_000, attempts_per_tenant: 10_000 };

#[test]
fn uring_allocates_nothing() {
    a_million_datagrams(EngineKind::Uring);
}

#[test]
fn mmsg_allocates_nothing() {
    a_million_datagrams(EngineKind::Mmsg);
}

/// A ring and a store on threads of their own, as the server runs them, and the store's lanes.
fn a_million_datagrams(kind: EngineKind) {
    let master = MasterKey::from_bytes([7; 32]);
    let (clock, stopwatch) = (BootClock::start(), Stopwatch::new());
    let socket = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
    let server = socket.local_addr();
    let (gate, waker) = wake_pair().unwrap();
    let (ring_mailbox, store_mailbox) = mailbox(BATCHES_PER_RING, waker.clone());
    let (control, orders) = ring_orders();
    let (lanes, lane_ends) = lanes();
    let instance = InstanceId(1);
    let store = MemoryStore::new(Limits::DEFAULT, instance, MasterKey::from_bytes([8; 32]));
    let readiness = Arc::new(Readiness::new());
    let actor = StoreActor::new(store, vec![store_mailbox], lane_ends, clock, stopwatch.clone(), readiness);
    let store_thread = std::thread::spawn(move || actor.run());
    let options = HandlerOptions {
        unproved_per_second: 1_000_000,
        ..HandlerOptions::new(instance, server, AddressPolicy::Test)
    };
    let handler = Handler::new(options, master.clone());
    let ring_thread = std::thread::spawn(move || {
        let engine = open(kind, socket, &gate, engine_options()).unwrap();
        let ring = Ring::new(engine, gate, orders, handler, ring_mailbox, clock, stopwatch);
        allocation_counter::measure(|| ring.run().unwrap())
    });

    let sent = Generator::new(server, master, lanes.clone()).run();
    let (reply, report) = tokio::sync::oneshot::channel();
    control.report_requests.send((RingReport::empty(), reply)).unwrap();
    waker.wake();
    let report = report.blocking_recv().unwrap();
    control.stop.store(true, Ordering::Release);
    waker.wake();
    let allocations = ring_thread.join().unwrap();
    drop(lanes);
    store_thread.join().unwrap();

    let outcomes: Vec<_> = report.outcomes.iter().filter(|(_, count)| *count > 0).collect();
    println!("{kind}: sent {sent}, received {}, {allocations:?}, {outcomes:?}", report.received);
    assert!(report.received >= DATAGRAMS && report.received + report.engine.kernel_drops >= sent);
    assert_eq!(report.received, report.outcomes.total() + report.in_flight);
    for outcome in [
        DatagramOutcome::Challenged,
        DatagramOutcome::PresenceAccepted,
        DatagramOutcome::BindAccepted,
        DatagramOutcome::Introduced,
        DatagramOutcome::ReportAccepted,
        DatagramOutcome::RefusedNotFound,
        DatagramOutcome::StaleSequence,
        DatagramOutcome::BadMac,
        DatagramOutcome::BadCookie,
        DatagramOutcome::BadMagic,
        DatagramOutcome::TooShort,
        DatagramOutcome::Oversized,
        DatagramOutcome::Empty,
    ] {
        assert!(report.outcomes.get(outcome) > 0, "{outcome:?} was never reached");
    }
    assert_eq!(allocations.count_total, 0, "allocations on the ring thread: {allocations:?}");
}

/// A client with a key, which it proves from one socket.
struct Peer {
    socket: UdpSocket,
    key_id: KeyId,
    /// The key's own secret.
    secret: Secret,
    cookie: Cookie,
    sequence: u64,
}

impl Peer {
    fn new(server: std::net::SocketAddr, master: &MasterKey, key_id: KeyId) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let cookie = Cookie::new_zeroed();
        Self { socket, key_id, secret: master.secret(&key_id), cookie, sequence: 0 }
    }

    fn proof(&mut self, kind: Kind, len: usize) -> Proof {
        self.sequence += 1;
        Proof {
            header: Header::new(kind, len),
            key_id: self.key_id,
            cookie: self.cookie,
            session: U64::new(1),
            sequence: U64::new(self.sequence),
        }
    }

    /// Sends a datagram sealed by `secret`, and takes the cookie of the answer that `wanted` picks.
    fn ask<T: IntoBytes + Immutable>(
        &mut self,
        layout: &T,
        len: usize,
        secret: &Secret,
        wanted: fn(&Answer<'_>) -> Option<Cookie>,
    ) {
        let mut out = [0; 512];
        let len = wire::seal(layout, len, Direction::ToServer, secret, &mut out);
        self.socket.send(&out[..len]).unwrap();
        loop {
            let mut answer = [0; 512];
            let len = self.socket.recv(&mut answer).expect("an answer");
            if let Some(cookie) = wanted(&wire::parse_answer(&answer[..len]).unwrap()) {
                self.cookie = cookie;
                return;
            }
        }
    }

    fn hello(&mut self) {
        let header = Header::new(Kind::Hello, limits::HELLO_LEN_MIN);
        let hello = Hello { header, key_id: self.key_id, nonce: U64::new(3) };
        let secret = self.secret.clone();
        self.ask(&hello, limits::HELLO_LEN_MIN, &secret, |answer| match answer {
            Answer::Challenge(it) => Some(it.cookie),
            _ => None,
        });
    }

    fn presence(&mut self) {
        let proof = self.proof(Kind::Presence, limits::PRESENCE_LEN_MIN);
        let secret = self.secret.clone();
        self.ask(&Presence { proof }, limits::PRESENCE_LEN_MIN, &secret, ack);
    }

    fn bind(&mut self, attempt: AttemptId, secret: &Secret) {
        let bind = Bind {
            proof: self.proof(Kind::Bind, limits::BIND_LEN_MIN),
            attempt: attempt.to_bytes(),
            rtt_ms: U16::ZERO,
            reserved: [0; 2],
            second: WireEndpoint::NONE,
            second_cookie: Cookie::new_zeroed(),
            lan: [WireEndpoint::NONE; 2],
            probe_cookie: Cookie::new_zeroed(),
        };
        self.ask(&bind, limits::BIND_LEN_MIN, secret, |answer| match answer {
            Answer::Bound(it) => Some(it.body.cookie),
            Answer::Introduce(it) => Some(it.body.cookie),
            _ => None,
        });
    }

    fn report(&mut self, attempt: AttemptId, secret: &Secret) {
        let report = Report {
            proof: self.proof(Kind::Report, limits::REPORT_LEN_MIN),
            attempt: attempt.to_bytes(),
            result: ReportResult::Connected.to_byte(),
            reserved: [0],
            rtt_ms: U16::ZERO,
            reserved_2: [0; 4],
        };
        self.ask(&report, limits::REPORT_LEN_MIN, secret, ack);
    }
}

fn ack(answer: &Answer<'_>) -> Option<Cookie> {
    match answer {
        Answer::Ack(it) => Some(it.body.cookie),
        _ => None,
    }
}

/// Sends honest and forged datagrams in turn.
struct Generator {
    server: std::net::SocketAddr,
    master: MasterKey,
    lanes: Lanes,
    hosts: Vec<(ListingId, Peer)>,
    bad: UdpSocket,
    sent: u64,
    attempts: u32,
}

impl Generator {
    fn new(server: std::net::SocketAddr, master: MasterKey, lanes: Lanes) -> Self {
        let bad = UdpSocket::bind("127.0.0.1:0").unwrap();
        bad.connect(server).unwrap();
        Self { server, master, lanes, hosts: Vec::new(), bad, sent: 0, attempts: 0 }
    }

    fn run(mut self) -> u64 {
        for ordinal in 0..HOSTS {
            let (listing, key_id) = self.register(ordinal);
            let mut peer = Peer::new(self.server, &self.master, key_id);
            peer.hello();
            peer.presence();
            self.sent += 2;
            self.hosts.push((listing, peer));
        }
        let mut round = 0;
        while self.sent < DATAGRAMS {
            let host = round % self.hosts.len();
            if round % 64 == 0 {
                self.meet(host);
            }
            // A cookie lasts 30 s and each answer brings the next; hosts come round faster than that.
            self.hosts[host].1.presence();
            self.sent += 1 + self.misbehave(host);
            round += 1;
        }
        self.hosts[0].1.presence();
        self.sent + 1
    }

    fn apply(&self, transition: Transition) -> Reply {
        let (reply, answer) = tokio::sync::oneshot::channel();
        assert!(self.lanes.http.send(Order::Apply(Box::new(transition), reply, None)).is_ok());
        answer.blocking_recv().unwrap()
    }

    fn register(&self, ordinal: u32) -> (ListingId, KeyId) {
        let parts = DescriptionParts {
            protocol: "p".into(),
            name: "n".into(),
            visibility: Visibility::Public,
            player_capacity: 2,
            attributes: Vec::new(),
            slot: None,
        };
        let description = ListingDescription::new(&parts).unwrap();
        let reply = self.apply(Transition::RegisterListing(Box::new(RegisterListing {
            caller: CALLER,
            quotas: QUOTAS,
            idempotency: idempotency(ordinal),
            description,
            lease: limits::LEASE_MAX,
        })));
        let Reply::Registered(grant) = reply else { panic!("{reply:?}") };
        (grant.view.id, grant.lease.presence_key)
    }

    /// A whole attempt: both sides bind, are introduced and report.
    fn meet(&mut self, host: usize) {
        self.attempts += 1;
        let reply = self.apply(Transition::CreateAttempt(Box::new(CreateAttempt {
            caller: CALLER,
            quotas: QUOTAS,
            idempotency: idempotency(self.attempts),
            listing: self.hosts[host].0,
            note: None,
            lifetime: limits::ATTEMPT_MIN,
        })));
        let Reply::AttemptCreated(grant) = reply else { panic!("{reply:?}") };
        let mut joiner = Peer::new(self.server, &self.master, grant.joiner_key);
        let joiner_right = joiner.secret.clone();
        let host = &mut self.hosts[host].1;
        let host_right = host.secret.attempt_right(grant.id);
        joiner.hello();
        joiner.bind(grant.id, &joiner_right);
        host.bind(grant.id, &host_right);
        joiner.report(grant.id, &joiner_right);
        host.report(grant.id, &host_right);
        // Over: the joiner's key opens nothing any more.
        joiner.bind(AttemptId::from_bytes([9; 16]), &joiner_right);
        self.sent += 6;
    }

    /// Datagrams that get silence; returns how many.
    fn misbehave(&mut self, host: usize) -> u64 {
        let host = &mut self.hosts[host].1;
        let len = limits::PRESENCE_LEN_MIN;
        let mut good = [0; limits::PRESENCE_LEN_MIN];
        let presence = Presence { proof: host.proof(Kind::Presence, len) };
        wire::seal(&presence, len, Direction::ToServer, &host.secret, &mut good);
        let with = |at: usize| {
            let mut datagram = good;
            datagram[at] ^= 1;
            datagram
        };
        let mut replay = Presence { proof: presence.proof };
        replay.proof.sequence = U64::new(1);
        let mut stale = [0; limits::PRESENCE_LEN_MIN];
        wire::seal(&replay, len, Direction::ToServer, &host.secret, &mut stale);
        for ordinal in 0..BAD_PER_GOOD {
            let datagram: &[u8] = match ordinal % 7 {
                0 => &with(0),
                1 => &with(len - 1),
                2 => &with(50),
                3 => &good[..7],
                4 => &[1; 1300],
                5 => &[],
                _ => &stale,
            };
            // Those with the host's cookie must come from its address.
            let socket = if matches!(ordinal % 7, 1 | 2 | 6) { &host.socket } else { &self.bad };
            socket.send(datagram).unwrap();
        }
        BAD_PER_GOOD
    }
}

fn idempotency(ordinal: u32) -> IdempotencyKey {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&ordinal.to_be_bytes());
    IdempotencyKey { key, fingerprint: [0; 16] }
}
