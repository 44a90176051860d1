//! What goes out unasked and again: decided when it is sent, so that it never goes where nobody is any more, nor says what
//! does not hold.

use rendezvous_shared::id::Role;
use rendezvous_shared::limits::PROOF_AGE_MAX;
use rendezvous_shared::store::{Remind, Reminder, Reply};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::records::Attempt;
use super::slab::Slot;

impl MemoryStore {
    pub(super) fn remind(&mut self, now: Instant, request: &Remind) -> Reply {
        let live = self.live_attempt(now, request.attempt);
        Reply::Reminded(live.and_then(|slot| self.reminder(now, slot, request.role)))
    }

    fn reminder(&self, now: Instant, slot: Slot<Attempt>, role: Role) -> Option<Reminder> {
        let attempt = &self.attempts[slot];
        if attempt.times.introduced.get().is_some() {
            let (side, report) = attempt.side(role);
            // Who reported has heard; and an address that is proved no longer may be somebody else's.
            let awaits = report.is_none() && now.since(side?.proved) <= PROOF_AGE_MAX;
            return awaits.then(|| self.push_to(slot, role).map(Reminder::Introduce))?;
        }
        let host_awaited = role == Role::Host && attempt.host_side.is_none();
        host_awaited.then(|| self.notice(now, slot).map(Reminder::Notice))?
    }
}
