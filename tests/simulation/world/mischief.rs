//! What is done to the world twice a second, and an attacker who reads along and forges sources.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rand::{Rng, RngExt};
use rendezvous_shared::credential::KeyId;
use rendezvous_shared::id::{Handle, InstanceId, Role, TenantId};
use rendezvous_shared::limits::{HELLO_LEN_MIN, REVOCATION_DEFAULT};
use rendezvous_shared::store::{
    BeginDrain, Caller, DeleteListing, IdempotencyKey, LiftRevocation, RegisterListing, Revoke, Subject,
    Transition, Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Challenge, Cookie, Header, Hello, Kind, Request};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U64;

use super::control::Asker;
use super::host::describe;
use super::server::{SERVER_V4, SERVER_V6};
use super::{World, fingerprint};
use crate::reached::Fault;

/// Datagrams an attacker remembers.
const RECORDED_MAX: usize = 48;
/// The tenants' operator.
const OPERATOR: rendezvous_shared::id::PrincipalId = rendezvous_shared::id::PrincipalId(500);

/// A datagram as an attacker saw it.
pub(crate) type Recorded = (SocketAddr, SocketAddr, Vec<u8>);

impl World {
    /// Does some of what this phase allows.
    pub(crate) fn mischief(&mut self) {
        self.mischief_at = self.now.after(Duration::from_millis(self.rng.random_range(300..700)));
        if self.now >= self.plan.calm_from() {
            return self.lift_revocations();
        }
        self.disturb_server();
        self.disturb_clients();
        self.attack();
        let host = self.rng.random_range(0..self.hosts.len());
        if self.rng.random_bool(0.5) {
            self.host_looks(host);
        }
    }

    fn disturb_server(&mut self) {
        let now = self.now;
        if self.chance(Fault::Suspend) {
            self.suspend();
        }
        if self.chance(Fault::Restart) {
            return self.stop_server();
        }
        if self.server.is_some() && self.stop_at == Instant::MAX && self.chance(Fault::Drain) {
            let window = Duration::from_millis(self.rng.random_range(1_000..20_000));
            self.stop_at = now.after(window + Duration::from_millis(self.rng.random_range(500..4_000)));
            self.ask(Asker::Nobody, Transition::BeginDrain(BeginDrain { window }));
        }
        let pauses = [200, 2_000, 6_000, 33_000].map(Duration::from_millis);
        let (store, ring) = (pauses[self.rng.random_range(0..4)], pauses[self.rng.random_range(0..3)]);
        let store = self.chance(Fault::StorePause).then_some(store);
        let ring = self.chance(Fault::RingPause).then_some(ring);
        let stall = self.chance(Fault::SendStall);
        let which: usize = self.rng.random_range(0..2);
        let Some(server) = &mut self.server else { return };
        if let Some(pause) = store {
            server.store_paused_until = now.after(pause);
        }
        let own = server.clock(now);
        let which = which % server.rings.len();
        if let Some(pause) = ring {
            server.rings[which].paused_until = own.after(pause);
        }
        if stall {
            server.rings[which].stalled_until = own.after(Duration::from_secs(2));
        }
    }

    /// Nothing moves, and then it is much later: half of what was on its way is lost.
    fn suspend(&mut self) {
        let longest = if self.rng.random_bool(0.2) { 120_000 } else { 8_000 };
        let slept = Duration::from_millis(self.rng.random_range(500..longest));
        self.now = self.now.after(slept);
        self.log.line(self.now, format_args!("slept {slept:?}"));
        let due: Vec<_> = self.flights.range(..(self.now, 0)).map(|(key, _)| *key).collect();
        for at in due {
            if self.rng.random_bool(0.5) {
                self.flights.remove(&at);
            }
        }
    }

    fn disturb_clients(&mut self) {
        let now = self.now;
        let site = self.rng.random_range(0..self.net.sites());
        if self.chance(Fault::Rebind) {
            self.log.line(now, format_args!("site{site} rebinds"));
            self.net.rebind(site);
        }
        if self.chance(Fault::Partition) {
            let longest = if self.rng.random_bool(0.3) { 50_000 } else { 15_000 };
            let until = now.after(Duration::from_millis(self.rng.random_range(1_000..longest)));
            self.log.line(now, format_args!("site{site} cut until {until:?}"));
            self.net.cut(site, until);
        }
        let host = self.rng.random_range(0..self.hosts.len());
        let up = self.hosts[host].machine.is_some();
        if up && self.chance(Fault::HostCrash) {
            self.log.line(now, format_args!("host{host} crashes"));
            self.crash_host(host);
        } else if up && self.chance(Fault::HostClose) {
            self.log.line(now, format_args!("host{host} closes"));
            self.close_host(host, false);
        } else if up && self.chance(Fault::HostFreeze) {
            let longest = if self.rng.random_bool(0.3) { 40_000 } else { 5_000 };
            self.hosts[host].frozen_until =
                now.after(Duration::from_millis(self.rng.random_range(500..longest)));
        }
        let caller = Caller { principal: OPERATOR, operator: true, ..self.hosts[host].caller };
        if let Some((listing, _)) = self.hosts[host].listing
            && self.chance(Fault::OperatorDelete)
        {
            self.ask(Asker::Nobody, Transition::DeleteListing(DeleteListing { caller, listing }));
        }
        if self.chance(Fault::Revoke) {
            self.revoke(host, caller);
        }
        if self.rng.random_bool(0.1) {
            self.lift_revocations();
        }
        if self.chance(Fault::Squat) {
            let mut key = [0; 16];
            self.rng.fill_bytes(&mut key);
            let caller = Caller { operator: false, ..caller };
            let description = describe(host, Visibility::Public, Some(format!("slot {host}")));
            self.ask(
                Asker::Nobody,
                Transition::RegisterListing(Box::new(RegisterListing {
                    caller,
                    quotas: self.plan.quotas,
                    idempotency: IdempotencyKey { key, fingerprint: fingerprint(7_777) },
                    description,
                    lease: Duration::from_secs(10),
                })),
            );
        }
    }

    /// An operator bars host `host`, its listing or somebody who joins; or somebody tries to who is no operator.
    fn revoke(&mut self, host: usize, operator: Caller) {
        let joiners: Vec<_> = self.joiners.values().map(|joiner| joiner.caller).collect();
        let Caller { tenant, .. } = operator;
        let of_tenant: Vec<_> = joiners.into_iter().filter(|it| it.tenant == tenant).collect();
        let listing = self.hosts[host].listing.map(|(id, _)| Subject::Listing(id));
        let subject = match (self.rng.random_range(0..4), listing) {
            (0 | 1, Some(listing)) => listing,
            (2, _) if !of_tenant.is_empty() => {
                Subject::Principal(of_tenant[self.rng.random_range(0..of_tenant.len())].principal)
            }
            _ => Subject::Principal(self.hosts[host].caller.principal),
        };
        let caller = match self.rng.random_range(0..12) {
            0 => Caller { operator: false, ..operator },
            1 => Caller { tenant: TenantId(3 - tenant.0), ..operator },
            _ => operator,
        };
        let lifetime =
            Duration::from_millis(self.rng.random_range(0..=3 * REVOCATION_DEFAULT.as_millis() as u64));
        self.ask(Asker::Nobody, Transition::Revoke(Revoke { caller, subject, lifetime }));
    }

    /// Lifts every revocation that holds, if nothing gets lost.
    pub(crate) fn lift_revocations(&mut self) {
        let Some(server) = &self.server else { return };
        for (revocation, tenant) in self.oracle.revocations(server.clock(self.now)) {
            let caller = Caller { tenant, principal: OPERATOR, operator: true };
            self.ask(Asker::Nobody, Transition::LiftRevocation(LiftRevocation { caller, revocation }));
        }
    }

    /// Remembers a datagram for later.
    pub(crate) fn record(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let it = (from, to, bytes.to_vec());
        if self.recorded.len() < RECORDED_MAX {
            self.recorded.push(it);
        } else if self.rng.random_bool(0.3) {
            let at = self.rng.random_range(0..RECORDED_MAX);
            self.recorded[at] = it;
        }
    }

    fn recorded(&mut self, to_server: bool) -> Option<Recorded> {
        let fits = |it: &&Recorded| (it.1 == SERVER_V4 || it.1 == SERVER_V6) == to_server;
        let count = self.recorded.iter().filter(fits).count();
        let pick = self.rng.random_range(0..count.max(1));
        self.recorded.iter().filter(fits).nth(pick).cloned()
    }

    fn attack(&mut self) {
        for fault in [
            Fault::ReplayElsewhere,
            Fault::ReplaySpoofed,
            Fault::ReplayCorrupt,
            Fault::LowPort,
            Fault::OwnAddress,
            Fault::PrivateSource,
            Fault::Reflect,
        ] {
            if !self.chance(fault) {
                continue;
            }
            let Some((mut from, mut to, mut bytes)) = self.recorded(fault != Fault::Reflect) else {
                continue;
            };
            match fault {
                // Another port of the same address, or quite another address.
                Fault::ReplayElsewhere if self.rng.random_bool(0.3) => {
                    from.set_port(self.rng.random_range(1_024..20_000))
                }
                Fault::ReplayElsewhere => from = self.stranger(from),
                Fault::ReplayCorrupt => self.corrupt(&mut bytes),
                Fault::LowPort => from.set_port(53),
                Fault::OwnAddress => from = to,
                Fault::PrivateSource => {
                    from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)), 5_000)
                }
                Fault::Reflect => core::mem::swap(&mut from, &mut to),
                _ => {}
            }
            self.inject(from, to, bytes);
        }
        if self.chance(Fault::ReplayFlood)
            && let Some((from, to, bytes)) = self.recorded(true)
        {
            (0..60).for_each(|_| self.inject(from, to, bytes.clone()));
        }
        if self.chance(Fault::Garbage) {
            self.garbage();
        }
        if self.chance(Fault::HelloFlood) {
            // From everywhere, or from all ports of one address.
            let one = self.rng.random_bool(0.5).then(|| self.stranger(SERVER_V4).ip());
            for _ in 0..self.rng.random_range(5..60) {
                let mut from = self.stranger(SERVER_V4);
                from.set_ip(one.unwrap_or(from.ip()));
                let bytes = self.hello();
                self.inject(from, SERVER_V4, bytes);
            }
        }
    }

    /// An address nobody here has.
    fn stranger(&mut self, like: SocketAddr) -> SocketAddr {
        let port = self.rng.random_range(1_024..60_000);
        match like {
            SocketAddr::V4(_) => {
                SocketAddr::new(Ipv4Addr::new(30, self.rng.random(), self.rng.random(), 1).into(), port)
            }
            SocketAddr::V6(_) => SocketAddr::new([0x2601, 0, 0, 0, 0, 0, 0, self.rng.random()].into(), port),
        }
    }

    fn hello(&mut self) -> Vec<u8> {
        let instance = self.server.as_ref().map_or(InstanceId(0), |server| server.instance);
        let handle = Handle(self.rng.random());
        let key_id = KeyId::new(Role::Host, TenantId(1), instance, handle, Instant::from_millis(1 << 40));
        let nonce = U64::new(self.rng.random());
        let hello = Hello { header: Header::new(Kind::Hello, HELLO_LEN_MIN), key_id, nonce };
        let mut bytes = vec![0; HELLO_LEN_MIN];
        bytes[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
        self.rng.fill_bytes(&mut bytes[HELLO_LEN_MIN - 16..]);
        bytes
    }

    /// Bytes with one defect each.
    fn garbage(&mut self) {
        let mut bytes = self.hello();
        match self.rng.random_range(0..9) {
            0 => bytes.clear(),
            1 => bytes.resize(1_300, 0),
            2 => bytes[0] = b'X',
            3 => bytes[4] = 9,
            4 => bytes[5] = 0x77,
            5 => bytes[6] ^= 1,
            6 => {
                bytes.truncate(100);
                bytes[7] = 100;
            }
            7 => bytes[100] = 1,
            _ => bytes.truncate(5),
        }
        let from = self.stranger(SERVER_V4);
        self.inject(from, SERVER_V4, bytes);
    }

    /// Flips some bits.
    pub(crate) fn corrupt(&mut self, bytes: &mut [u8]) {
        for _ in 0..self.rng.random_range(1..=3) {
            if !bytes.is_empty() {
                let at = self.rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << self.rng.random_range(0..8);
            }
        }
    }

    /// Answers a HELLO in the name of an instance that never was.
    pub(crate) fn forge_challenge(&mut self, client: SocketAddr, server: SocketAddr, bytes: &[u8]) {
        let Ok(Request::Hello(hello)) = wire::parse_request(bytes) else { return };
        if !self.chance(Fault::ForgedChallenge) {
            return;
        }
        let challenge = Challenge {
            header: Header::new(Kind::Challenge, size_of::<Challenge>()),
            nonce: hello.body.nonce,
            instance: U64::new(0xbad),
            cookie: Cookie { issued_ms: U64::new(1), mac: [1; 16] },
        };
        self.inject(server, client, challenge.as_bytes().to_vec());
    }
}
