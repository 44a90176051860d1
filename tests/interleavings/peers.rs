//! What peers and callers ask, and a client on a real socket.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use rendezvous_core::handler::Cookies;
use rendezvous_core::store::MemoryStore;
use rendezvous_shared::credential::{Direction, KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::{Endpoint, Mapping};
use rendezvous_shared::id::{
    AttemptId, Handle, InstanceId, ListingId, PrincipalId, Role, SessionId, TenantId,
};
use rendezvous_shared::limits::{self, Limits, PRESENCE_LEN_MIN};
use rendezvous_shared::store::{
    Bind, Caller, Candidates, CreateAttempt, DatagramProof, DescriptionParts, EphemeralRendezvousStore,
    IdempotencyKey, ListingDescription, Quotas, RefreshPresence, RegisterListing, Reply, Report, Reporter,
    Transition, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Answer, Header, Kind, Presence, Proof, ReportResult};
use zerocopy::byteorder::big_endian::U64;

use crate::sync::Bell;

pub(crate) const INSTANCE: InstanceId = InstanceId(1);
const CALLER: Caller = Caller { tenant: TenantId(1), principal: PrincipalId(1), operator: false };
const QUOTAS: Quotas = Quotas { listings_per_owner: 100, listings_per_tenant: 100, attempts_per_tenant: 100 };

pub(crate) fn master() -> MasterKey {
    MasterKey::from_bytes([7; 32])
}

pub(crate) fn small_store() -> MemoryStore {
    MemoryStore::new(Limits::DEFAULT, INSTANCE, MasterKey::from_bytes([8; 32]))
}

/// A host on a socket of its own, which holds a key and a cookie already.
pub(crate) struct Client {
    socket: UdpSocket,
    key_id: KeyId,
    secret: Secret,
    proof: Proof,
    bell: Arc<Bell>,
}

impl Client {
    pub(crate) fn new(number: u64, server: SocketAddr, bell: Arc<Bell>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        socket.set_nonblocking(true).unwrap();
        let expires = Instant::ZERO.after(limits::PRESENCE_KEY_LIFETIME);
        let key_id = KeyId::new(Role::Host, TenantId(1), INSTANCE, Handle(number), expires);
        let own = socket.local_addr().unwrap();
        let endpoint = Endpoint::new(own.ip(), own.port());
        let cookie = Cookies::new(&master(), server.port()).issue(Instant::ZERO, &key_id, endpoint);
        let proof = Proof {
            header: Header::new(Kind::Presence, PRESENCE_LEN_MIN),
            key_id,
            cookie,
            session: U64::new(1),
            sequence: U64::new(0),
        };
        Self { socket, key_id, secret: master().secret(&key_id), proof, bell }
    }

    /// Sends the PRESENCE of that sequence.
    pub(crate) fn send(&self, sequence: u64) {
        let proof = Proof { sequence: U64::new(sequence), ..self.proof };
        let mut out = [0; PRESENCE_LEN_MIN];
        let direction = Direction::ToServer;
        let len = wire::seal(&Presence { proof }, PRESENCE_LEN_MIN, direction, &self.secret, &mut out);
        self.socket.send(&out[..len]).unwrap();
        self.bell.arrived();
    }

    /// The sequences answered up to now, each checked to be answered with what the store said of that very datagram.
    pub(crate) fn answered(&self) -> Vec<u64> {
        let mut sequences = Vec::new();
        loop {
            let mut bytes = [0; 512];
            let len = match self.socket.recv(&mut bytes) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return sequences,
                Err(error) => panic!("{error}"),
            };
            let answer = wire::parse_answer(&bytes[..len]).unwrap();
            let Answer::Ack(ack) = answer else { panic!("{answer:?}") };
            let sequence = ack.body.sequence.get();
            let told = Duration::from_millis(ack.body.lease_remaining_ms.get().into());
            assert_eq!(told, mark(self.key_id, sequence), "the answer to another datagram");
            sequences.push(sequence);
        }
    }
}

/// What tells the answer to one datagram from that to any other.
pub(crate) fn mark(key_id: KeyId, sequence: u64) -> Duration {
    Duration::from_millis(key_id.handle().0 * 1_000 + sequence)
}

/// A registration by the `number`th request of our caller.
pub(crate) fn registration(number: u64) -> Transition {
    let parts = DescriptionParts {
        protocol: "p".into(),
        name: "n".into(),
        visibility: Visibility::Public,
        player_capacity: 2,
        attributes: Vec::new(),
        slot: None,
    };
    Transition::RegisterListing(Box::new(RegisterListing {
        caller: CALLER,
        quotas: QUOTAS,
        idempotency: idempotency(number),
        description: ListingDescription::new(&parts).unwrap(),
        lease: limits::LEASE_MAX,
    }))
}

/// The number that a registration was made with.
pub(crate) fn number_of(transition: &Transition) -> u64 {
    let Transition::RegisterListing(request) = transition else { panic!("{transition:?}") };
    u128::from_be_bytes(request.idempotency.key) as u64
}

pub(crate) fn creation(number: u64, listing: ListingId) -> Transition {
    Transition::CreateAttempt(Box::new(CreateAttempt {
        caller: CALLER,
        quotas: QUOTAS,
        idempotency: idempotency(number),
        listing,
        note: None,
        lifetime: limits::ATTEMPT_MAX,
    }))
}

fn idempotency(number: u64) -> IdempotencyKey {
    IdempotencyKey { key: u128::from(number).to_be_bytes(), fingerprint: [0; 16] }
}

/// An attempt that was created and that nobody is bound to yet.
#[derive(Clone, Copy)]
pub(crate) struct Meeting {
    pub(crate) listing: ListingId,
    attempt: AttemptId,
    keys: [KeyId; 2],
}

impl Meeting {
    /// Registers, proves presence and creates in `store`.
    pub(crate) fn arrange(store: &mut MemoryStore) -> Self {
        let mut apply = |transition| {
            let mut replies = Vec::new();
            store.apply(Instant::ZERO, &[transition], &mut replies);
            replies.pop().unwrap()
        };
        let reply = apply(registration(1_000));
        let Reply::Registered(host) = reply else { panic!("{reply:?}") };
        let (listing, host_key) = (host.view.id, host.lease.presence_key);
        let reply =
            apply(Transition::RefreshPresence(RefreshPresence { proof: proof(Role::Host, host_key, 1) }));
        assert!(matches!(reply, Reply::Presence(_)), "{reply:?}");
        let reply = apply(creation(1_001, listing));
        let Reply::AttemptCreated(attempt) = reply else { panic!("{reply:?}") };
        Self { listing, attempt: attempt.id, keys: [host_key, attempt.joiner_key] }
    }

    pub(crate) fn bind(&self, role: Role) -> Transition {
        let key_id = self.keys[usize::from(role == Role::Joiner)];
        Transition::Bind(Bind {
            proof: proof(role, key_id, 2),
            attempt: self.attempt,
            candidates: Candidates::default(),
            round_trip: Duration::ZERO,
            mapping: Mapping::Unknown,
        })
    }

    pub(crate) fn report(&self, role: Role) -> Transition {
        let key_id = self.keys[usize::from(role == Role::Joiner)];
        Transition::Report(Report {
            reporter: Reporter::Datagram(proof(role, key_id, 3)),
            attempt: self.attempt,
            result: ReportResult::Connected,
        })
    }
}

fn proof(role: Role, key_id: KeyId, sequence: u64) -> DatagramProof {
    let port = if role == Role::Host { 4000 } else { 5000 };
    DatagramProof {
        key_id,
        source: Endpoint::new([9, 9, 9, 9].into(), port),
        local: None,
        arrived: Instant::ZERO,
        cookie_issued: Instant::ZERO,
        session: SessionId(1),
        sequence,
    }
}
