//! What ends by itself, each at its own time, and the drain.

use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::{AttemptId, ListingId};
use rendezvous_shared::limits::{DRAIN_MAX, RESULT_LIFETIME};
use rendezvous_shared::outcome::AttemptReason;
use rendezvous_shared::store::{BeginDrain, Phase, Reply};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::records::{Attempt, Ended};
use super::{Drain, NaiveStore};

impl NaiveStore {
    /// When something ends, in no order.
    #[must_use]
    pub fn deadlines(&self) -> Vec<Instant> {
        let presences =
            self.listings.iter().flat_map(|it| it.presence.iter().flatten().map(|it| it.deadline));
        let drain = match self.drain {
            Drain::Until(deadline) => Some(deadline),
            Drain::Serving | Drain::Drained => None,
        };
        presences
            .chain(self.listings.iter().map(|it| it.deadline))
            .chain(self.attempts.iter().map(|it| it.deadline))
            .chain(self.results.iter().map(|it| it.deadline))
            .chain(self.listing_records.iter().map(|it| it.deadline))
            .chain(self.attempt_records.iter().map(|it| it.deadline))
            .chain(self.revocations.iter().map(|it| it.deadline))
            .chain(drain)
            .collect()
    }

    pub(super) fn remove_what_is_due(&mut self) {
        while let Some(at) = self.deadlines().into_iter().min().filter(|&at| at <= self.now) {
            self.remove_at(at);
        }
    }

    /// Removes what ends at `at`, the earliest time at which anything does.
    fn remove_at(&mut self, at: Instant) {
        for listing in &mut self.listings {
            listing.presence = listing.fresh(at);
        }
        let over: Vec<ListingId> =
            self.listings.iter().filter(|it| it.deadline <= at).map(|it| it.id).collect();
        for id in over {
            self.remove_listing(id, at, AttemptReason::ListingGone);
        }
        let over: Vec<(AttemptId, AttemptReason)> = self
            .attempts
            .iter()
            .filter(|it| it.deadline <= at)
            .map(|it| (it.id, self.reason_of_silence(it, at)))
            .collect();
        for (id, reason) in over {
            self.finish_attempt(id, at, reason);
        }
        self.note_high_water();
        self.results.retain(|it| it.deadline > at);
        self.listing_records.retain(|it| it.deadline > at);
        self.attempt_records.retain(|it| it.deadline > at);
        self.revocations.retain(|it| it.deadline > at);
        if self.drain == Drain::Until(at) {
            self.clear();
        }
    }

    /// Why an attempt ended whose deadline came.
    fn reason_of_silence(&self, attempt: &Attempt, at: Instant) -> AttemptReason {
        let joinable = self.listing(attempt.listing).is_some_and(|it| it.is_joinable(at));
        match (&attempt.host_side, &attempt.joiner_side) {
            _ if attempt.times.introduced.is_some() => reported_reason(attempt),
            _ if !joinable => AttemptReason::HostPresenceStale,
            (None, Some(_)) => AttemptReason::HostSilent,
            (Some(_), None) => AttemptReason::JoinerSilent,
            _ => AttemptReason::Expired,
        }
    }

    /// "Removal of a listing also removes its presence handle and every linked attempt."
    pub(super) fn remove_listing(&mut self, id: ListingId, at: Instant, reason: AttemptReason) {
        let linked: Vec<AttemptId> =
            self.attempts.iter().filter(|it| it.listing == id).map(|it| it.id).collect();
        for attempt in linked {
            self.finish_attempt(attempt, at, reason);
        }
        self.listings.retain(|it| it.id != id);
    }

    /// Ends an attempt. Its result is kept for a while from then, unless as many are kept as may be.
    pub(super) fn finish_attempt(&mut self, id: AttemptId, at: Instant, reason: AttemptReason) {
        let Some(index) = self.attempts.iter().position(|it| it.id == id) else { return };
        let attempt = self.attempts.remove(index);
        self.attempt_reasons.count(reason);
        if self.results.len() >= self.limits.attempt_results {
            self.results_dropped += 1;
            return;
        }
        let mut view = attempt.view();
        view.phase = Phase::Ended(reason);
        view.times.ended = Some(at);
        view.deadline = at;
        let Attempt { tenant, host, joiner, joiner_key, .. } = attempt;
        let deadline = at.after(RESULT_LIFETIME);
        self.results.push(Ended { tenant, host, joiner, joiner_key, view, deadline });
    }

    pub(super) fn begin_drain(&mut self, request: &BeginDrain) -> Reply {
        let wanted = self.now.after(request.window.min(DRAIN_MAX));
        self.drain = match self.drain {
            Drain::Serving => Drain::Until(wanted),
            Drain::Until(deadline) => Drain::Until(deadline.min(wanted)),
            Drain::Drained => Drain::Drained,
        };
        self.remove_what_is_due();
        Reply::Drain(self.drain_view())
    }

    /// "At the deadline all active state is cleared atomically."
    fn clear(&mut self) {
        self.drain = Drain::Drained;
        for _ in self.attempts.drain(..) {
            self.attempt_reasons.count(AttemptReason::Drained);
        }
        self.listings.clear();
        self.results.clear();
        self.listing_records.clear();
        self.attempt_records.clear();
        self.revocations.clear();
    }
}

/// One that hears the other settles it; else a mapping that varies is the likeliest cause, then silence.
pub(super) fn reported_reason(attempt: &Attempt) -> AttemptReason {
    let says = |result| attempt.reports().contains(&Some(result));
    let varies = attempt.mappings().contains(&Mapping::Varies);
    match attempt.reports() {
        [None, None] => AttemptReason::Unreported,
        _ if says(ReportResult::Connected) => AttemptReason::Connected,
        _ if varies => AttemptReason::MappingVaries,
        _ if says(ReportResult::PeerSilent) => AttemptReason::PeerSilent,
        _ => AttemptReason::ReportedFailed,
    }
}
