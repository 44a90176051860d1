//! The server as clients see it, written from the wire module: one listing, its attempts, no limits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rendezvous_client::{HostCredentials, JoinerCredentials, RoleKey};
use rendezvous_shared::credential::{Direction, KeyId, MasterKey, Secret};
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{AttemptId, Handle, InstanceId, Role, TenantId};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{
    Ack, BoundAnswer, Challenge, Claim, Cookie, Header, Introduce, Kind, Notice, Proof, Request,
    WireEndpoint, parse_request, seal, sealed_len,
};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

type Out = Vec<(SocketAddr, Vec<u8>)>;

pub fn addr() -> SocketAddr {
    super::addr("198.51.101.1:7777")
}

/// The server's endpoint in the family of `like`.
pub fn addr_for(like: SocketAddr) -> SocketAddr {
    if like.is_ipv4() { addr() } else { super::addr("[2a01:5e::1]:7777") }
}

/// What a role bound: where from, what it named, and its right.
#[derive(Clone)]
pub struct Bound {
    pub at: SocketAddr,
    pub second: Option<SocketAddr>,
    pub lan: Vec<SocketAddr>,
    secret: Secret,
}

impl Bound {
    fn in_family_of(&self, like: SocketAddr) -> Option<SocketAddr> {
        [Some(self.at), self.second].into_iter().flatten().find(|it| it.is_ipv4() == like.is_ipv4())
    }
}

#[derive(Default)]
struct Attempt {
    joiner_key: Option<KeyId>,
    bound: BTreeMap<u8, Bound>,
    introduced: bool,
}

pub struct Server {
    pub instance: InstanceId,
    master: MasterKey,
    host_key: Option<KeyId>,
    host_at: BTreeMap<bool, SocketAddr>,
    attempts: BTreeMap<AttemptId, Attempt>,
    highest: BTreeMap<([u8; 32], bool), (u64, u64)>,
    planned: Vec<(Instant, SocketAddr, Vec<u8>)>,
    /// Answers BIND with this code.
    pub refuse_bind: Option<(u8, u8)>,
    /// Answers PRESENCE with this code.
    pub refuse_presence: Option<u8>,
    /// Names of a second endpoint never fit what the server sees, as behind a translator.
    pub sees_second_elsewhere: bool,
    /// Flags of each ACK.
    pub ack_flags: u8,
    pub introductions: usize,
    pub reports: Vec<u8>,
    pub byes: usize,
    /// The refresh told in ACK.
    pub refresh_ms: u32,
}

impl Server {
    pub fn new(instance: u64) -> Self {
        Self {
            instance: InstanceId(instance),
            master: MasterKey::from_bytes([instance as u8; 32]),
            host_key: None,
            host_at: BTreeMap::new(),
            attempts: BTreeMap::new(),
            highest: BTreeMap::new(),
            planned: Vec::new(),
            refuse_bind: None,
            refuse_presence: None,
            sees_second_elsewhere: false,
            ack_flags: 0,
            introductions: 0,
            reports: Vec::new(),
            byes: 0,
            refresh_ms: 10_000,
        }
    }

    /// Whether a listing is registered.
    pub fn has_listing(&self) -> bool {
        self.host_key.is_some()
    }

    /// Whether `attempt` was made here.
    pub fn has_attempt(&self, attempt: AttemptId) -> bool {
        self.attempts.contains_key(&attempt)
    }

    pub fn register(&mut self, now: Instant) -> HostCredentials {
        let key = self.new_key(now);
        HostCredentials { key, instance: self.instance, server: addr(), refresh: Duration::from_secs(10) }
    }

    /// A presence key that supersedes the one before.
    pub fn new_key(&mut self, now: Instant) -> RoleKey {
        let expires = now.after(Duration::from_secs(3600));
        let id = KeyId::new(Role::Host, TenantId(1), self.instance, Handle(7), expires);
        self.host_key = Some(id);
        RoleKey { id, secret: self.master.secret(&id) }
    }

    pub fn create_attempt(&mut self, now: Instant) -> JoinerCredentials {
        let number = self.attempts.len() as u64 + 1;
        let attempt = AttemptId::new(0x1234 + self.instance.0, Handle(number));
        let lifetime = Duration::from_secs(20);
        let id = KeyId::new(Role::Joiner, TenantId(1), self.instance, Handle(number), now.after(lifetime));
        self.attempts.insert(attempt, Attempt { joiner_key: Some(id), ..Attempt::default() });
        JoinerCredentials {
            key: RoleKey { id, secret: self.master.secret(&id) },
            attempt,
            instance: self.instance,
            server: addr(),
            lifetime,
            lan: [None; 2],
        }
    }

    pub fn next_due(&self) -> Instant {
        self.planned.iter().map(|(at, ..)| *at).min().unwrap_or(Instant::MAX)
    }

    pub fn due(&mut self, now: Instant) -> Out {
        let due = self.planned.extract_if(.., |(at, ..)| *at <= now);
        due.map(|(_, to, bytes)| (to, bytes)).collect()
    }

    fn cookie(&self, key: &KeyId, source: SocketAddr, issued_ms: u64) -> Cookie {
        let mut bytes = key.as_bytes().to_vec();
        bytes.extend(Endpoint::from(source).ip_bytes());
        bytes.extend(source.port().to_be_bytes());
        bytes.extend(issued_ms.to_be_bytes());
        let secret = Secret::from_bytes(self.master.subkey("cookie", 0));
        Cookie { issued_ms: U64::new(issued_ms), mac: secret.mac(Direction::ToServer, &bytes) }
    }

    fn answer<T: IntoBytes + Immutable>(
        to: SocketAddr,
        layout: &T,
        secret: &Secret,
    ) -> (SocketAddr, Vec<u8>) {
        let mut bytes = vec![0; sealed_len::<T>(0)];
        seal(layout, 0, Direction::ToClient, secret, &mut bytes);
        (to, bytes)
    }

    /// Cookie, key and freshness, as the protocol orders them.
    fn admits(&mut self, now: Instant, from: SocketAddr, proof: &Proof) -> bool {
        let issued = proof.cookie.issued_ms.get();
        let fresh = now.since(Instant::from_millis(issued)) <= Duration::from_secs(30);
        let good = self.cookie(&proof.key_id, from, issued).mac == proof.cookie.mac;
        if !fresh || !good || proof.key_id.instance() != self.instance {
            return false;
        }
        let key: [u8; 32] = proof.key_id.as_bytes().try_into().unwrap();
        let key = (key, from.is_ipv4());
        let (session, highest) = self.highest.get(&key).copied().unwrap_or((proof.session.get(), 0));
        let newer = session != proof.session.get() || proof.sequence.get() > highest;
        if newer {
            self.highest.insert(key, (proof.session.get(), proof.sequence.get()));
        }
        newer
    }

    pub fn handle(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Out {
        let request = parse_request(bytes).expect("a client sends only what parses");
        let (signed, claim) = match request {
            Request::Hello(it) => {
                let challenge = Challenge {
                    header: Header::new(Kind::Challenge, size_of::<Challenge>()),
                    nonce: it.body.nonce,
                    instance: U64::new(self.instance.0),
                    cookie: self.cookie(&it.body.key_id, from, now.as_millis()),
                };
                return vec![(from, challenge.as_bytes().to_vec())];
            }
            Request::Proved(signed, claim) => (signed, claim),
        };
        let proof = *signed.body;
        if !self.admits(now, from, &proof) {
            return Vec::new();
        }
        let secret = match claim.attempt() {
            Some(attempt) => self.right(&proof.key_id, attempt),
            None => self.master.secret(&proof.key_id),
        };
        assert!(signed.verify(Direction::ToServer, &secret));
        match claim {
            Claim::Presence => {
                let code = if self.host_key == Some(proof.key_id) { 0 } else { 1 };
                self.host_at.insert(from.is_ipv4(), from);
                vec![self.ack(now, from, &proof, self.refuse_presence.unwrap_or(code), &secret)]
            }
            Claim::Bind(it) => {
                let role = proof.key_id.role().unwrap();
                let at = |it: &WireEndpoint| it.get().map(SocketAddr::from);
                let second = at(&it.second);
                if let Some(second) = second {
                    let issued = it.second_cookie.issued_ms.get();
                    let good = self.cookie(&proof.key_id, second, issued).mac;
                    if good != it.second_cookie.mac || self.sees_second_elsewhere {
                        return Vec::new();
                    }
                }
                let lan = it.lan.iter().filter_map(at).collect();
                let bound = Bound { at: from, second, lan, secret };
                self.bind(now, bound, &proof, role, it.attempt())
            }
            Claim::Report(it) => {
                self.reports.push(it.result);
                vec![self.ack(now, from, &proof, 0, &secret)]
            }
            Claim::Bye => {
                self.byes += 1;
                vec![self.ack(now, from, &proof, 0, &secret)]
            }
        }
    }

    fn right(&self, key: &KeyId, attempt: AttemptId) -> Secret {
        let secret = self.master.secret(key);
        if key.role() == Some(Role::Host) { secret.attempt_right(attempt) } else { secret }
    }

    fn ack(
        &self,
        now: Instant,
        to: SocketAddr,
        proof: &Proof,
        code: u8,
        secret: &Secret,
    ) -> (SocketAddr, Vec<u8>) {
        let ack = Ack {
            header: Header::new(Kind::Ack, sealed_len::<Ack>(0)),
            session: proof.session,
            sequence: proof.sequence,
            cookie: self.cookie(&proof.key_id, to, now.as_millis()),
            code,
            flags: self.ack_flags,
            lease_remaining_ms: U32::new(60_000),
            presence_remaining_ms: U32::new(30_000),
            refresh_ms: U32::new(self.refresh_ms),
            ..Ack::new_zeroed()
        };
        Self::answer(to, &ack, secret)
    }

    /// What `role` bound in `attempt`.
    pub fn bound(&self, attempt: AttemptId, role: Role) -> Option<&Bound> {
        self.attempts.get(&attempt)?.bound.get(&(role as u8))
    }

    fn bind(&mut self, now: Instant, bind: Bound, proof: &Proof, role: Role, attempt: AttemptId) -> Out {
        let (from, secret) = (bind.at, bind.secret.clone());
        let host_at = self.host_at.get(&from.is_ipv4()).or(self.host_at.values().next()).copied();
        let host = host_at.zip(self.host_key);
        let Some(held) = self.attempts.get_mut(&attempt) else { return Vec::new() };
        let bound = held.bound.entry(role as u8).or_insert(bind.clone());
        assert_eq!(
            (bound.at, bound.second, &bound.lan),
            (from, bind.second, &bind.lan),
            "a BIND that differs"
        );
        let waiting = held.bound.len() < 2;
        let joiner_key = held.joiner_key;
        if !waiting && self.refuse_bind.is_none() {
            let first = !std::mem::replace(&mut held.introduced, true);
            self.introductions += usize::from(first);
            let roles: Vec<(u8, Bound)> = held.bound.iter().map(|(role, it)| (*role, it.clone())).collect();
            let introduce = |own: usize| {
                let (own_role, side) = &roles[own];
                let key = if *own_role == 1 { self.host_key } else { joiner_key }.unwrap();
                let it = self.introduce(now, attempt, &key, side, &roles[1 - own].1);
                (*own_role == role as u8, it)
            };
            let answers = [introduce(0), introduce(1)];
            let mut out = Vec::new();
            for (own, (to, bytes)) in answers {
                if own {
                    out.push((to, bytes));
                } else if first {
                    self.plan(now, to, &bytes);
                }
            }
            return out;
        }
        if role == Role::Joiner
            && let Some((host, key)) = host
        {
            let notice = Notice {
                header: Header::new(Kind::Notice, sealed_len::<Notice>(0)),
                attempt: attempt.to_bytes(),
                cookie: self.cookie(&key, host, now.as_millis()),
                remaining_ms: U32::new(20_000),
                ordinal: 1,
                reserved: [0; 3],
            };
            let (_, bytes) = Self::answer(host, &notice, &self.master.secret(&key));
            self.plan(now, host, &bytes);
        }
        let (code, detail) = self.refuse_bind.unwrap_or_default();
        let answer = BoundAnswer {
            header: Header::new(Kind::Bound, sealed_len::<BoundAnswer>(0)),
            session: proof.session,
            sequence: proof.sequence,
            attempt: attempt.to_bytes(),
            cookie: self.cookie(&proof.key_id, from, now.as_millis()),
            code,
            detail,
            remaining_ms: U32::new(20_000),
            retry_ms: U32::new(250),
            ..BoundAnswer::new_zeroed()
        };
        vec![Self::answer(from, &answer, &secret)]
    }

    fn introduce(
        &self,
        now: Instant,
        attempt: AttemptId,
        key: &KeyId,
        own: &Bound,
        peer: &Bound,
    ) -> (SocketAddr, Vec<u8>) {
        let (to, secret) = (own.at, &own.secret);
        let common = |like: Option<SocketAddr>| peer.in_family_of(like?).map(Endpoint::from);
        let first = common(Some(own.at)).or(common(own.second)).expect("a common family");
        let introduce = Introduce {
            header: Header::new(Kind::Introduce, sealed_len::<Introduce>(0)),
            attempt: attempt.to_bytes(),
            peer: WireEndpoint::from(Some(first)),
            peer_second: WireEndpoint::from(common(own.second).filter(|it| *it != first)),
            punch_masked: secret.mask(attempt, self.master.punch_secret(attempt)).to_bytes(),
            start_in_ms: U16::new(20),
            retry_ms: U16::new(100),
            retry_max: 20,
            cookie: self.cookie(key, to, now.as_millis()),
            ..Introduce::new_zeroed()
        };
        Self::answer(to, &introduce, secret)
    }

    /// Sent unasked: three times, 250 ms apart.
    fn plan(&mut self, now: Instant, to: SocketAddr, bytes: &[u8]) {
        for repeat in 0..3 {
            self.planned.push((now.after(Duration::from_millis(250 * repeat)), to, bytes.to_vec()));
        }
    }
}
