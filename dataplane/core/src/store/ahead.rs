//! Looking ahead: what the transitions of a batch look at first is read for all of them together. An object is in no
//! cache as a rule, and each would be waited for alone: with a million listings that waiting is most of a refresh.

use core::hint::black_box;

use rendezvous_shared::id::Handle;
use rendezvous_shared::store::Transition;

use super::MemoryStore;

impl MemoryStore {
    /// Reads what `batch` will look at. Nothing is decided by it: each transition finds its objects itself.
    pub(super) fn look_ahead(&self, batch: &[Transition]) {
        for transition in batch {
            match transition {
                Transition::RefreshPresence(it) => self.read_listing(it.proof.key_id.handle()),
                Transition::EndPresence(it) => self.read_listing(it.proof.key_id.handle()),
                Transition::RenewLease(it) => self.read_listing(it.listing.handle()),
                Transition::CreateAttempt(it) => self.read_listing(it.listing.handle()),
                Transition::Bind(it) => self.read_attempt(it.attempt.handle()),
                Transition::Report(it) => self.read_attempt(it.attempt.handle()),
                Transition::GetAttempt(it) => self.read_attempt(it.attempt.handle()),
                // Seldom asked, or of no one object.
                _ => {}
            }
        }
    }

    /// A word of each line of memory that a refresh looks at.
    fn read_listing(&self, handle: Handle) {
        let listing = self.listings.find(handle).map(|slot| &self.listings[slot]);
        black_box(listing.map(|it| (it.lease_deadline, it.freshness[1], it.presence.map(|it| it.is_some()))));
    }

    fn read_attempt(&self, handle: Handle) {
        let attempt = self.attempts.find(handle).map(|slot| &self.attempts[slot]);
        black_box(
            attempt.map(|it| (it.deadline, it.host_side.is_some(), it.joiner_side.is_some(), it.in_pool)),
        );
    }
}
