//! Presences: from where a host was heard lately, and whom of the two families a NOTICE goes to.

use rendezvous_shared::endpoint::{Endpoint, Family};
use rendezvous_shared::id::ListingId;
use rendezvous_shared::limits::PRESENCE_LIFETIME;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{DatagramProof, Notice, Reply};
use rendezvous_shared::time::Instant;

use super::{Oracle, broken};

impl Oracle {
    pub(super) fn on_presence(&mut self, now: Instant, proof: &DatagramProof, reply: &Reply, bye: bool) {
        let listing = self.listing_of(now, &proof.key_id);
        match (listing, reply) {
            (None, Reply::Refused(Refusal::NotFound)) => {}
            (Some(_), Reply::Refused(Refusal::StaleSequence)) => {
                if self.moves_on(proof) {
                    broken("a newer datagram is not stale", format_args!("{proof:?}"));
                }
            }
            (Some(id), Reply::Presence(grant)) => {
                let moves = self.moves_on(proof);
                let gone = self.live_listing(now, id).is_some_and(|it| !it.visible(now));
                if !moves && (!bye || !gone) {
                    broken("an older datagram reinstates nothing", format_args!("{proof:?}"));
                }
                if bye && moves {
                    self.takes_leave(proof);
                }
                self.proofs.on_accepted(proof, None);
                self.settle_attempts(now, id);
                let draining = self.drain.is_some();
                let Some(fact) = self.listings.get_mut(&id) else { return };
                // What waited on its way to the store counts from when it came.
                let until = if bye { now } else { proof.arrived.after(PRESENCE_LIFETIME) };
                if bye {
                    fact.presence = [None; 2];
                } else {
                    fact.presence[usize::from(proof.source.family() == Family::V6)] =
                        (until > now).then_some((proof.source, until));
                }
                let remaining = (fact.lease_ends().since(now), until.since(now), draining);
                if (grant.lease_remaining, grant.presence_remaining, grant.draining) != remaining {
                    broken("ACK says what remains", format_args!("{grant:?} {fact:?} at {now:?}"));
                }
                if let Some(notice) = &grant.pending {
                    self.check_notice(now, id, notice);
                }
            }
            _ => broken(
                "an acknowledged listing lives until its deadline",
                format_args!("PRESENCE {proof:?} {listing:?} {reply:?}"),
            ),
        }
    }

    /// A host is told where it proved to be lately, and nowhere else.
    pub(super) fn check_notice(&self, now: Instant, id: ListingId, notice: &Notice) {
        let fact = self.live_listing(now, id);
        let there = fact.is_some_and(|it| {
            it.key == notice.host_key
                && it.presence.iter().flatten().any(|(at, until)| *at == notice.endpoint && *until > now)
        });
        if !there || !self.proofs.has_presence(now, &notice.host_key, notice.endpoint) {
            broken("NOTICE goes to the newest proved endpoint", format_args!("{notice:?} {fact:?}"));
        }
        let wanted = self.joiner_family(notice.attempt);
        let in_wanted = |(at, until): &&(Endpoint, Instant)| Some(at.family()) == wanted && *until > now;
        let has_wanted = fact.is_some_and(|it| it.presence.iter().flatten().any(|it| in_wanted(&it)));
        if has_wanted && Some(notice.endpoint.family()) != wanted {
            broken(
                "NOTICE comes in the joiner's family where there is one",
                format_args!("{notice:?} {fact:?}"),
            );
        }
        if !self.awaits_host(now, notice.attempt, id) {
            broken("NOTICE names an attempt whose joiner waits", format_args!("{notice:?}"));
        }
    }
}
