//! Binding endpoints to roles, and the introduction gate.

use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::{Endpoint, Family};
use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Refusal};
use rendezvous_shared::store::{Bind, BindAnswer, Introduction, Push, Reply};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::ends::End;
use super::freshness::Freshness;
use super::records::{Attempt, Seconds, Side};
use super::slab::Slot;

/// Longest wait for the other side to have heard; beyond it the round trips are not to be believed.
const START_IN_MAX: Duration = Duration::from_secs(1);

impl MemoryStore {
    pub(super) fn bind(&mut self, now: Instant, request: &Bind) -> Result<Reply, Refusal> {
        let role = request.proof.role().ok_or(Refusal::NotFound)?;
        let slot = self.authorise_role(now, role, request)?;
        let newly_bound = self.bind_side(now, slot, role, request)?;
        let attempt = &self.attempts[slot];
        let answer = match (attempt.host_side.as_ref(), attempt.joiner_side.as_ref()) {
            (Some(host), Some(joiner)) if attempt.times.introduced.get().is_some() => {
                // There is one, or it would not have been introduced: sides never change.
                let own = introduction(self.attempt_id(slot), role, host, joiner);
                self.tallies.introductions_replayed += 1;
                BindAnswer::Replayed { own: own.ok_or(Refusal::ServiceUnavailable)? }
            }
            (Some(_), Some(_)) => self.try_introduce(now, slot, role)?,
            _ => {
                let notice = (newly_bound && role == Role::Joiner).then(|| self.notice(now, slot)).flatten();
                BindAnswer::Waiting { peer_bound: false, remaining: attempt.deadline.since(now), notice }
            }
        };
        Ok(Reply::Bind(answer))
    }

    /// The attempt in which the proof's key is the right of `role`.
    fn authorise_role(&mut self, now: Instant, role: Role, request: &Bind) -> Result<Slot<Attempt>, Refusal> {
        if role == Role::Host {
            self.authorise_host(now, &request.proof)?;
        }
        let handle = request.proof.key_id.handle();
        let Some(slot) = self.live_attempt(now, request.attempt) else {
            return Err(self.gone(now, request.attempt, |it| match role {
                Role::Host => it.story.listing() == handle,
                Role::Joiner => it.story.id().handle() == handle,
            }));
        };
        if self.role_key(slot, role) == request.proof.key_id { Ok(slot) } else { Err(Refusal::NotFound) }
    }

    /// The key that is the right of `role` in this attempt.
    pub(super) fn role_key(&self, slot: Slot<Attempt>, role: Role) -> KeyId {
        match role {
            Role::Host => self.presence_key(self.attempts[slot].listing),
            Role::Joiner => self.joiner_key(slot),
        }
    }

    fn attempt_id(&self, slot: Slot<Attempt>) -> AttemptId {
        self.attempts[slot].id(self.attempts.handle(slot))
    }

    /// Binds the role, or recognises the same BIND again; returns whether it was bound just now. The first
    /// endpoint wins: anything different is refused.
    fn bind_side(
        &mut self,
        now: Instant,
        slot: Slot<Attempt>,
        role: Role,
        request: &Bind,
    ) -> Result<bool, Refusal> {
        let proof = &request.proof;
        let attempt = &mut self.attempts[slot];
        if let Some(side) = attempt.side_mut(role) {
            if side.endpoint != proof.source || side.candidates != request.candidates {
                return Err(Refusal::Conflict(ConflictReason::EndpointAlreadyBound));
            }
            side.mapping = side.mapping.or(request.mapping);
            // The same bytes again get the same answer, but only a fresh datagram proves the address anew.
            if let Some(fresh) = side.freshness.accept(proof) {
                side.freshness = fresh;
                side.proved = side.proved.max(proof.arrived.min(now));
                side.local = proof.local;
            }
            return Ok(false);
        }
        // A host's key has one counter for all it sends, or a BIND delayed on its way from a port that is gone would
        // win the role. A joiner's key begins with its attempt.
        let listing = attempt.listing;
        let freshness = match role {
            Role::Host => self.accept_sequence(listing, proof)?,
            Role::Joiner => Freshness::default().accept(proof).ok_or(Refusal::StaleSequence)?,
        };
        let side = Side {
            key_expires: proof.key_id.expires(),
            endpoint: proof.source,
            candidates: request.candidates,
            round_trip: request.round_trip,
            mapping: request.mapping,
            proved: proof.arrived.min(now),
            local: proof.local,
            freshness,
        };
        self.set_side(now, slot, role, side);
        Ok(true)
    }

    /// Enters a bound role, and moves the attempt to the list of its listing where it then belongs.
    fn set_side(&mut self, now: Instant, slot: Slot<Attempt>, role: Role, side: Side) {
        let Self { attempts, listings, .. } = self;
        let listing = &mut listings[attempts[slot].listing];
        let attempt = &mut attempts[slot];
        let before = attempt.standing();
        *attempt.side_mut(role) = Some(side);
        match role {
            Role::Host => attempt.times.host_bound = now.into(),
            Role::Joiner => attempt.times.joiner_bound = now.into(),
        }
        let after = attempt.standing();
        if before != after {
            listing.attempts(before).remove(attempts, slot);
            listing.attempts(after).push(attempts, slot);
        }
    }

    /// The gate: both roles are bound, and everything else that must hold is looked at here, in this transition.
    fn try_introduce(
        &mut self,
        now: Instant,
        slot: Slot<Attempt>,
        role: Role,
    ) -> Result<BindAnswer, Refusal> {
        let attempt = &self.attempts[slot];
        let (Some(host), Some(joiner)) = (&attempt.host_side, &attempt.joiner_side) else {
            return Err(Refusal::ServiceUnavailable);
        };
        let proved = |side: &Side| now.since(side.proved) <= limits::PROOF_AGE_MAX;
        if !self.listings[attempt.listing].is_joinable(now) || !proved(host) || !proved(joiner) {
            let remaining = attempt.deadline.since(now);
            return Ok(BindAnswer::Waiting { peer_bound: true, remaining, notice: None });
        }
        if in_both(host, joiner).any(|(host, joiner)| host == joiner) {
            self.finish_attempt(now, slot, End { at: now, reason: AttemptReason::SameEndpoint });
            return Err(Refusal::Conflict(ConflictReason::SameEndpoint));
        }
        let own = introduction(self.attempt_id(slot), role, host, joiner);
        let (Some(own), Some(peer)) = (own, self.push_to(slot, role.peer())) else {
            self.finish_attempt(now, slot, End { at: now, reason: AttemptReason::NoCommonFamily });
            return Err(Refusal::Conflict(ConflictReason::NoCommonFamily));
        };
        self.mark_introduced(now, slot);
        Ok(BindAnswer::Introduced { own, peer })
    }

    /// What a bound role is told of the other without asking; nothing unless both are bound and have a family in common.
    pub(super) fn push_to(&self, slot: Slot<Attempt>, role: Role) -> Option<Push> {
        let attempt = &self.attempts[slot];
        let (host, joiner) = (attempt.host_side.as_ref()?, attempt.joiner_side.as_ref()?);
        let (told, object) = match role {
            Role::Host => (host, self.listings.handle(attempt.listing)),
            Role::Joiner => (joiner, self.attempts.handle(slot)),
        };
        Some(Push {
            key_id: KeyId::new(role, attempt.tenant, self.instance, object, told.key_expires),
            endpoint: told.endpoint,
            local: told.local,
            introduction: introduction(self.attempt_id(slot), role, host, joiner)?,
        })
    }

    fn mark_introduced(&mut self, now: Instant, slot: Slot<Attempt>) {
        self.tallies.introductions += 1;
        let attempt = &mut self.attempts[slot];
        attempt.times.introduced = now.into();
        let record = attempt.record;
        let longer = Seconds::granted(limits::INTRODUCED_LIFETIME_MIN, Duration::ZERO, Duration::MAX);
        let deadline = now.after(longer.duration());
        if deadline > attempt.deadline {
            let prolong =
                |attempt: &mut Attempt| (attempt.deadline, attempt.lane) = (deadline, longer.lane());
            self.attempts.refile(slot, prolong);
            self.attempt_records.prolong(record, deadline, longer.lane());
        }
    }
}

/// What the bound peer of `role` is told; nothing when the two have no family in common.
///
/// Sides never change once bound, so this gives the same answer each time it is asked.
fn introduction(attempt: AttemptId, role: Role, host: &Side, joiner: &Side) -> Option<Introduction> {
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
        attempt,
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
