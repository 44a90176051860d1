//! What the model keeps, each in the plainest form.

use std::sync::Arc;

use core::net::IpAddr;
use core::time::Duration;

use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::{Endpoint, Family, Mapping};
use rendezvous_shared::id::{
    AttemptId, InstanceId, JoinCode, ListingId, PrincipalId, RevocationId, Role, SessionId, TenantId,
};
use rendezvous_shared::limits::SEQUENCE_JUMP_MAX;
use rendezvous_shared::store::{
    AttemptView, Caller, Candidates, DatagramProof, IdempotencyKey, LeaseGrant, ListingDescription, Phase,
    PhaseTimes, Subject,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::ReportResult;

/// The instance of every key that the model issues.
pub(super) const INSTANCE: InstanceId = InstanceId(0x6d6f_6465_6c00);

pub(super) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Index of a family in every pair of them.
pub(super) fn family_index(family: Family) -> usize {
    usize::from(family == Family::V6)
}

#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) id: ListingId,
    pub(super) tenant: TenantId,
    pub(super) owner: PrincipalId,
    pub(super) description: ListingDescription,
    pub(super) join_code: Option<JoinCode>,
    pub(super) version: u64,
    pub(super) lifetime: Duration,
    pub(super) deadline: Instant,
    /// Lifetime and deadline of the lease that the registration granted.
    pub(super) first_lease: (Duration, Instant),
    pub(super) key_expires: Instant,
    pub(super) presence: [Option<Presence>; 2],
    /// How far its key has counted in each family.
    pub(super) counted: [Option<Counted>; 2],
    /// Cookies issued up to then bring no presence back: the host has taken its leave since.
    pub(super) left: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Presence {
    pub(super) endpoint: Endpoint,
    pub(super) local: Option<IpAddr>,
    pub(super) proved: Instant,
    pub(super) deadline: Instant,
}

impl Listing {
    pub(super) fn key(&self) -> KeyId {
        KeyId::new(Role::Host, self.tenant, INSTANCE, self.id.handle(), self.key_expires)
    }

    pub(super) fn is_of(&self, caller: Caller) -> bool {
        self.tenant == caller.tenant && self.owner == caller.principal
    }

    /// The presences that are fresh at `now`.
    pub(super) fn fresh(&self, now: Instant) -> [Option<Presence>; 2] {
        self.presence.map(|it| it.filter(|it| it.deadline > now))
    }

    /// "Visible or joinable = lease fresh and presence fresh."
    pub(super) fn is_joinable(&self, now: Instant) -> bool {
        self.deadline > now && self.fresh(now).iter().any(Option::is_some)
    }

    pub(super) fn lease(&self) -> LeaseGrant {
        LeaseGrant {
            version: self.version,
            lifetime: self.lifetime,
            deadline: self.deadline,
            presence_key: self.key(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) tenant: TenantId,
    pub(super) listing: ListingId,
    pub(super) host: PrincipalId,
    pub(super) joiner: PrincipalId,
    pub(super) note: Option<Arc<str>>,
    pub(super) lifetime: Duration,
    pub(super) deadline: Instant,
    pub(super) joiner_key: KeyId,
    pub(super) host_side: Option<Side>,
    pub(super) joiner_side: Option<Side>,
    pub(super) host_report: Option<ReportResult>,
    pub(super) joiner_report: Option<ReportResult>,
    pub(super) times: PhaseTimes,
}

/// A bound role.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) key_id: KeyId,
    pub(super) endpoint: Endpoint,
    pub(super) candidates: Candidates,
    pub(super) round_trip: Duration,
    pub(super) mapping: Mapping,
    pub(super) proved: Instant,
    pub(super) local: Option<IpAddr>,
    pub(super) counted: Counted,
    /// Which binding it was, counted over all; who waits is in this order.
    pub(super) order: u64,
}

impl Side {
    /// Its proved endpoint of each family.
    pub(super) fn endpoints(&self) -> [Option<Endpoint>; 2] {
        FAMILIES.map(|family| self.candidates.in_family(self.endpoint, family))
    }
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

    pub(super) fn reports(&self) -> [Option<ReportResult>; 2] {
        [self.host_report, self.joiner_report]
    }

    pub(super) fn mappings(&self) -> [Mapping; 2] {
        [self.host_side, self.joiner_side].map(|it| it.map_or(Mapping::Unknown, |it| it.mapping))
    }

    pub(super) fn view(&self) -> AttemptView {
        let bound = self.host_side.is_some() || self.joiner_side.is_some();
        let phase = match self.times.introduced {
            Some(_) => Phase::Introduced,
            None if bound => Phase::Bound,
            None => Phase::Created,
        };
        let families = |side: &Option<Side>| {
            side.as_ref().map_or([false; 2], |it| it.endpoints().map(|it| it.is_some()))
        };
        AttemptView {
            id: self.id,
            listing: self.listing,
            phase,
            times: self.times,
            deadline: self.deadline,
            host_families: families(&self.host_side),
            joiner_families: families(&self.joiner_side),
            host_mapping: self.mappings()[0],
            joiner_mapping: self.mappings()[1],
            host_report: self.host_report,
            joiner_report: self.joiner_report,
        }
    }
}

/// What is kept for a while of an attempt that ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) tenant: TenantId,
    pub(super) host: PrincipalId,
    pub(super) joiner: PrincipalId,
    pub(super) joiner_key: KeyId,
    pub(super) view: AttemptView,
    pub(super) deadline: Instant,
}

/// Which create a client's key stands for.
#[derive(Clone, Debug)]
pub(super) struct Record<Id> {
    pub(super) tenant: TenantId,
    pub(super) owner: PrincipalId,
    pub(super) idempotency: IdempotencyKey,
    pub(super) target: Id,
    pub(super) deadline: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct Revocation {
    pub(super) id: RevocationId,
    pub(super) tenant: TenantId,
    pub(super) subject: Subject,
    /// Whose listing it was.
    pub(super) owner: Option<PrincipalId>,
    pub(super) deadline: Instant,
}

/// The session a key uses in a family, and how far it has counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    session: SessionId,
    opened: Instant,
    highest: u64,
}

impl Counted {
    /// The session is good for no datagram with a cookie older than `eve`, and a new one needs one issued later.
    pub(super) fn end(&mut self, eve: Instant) {
        self.opened = self.opened.max(eve);
    }

    /// What to remember after `proof`; nothing when the proof is not newer than `before`.
    pub(super) fn after(before: Option<Self>, proof: &DatagramProof) -> Option<Self> {
        let same = before.filter(|it| it.session == proof.session);
        let (floor, opened) = match (same, before) {
            (Some(same), _) if proof.cookie_issued < same.opened => return None,
            (Some(same), _) => (same.highest, same.opened),
            (None, Some(other)) if proof.cookie_issued <= other.opened => return None,
            (None, _) => (0, proof.cookie_issued),
        };
        let ahead = proof.sequence.checked_sub(floor)?;
        let fits = (1..=SEQUENCE_JUMP_MAX).contains(&ahead) && proof.sequence != u64::MAX;
        fits.then_some(Self { session: proof.session, opened, highest: proof.sequence })
    }
}
