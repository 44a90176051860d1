//! What there is to tell of an attempt, small enough to be kept of every one that ended.

use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::{AttemptId, Handle, ListingId, Role};
use rendezvous_shared::store::{AttemptView, Phase, PhaseTimes};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

/// An instant or none, in the space of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(Instant);

impl Moment {
    /// It has not come.
    pub(super) const NOT_YET: Self = Self(Instant::MAX);

    pub(super) fn get(self) -> Option<Instant> {
        (self.0 != Instant::MAX).then_some(self.0)
    }
}

impl From<Instant> for Moment {
    fn from(instant: Instant) -> Self {
        Self(instant)
    }
}

/// When an attempt reached its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) created: Instant,
    pub(super) host_bound: Moment,
    pub(super) joiner_bound: Moment,
    pub(super) introduced: Moment,
    pub(super) reported: Moment,
}

impl Times {
    pub(super) const fn new(created: Instant) -> Self {
        let never = Moment::NOT_YET;
        Self { created, host_bound: never, joiner_bound: never, introduced: never, reported: never }
    }
}

/// What there is to tell of an attempt, live or ended: no endpoint, no secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story {
    /// Tag and handle, as of the listing.
    pub(super) id: (u64, Handle),
    pub(super) listing: (u64, Handle),
    pub(super) times: Times,
    pub(super) families: [[bool; 2]; 2],
    pub(super) mappings: [Mapping; 2],
    pub(super) reports: [Option<ReportResult>; 2],
}

impl Story {
    pub(super) const fn id(&self) -> AttemptId {
        AttemptId::new(self.id.0, self.id.1)
    }

    pub(super) const fn listing(&self) -> Handle {
        self.listing.1
    }

    pub(super) const fn report(&self, role: Role) -> Option<ReportResult> {
        match role {
            Role::Host => self.reports[0],
            Role::Joiner => self.reports[1],
        }
    }

    /// As it is told, in the phase it is in until `deadline`; `ended` when it is over.
    pub(super) fn view(&self, phase: Phase, deadline: Instant, ended: Option<Instant>) -> AttemptView {
        let Times { created, host_bound, joiner_bound, introduced, reported } = self.times;
        AttemptView {
            id: self.id(),
            listing: ListingId::new(self.listing.0, self.listing.1),
            phase,
            times: PhaseTimes {
                created,
                host_bound: host_bound.get(),
                joiner_bound: joiner_bound.get(),
                introduced: introduced.get(),
                reported: reported.get(),
                ended,
            },
            deadline,
            host_families: self.families[0],
            joiner_families: self.families[1],
            host_mapping: self.mappings[0],
            joiner_mapping: self.mappings[1],
            host_report: self.reports[0],
            joiner_report: self.reports[1],
        }
    }
}
