//! What a client knows of one store that heard every answer, and how it asks.

use std::collections::BTreeMap;

use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::{
    AttemptId, Handle, JoinCode, ListingId, PrincipalId, RevocationId, Role, SessionId, TenantId,
};
use rendezvous_shared::limits::{LEASE_MAX, PRESENCE_KEY_LIFETIME, SEQUENCE_JUMP_MAX};
use rendezvous_shared::store::{
    Caller, DatagramProof, EphemeralRendezvousStore, IdempotencyKey, RenewLease, Reply, Reporter, Transition,
};
use rendezvous_shared::time::Instant;

use crate::steps::{Arrived, Ask, Datagram, Key, MadeWith, Pick, Sequence, Spot, Step, Who};

/// A listing that was granted.
#[derive(Clone)]
pub(crate) struct Listing {
    pub(crate) id: ListingId,
    pub(crate) owner: Caller,
    pub(crate) code: Option<JoinCode>,
    pub(crate) version: u64,
    /// Every presence key it had.
    pub(crate) keys: Vec<KeyId>,
}

/// An attempt that was granted.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) id: AttemptId,
    pub(crate) joiner: Caller,
    /// Which of the listings it is at.
    pub(crate) listing: usize,
    pub(crate) key: KeyId,
}

/// How far a key has counted in a family: its role, what it is for, the family.
type Counter = (bool, usize, bool);

/// A store and what is known of it.
#[derive(Clone)]
pub(crate) struct Side<S> {
    pub(crate) store: S,
    pub(crate) listings: Vec<Listing>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) revocations: Vec<(RevocationId, TenantId)>,
    counted: BTreeMap<Counter, (SessionId, u64)>,
    /// Who used which key to register, and to create attempts.
    registrations: Vec<(Caller, [u8; 16])>,
    creations: Vec<(Caller, [u8; 16])>,
}

/// Of whom something is spoken.
#[derive(Clone, Copy)]
pub(crate) struct About {
    pub(crate) owner: Caller,
    pub(crate) joiner: Caller,
}

const NOBODY: Caller = Caller { tenant: TenantId(0), principal: PrincipalId(0), operator: false };

impl<S: EphemeralRendezvousStore> Side<S> {
    pub(crate) fn new(store: S) -> Self {
        Self {
            store,
            listings: Vec::new(),
            attempts: Vec::new(),
            revocations: Vec::new(),
            counted: BTreeMap::new(),
            registrations: Vec::new(),
            creations: Vec::new(),
        }
    }

    /// Takes a step that begins at `now` and returns the answers, normalised.
    pub(crate) fn take(&mut self, now: Instant, step: &Step) -> Vec<Reply> {
        match step {
            Step::Ask(_, asks) => self.batch(now, asks),
            Step::Scene(asks) => {
                let mut at = now;
                let mut ask = |(wait, ask): &(Duration, Ask)| {
                    at = at.after(*wait);
                    self.batch(at, core::slice::from_ref(ask))
                };
                asks.iter().flat_map(&mut ask).collect()
            }
            Step::Walk { who, owned, protocol, filter, limit } => {
                let caller = self.caller(*who, None);
                let request = Self::browse_request(caller, *owned, *protocol, *filter, *limit);
                vec![self.walk(now, request)]
            }
            Step::WalkRevocations { who, limit } => {
                let caller = self.caller(*who, self.revocations.last().map(|it| tenant_of(it.1)));
                vec![self.walk_revocations(now, caller, *limit)]
            }
            Step::KeepAlive { listing } => self.keep_alive(now, *listing),
            Step::Expire { .. } | Step::Settle => Vec::new(),
        }
    }

    /// Asks for all of it at once.
    pub(crate) fn batch(&mut self, now: Instant, asks: &[Ask]) -> Vec<Reply> {
        let batch: Vec<Transition> = asks.iter().map(|ask| self.resolve(now, ask)).collect();
        let mut replies = Vec::new();
        self.store.apply(now, &batch, &mut replies);
        assert_eq!(replies.len(), batch.len(), "one reply for each transition");
        for (transition, reply) in batch.iter().zip(&replies) {
            self.learn(transition, reply);
        }
        replies.into_iter().map(|it| self.normal(it)).collect()
    }

    /// How long a step takes that is no scene.
    pub(crate) fn duration(step: &Step) -> Duration {
        match step {
            Step::KeepAlive { .. } => LEASE_MAX * Self::renewals(),
            _ => Duration::ZERO,
        }
    }

    fn renewals() -> u32 {
        u32::try_from(PRESENCE_KEY_LIFETIME.as_secs() / 2 / LEASE_MAX.as_secs() + 2).unwrap_or(0)
    }

    fn keep_alive(&mut self, start: Instant, pick: Pick) -> Vec<Reply> {
        let mut replies = Vec::new();
        for renewal in 0..Self::renewals() {
            let now = start.after(LEASE_MAX * renewal);
            let now = Instant::from_nanos(now.as_nanos() - u64::from(renewal));
            let Some(listing) = self.listing(pick) else { return replies };
            let known = &self.listings[listing];
            let renew = RenewLease {
                caller: known.owner,
                listing: known.id,
                version: known.version,
                lease: Some(LEASE_MAX),
            };
            let reply = self.ask(now, &Transition::RenewLease(renew));
            replies.push(self.normal(reply));
            if !matches!(replies.last(), Some(Reply::Renewed(_))) {
                break;
            }
        }
        replies
    }

    /// Applies one transition and returns its answer as it came.
    pub(crate) fn ask(&mut self, now: Instant, transition: &Transition) -> Reply {
        let mut replies = Vec::new();
        self.store.apply(now, core::slice::from_ref(transition), &mut replies);
        let reply = replies.pop().expect("a reply to each transition");
        self.learn(transition, &reply);
        reply
    }

    // ---- What is meant

    /// Which of the listings is meant.
    pub(crate) fn listing(&self, pick: Pick) -> Option<usize> {
        match pick {
            Pick::Recent(ago) => recent(self.listings.len(), ago),
            Pick::OfAttempt(ago) => recent(self.attempts.len(), ago).map(|it| self.attempts[it].listing),
            Pick::Unknown => None,
        }
    }

    pub(crate) fn listing_id(&self, pick: Pick) -> ListingId {
        self.listing(pick).map_or(ListingId::new(3, Handle(5)), |it| self.listings[it].id)
    }

    /// Which of the attempts is meant.
    pub(crate) fn attempt(&self, pick: Pick) -> Option<usize> {
        match pick {
            Pick::Recent(ago) | Pick::OfAttempt(ago) => recent(self.attempts.len(), ago),
            Pick::Unknown => None,
        }
    }

    pub(crate) fn attempt_id(&self, pick: Pick) -> AttemptId {
        self.attempt(pick).map_or(AttemptId::new(3, Handle(5)), |it| self.attempts[it].id)
    }

    pub(crate) fn about_listing(&self, pick: Pick) -> Option<About> {
        let listing = &self.listings[self.listing(pick)?];
        let last = self.attempts.iter().rev().find(|it| self.listings[it.listing].id == listing.id);
        let joiner = last.map_or(listing.owner, |it| it.joiner);
        Some(About { owner: listing.owner, joiner })
    }

    pub(crate) fn about_attempt(&self, pick: Pick) -> Option<About> {
        let attempt = &self.attempts[self.attempt(pick)?];
        Some(About { owner: self.listings[attempt.listing].owner, joiner: attempt.joiner })
    }

    pub(crate) fn caller(&self, who: Who, about: Option<About>) -> Caller {
        let about = about.unwrap_or(About { owner: NOBODY, joiner: NOBODY });
        match who {
            Who::Owner => about.owner,
            Who::Joiner => about.joiner,
            Who::Operator => Caller { principal: PrincipalId(9), operator: true, ..about.owner },
            Who::Fellow(principal) => {
                Caller { principal: PrincipalId(principal), operator: false, ..about.owner }
            }
            Who::OwnerAsOperator => Caller { operator: true, ..about.owner },
            Who::Of { tenant, principal, operator } => {
                Caller { tenant: TenantId(tenant), principal: PrincipalId(principal), operator }
            }
        }
    }

    /// The caller and key of a create.
    pub(crate) fn idempotency(
        &mut self,
        registers: bool,
        caller: Caller,
        key: Key,
    ) -> (Caller, IdempotencyKey) {
        let used = if registers { &mut self.registrations } else { &mut self.creations };
        let earlier = |ago| recent(used.len(), ago).map(|it| used[it]);
        let (found, request) = match key {
            Key::New => (None, 1),
            Key::Again { ago, other_request } => (earlier(ago), 1 + u8::from(other_request)),
            Key::Borrowed { ago } => (earlier(ago).map(|(_, key)| (caller, key)), 1),
        };
        let (caller, key) = found.unwrap_or_else(|| {
            let new = (caller, (used.len() as u128 + 1).to_be_bytes());
            used.push(new);
            new
        });
        (caller, IdempotencyKey { key, fingerprint: [request; 16] })
    }

    /// The key of `role` for a listing, or an attempt, and what it counts by.
    pub(crate) fn key(&self, role: Role, of: (usize, Option<usize>), with: MadeWith) -> KeyId {
        let (listing, attempt) = of;
        let known = &self.listings[listing];
        let joiners = |attempt: Option<usize>| {
            attempt.or(self.attempts.len().checked_sub(1)).map_or(known.keys[0], |it| self.attempts[it].key)
        };
        let current = |listing: usize| self.listings[listing].keys.last().copied().unwrap_or(known.keys[0]);
        match (with, role) {
            (MadeWith::Right, Role::Host) | (MadeWith::OtherRoles, Role::Joiner) => current(listing),
            (MadeWith::First, Role::Host) => known.keys[0],
            (MadeWith::Neighbours, Role::Host) => current(listing.saturating_sub(1)),
            (MadeWith::Neighbours, Role::Joiner) => joiners(attempt.map(|it| it.saturating_sub(1))),
            (MadeWith::Right | MadeWith::First, Role::Joiner) | (MadeWith::OtherRoles, Role::Host) => {
                joiners(attempt)
            }
        }
    }

    pub(crate) fn proof(
        &self,
        now: Instant,
        role: Role,
        of: (usize, Option<usize>),
        with: MadeWith,
        datagram: &Datagram,
    ) -> DatagramProof {
        let counter =
            (role == Role::Host, if role == Role::Host { of.0 } else { of.1.unwrap_or(0) }, datagram.v6);
        let known = self.counted.get(&counter).copied();
        let session = match (datagram.session, known) {
            (0, Some((session, _))) => session,
            (other, _) => SessionId(other.into()),
        };
        let highest = known.filter(|it| it.0 == session).map_or(0, |it| it.1);
        let sequence = match datagram.sequence {
            Sequence::Next => highest.saturating_add(1),
            Sequence::Same => highest,
            Sequence::Before => highest.saturating_sub(1),
            Sequence::Jump { beyond } => highest.saturating_add(SEQUENCE_JUMP_MAX + beyond),
            Sequence::Exactly(sequence) => sequence,
        };
        let before = |at: Instant, by: Duration| {
            Instant::from_nanos(at.as_nanos().saturating_sub(by.as_nanos() as u64))
        };
        let arrived = match datagram.arrived {
            Arrived::Ago(age) => before(now, age),
            Arrived::Ahead(by) => now.after(by),
        };
        DatagramProof {
            key_id: self.key(role, of, with),
            source: endpoint(role, datagram.from, datagram.v6),
            local: datagram.local.map(|last| [10, 0, 0, last].into()),
            arrived,
            cookie_issued: before(arrived, datagram.cookie_age),
            session,
            sequence,
        }
    }

    // ---- What was heard

    fn learn(&mut self, transition: &Transition, reply: &Reply) {
        match (transition, reply) {
            (Transition::RegisterListing(it), Reply::Registered(grant)) => {
                let (id, key) = (grant.view.id, grant.lease.presence_key);
                let known = self.listings.iter().any(|it| it.id == id);
                assert_eq!(known, grant.replayed, "a key was executed twice, or replayed what never was");
                if !known {
                    let code = grant.view.join_code;
                    self.listings.push(Listing { id, owner: it.caller, code, version: 1, keys: vec![key] });
                }
            }
            (Transition::RenewLease(it), Reply::Renewed(lease)) => {
                for listing in self.listings.iter_mut().filter(|known| known.id == it.listing) {
                    listing.version = lease.version;
                    if listing.keys.last() != Some(&lease.presence_key) {
                        listing.keys.push(lease.presence_key);
                    }
                }
            }
            (Transition::CreateAttempt(it), Reply::AttemptCreated(grant)) => {
                let known = self.attempts.iter().any(|it| it.id == grant.id);
                assert_eq!(known, grant.replayed, "a key was executed twice, or replayed what never was");
                if !known {
                    let listing = self.listings.iter().position(|it| it.id == grant.listing);
                    let listing = listing.expect("an attempt at a listing that was granted");
                    self.attempts.push(Attempt {
                        id: grant.id,
                        joiner: it.caller,
                        listing,
                        key: grant.joiner_key,
                    });
                }
            }
            (Transition::Revoke(it), Reply::Revoked(view)) => {
                let known = self.revocations.iter().any(|it| it.0 == view.id);
                self.revocations.extend((!known).then_some((view.id, it.caller.tenant)));
            }
            (_, Reply::Refused(_)) => {}
            (Transition::RefreshPresence(it), _) => self.count(&it.proof),
            (Transition::EndPresence(it), _) => self.count(&it.proof),
            (Transition::Bind(it), _) => self.count(&it.proof),
            (Transition::Report(it), _) => {
                if let Reporter::Datagram(proof) = &it.reporter {
                    self.count(proof);
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, proof: &DatagramProof) {
        let v6 = proof.source.ip().is_ipv6();
        let of_listing =
            self.listings.iter().position(|it| it.keys.contains(&proof.key_id)).map(|it| (true, it, v6));
        let of_attempt = self.attempts.iter().position(|it| it.key == proof.key_id).map(|it| (false, it, v6));
        if let Some(counter) = of_listing.or(of_attempt) {
            self.counted.insert(counter, (proof.session, proof.sequence));
        }
    }
}

/// About nobody in particular, in a tenant.
pub(crate) fn tenant_of(tenant: TenantId) -> About {
    let somebody = Caller { tenant, ..NOBODY };
    About { owner: somebody, joiner: somebody }
}

fn recent(len: usize, ago: u8) -> Option<usize> {
    (len > 0).then(|| len - 1 - usize::from(ago) % len)
}

/// Where `role` sends from.
pub(crate) fn endpoint(role: Role, from: Spot, v6: bool) -> Endpoint {
    let at = |role: Role, port: u16| {
        let last = role as u8;
        if v6 {
            Endpoint::new([0x2600, 0, 0, 0, 0, 0, 0, last.into()].into(), port)
        } else {
            Endpoint::new([9, 9, 9, last].into(), port)
        }
    };
    let port = |role: Role| 4_000 + 1_000 * role as u16;
    match from {
        Spot::Usual => at(role, port(role)),
        Spot::OtherPort => at(role, port(role) + 1),
        Spot::PeersNeighbour => at(role.peer(), port(role)),
        Spot::Peers => at(role.peer(), port(role.peer())),
    }
}
