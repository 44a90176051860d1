//! What the store keeps of a listing and of an attempt. Up to a million are held, so their size is counted in bytes.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use rendezvous_shared::endpoint::{Endpoint, Family, Mapping};
use rendezvous_shared::id::{AttemptId, Handle, JoinCode, ListingId, PrincipalId, Role, TenantId};
use rendezvous_shared::limits::{INTRODUCED_LIFETIME_MIN, PRESENCE_LIFETIME};
use rendezvous_shared::outcome::AttemptReason;
use rendezvous_shared::store::{Candidates, ListingDescription, Phase};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

use super::expiring::Held;
use super::freshness::Freshness;
use super::idempotency::{AttemptRecord, ListingRecord};
use super::lanes::{Due, Holder, LaneId, Link, Linked, List};
use super::slab::{Slab, Slot};
use super::story::{Story, Times};

/// Kinds of lists: of a whole pool, of a tenant, of a listing's attempts, of a joiner's attempts.
#[derive(Debug)]
pub(super) struct OfPool;
#[derive(Debug)]
pub(super) struct OfTenant;
#[derive(Debug)]
pub(super) struct OfListing;
#[derive(Debug)]
pub(super) struct OfJoiner;

/// A lifetime in whole seconds, as all that the store grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seconds(u32);

impl Seconds {
    /// What is granted to whoever asks for `wanted`: whole seconds, not fewer, within the limits.
    pub(super) fn granted(wanted: Duration, min: Duration, max: Duration) -> Self {
        let up = wanted.as_secs().saturating_add(u64::from(wanted.subsec_nanos() > 0));
        // The longest there is, a year of seconds, fits.
        Self(up.clamp(min.as_secs(), max.as_secs()) as u32)
    }

    pub(super) const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }

    pub(super) const fn lane(self) -> LaneId {
        LaneId::new(self.0)
    }
}

/// The lane of what was ended before its time: its deadline is the moment it was ended.
pub(super) const ENDED: LaneId = LaneId::new(0);

/// What is looked at together lies together, in as few lines of memory as can be: first whether it is over, what hangs on
/// it and which is next; then what decides whether a page shows it; then what a refresh changes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Listing {
    /// The listing is over from then on. To end it before its time is to set this to now.
    pub(super) lease_deadline: Instant,
    /// Its attempts whose joiner is bound and whose host is not, the longest wait first.
    pub(super) waiting: List<Attempt, OfListing>,
    /// Those where nobody is bound, the oldest first.
    pub(super) unbound: List<Attempt, OfListing>,
    /// Those whose host is bound.
    pub(super) answered: List<Attempt, OfListing>,
    pub(super) in_pool: Link<Self>,
    pub(super) in_tenant: Link<Self>,
    /// When it stops being joinable unless something is done, see [`Listing::joinable_until`].
    pub(super) joinable_until: Instant,
    pub(super) description: ListingDescription,
    pub(super) presence_key_expires: Instant,
    pub(super) tenant: TenantId,
    pub(super) lease_lifetime: Seconds,
    /// One for each family, see [`family_index`].
    pub(super) freshness: [Freshness; 2],
    /// One for each family, see [`family_index`].
    pub(super) presence: [Option<Presence>; 2],
    /// The unguessable half of its id; the other is its handle.
    pub(super) tag: u64,
    pub(super) lease_version: u64,
    /// Deadline and lifetime of the lease that the registration granted, for when it is asked again.
    pub(super) first_deadline: Instant,
    pub(super) first_lifetime: Seconds,
    /// Valid while the lease is: the record outlives it.
    pub(super) record: Slot<ListingRecord>,
    pub(super) owner: PrincipalId,
    /// Of the description's protocol, within its tenant.
    pub(super) protocol: u32,
    pub(super) join_code: Option<JoinCode>,
    /// What its attempts ended for, if it was ended before its time.
    pub(super) end_reason: Option<AttemptReason>,
    /// It is over, and is kept only until its last attempt is gone; nothing else knows of it.
    pub(super) is_retired: bool,
}

/// A host's endpoint of one family, proved. Stays where it was once it is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Presence {
    pub(super) endpoint: Endpoint,
    /// The local address that was asked when it was proved.
    pub(super) local: Option<IpAddr>,
    pub(super) proved: Instant,
}

impl Presence {
    pub(super) fn deadline(&self) -> Instant {
        self.proved.after(PRESENCE_LIFETIME)
    }
}

impl Listing {
    pub(super) const fn id(&self, handle: Handle) -> ListingId {
        ListingId::new(self.tag, handle)
    }

    /// The fresh presence of a family.
    pub(super) fn presence(&self, now: Instant, family: usize) -> Option<Presence> {
        self.presence[family].filter(|it| it.deadline() > now)
    }

    /// Whether lease and presence are fresh.
    pub(super) fn is_joinable(&self, now: Instant) -> bool {
        self.joinable_until > now
    }

    /// Whether its presence was fresh then.
    pub(super) fn had_presence(&self, then: Instant) -> bool {
        self.presence.iter().flatten().any(|it| it.deadline() > then)
    }

    /// When its lease or its last presence ends; [`Instant::ZERO`] when it has none.
    pub(super) fn joinable_until(&self) -> Instant {
        let latest = self.presence.iter().flatten().map(Presence::deadline).max();
        latest.unwrap_or(Instant::ZERO).min(self.lease_deadline)
    }

    pub(super) fn first_attempt(&self) -> Option<Slot<Attempt>> {
        self.waiting.first().or(self.unbound.first()).or(self.answered.first())
    }

    /// The list for attempts whose roles are bound like this.
    pub(super) const fn attempts(&mut self, standing: Standing) -> &mut List<Attempt, OfListing> {
        match standing {
            Standing::Waiting => &mut self.waiting,
            Standing::Unbound => &mut self.unbound,
            Standing::Answered => &mut self.answered,
        }
    }

    /// All its attempts: those that wait for nobody but the host first.
    pub(super) fn all_attempts<'a>(
        &self,
        slab: &'a Slab<Attempt>,
    ) -> impl Iterator<Item = Slot<Attempt>> + use<'a> {
        let lists = [&self.waiting, &self.unbound, &self.answered];
        lists.map(|list| list.iter(slab)).into_iter().flatten()
    }
}

impl Due for Listing {
    fn deadline(&self) -> Instant {
        self.lease_deadline
    }

    fn lane(&self) -> LaneId {
        if self.end_reason.is_some() { ENDED } else { self.lease_lifetime.lane() }
    }
}

impl Holder for Listing {
    fn holds_any(&self) -> bool {
        self.first_attempt().is_some()
    }
}

impl Held for Listing {
    fn tenant(&self) -> TenantId {
        self.tenant
    }
}

/// What is most looked at comes first, as in a [`Listing`].
#[derive(Debug)]
#[repr(C)]
pub(super) struct Attempt {
    pub(super) deadline: Instant,
    /// The unguessable half of its id; the other is its handle.
    pub(super) tag: u64,
    /// The listing stays where it is until its last attempt is gone.
    pub(super) listing: Slot<Listing>,
    pub(super) tenant: TenantId,
    pub(super) in_pool: Link<Self>,
    pub(super) in_tenant: Link<Self>,
    pub(super) in_listing: Link<Self>,
    pub(super) in_joiner: Link<Self>,
    pub(super) joiner: PrincipalId,
    pub(super) lane: LaneId,
    /// Valid while the attempt is: the record outlives it.
    pub(super) record: Slot<AttemptRecord>,
    pub(super) lifetime: Seconds,
    pub(super) host_side: Option<Side>,
    pub(super) joiner_side: Option<Side>,
    pub(super) host_report: Option<ReportResult>,
    pub(super) joiner_report: Option<ReportResult>,
    /// Why it ended, where that was noted before what decides it changed.
    pub(super) end_reason: Option<AttemptReason>,
    pub(super) times: Times,
    pub(super) note: Option<Arc<str>>,
}

/// Who is bound of an attempt, as its host cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The joiner: it waits for the host.
    Waiting,
    Unbound,
    /// The host.
    Answered,
}

/// A bound role. Endpoint, candidates and round trip never change once bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// The end of the key it was bound with, which tells it from the role's other keys.
    pub(super) key_expires: Instant,
    pub(super) endpoint: Endpoint,
    pub(super) candidates: Candidates,
    pub(super) round_trip: Duration,
    /// The only one of these that may become known later.
    pub(super) mapping: Mapping,
    /// When the last good BIND arrived from there.
    pub(super) proved: Instant,
    /// The local address that BIND asked.
    pub(super) local: Option<IpAddr>,
    pub(super) freshness: Freshness,
}

impl Attempt {
    pub(super) const fn id(&self, handle: Handle) -> AttemptId {
        AttemptId::new(self.tag, handle)
    }

    pub(super) fn side_mut(&mut self, role: Role) -> &mut Option<Side> {
        match role {
            Role::Host => &mut self.host_side,
            Role::Joiner => &mut self.joiner_side,
        }
    }

    /// The bound role, if it is bound, and what it reported.
    pub(super) const fn side(&self, role: Role) -> (Option<&Side>, Option<ReportResult>) {
        match role {
            Role::Host => (self.host_side.as_ref(), self.host_report),
            Role::Joiner => (self.joiner_side.as_ref(), self.joiner_report),
        }
    }

    pub(super) fn report_mut(&mut self, role: Role) -> &mut Option<ReportResult> {
        match role {
            Role::Host => &mut self.host_report,
            Role::Joiner => &mut self.joiner_report,
        }
    }

    /// Which of its listing's lists it is in.
    pub(super) const fn standing(&self) -> Standing {
        match (&self.host_side, &self.joiner_side) {
            (Some(_), _) => Standing::Answered,
            (None, Some(_)) => Standing::Waiting,
            (None, None) => Standing::Unbound,
        }
    }

    /// The deadline that its creation granted.
    pub(super) fn first_deadline(&self) -> Instant {
        self.times.created.after(self.lifetime.duration())
    }

    /// The end of the joiner's key: after the longest life that an introduction can give.
    pub(super) fn joiner_key_expires(&self) -> Instant {
        self.first_deadline().after(2 * INTRODUCED_LIFETIME_MIN)
    }

    pub(super) fn phase(&self) -> Phase {
        if self.times.introduced.get().is_some() {
            Phase::Introduced
        } else if self.host_side.is_some() || self.joiner_side.is_some() {
            Phase::Bound
        } else {
            Phase::Created
        }
    }

    /// Of host and joiner; nothing is known of one that is not bound.
    pub(super) fn mappings(&self) -> [Mapping; 2] {
        [&self.host_side, &self.joiner_side].map(|it| it.as_ref().map_or(Mapping::Unknown, |it| it.mapping))
    }

    /// What is told of it, and kept when it ends.
    pub(super) fn story(&self, handle: Handle, listing: ListingId) -> Story {
        Story {
            id: (self.tag, handle),
            listing: (listing.tag(), listing.handle()),
            times: self.times,
            families: [families(self.host_side.as_ref()), families(self.joiner_side.as_ref())],
            mappings: self.mappings(),
            reports: [self.host_report, self.joiner_report],
        }
    }
}

impl Due for Attempt {
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn lane(&self) -> LaneId {
        self.lane
    }
}

impl Held for Attempt {
    fn tenant(&self) -> TenantId {
        self.tenant
    }
}

/// Names the link of `$object` that is used in lists of a kind.
macro_rules! linked {
    ($($object:ident$(<$made:ident>)?, $kind:ty: $link:ident;)+) => {$(
        impl$(<$made>)? Linked<$kind> for $object$(<$made>)? {
            fn link(&self) -> &Link<Self> {
                &self.$link
            }

            fn link_mut(&mut self) -> &mut Link<Self> {
                &mut self.$link
            }
        }
    )+};
}
pub(super) use linked;

linked! {
    Listing, OfPool: in_pool;
    Listing, OfTenant: in_tenant;
    Attempt, OfPool: in_pool;
    Attempt, OfTenant: in_tenant;
    Attempt, OfListing: in_listing;
    Attempt, OfJoiner: in_joiner;
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
