//! Presence, and who is told of a joiner that waits.

use core::time::Duration;

use rendezvous_shared::id::{ListingId, Role};
use rendezvous_shared::limits::{PRESENCE_LIFETIME, PROOF_AGE_MAX};
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{DatagramProof, EndPresence, Notice, PresenceGrant, RefreshPresence, Reply};
use rendezvous_shared::time::Instant;

use super::records::{Attempt, Counted, Listing, Presence, family_index};
use super::{Drain, NaiveStore};

impl NaiveStore {
    /// "Host presence refresh is an atomic whole-endpoint replacement", within a family.
    pub(super) fn refresh_presence(&mut self, request: &RefreshPresence) -> Result<Reply, Refusal> {
        let proof = &request.proof;
        let id = self.authorise_host(proof)?;
        self.accept_sequence(id, proof)?;
        let proved = self.proved(proof);
        let deadline = proved.after(PRESENCE_LIFETIME);
        let DatagramProof { source: endpoint, local, .. } = *proof;
        let presence = Presence { endpoint, local, proved, deadline };
        let listing = self.listing_mut(id).ok_or(Refusal::NotFound)?;
        listing.presence[family_index(endpoint.family())] = Some(presence);
        Ok(Reply::Presence(PresenceGrant {
            presence_remaining: deadline.since(self.now),
            pending: self.waiting_longest(id),
            ..self.presence_grant(id)?
        }))
    }

    /// "BYE ends presence only, never the lease", and in both families for what was sent before it. Where there is no
    /// presence any more it is acknowledged again.
    pub(super) fn end_presence(&mut self, request: &EndPresence) -> Result<Reply, Refusal> {
        let id = self.authorise_host(&request.proof)?;
        let accepted = self.accept_sequence(id, &request.proof);
        let (now, proved) = (self.now, self.proved(&request.proof));
        let listing = self.listing_mut(id).ok_or(Refusal::NotFound)?;
        if accepted.is_ok() {
            listing.presence = [None; 2];
            let millis = proved.as_nanos() / 1_000_000;
            if millis > 0 {
                let eve = Instant::from_nanos(millis * 1_000_000 - 1);
                listing.left = listing.left.max(Some(eve));
                listing.counted.iter_mut().flatten().for_each(|it| it.end(eve));
            }
        } else if listing.is_joinable(now) {
            return Err(Refusal::StaleSequence);
        }
        self.presence_grant(id).map(Reply::Presence)
    }

    /// The listing whose present key made the proof.
    pub(super) fn authorise_host(&self, proof: &DatagramProof) -> Result<ListingId, Refusal> {
        self.refuse_when_drained()?;
        self.listing_of_key(proof.key_id).map(|it| it.id).ok_or(Refusal::NotFound)
    }

    /// When the datagram proved its sender's address: when it arrived, but not later than now. One may have come in
    /// after the clock was read for its batch.
    pub(super) fn proved(&self, proof: &DatagramProof) -> Instant {
        proof.arrived.min(self.now)
    }

    /// The host's key counts in each family on its own, for all that it sends in order.
    pub(super) fn accept_sequence(
        &mut self,
        id: ListingId,
        proof: &DatagramProof,
    ) -> Result<Counted, Refusal> {
        let listing = self.listing_mut(id).ok_or(Refusal::NotFound)?;
        let counted = &mut listing.counted[family_index(proof.source.family())];
        let unheard = counted.is_none();
        if unheard && listing.left.is_some_and(|eve| proof.cookie_issued <= eve) {
            return Err(Refusal::StaleSequence);
        }
        let after = Counted::after(*counted, proof).ok_or(Refusal::StaleSequence)?;
        *counted = Some(after);
        Ok(after)
    }

    fn presence_grant(&self, id: ListingId) -> Result<PresenceGrant, Refusal> {
        Ok(PresenceGrant {
            lease_remaining: self.listing(id).ok_or(Refusal::NotFound)?.deadline.since(self.now),
            presence_remaining: Duration::ZERO,
            draining: self.drain != Drain::Serving,
            pending: None,
        })
    }

    /// The attempt at the listing whose joiner has waited longest.
    fn waiting_longest(&self, id: ListingId) -> Option<Notice> {
        let waiting = self.attempts.iter().filter(|it| it.listing == id && it.host_side.is_none());
        let waiting = waiting.filter_map(|it| Some((it.joiner_side?.order, it)));
        let (_, attempt) = waiting.min_by_key(|&(order, _)| order)?;
        self.notice(self.listing(id)?, attempt)
    }

    /// Whom to tell that the joiner waits: the host in the joiner's family, or else in the other, if it proved
    /// its address recently.
    pub(super) fn notice(&self, listing: &Listing, attempt: &Attempt) -> Option<Notice> {
        let preferred = family_index(attempt.joiner_side?.endpoint.family());
        let fresh = listing.fresh(self.now);
        let presence = fresh[preferred].or(fresh[1 - preferred])?;
        (self.now.since(presence.proved) <= PROOF_AGE_MAX).then(|| Notice {
            attempt: attempt.id,
            host_key: listing.key(),
            endpoint: presence.endpoint,
            local: presence.local,
            remaining: attempt.deadline.since(self.now),
        })
    }

    /// Whether it is a host that the proof speaks for.
    pub(super) fn is_host(proof: &DatagramProof) -> bool {
        proof.role() == Some(Role::Host)
    }
}
