//! Drain: the one-way state towards shutdown.

use core::time::Duration;

use rendezvous_shared::limits::DRAIN_MAX;
use rendezvous_shared::outcome::{AttemptReason, Refusal};
use rendezvous_shared::store::{BeginDrain, DrainView, EphemeralRendezvousStore, Reply};
use rendezvous_shared::time::Instant;

use super::{DrainState, MemoryStore};

impl MemoryStore {
    pub(super) fn begin_drain(&mut self, now: Instant, request: &BeginDrain) -> Reply {
        let wanted = now.after(request.window.min(DRAIN_MAX));
        match self.drain {
            DrainState::Serving => self.drain = DrainState::Draining { deadline: wanted },
            DrainState::Draining { deadline } => {
                self.drain = DrainState::Draining { deadline: deadline.min(wanted) };
            }
            DrainState::Drained => {}
        }
        self.expire(now);
        Reply::Drain(self.drain_view())
    }

    pub(super) fn drain_view(&self) -> DrainView {
        match self.drain {
            DrainState::Serving => DrainView::Serving,
            DrainState::Draining { deadline } => {
                DrainView::Draining { deadline, attempts: self.attempts.len() }
            }
            DrainState::Drained => DrainView::Drained,
        }
    }

    /// Refuses what would begin something new.
    pub(super) fn refuse_while_draining(&self, now: Instant) -> Result<(), Refusal> {
        match self.drain {
            DrainState::Serving => Ok(()),
            DrainState::Draining { deadline } => Err(Refusal::Draining { remaining: deadline.since(now) }),
            DrainState::Drained => Err(Refusal::Draining { remaining: Duration::ZERO }),
        }
    }

    /// Refuses datagrams once everything was cleared: `draining` tells a client more than `not_found`.
    pub(super) fn refuse_when_drained(&self) -> Result<(), Refusal> {
        if self.drain == DrainState::Drained {
            return Err(Refusal::Draining { remaining: Duration::ZERO });
        }
        Ok(())
    }

    /// The deadline came: all active state goes at once.
    pub(super) fn finish_drain(&mut self) {
        self.drain = DrainState::Drained;
        for _ in 0..self.attempts.len() {
            self.tallies.attempt_reasons.count(AttemptReason::Drained);
        }
        self.listings.clear();
        self.attempts.clear();
        self.public.clear();
        self.owned.clear();
        self.slots.clear();
        self.join_codes.clear();
        self.tenants.clear();
        self.linked.clear();
        self.waiting.clear();
        self.results.clear();
        self.listing_records.clear();
        self.attempt_records.clear();
        self.due.clear();
        self.tallies.presence_fresh = 0;
        self.tallies.listings_visible = 0;
    }
}
