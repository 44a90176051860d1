//! Presence: the host's proved endpoints, one per family, each replaced whole.

use core::time::Duration;

use rendezvous_shared::id::{Role, TenantId};
use rendezvous_shared::limits;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{
    DatagramProof, EndPresence, Notice, PresenceGrant, RefreshPresence, Reply, Visibility,
};
use rendezvous_shared::time::Instant;

use super::due::Due;
use super::freshness::{self, Freshness};
use super::listings::LOWEST;
use super::records::{Presence, family_index};
use super::{AttemptKey, DrainState, ListingKey, MemoryStore, TenantUse, key_at};

impl MemoryStore {
    pub(super) fn refresh_presence(
        &mut self,
        now: Instant,
        request: &RefreshPresence,
    ) -> Result<Reply, Refusal> {
        let proof = &request.proof;
        let key = self.authorise_host(proof)?;
        self.accept_sequence(key, proof)?;
        let was_joinable = self.listings[key].is_joinable();
        let listing = &mut self.listings[key];
        let presence = Presence {
            endpoint: proof.source,
            local: proof.local,
            proved: proof.arrived,
            deadline: now.after(limits::PRESENCE_LIFETIME),
        };
        listing.presence[family_index(proof.source.family())] = Some(presence);
        let due = listing.due();
        self.due.hasten(&mut listing.filed, due, Due::Listing(key));
        if !was_joinable {
            self.tallies.presence_fresh += 1;
            self.tallies.listings_visible +=
                usize::from(listing.description.visibility() == Visibility::Public);
        }
        Ok(Reply::Presence(self.presence_grant(now, key, limits::PRESENCE_LIFETIME)))
    }

    pub(super) fn end_presence(&mut self, now: Instant, request: &EndPresence) -> Result<Reply, Refusal> {
        let key = self.authorise_host(&request.proof)?;
        self.accept_sequence(key, &request.proof)?;
        self.drop_presence(key, |_| true);
        let mut grant = self.presence_grant(now, key, Duration::ZERO);
        grant.pending = None;
        Ok(Reply::Presence(grant))
    }

    /// The listing whose current presence key made the proof. A superseded key is as dead as a deleted listing.
    pub(super) fn authorise_host(&self, proof: &DatagramProof) -> Result<ListingKey, Refusal> {
        self.refuse_when_drained()?;
        if proof.role() != Some(Role::Host) {
            return Err(Refusal::NotFound);
        }
        let key = key_at(proof.key_id.handle());
        let listing = self.listings.get(key).ok_or(Refusal::NotFound)?;
        if self.presence_key(key, listing) == proof.key_id { Ok(key) } else { Err(Refusal::NotFound) }
    }

    /// Moves the freshness of the host's key in the proof's family, or refuses what is older.
    pub(super) fn accept_sequence(
        &mut self,
        key: ListingKey,
        proof: &DatagramProof,
    ) -> Result<Freshness, Refusal> {
        let known = &mut self.listings[key].freshness[family_index(proof.source.family())];
        let fresh = freshness::accept(*known, proof).ok_or(Refusal::StaleSequence)?;
        *known = Some(fresh);
        Ok(fresh)
    }

    /// Drops the presences that `ended` picks, and what follows from having none left.
    pub(super) fn drop_presence(&mut self, key: ListingKey, ended: impl Fn(&Presence) -> bool) {
        let Some(listing) = self.listings.get_mut(key) else { return };
        let was_joinable = listing.is_joinable();
        for presence in &mut listing.presence {
            presence.take_if(|it| ended(it));
        }
        if was_joinable && !listing.is_joinable() {
            self.tallies.presence_fresh -= 1;
            self.tallies.listings_visible -=
                usize::from(listing.description.visibility() == Visibility::Public);
        }
    }

    fn presence_grant(&self, now: Instant, key: ListingKey, presence_remaining: Duration) -> PresenceGrant {
        let waiting = self.waiting.range((key, key_at::<AttemptKey>(LOWEST))..).next();
        let pending =
            waiting.filter(|&&(of, _)| of == key).and_then(|&(_, attempt)| self.notice(now, attempt));
        PresenceGrant {
            lease_remaining: self.listings[key].lease_deadline.since(now),
            presence_remaining,
            draining: self.drain != DrainState::Serving,
            pending,
        }
    }

    /// Whom to tell that the joiner of `attempt` waits: the host's endpoint in the joiner's family, or else in
    /// the other; nobody when no presence was proved recently enough.
    pub(super) fn notice(&self, now: Instant, key: AttemptKey) -> Option<Notice> {
        let attempt = self.attempts.get(key)?;
        let listing = self.listings.get(attempt.listing)?;
        let preferred = family_index(attempt.joiner_side.as_ref()?.endpoint.family());
        let presence = listing.presence[preferred].or(listing.presence[1 - preferred])?;
        (now.since(presence.proved) <= limits::PROOF_AGE_MAX).then(|| Notice {
            attempt: attempt.id,
            host_key: self.presence_key(attempt.listing, listing),
            endpoint: presence.endpoint,
            local: presence.local,
            remaining: attempt.deadline.since(now),
        })
    }

    /// Gives back part of a tenant's quota; a tenant that uses nothing is forgotten.
    pub(super) fn release_tenant(&mut self, tenant: TenantId, release: impl FnOnce(&mut TenantUse)) {
        if let Some(usage) = self.tenants.get_mut(&tenant) {
            release(usage);
            if *usage == TenantUse::default() {
                self.tenants.remove(&tenant);
            }
        }
    }
}
