//! Draining: what is refused while it lasts, and that nothing is left at its deadline.

use core::time::Duration;

use rendezvous_shared::limits::DRAIN_MAX;
use rendezvous_shared::outcome::Refusal;
use rendezvous_shared::store::{BeginDrain, DrainView, Reply, Transition};
use rendezvous_shared::time::Instant;

use super::{Oracle, broken};

impl Oracle {
    /// Whether the drain's deadline came.
    pub(crate) fn drained(&self, now: Instant) -> bool {
        self.drain.is_some_and(|deadline| deadline <= now)
    }

    /// Whether `refusal` says rightly that nothing new begins.
    pub(super) fn refuses_new(&self, now: Instant, refusal: Refusal) -> bool {
        let remaining = self.drain.map(|deadline| deadline.since(now));
        remaining.is_some_and(|remaining| refusal == Refusal::Draining { remaining })
    }

    pub(super) fn on_begin_drain(&mut self, now: Instant, request: &BeginDrain, view: &DrainView) {
        let wanted = now.after(request.window.min(DRAIN_MAX));
        self.drain = Some(self.drain.map_or(wanted, |before| before.min(wanted)));
        self.on_drain_view(now, view);
    }

    pub(super) fn on_drain_view(&self, now: Instant, view: &DrainView) {
        let right = match (self.drain, view) {
            (None, DrainView::Serving) => true,
            (Some(deadline), DrainView::Draining { deadline: told, attempts }) => {
                deadline == *told && deadline > now && *attempts == self.attempts_live(now)
            }
            (Some(deadline), DrainView::Drained) => deadline <= now,
            _ => false,
        };
        if !right {
            broken(
                "the earlier deadline of a drain wins",
                format_args!("{:?} {view:?} at {now:?}", self.drain),
            );
        }
    }

    /// A drained store has nothing for anybody. It says why where something would begin or go on.
    pub(super) fn check_drained(&self, now: Instant, transition: &Transition, reply: &Reply) {
        let right = match transition {
            Transition::BeginDrain(_) | Transition::GetDrain => *reply == Reply::Drain(DrainView::Drained),
            Transition::RefreshPresence(_)
            | Transition::EndPresence(_)
            | Transition::Bind(_)
            | Transition::Report(_)
            | Transition::RegisterListing(_)
            | Transition::RenewLease(_)
            | Transition::CreateAttempt(_) => is_draining(reply),
            Transition::Revoke(it) if it.caller.operator => is_draining(reply),
            Transition::Remind(_) => *reply == Reply::Reminded(None),
            Transition::BrowseListings(_) => {
                matches!(reply, Reply::Page(page) if page.listings.is_empty() && page.next_after.is_none())
            }
            Transition::ListRevocations(it) if it.caller.operator => {
                matches!(reply, Reply::Revocations(page)
                    if page.revocations.is_empty() && page.next_after.is_none())
            }
            _ => *reply == Reply::Refused(Refusal::NotFound),
        };
        if !right {
            broken("a drained store is empty", format_args!("{transition:?} {reply:?} at {now:?}"));
        }
    }
}

fn is_draining(reply: &Reply) -> bool {
    *reply == Reply::Refused(Refusal::Draining { remaining: Duration::ZERO })
}
