//! Binding endpoints to roles, and the introduction gate.

use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::{Endpoint, Family};
use rendezvous_shared::id::Role;
use rendezvous_shared::limits;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Refusal};
use rendezvous_shared::store::{Bind, BindAnswer, Introduction, Push, Reply};
use rendezvous_shared::time::Instant;

use super::records::{Attempt, Side};
use super::{AttemptKey, MemoryStore, freshness};

/// Longest wait for the other side to have heard; beyond it the round trips are not to be believed.
const START_IN_MAX: Duration = Duration::from_secs(1);

impl MemoryStore {
    pub(super) fn bind(&mut self, now: Instant, request: &Bind) -> Result<Reply, Refusal> {
        self.refuse_when_drained()?;
        let role = request.proof.role().ok_or(Refusal::NotFound)?;
        let key = self.authorise_role(role, request)?;
        let newly_bound = self.bind_side(now, key, role, request)?;
        let attempt = &self.attempts[key];
        let answer = match (attempt.host_side.as_ref(), attempt.joiner_side.as_ref()) {
            (Some(host), Some(joiner)) if attempt.times.introduced.is_some() => {
                // There is one, or it would not have been introduced: sides never change.
                let own = introduction(attempt, role, host, joiner).ok_or(Refusal::ServiceUnavailable)?;
                self.tallies.introductions_replayed += 1;
                BindAnswer::Replayed { own }
            }
            (Some(_), Some(_)) => self.try_introduce(now, key, role)?,
            _ => {
                let notice = (newly_bound && role == Role::Joiner).then(|| self.notice(now, key)).flatten();
                BindAnswer::Waiting { peer_bound: false, remaining: attempt.deadline.since(now), notice }
            }
        };
        Ok(Reply::Bind(answer))
    }

    /// The attempt in which the proof's key is the right of `role`.
    fn authorise_role(&self, role: Role, request: &Bind) -> Result<AttemptKey, Refusal> {
        if role == Role::Host {
            self.authorise_host(&request.proof)?;
        }
        let handle = request.proof.key_id.handle();
        let Some(key) = self.find_attempt(request.attempt) else {
            return Err(self.gone(request.attempt, |it| match role {
                Role::Host => it.view.listing.handle() == handle,
                Role::Joiner => it.view.id.handle() == handle,
            }));
        };
        if self.role_key(key, role) == request.proof.key_id { Ok(key) } else { Err(Refusal::NotFound) }
    }

    /// The key that is the right of `role` in this attempt.
    pub(super) fn role_key(&self, key: AttemptKey, role: Role) -> KeyId {
        let attempt = &self.attempts[key];
        match role {
            Role::Host => self.presence_key(attempt.listing, &self.listings[attempt.listing]),
            Role::Joiner => self.joiner_key(key, attempt),
        }
    }

    /// Binds the role, or recognises the same BIND again; returns whether it was bound just now. The first
    /// endpoint wins: anything different is refused.
    fn bind_side(
        &mut self,
        now: Instant,
        key: AttemptKey,
        role: Role,
        request: &Bind,
    ) -> Result<bool, Refusal> {
        let proof = &request.proof;
        let attempt = &mut self.attempts[key];
        if let Some(side) = attempt.side_mut(role) {
            if side.endpoint != proof.source || side.candidates != request.candidates {
                return Err(Refusal::Conflict(ConflictReason::EndpointAlreadyBound));
            }
            // The same bytes again get the same answer, but only a fresh datagram proves the address anew.
            if let Some(fresh) = freshness::accept(side.freshness, proof) {
                side.freshness = Some(fresh);
                side.proved = side.proved.max(proof.arrived);
                side.local = proof.local;
            }
            return Ok(false);
        }
        // A host's key has one counter for all it sends, or a BIND delayed on its way from a port that is gone would
        // win the role. A joiner's key begins with its attempt.
        let listing = attempt.listing;
        let fresh = match role {
            Role::Host => self.accept_sequence(listing, proof)?,
            Role::Joiner => freshness::accept(None, proof).ok_or(Refusal::StaleSequence)?,
        };
        let attempt = &mut self.attempts[key];
        *attempt.side_mut(role) = Some(Side {
            key_id: proof.key_id,
            endpoint: proof.source,
            candidates: request.candidates,
            round_trip: request.round_trip,
            proved: proof.arrived,
            local: proof.local,
            freshness: Some(fresh),
        });
        let bound = match role {
            Role::Host => &mut attempt.times.host_bound,
            Role::Joiner => &mut attempt.times.joiner_bound,
        };
        *bound = Some(now);
        let pair = (listing, key);
        if attempt.host_side.is_none() {
            self.waiting.insert(pair)
        } else {
            self.waiting.remove(&pair)
        };
        Ok(true)
    }

    /// The gate: both roles are bound, and everything else that must hold is looked at here, in this transition.
    fn try_introduce(&mut self, now: Instant, key: AttemptKey, role: Role) -> Result<BindAnswer, Refusal> {
        let attempt = &self.attempts[key];
        let (Some(host), Some(joiner)) = (&attempt.host_side, &attempt.joiner_side) else {
            return Err(Refusal::ServiceUnavailable);
        };
        let waiting =
            BindAnswer::Waiting { peer_bound: true, remaining: attempt.deadline.since(now), notice: None };
        let proved = |side: &Side| now.since(side.proved) <= limits::PROOF_AGE_MAX;
        let fresh = self.listings.get(attempt.listing).is_some_and(|it| it.is_joinable());
        if !fresh || !proved(host) || !proved(joiner) {
            return Ok(waiting);
        }
        if in_both(host, joiner).any(|(host, joiner)| host == joiner) {
            self.finish_attempt(now, key, AttemptReason::SameEndpoint);
            return Err(Refusal::Conflict(ConflictReason::SameEndpoint));
        }
        let own = introduction(attempt, role, host, joiner);
        let other = introduction(attempt, role.peer(), host, joiner);
        let (Some(own), Some(other)) = (own, other) else {
            self.finish_attempt(now, key, AttemptReason::NoCommonFamily);
            return Err(Refusal::Conflict(ConflictReason::NoCommonFamily));
        };
        let told = if role == Role::Host { joiner } else { host };
        let Side { key_id, endpoint, local, .. } = *told;
        let peer = Push { key_id, endpoint, local, introduction: other };
        self.mark_introduced(now, key);
        Ok(BindAnswer::Introduced { own, peer })
    }

    fn mark_introduced(&mut self, now: Instant, key: AttemptKey) {
        let attempt = &mut self.attempts[key];
        attempt.times.introduced = Some(now);
        attempt.deadline = attempt.deadline.max(now.after(limits::INTRODUCED_LIFETIME_MIN));
        let (deadline, record) = (attempt.deadline, attempt.record);
        self.attempt_records.prolong(record, deadline);
        self.tallies.introductions += 1;
    }
}

/// What the bound peer of `role` is told; nothing when the two have no family in common.
///
/// Sides never change once bound, so this gives the same answer each time it is asked.
fn introduction(attempt: &Attempt, role: Role, host: &Side, joiner: &Side) -> Option<Introduction> {
    let (own, peer) = if role == Role::Host { (host, joiner) } else { (joiner, host) };
    let common = |family: Family| {
        own.candidates.in_family(own.endpoint, family)?;
        peer.candidates.in_family(peer.endpoint, family)
    };
    let preferred = own.endpoint.family();
    let other = if preferred == Family::V4 { Family::V6 } else { Family::V4 };
    let (first, second) = match (common(preferred), common(other)) {
        (Some(first), second) => (first, second),
        (None, Some(second)) => (second, None),
        (None, None) => return None,
    };
    let behind_one_address = in_both(own, peer).any(|(own, peer)| own.ip() == peer.ip());
    let lan: [Option<Endpoint>; 2] = if behind_one_address { peer.candidates.lan } else { [None; 2] };
    Some(Introduction {
        attempt: attempt.id,
        peer: first,
        peer_second: second,
        lan,
        start_in: start_in(own.round_trip, peer.round_trip),
    })
}

/// The two proved endpoints in each family that both sides have.
fn in_both(one: &Side, other: &Side) -> impl Iterator<Item = (Endpoint, Endpoint)> {
    [Family::V4, Family::V6].into_iter().filter_map(|family| {
        let one = one.candidates.in_family(one.endpoint, family)?;
        Some((one, other.candidates.in_family(other.endpoint, family)?))
    })
}

/// The one with the shorter way to the server waits for the other to have heard.
fn start_in(own: Duration, peer: Duration) -> Duration {
    (peer.saturating_sub(own) / 2).min(START_IN_MAX)
}
