//! Looking ahead: what a batch looks at first, and what is worked off next, is read for all of it together. An object is
//! in no cache as a rule, and each would be waited for alone: with a million listings that waiting is most of a refresh.
//!
//! Readers return a word that depends on all they read, so that none of it is left out, and waits for nothing else.

use core::hint::black_box;

use rendezvous_shared::id::Handle;
use rendezvous_shared::store::{CreateAttempt, Transition};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::idempotency::RecordKey;
use super::lanes::{read, read_neighbours};
use super::records::{Listing, OfJoiner, OfListing, OfPool, OfTenant};
use super::slab::Slot;

impl MemoryStore {
    /// Reads what `batch` will look at. Nothing is decided by it: each transition finds its objects itself.
    pub(super) fn look_ahead(&self, batch: &[Transition]) {
        let mut words = 0;
        for transition in batch {
            words ^= match transition {
                Transition::RefreshPresence(it) => self.read_listing(it.proof.key_id.handle()),
                Transition::EndPresence(it) => self.read_listing(it.proof.key_id.handle()),
                Transition::Bind(it) => self.read_attempt(it.attempt.handle()),
                Transition::Remind(it) => self.read_attempt(it.attempt.handle()),
                Transition::Report(it) => self.read_attempt(it.attempt.handle()),
                Transition::CreateAttempt(it) => self.read_for_creation(it),
                // There are few of the others, or they come one by one.
                _ => 0,
            };
        }
        black_box(words);
    }

    /// Reads up to `most` things that are worked off next, with what else is changed then.
    pub(super) fn look_ahead_at_ends(&self, now: Instant, most: usize) {
        let mut words = 0;
        let mut left = most;
        for slot in self.attempts.all_due(now).take(most) {
            words ^= self.read_lines(self.attempts[slot].listing);
            words ^= read_neighbours::<_, OfListing>(&self.attempts, slot);
            words ^= read_neighbours::<_, OfJoiner>(&self.attempts, slot);
            words ^= read_neighbours::<_, OfTenant>(&self.attempts, slot);
            left -= 1;
        }
        for word in self.results.read_due(now).take(left) {
            words ^= word;
            left -= 1;
        }
        words ^= self.attempt_records.read_due(now).take(left).fold(0, |words, it| words ^ it);
        black_box(words);
    }

    fn read_for_creation(&self, request: &CreateAttempt) -> u64 {
        let tenant = self.tenants.get(&request.caller.tenant);
        let joiner = tenant.and_then(|it| it.principals.get(&request.caller.principal));
        let last = joiner.and_then(|it| it.joined.last());
        let word = last.map_or(0, |slot| read::<_, OfJoiner>(&self.attempts, slot));
        let record = self.attempt_records.read(RecordKey::new(request.caller, request.idempotency));
        word ^ record ^ self.read_listing(request.listing.handle())
    }

    fn read_listing(&self, handle: Handle) -> u64 {
        self.listings.find(handle).map_or(0, |slot| self.read_lines(slot))
    }

    /// Reads an attempt, which is over when its listing is.
    fn read_attempt(&self, handle: Handle) -> u64 {
        self.attempts.find(handle).map_or(0, |slot| {
            let attempt = &self.attempts[slot];
            let sides = u64::from(attempt.host_side.is_some()) ^ u64::from(attempt.joiner_side.is_some());
            attempt.deadline.as_nanos()
                ^ sides
                ^ read::<_, OfPool>(&self.attempts, slot)
                ^ self.read_lines(attempt.listing)
        })
    }

    /// A word of each line of memory that a refresh looks at.
    fn read_lines(&self, slot: Slot<Listing>) -> u64 {
        let listing = &self.listings[slot];
        let present = u64::from(listing.presence[0].is_some()) ^ u64::from(listing.presence[1].is_some());
        listing.lease_deadline.as_nanos()
            ^ u64::from(listing.tenant.0)
            ^ listing.freshness[1].word()
            ^ present
    }
}
