//! A store with many hosts in it, and what is needed to ask it for more.

use std::net::IpAddr;
use std::time::Duration;

use rendezvous_core::store::MemoryStore;
use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::endpoint::{Endpoint, Mapping};
use rendezvous_shared::id::{AttemptId, InstanceId, ListingId, PrincipalId, SessionId, TenantId};
use rendezvous_shared::limits::{ATTEMPT_MAX, ATTEMPT_MIN, LEASE_MAX, LEASE_MIN, Limits, REVOCATION_MIN};
use rendezvous_shared::outcome::Pool;
use rendezvous_shared::store::{
    Bind, Caller, CancelAttempt, Candidates, CreateAttempt, DatagramProof, DeleteListing, DescriptionParts,
    EndPresence, EphemeralRendezvousStore, IdempotencyKey, ListingDescription, ListingGrant, Quotas,
    RefreshPresence, RegisterListing, RenewLease, Reply, Report, Reporter, Revoke, Subject, Transition,
    Visibility,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

pub(crate) const TENANTS: u32 = 8;
pub(crate) const LISTINGS_PER_OWNER: u32 = 100;
pub(crate) const NO_QUOTA: Quotas =
    Quotas { listings_per_owner: u32::MAX, listings_per_tenant: u32::MAX, attempts_per_tenant: u32::MAX };
/// Joiners, each of whom joins hosts of one tenant. Their principals are none of the hosts'.
const JOINERS: u32 = 1_000;
const FIRST_JOINER: u32 = 1_000_000;
const OPERATOR: PrincipalId = PrincipalId(u32::MAX);
/// Hosts refresh and renew in time for the shortest lease, even if nothing was done for as long again.
const KEPT_EACH: Duration = Duration::from_millis(LEASE_MIN.as_millis() as u64 / 2);
/// Datagrams in a batch, as a ring hands them over.
pub(crate) const BATCH: usize = 64;

/// A host as it knows itself.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) caller: Caller,
    pub(crate) listing: ListingId,
    pub(crate) key: KeyId,
    pub(crate) version: u64,
    pub(crate) number: u32,
    sequence: u64,
}

/// An attempt as both its sides know it.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) id: AttemptId,
    pub(crate) joiner_key: KeyId,
    pub(crate) host: usize,
    pub(crate) number: u32,
}

/// How long what is made is to live. Whatever lives equally long is in one lane of the store.
#[derive(Clone, Copy)]
pub(crate) enum Lifetimes {
    /// All leases alike, and all attempts.
    One { lease: Duration, attempt: Duration },
    /// Each whole second that is allowed, in turn.
    All,
}

impl Lifetimes {
    /// Two lanes, and as many things that last as can be beside as few that do not.
    pub(crate) const FEW: Self = Self::One { lease: LEASE_MAX, attempt: ATTEMPT_MIN };

    fn lease(self, ordinal: u64) -> Duration {
        match self {
            Self::One { lease, .. } => lease,
            Self::All => in_turn(ordinal, LEASE_MIN, LEASE_MAX),
        }
    }

    fn attempt(self, ordinal: u64) -> Duration {
        match self {
            Self::One { attempt, .. } => attempt,
            Self::All => in_turn(ordinal, ATTEMPT_MIN, ATTEMPT_MAX),
        }
    }
}

fn in_turn(ordinal: u64, min: Duration, max: Duration) -> Duration {
    Duration::from_secs(min.as_secs() + ordinal % (max.as_secs() - min.as_secs() + 1))
}

/// The store, its time, and all hosts.
pub(crate) struct Fleet {
    pub(crate) store: MemoryStore,
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) lifetimes: Lifetimes,
    /// When all hosts last refreshed and renewed.
    kept: Instant,
    made: u64,
}

/// Limits with these ceilings, all others in the proportion of the defaults.
pub(crate) fn limits(listings: usize, attempts: usize) -> Limits {
    Limits {
        listings,
        attempts,
        listing_records: 2 * listings,
        attempt_records: 4 * attempts,
        attempt_results: 2 * attempts,
        ..Limits::DEFAULT
    }
}

impl Fleet {
    /// An empty store with these ceilings.
    pub(crate) fn new(limits: Limits, lifetimes: Lifetimes) -> Self {
        let store = MemoryStore::new(limits, InstanceId(1), MasterKey::from_bytes([7; 32]));
        let now = Instant::from_millis(1_000);
        let replies = Vec::with_capacity(BATCH);
        Self { store, now, hosts: Vec::new(), replies, lifetimes, kept: now, made: 0 }
    }

    /// `count` more listings, each with a fresh presence.
    pub(crate) fn register(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.hosts.len() as u32;
            let request = self.registration(number);
            self.registered(request, number);
        }
    }

    pub(crate) fn registration(&mut self, number: u32) -> RegisterListing {
        let parts = DescriptionParts {
            protocol: "game/1".to_owned(),
            name: format!("listing {number}"),
            visibility: Visibility::Public,
            player_capacity: 2 + number % 30,
            attributes: Vec::new(),
            slot: None,
        };
        RegisterListing {
            caller: caller(number),
            quotas: NO_QUOTA,
            idempotency: self.idempotency(),
            description: ListingDescription::new(&parts).unwrap(),
            lease: self.lifetimes.lease(self.made),
        }
    }

    /// `count` more visible listings of one tenant, with attributes.
    pub(crate) fn register_browsable(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.hosts.len() as u32;
            let mut request = self.registration(number);
            request.caller.tenant = TenantId(0);
            let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            let region = if number.is_multiple_of(2) { "eu" } else { "us" };
            let parts = DescriptionParts {
                protocol: "game/1".to_owned(),
                name: format!("listing {number}"),
                visibility: Visibility::Public,
                player_capacity: 2 + number % 30,
                attributes: vec![pair("map", "north"), pair("mode", "capture"), pair("region", region)],
                slot: None,
            };
            request.description = ListingDescription::new(&parts).unwrap();
            self.registered(request, number);
        }
    }

    pub(crate) fn registered(&mut self, request: RegisterListing, number: u32) {
        let caller = request.caller;
        let Reply::Registered(grant) = self.one(Transition::RegisterListing(Box::new(request))) else {
            panic!("not registered");
        };
        let host = self.enrol(&grant, caller, number);
        let refresh = self.refresh(host);
        assert!(matches!(self.one(refresh), Reply::Presence(_)));
    }

    /// The place of the host that was just granted its listing.
    pub(crate) fn enrol(&mut self, grant: &ListingGrant, caller: Caller, number: u32) -> usize {
        let (listing, key) = (grant.view.id, grant.lease.presence_key);
        self.hosts.push(Host { caller, listing, key, version: 1, number, sequence: 0 });
        self.hosts.len() - 1
    }

    pub(crate) fn deletion(&self, host: usize) -> Transition {
        let Host { caller, listing, .. } = self.hosts[host];
        Transition::DeleteListing(DeleteListing { caller, listing })
    }

    pub(crate) fn cancellation(&self, attempt: &Attempt) -> Transition {
        let caller = self.joiner(attempt.host);
        Transition::CancelAttempt(CancelAttempt { caller, attempt: attempt.id })
    }

    /// Whoever joins this host.
    pub(crate) fn joiner(&self, host: usize) -> Caller {
        let Host { caller, number, .. } = self.hosts[host];
        Caller { principal: PrincipalId(FIRST_JOINER + number % JOINERS), ..caller }
    }

    fn idempotency(&mut self) -> IdempotencyKey {
        self.made += 1;
        IdempotencyKey { key: u128::from(self.made).to_be_bytes(), fingerprint: [3; 16] }
    }

    /// The next PRESENCE of a host.
    pub(crate) fn refresh(&mut self, host: usize) -> Transition {
        Transition::RefreshPresence(RefreshPresence { proof: self.host_proof(host) })
    }

    /// The BYE of a host.
    pub(crate) fn bye(&mut self, host: usize) -> Transition {
        Transition::EndPresence(EndPresence { proof: self.host_proof(host) })
    }

    /// What the host, by datagram, or the joiner, over HTTP, reports on an attempt.
    pub(crate) fn report(&mut self, attempt: &Attempt, by_host: bool) -> Transition {
        let reporter = if by_host {
            Reporter::Datagram(self.host_proof(attempt.host))
        } else {
            Reporter::Caller(self.joiner(attempt.host))
        };
        Transition::Report(Report { reporter, attempt: attempt.id, result: ReportResult::Connected })
    }

    /// A renewal as its owner would ask for it next.
    pub(crate) fn renewal(&self, host: usize) -> Transition {
        let Host { caller, listing, version, .. } = self.hosts[host];
        Transition::RenewLease(RenewLease { caller, listing, version, lease: None })
    }

    pub(crate) fn creation(&mut self, host: usize) -> Transition {
        Transition::CreateAttempt(Box::new(CreateAttempt {
            caller: self.joiner(host),
            quotas: NO_QUOTA,
            idempotency: self.idempotency(),
            listing: self.hosts[host].listing,
            note: None,
            lifetime: self.lifetimes.attempt(self.made),
        }))
    }

    /// An operator of a tenant bars a listing or a principal.
    pub(crate) fn revocation(&self, tenant: TenantId, subject: Subject) -> Transition {
        let caller = Caller { tenant, principal: OPERATOR, operator: true };
        Transition::Revoke(Revoke { caller, subject, lifetime: REVOCATION_MIN })
    }

    /// A new attempt at a host.
    pub(crate) fn join(&mut self, host: usize) -> Attempt {
        let create = self.creation(host);
        let reply = self.one(create);
        self.granted(&reply, host)
    }

    /// The attempt that the last reply granted.
    pub(crate) fn granted(&self, reply: &Reply, host: usize) -> Attempt {
        let Reply::AttemptCreated(grant) = reply else { panic!("not created: {reply:?}") };
        Attempt { id: grant.id, joiner_key: grant.joiner_key, host, number: self.made as u32 }
    }

    pub(crate) fn bind_joiner(&mut self, attempt: &Attempt) -> Transition {
        bind(attempt.id, proof(self.now, attempt.joiner_key, attempt.number, 5_000, 1))
    }

    pub(crate) fn bind_host(&mut self, attempt: &Attempt) -> Transition {
        bind(attempt.id, self.host_proof(attempt.host))
    }

    fn host_proof(&mut self, host: usize) -> DatagramProof {
        let host = &mut self.hosts[host];
        host.sequence += 1;
        proof(self.now, host.key, host.number, 4_000, host.sequence)
    }

    pub(crate) fn one(&mut self, transition: Transition) -> Reply {
        self.replies.clear();
        self.store.apply(self.now, &[transition], &mut self.replies);
        self.replies.pop().unwrap()
    }

    /// Time passes. Hosts keep their presences and leases, which nobody measures.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        if self.now.since(self.kept) >= KEPT_EACH {
            (0..self.hosts.len()).for_each(|host| self.keep(host));
            self.kept = self.now;
        }
    }

    /// A host refreshes and renews.
    pub(crate) fn keep(&mut self, host: usize) {
        let refresh = self.refresh(host);
        assert!(matches!(self.one(refresh), Reply::Presence(_)));
        let renewal = self.renewal(host);
        assert!(matches!(self.one(renewal), Reply::Renewed(_)));
        self.hosts[host].version += 1;
    }

    /// Everything that is over is worked off.
    pub(crate) fn settle(&mut self) {
        while self.store.next_deadline().is_some_and(|at| at <= self.now) {
            self.store.expire(self.now);
        }
    }

    /// What a pool holds, and its ceiling.
    pub(crate) fn pool(&self, pool: Pool) -> (usize, usize) {
        let pools = self.store.stats().pools;
        let usage = pools.iter().find(|it| it.pool == pool).unwrap();
        (usage.used, usage.limit)
    }
}

fn caller(number: u32) -> Caller {
    Caller {
        tenant: TenantId(number % TENANTS),
        principal: PrincipalId(number / LISTINGS_PER_OWNER),
        operator: false,
    }
}

fn bind(attempt: AttemptId, proof: DatagramProof) -> Transition {
    let round_trip = Duration::from_millis(20);
    Transition::Bind(Bind {
        proof,
        attempt,
        candidates: Candidates::default(),
        round_trip,
        mapping: Mapping::Unknown,
    })
}

fn proof(now: Instant, key_id: KeyId, number: u32, port: u16, sequence: u64) -> DatagramProof {
    DatagramProof {
        key_id,
        source: Endpoint::new(IpAddr::from((0x1000_0000 + number).to_be_bytes()), port),
        local: None,
        arrived: now,
        cookie_issued: now,
        session: SessionId(1),
        sequence,
    }
}
