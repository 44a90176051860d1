//! Looking ahead: what the datagrams of a batch look at first is read for all of them together. An object is in no
//! cache as a rule, and each would be waited for alone: with a million listings that waiting is most of a refresh.

use core::hint::black_box;

use rendezvous_shared::id::Handle;
use rendezvous_shared::store::Transition;

use super::MemoryStore;
use super::records::Listing;
use super::slab::Slot;

impl MemoryStore {
    /// Reads what `batch` will look at. Nothing is decided by it: each transition finds its objects itself.
    pub(super) fn look_ahead(&self, batch: &[Transition]) {
        for transition in batch {
            match transition {
                Transition::RefreshPresence(it) => self.read_listing(it.proof.key_id.handle()),
                Transition::EndPresence(it) => self.read_listing(it.proof.key_id.handle()),
                Transition::Bind(it) => self.read_attempt(it.attempt.handle()),
                Transition::Report(it) => self.read_attempt(it.attempt.handle()),
                // Nothing else comes by datagram, and requests over HTTP come one by one.
                _ => {}
            }
        }
    }

    fn read_listing(&self, handle: Handle) {
        if let Some(slot) = self.listings.find(handle) {
            self.read_lines(slot);
        }
    }

    /// Reads an attempt, which is over when its listing is.
    fn read_attempt(&self, handle: Handle) {
        if let Some(slot) = self.attempts.find(handle) {
            let attempt = &self.attempts[slot];
            black_box((attempt.deadline, attempt.host_side.is_some(), attempt.joiner_side.is_some()));
            self.read_lines(attempt.listing);
        }
    }

    /// A word of each line of memory that a refresh looks at.
    fn read_lines(&self, slot: Slot<Listing>) {
        let listing = &self.listings[slot];
        let present = [listing.presence[0].is_some(), listing.presence[1].is_some()];
        black_box((listing.lease_deadline, listing.tenant, listing.freshness[1], present));
    }
}
