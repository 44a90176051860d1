//! Drain: the one-way state towards shutdown.

use core::time::Duration;

use rendezvous_shared::limits::DRAIN_MAX;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{BeginDrain, DrainView, Page, Reply, RevocationPage, Transition};
use rendezvous_shared::time::Instant;

use super::MemoryStore;
use super::records::Attempt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainState {
    Serving,
    Draining {
        deadline: Instant,
    },
    /// Nothing is there for anybody; what is still held is worked off.
    Drained {
        at: Instant,
    },
}

impl MemoryStore {
    pub(super) fn begin_drain(&mut self, now: Instant, request: &BeginDrain) -> Reply {
        let wanted = now.after(request.window.min(DRAIN_MAX));
        self.drain = match self.drain {
            DrainState::Serving => DrainState::Draining { deadline: wanted },
            DrainState::Draining { deadline } => DrainState::Draining { deadline: deadline.min(wanted) },
            DrainState::Drained { at } => DrainState::Drained { at },
        };
        self.drain_when_due(now);
        Reply::Drain(self.drain_view())
    }

    pub(super) fn drain_view(&self) -> DrainView {
        match self.drain {
            DrainState::Serving => DrainView::Serving,
            DrainState::Draining { deadline } => {
                DrainView::Draining { deadline, attempts: self.live_attempts() }
            }
            DrainState::Drained { .. } => DrainView::Drained,
        }
    }

    /// Attempts that are not over. Every place of the pool that was ever used is looked at, each time this is asked during
    /// a drain.
    fn live_attempts(&self) -> usize {
        let live = |it: &Attempt| it.deadline.min(self.listings[it.listing].lease_deadline) > self.now;
        self.attempts.iter().filter(|(_, it)| live(it)).count()
    }

    /// Refuses what would begin something new.
    pub(super) fn refuse_while_draining(&self, now: Instant) -> Result<(), Refusal> {
        match self.drain {
            DrainState::Draining { deadline } => Err(Refusal::Draining { remaining: deadline.since(now) }),
            DrainState::Serving | DrainState::Drained { .. } => Ok(()),
        }
    }

    /// At its deadline the drain ends everything at once: what the store still holds is nobody's any more.
    pub(super) fn drain_when_due(&mut self, now: Instant) {
        if let DrainState::Draining { deadline } = self.drain
            && deadline <= now
        {
            self.drain = DrainState::Drained { at: deadline };
        }
    }

    pub(super) const fn is_drained(&self) -> bool {
        matches!(self.drain, DrainState::Drained { .. })
    }
}

/// What a store that was drained says: `draining` tells a client more than `not_found`.
pub(super) fn when_drained(transition: &Transition) -> Reply {
    let draining = Reply::Refused(Refusal::Draining { remaining: Duration::ZERO });
    match transition {
        Transition::RefreshPresence(_)
        | Transition::EndPresence(_)
        | Transition::Bind(_)
        | Transition::Report(_)
        | Transition::RegisterListing(_)
        | Transition::RenewLease(_)
        | Transition::CreateAttempt(_) => draining,
        Transition::Revoke(it) if it.caller.operator => draining,
        Transition::Remind(_) => Reply::Reminded(None),
        Transition::BrowseListings(_) => Reply::Page(Page { listings: Vec::new(), next_after: None }),
        Transition::ListRevocations(it) if it.caller.operator => {
            Reply::Revocations(RevocationPage { revocations: Vec::new(), next_after: None })
        }
        Transition::DeleteListing(_)
        | Transition::GetListing(_)
        | Transition::GetAttempt(_)
        | Transition::ListPending(_)
        | Transition::CancelAttempt(_)
        | Transition::Revoke(_)
        | Transition::ListRevocations(_)
        | Transition::LiftRevocation(_) => Reply::Refused(Refusal::NotFound),
        Transition::BeginDrain(_) | Transition::GetDrain => Reply::Drain(DrainView::Drained),
    }
}
