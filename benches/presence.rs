//! What does our own code cost for one presence round trip, beside what the kernel takes for the same datagrams?
//!
//! `ours` is handler, store and encoding, without a socket: parse, cookie, MAC, transition, next cookie, sealed ACK.
//! `kernel echo` is a 160-byte datagram sent and received over loopback and an 80-byte one back, two blocking sockets
//! on one thread. Read the ratio, not the nanoseconds.
#![expect(clippy::expect_used, reason = "a benchmark")]

use std::hint::black_box;
use std::net::UdpSocket;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rendezvous_core::handler::{Action, Handler, HandlerOptions, Received};
use rendezvous_core::store::MemoryStore;
use rendezvous_shared::credential::{Direction, KeyId, MasterKey};
use rendezvous_shared::endpoint::AddressPolicy;
use rendezvous_shared::id::{InstanceId, PrincipalId, TenantId};
use rendezvous_shared::limits::{ANSWER_LEN_MAX, HELLO_LEN_MIN, LEASE_MAX, Limits, PRESENCE_LEN_MIN};
use rendezvous_shared::store::{
    Caller, DescriptionParts, EphemeralRendezvousStore, IdempotencyKey, ListingDescription, Quotas,
    RegisterListing, Reply, Transition, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Answer, Cookie, Header, Hello, Kind, Presence, Proof};
use zerocopy::byteorder::big_endian::U64;

const NOW: Instant = Instant::from_millis(1_000);
const ACK_LEN: usize = 80;

struct World {
    master: MasterKey,
    handler: Handler,
    store: MemoryStore,
    replies: Vec<Reply>,
}

impl World {
    fn new() -> Self {
        let instance = InstanceId(1);
        let bound = ([127, 0, 0, 1], 7777).into();
        let options = HandlerOptions {
            unproved_per_second: 1_000_000,
            ..HandlerOptions::new(instance, bound, AddressPolicy::Test)
        };
        let master = MasterKey::from_bytes([1; 32]);
        let store = MemoryStore::new(Limits::DEFAULT, instance, MasterKey::from_bytes([2; 32]));
        Self { handler: Handler::new(options, master.clone()), master, store, replies: Vec::with_capacity(1) }
    }

    fn register(&mut self) -> KeyId {
        let caller = Caller { tenant: TenantId(1), principal: PrincipalId(1), operator: false };
        let quotas = Quotas { listings_per_owner: 1, listings_per_tenant: 1, attempts_per_tenant: 1 };
        let parts = DescriptionParts {
            protocol: "p".into(),
            name: "n".into(),
            visibility: Visibility::Public,
            player_capacity: 2,
            attributes: Vec::new(),
            slot: None,
        };
        let description = ListingDescription::new(&parts).expect("within its limits");
        let idempotency = IdempotencyKey { key: [0; 16], fingerprint: [0; 16] };
        let request = RegisterListing { caller, quotas, idempotency, description, lease: LEASE_MAX };
        self.store.apply(NOW, &[Transition::RegisterListing(Box::new(request))], &mut self.replies);
        match self.replies.pop() {
            Some(Reply::Registered(grant)) => grant.lease.presence_key,
            other => unreachable!("an empty store registers: {other:?}"),
        }
    }

    /// The answer to `bytes`, as it would be sent; its length.
    fn answer(&mut self, bytes: &[u8], out: &mut [u8; ANSWER_LEN_MAX]) -> usize {
        let source = ([127, 0, 0, 1], 40_000).into();
        let received = Received { source, local: None, truncated: false, bytes };
        match self.handler.on_datagram(NOW, &received) {
            Action::Answer(answer, _) => answer.encode(out),
            Action::Submit(transition, pending) => {
                self.store.apply(NOW, std::slice::from_ref(&transition), &mut self.replies);
                let reply = self.replies.pop().expect("one reply for one transition");
                let settled = self.handler.on_reply(NOW, &pending, &reply);
                settled.answer.expect("a fresh presence is acknowledged").encode(out)
            }
            Action::Silence(outcome) => unreachable!("an honest datagram got silence: {outcome:?}"),
        }
    }
}

fn ours(c: &mut Criterion) {
    let mut world = World::new();
    let key_id = world.register();
    let secret = world.master.secret(&key_id);
    let mut out = [0; ANSWER_LEN_MAX];
    let hello = Hello { header: Header::new(Kind::Hello, HELLO_LEN_MIN), key_id, nonce: U64::new(1) };
    let mut datagram = [0; PRESENCE_LEN_MIN];
    wire::seal(&hello, HELLO_LEN_MIN, Direction::ToServer, &secret, &mut datagram);
    let len = world.answer(&datagram, &mut out);
    let Ok(Answer::Challenge(challenge)) = wire::parse_answer(&out[..len]) else {
        unreachable!("HELLO is challenged")
    };
    let cookie: Cookie = challenge.cookie;
    let mut sequence = 0;
    // The client's sealing must not be in the figure: each batch is sealed before its time starts.
    c.benchmark_group("presence").measurement_time(Duration::from_secs(3)).bench_function("ours", |b| {
        b.iter_batched_ref(
            || {
                sequence += 1;
                let header = Header::new(Kind::Presence, PRESENCE_LEN_MIN);
                let (session, sequence) = (U64::new(1), U64::new(sequence));
                let presence = Presence { proof: Proof { header, key_id, cookie, session, sequence } };
                let mut datagram = [0; PRESENCE_LEN_MIN];
                wire::seal(&presence, PRESENCE_LEN_MIN, Direction::ToServer, &secret, &mut datagram);
                datagram
            },
            |datagram| assert_eq!(black_box(world.answer(datagram, &mut out)), ACK_LEN),
            criterion::BatchSize::SmallInput,
        );
    });
}

fn kernel_echo(c: &mut Criterion) {
    let client = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
    let server = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
    client.connect(server.local_addr().expect("an address")).expect("loopback");
    server.connect(client.local_addr().expect("an address")).expect("loopback");
    let mut buffer = [0; PRESENCE_LEN_MIN];
    c.benchmark_group("presence").measurement_time(Duration::from_secs(3)).bench_function(
        "kernel echo",
        |b| {
            b.iter(|| {
                client.send(&buffer).expect("room in the buffer");
                server.recv(&mut buffer).expect("it was sent");
                server.send(&buffer[..ACK_LEN]).expect("room in the buffer");
                client.recv(&mut buffer).expect("it was sent")
            });
        },
    );
}

criterion_group!(benches, ours, kernel_echo);
criterion_main!(benches);
