//! What the store keeps of a listing and of an attempt.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::{Endpoint, Family};
use rendezvous_shared::id::{AttemptId, JoinCode, ListingId, PrincipalId, Role, TenantId};
use rendezvous_shared::store::{AttemptView, Candidates, ListingDescription, Phase, PhaseTimes};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::ListingKey;
use super::freshness::Freshness;
use super::idempotency::RecordKey;

#[derive(Debug)]
pub(super) struct Listing {
    pub(super) id: ListingId,
    pub(super) tenant: TenantId,
    pub(super) owner: PrincipalId,
    pub(super) description: ListingDescription,
    pub(super) join_code: Option<JoinCode>,
    pub(super) lease_version: u64,
    pub(super) lease_lifetime: Duration,
    pub(super) lease_deadline: Instant,
    /// Lifetime and deadline of the lease that the registration granted, for when it is asked again.
    pub(super) first_lease: (Duration, Instant),
    pub(super) presence_key_expires: Instant,
    /// One for each family, see [`family_index`].
    pub(super) presence: [Option<Presence>; 2],
    pub(super) freshness: [Option<Freshness>; 2],
    pub(super) record: RecordKey,
    pub(super) filed: Instant,
}

/// A host's endpoint of one family, proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Presence {
    pub(super) endpoint: Endpoint,
    /// The local address that was asked when it was proved.
    pub(super) local: Option<IpAddr>,
    pub(super) proved: Instant,
    pub(super) deadline: Instant,
}

impl Listing {
    /// Its lease is fresh, or it would have been removed; so presence decides.
    pub(super) fn is_joinable(&self) -> bool {
        self.presence.iter().any(Option::is_some)
    }

    /// When something of it is due next.
    pub(super) fn due(&self) -> Instant {
        self.presence.iter().flatten().map(|it| it.deadline).fold(self.lease_deadline, Instant::min)
    }
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) tenant: TenantId,
    pub(super) listing: ListingKey,
    pub(super) listing_id: ListingId,
    pub(super) host: PrincipalId,
    pub(super) joiner: PrincipalId,
    pub(super) note: Option<Arc<str>>,
    pub(super) lifetime: Duration,
    pub(super) deadline: Instant,
    pub(super) joiner_key_expires: Instant,
    pub(super) host_side: Option<Side>,
    pub(super) joiner_side: Option<Side>,
    pub(super) host_report: Option<ReportResult>,
    pub(super) joiner_report: Option<ReportResult>,
    pub(super) times: PhaseTimes,
    pub(super) record: RecordKey,
    pub(super) filed: Instant,
}

/// A bound role. Endpoint, candidates and round trip never change once bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) key_id: KeyId,
    pub(super) endpoint: Endpoint,
    pub(super) candidates: Candidates,
    pub(super) round_trip: Duration,
    /// When the last good BIND arrived from there.
    pub(super) proved: Instant,
    /// The local address that BIND asked.
    pub(super) local: Option<IpAddr>,
    pub(super) freshness: Option<Freshness>,
}

impl Attempt {
    pub(super) fn side_mut(&mut self, role: Role) -> &mut Option<Side> {
        match role {
            Role::Host => &mut self.host_side,
            Role::Joiner => &mut self.joiner_side,
        }
    }

    pub(super) fn report_mut(&mut self, role: Role) -> &mut Option<ReportResult> {
        match role {
            Role::Host => &mut self.host_report,
            Role::Joiner => &mut self.joiner_report,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        if self.times.introduced.is_some() {
            Phase::Introduced
        } else if self.host_side.is_some() || self.joiner_side.is_some() {
            Phase::Bound
        } else {
            Phase::Created
        }
    }

    pub(super) fn view(&self) -> AttemptView {
        AttemptView {
            id: self.id,
            listing: self.listing_id,
            phase: self.phase(),
            times: self.times,
            deadline: self.deadline,
            host_families: families(self.host_side.as_ref()),
            joiner_families: families(self.joiner_side.as_ref()),
            host_report: self.host_report,
            joiner_report: self.joiner_report,
        }
    }
}

/// What is kept for a while of an attempt that ended: no endpoint, no secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptResult {
    pub(super) tenant: TenantId,
    pub(super) host: PrincipalId,
    pub(super) joiner: PrincipalId,
    pub(super) view: AttemptView,
}

/// Index of a family in every per-family pair.
pub(super) const fn family_index(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

fn families(side: Option<&Side>) -> [bool; 2] {
    [Family::V4, Family::V6]
        .map(|family| side.is_some_and(|it| it.candidates.in_family(it.endpoint, family).is_some()))
}
