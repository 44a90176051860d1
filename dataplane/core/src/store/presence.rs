//! Presence: the host's proved endpoints, one per family, each replaced whole.

use core::time::Duration;

use rendezvous_shared::id::Role;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    DatagramProof, EndPresence, Notice, PresenceGrant, RefreshPresence, Reply, Visibility,
};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::drain::DrainState;
use super::freshness::Freshness;
use super::records::{Attempt, Listing, Presence, family_index};
use super::slab::Slot;

impl MemoryStore {
    pub(super) fn refresh_presence(
        &mut self,
        now: Instant,
        request: &RefreshPresence,
    ) -> Result<Reply, Refusal> {
        let proof = &request.proof;
        let slot = self.authorise_host(now, proof)?;
        self.accept_sequence(slot, proof)?;
        // What came in while this batch was applied is ahead of its time.
        let proved = proof.arrived.min(now);
        let presence = Presence { endpoint: proof.source, local: proof.local, proved };
        // One that waited too long to be applied proves nothing any more.
        let fresh = Some(presence).filter(|it| it.deadline() > now);
        if fresh.is_none() || !self.listings[slot].is_joinable(now) {
            self.settle_attempts(now, slot);
        }
        self.listings[slot].presence[family_index(proof.source.family())] = fresh;
        self.note_joinable(slot);
        Ok(Reply::Presence(self.presence_grant(now, slot, presence.deadline().since(now))))
    }

    pub(super) fn end_presence(&mut self, now: Instant, request: &EndPresence) -> Result<Reply, Refusal> {
        let proof = &request.proof;
        let slot = self.authorise_host(now, proof)?;
        match self.accept_sequence(slot, proof) {
            Ok(_) => {
                let eve = eve(proof.arrived.min(now));
                let freshness = &mut self.listings[slot].freshness;
                *freshness = freshness.map(|known| known.end(eve));
            }
            // It was heard before, as far as it matters, and its ACK was lost.
            Err(_) if !self.listings[slot].had_presence(now) => {}
            Err(refusal) => return Err(refusal),
        }
        if self.listings[slot].presence != [None; 2] {
            self.settle_attempts(now, slot);
            self.listings[slot].presence = [None; 2];
            self.note_joinable(slot);
        }
        let grant = PresenceGrant {
            lease_remaining: self.listings[slot].lease_deadline.since(now),
            presence_remaining: Duration::ZERO,
            draining: self.drain != DrainState::Serving,
            pending: None,
        };
        Ok(Reply::Presence(grant))
    }

    /// The listing whose current presence key made the proof. A superseded key is as dead as a deleted listing.
    pub(super) fn authorise_host(
        &self,
        now: Instant,
        proof: &DatagramProof,
    ) -> Result<Slot<Listing>, Refusal> {
        if proof.role() != Some(Role::Host) {
            return Err(Refusal::NotFound);
        }
        let slot = self.listings.find(proof.key_id.handle()).ok_or(Refusal::NotFound)?;
        let current = self.listings[slot].lease_deadline > now && self.presence_key(slot) == proof.key_id;
        if current { Ok(slot) } else { Err(Refusal::NotFound) }
    }

    /// Moves the freshness of the host's key in the proof's family, or refuses what is older.
    pub(super) fn accept_sequence(
        &mut self,
        slot: Slot<Listing>,
        proof: &DatagramProof,
    ) -> Result<Freshness, Refusal> {
        let known = &mut self.listings[slot].freshness[family_index(proof.source.family())];
        *known = known.accept(proof).ok_or(Refusal::StaleSequence)?;
        Ok(*known)
    }

    /// Notes until when a listing is joinable, after its lease or presence changed; and keeps the gauges.
    pub(super) fn note_joinable(&mut self, slot: Slot<Listing>) {
        self.set_joinable(slot, self.listings[slot].joinable_until());
    }

    /// A listing that is taken out of everything is joinable no more.
    pub(super) fn leave_gauges(&mut self, slot: Slot<Listing>) {
        self.set_joinable(slot, Instant::ZERO);
    }

    fn set_joinable(&mut self, slot: Slot<Listing>, after: Instant) {
        let listing = &mut self.listings[slot];
        let before = core::mem::replace(&mut listing.joinable_until, after);
        self.present.shift(before, after);
        if listing.description.visibility() == Visibility::Public {
            self.visible.shift(before, after);
        }
    }

    fn presence_grant(
        &self,
        now: Instant,
        slot: Slot<Listing>,
        presence_remaining: Duration,
    ) -> PresenceGrant {
        let listing = &self.listings[slot];
        // A datagram that waited for too long may have proved nothing, and nobody is told then.
        let waiting = listing.is_joinable(now).then(|| listing.waiting.iter(&self.attempts));
        PresenceGrant {
            lease_remaining: listing.lease_deadline.since(now),
            presence_remaining,
            draining: self.drain != DrainState::Serving,
            pending: waiting.into_iter().flatten().find_map(|attempt| self.notice(now, attempt)),
        }
    }

    /// Whom to tell that the joiner of `attempt` waits: the host's endpoint in the joiner's family, or else in
    /// the other; nobody when no presence is fresh.
    pub(super) fn notice(&self, now: Instant, slot: Slot<Attempt>) -> Option<Notice> {
        let attempt = &self.attempts[slot];
        let listing = &self.listings[attempt.listing];
        let preferred = family_index(attempt.joiner_side.as_ref()?.endpoint.family());
        let presence = listing.presence(now, preferred).or(listing.presence(now, 1 - preferred))?;
        (attempt.deadline > now).then(|| Notice {
            attempt: attempt.id(self.attempts.handle(slot)),
            host_key: self.presence_key(attempt.listing),
            endpoint: presence.endpoint,
            local: presence.local,
            remaining: attempt.deadline.since(now),
        })
    }
}

/// The last moment before that at which a farewell came. A cookie issued since then was issued after it: what carries one
/// was sent later than the farewell was. Cookies tell whole milliseconds, and that of the farewell's own ACK may be of the
/// millisecond in which it came.
const fn eve(arrived: Instant) -> Instant {
    let since = Instant::from_millis(arrived.as_millis());
    Instant::from_nanos(since.as_nanos().saturating_sub(1))
}
