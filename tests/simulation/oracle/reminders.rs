//! Reminders: what is sent once more holds when it is sent.

use rendezvous_shared::id::Role;
use rendezvous_shared::store::{Remind, Reminder};
use rendezvous_shared::time::Instant;

use super::attempts::place;
use super::{Oracle, broken};

impl Oracle {
    pub(super) fn on_reminded(&self, now: Instant, request: &Remind, reminder: Option<&Reminder>) {
        let fact = self.live_attempt(now, request.attempt);
        let at = place(request.role);
        match (reminder, fact) {
            (Some(Reminder::Notice(notice)), Some(fact)) => {
                if request.role != Role::Host || notice.attempt != request.attempt {
                    broken("a host is reminded of what it was told", format_args!("{request:?} {notice:?}"));
                }
                self.check_notice(now, fact.listing, notice);
            }
            (Some(Reminder::Introduce(push)), Some(fact)) => {
                let told = fact.introduced.map(|told| told[at]) == Some(push.introduction);
                let there =
                    fact.sides[at].is_some_and(|it| (it.endpoint, it.key) == (push.endpoint, push.key_id));
                let proved = self.proofs.has_bound(now, &push.key_id, request.attempt, push.endpoint);
                if !told || !there || !proved || fact.reports[at].is_some() {
                    broken("a peer is reminded of what it was told", format_args!("{push:?} {fact:?}"));
                }
            }
            (None, Some(fact)) => {
                let waits = request.role == Role::Host
                    && self.awaits_host(now, request.attempt, fact.listing)
                    && self.live_listing(now, fact.listing).is_some_and(|it| it.visible(now));
                if waits {
                    broken("a host whose joiner waits is reminded", format_args!("{request:?} {fact:?}"));
                }
            }
            (None, None) => {}
            (Some(_), None) => {
                broken("nobody is reminded of what is over", format_args!("{request:?} {reminder:?}"));
            }
        }
    }
}
