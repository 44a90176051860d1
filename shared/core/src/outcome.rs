//! Every end a transition or a datagram can have, as closed enums. Bad input is an outcome, not an error.

use core::time::Duration;

use crate::labels;

labels! {
    /// A bounded collection of the store, or a bounded queue in front of it.
    pub enum Pool {
        /// Listings.
        Listings = "listings",
        /// Active attempts.
        Attempts = "attempts",
        /// Idempotency records of listing registrations.
        ListingRecords = "listing_records",
        /// Idempotency records of attempt creations.
        AttemptRecords = "attempt_records",
        /// Results kept of finished attempts.
        AttemptResults = "attempt_results",
        /// Revocations.
        Revocations = "revocations",
    }
}

labels! {
    /// Why a request contradicts what the store holds.
    pub enum ConflictReason {
        /// The version sent is not the lease's current one.
        StaleVersion = "stale_version",
        /// The idempotency key was used before with another request.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// The slot belongs to another owner's live listing.
        SlotTaken = "slot_taken",
        /// The role is bound to another endpoint or with other candidates.
        EndpointAlreadyBound = "endpoint_already_bound",
        /// The attempt was introduced; it can no longer be cancelled.
        AlreadyIntroduced = "already_introduced",
        /// The attempt was not introduced yet; there is nothing to report on.
        NotIntroduced = "not_introduced",
        /// Another report was given before for this role.
        AlreadyReported = "already_reported",
        /// The peers have no address family in common; the attempt is over.
        NoCommonFamily = "no_common_family",
        /// The peers' endpoints are one and the same; the attempt is over.
        SameEndpoint = "same_endpoint",
        /// The host's presence or lease is no longer fresh.
        NotJoinable = "not_joinable",
    }
}

labels! {
    /// Whose quota is used up.
    pub enum QuotaScope {
        /// The principal's listings.
        Owner = "owner",
        /// The tenant's listings or active attempts.
        Tenant = "tenant",
        /// The source address's share.
        Source = "source",
        /// The host's share of introductions.
        Host = "host",
    }
}

/// Why a transition did not do what was asked. Each maps to one HTTP status and one code on the wire. Nothing was
/// changed, but for `NoCommonFamily` and `SameEndpoint`, which end the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing, or it is not the caller's to see: one answer for all of these.
    NotFound,
    /// It was there and its time is over.
    Expired,
    /// It contradicts the present state.
    Conflict(ConflictReason),
    /// The renewal named a version that is not current.
    StaleVersion {
        /// The version to renew from.
        latest: u64,
    },
    /// A collection is full. Nothing was evicted and nothing partly done.
    CapacityExceeded(Pool),
    /// A policy's quota is used up.
    QuotaExceeded(QuotaScope),
    /// The server is on its way down and takes nothing new.
    Draining {
        /// Time until it is empty.
        remaining: Duration,
    },
    /// The store cannot answer; nothing was done as far as the caller may assume.
    ServiceUnavailable,
    /// The caller, or the listing of the caller's that it speaks of, is barred.
    Revoked,
    /// A datagram older than what the credential already used; the wire stays silent.
    StaleSequence,
}

labels! {
    /// The kind of end a transition had, for counting.
    pub enum OutcomeKind {
        /// It took effect.
        Applied = "applied",
        /// It had taken effect before; the same answer was given again.
        Replayed = "replayed",
        /// See [`Refusal::NotFound`].
        NotFound = "not_found",
        /// See [`Refusal::Expired`].
        Expired = "expired",
        /// See [`Refusal::Conflict`] and [`Refusal::StaleVersion`].
        Conflict = "conflict",
        /// See [`Refusal::CapacityExceeded`].
        CapacityExceeded = "capacity_exceeded",
        /// See [`Refusal::QuotaExceeded`].
        QuotaExceeded = "quota_exceeded",
        /// See [`Refusal::Draining`].
        Draining = "draining",
        /// See [`Refusal::ServiceUnavailable`].
        ServiceUnavailable = "service_unavailable",
        /// See [`Refusal::Revoked`].
        Revoked = "revoked",
        /// See [`Refusal::StaleSequence`].
        StaleSequence = "stale_sequence",
        /// The caller gave up before it started: it changed nothing.
        Abandoned = "abandoned",
    }
}

impl Refusal {
    /// The kind it is counted as.
    #[must_use]
    pub const fn kind(self) -> OutcomeKind {
        match self {
            Self::NotFound => OutcomeKind::NotFound,
            Self::Expired => OutcomeKind::Expired,
            Self::Conflict(_) | Self::StaleVersion { .. } => OutcomeKind::Conflict,
            Self::CapacityExceeded(_) => OutcomeKind::CapacityExceeded,
            Self::QuotaExceeded(_) => OutcomeKind::QuotaExceeded,
            Self::Draining { .. } => OutcomeKind::Draining,
            Self::ServiceUnavailable => OutcomeKind::ServiceUnavailable,
            Self::Revoked => OutcomeKind::Revoked,
            Self::StaleSequence => OutcomeKind::StaleSequence,
        }
    }
}

labels! {
    /// How an attempt ended, as told by `GET /v1/attempts/{id}` and counted.
    pub enum AttemptReason {
        /// A peer reported that the two are connected.
        Connected = "connected",
        /// Reports came, none said connected, and the NAT of at least one peer gives it another port for each destination.
        MappingVaries = "mapping_varies",
        /// Reports came, none said connected, and a peer heard nothing of the other.
        PeerSilent = "peer_silent",
        /// Reports came, none said connected, and none that the other was silent.
        ReportedFailed = "reported_failed",
        /// Introduced, and nobody reported before the deadline.
        Unreported = "unreported",
        /// The joiner withdrew it.
        Cancelled = "cancelled",
        /// The host declined it.
        Declined = "declined",
        /// The joiner bound and the host did not, before the deadline.
        HostSilent = "host_silent",
        /// The host bound and the joiner did not, before the deadline.
        JoinerSilent = "joiner_silent",
        /// Nobody bound before the deadline; or both did, and the gate never opened.
        Expired = "expired",
        /// The listing's presence was no longer fresh when the deadline came.
        HostPresenceStale = "host_presence_stale",
        /// The peers have no address family in common.
        NoCommonFamily = "no_common_family",
        /// The peers' endpoints are one and the same.
        SameEndpoint = "same_endpoint",
        /// The listing was removed or its lease ended.
        ListingGone = "listing_gone",
        /// The listing's owner or the joiner was revoked.
        Revoked = "revoked",
        /// The drain deadline came.
        Drained = "drained",
    }
}

labels! {
    /// The end of one received datagram. `received = sum of these + in flight`, in one snapshot.
    pub enum DatagramOutcome {
        /// HELLO answered with CHALLENGE.
        Challenged = "challenged",
        /// PRESENCE accepted and acknowledged.
        PresenceAccepted = "presence_accepted",
        /// BYE accepted and acknowledged.
        ByeAccepted = "bye_accepted",
        /// BIND accepted; the other role is awaited.
        BindAccepted = "bind_accepted",
        /// BIND answered with INTRODUCE.
        Introduced = "introduced",
        /// REPORT accepted and acknowledged.
        ReportAccepted = "report_accepted",
        /// The server's own question whether its socket still hears, answered.
        SelfProbe = "self_probe",
        /// A typed refusal of the store was answered: not found.
        RefusedNotFound = "refused_not_found",
        /// A typed refusal of the store was answered: expired.
        RefusedExpired = "refused_expired",
        /// A typed refusal of the store was answered: conflict.
        RefusedConflict = "refused_conflict",
        /// A typed refusal of the store was answered: capacity.
        RefusedCapacity = "refused_capacity_exceeded",
        /// A typed refusal of the store was answered: quota.
        RefusedQuota = "refused_quota_exceeded",
        /// A typed refusal of the store was answered: draining.
        RefusedDraining = "refused_draining",
        /// A typed refusal of the store was answered: unavailable.
        RefusedUnavailable = "refused_service_unavailable",
        /// Silent: older than what this credential already used.
        StaleSequence = "stale_sequence",
        /// Silent: no payload.
        Empty = "empty",
        /// Silent: longer than any datagram of the protocol, or cut off by the kernel.
        Oversized = "oversized",
        /// Silent: shorter than its type must be.
        TooShort = "too_short",
        /// Silent: not this protocol.
        BadMagic = "bad_magic",
        /// Silent: another version.
        BadVersion = "bad_version",
        /// Silent: a type that no client sends.
        BadType = "bad_type",
        /// Silent: the length field is not the length.
        BadLength = "bad_length",
        /// Silent: a reserved bit or a padding byte is set, or an enumerated field has no such value.
        BadField = "bad_field",
        /// Silent: the source port is 0 or below the limit.
        BadSourcePort = "bad_source_port",
        /// Silent: the source is our own address.
        OwnAddress = "own_address",
        /// Silent: the address policy does not serve the source.
        AddressPolicy = "address_policy",
        /// Silent: the cookie is not ours for this key, address and port.
        BadCookie = "bad_cookie",
        /// Silent: the cookie is too old, or from the future.
        StaleCookie = "stale_cookie",
        /// Silent: the key is of another instance, past its end, or not of the role the type needs.
        BadKey = "bad_key",
        /// Silent: sequence 0, or `u64::MAX`.
        BadSequence = "bad_sequence",
        /// Silent: the MAC does not prove possession of the key.
        BadMac = "bad_mac",
        /// Silent: the ceiling for answers to unproved addresses was reached.
        UnprovedCeiling = "unproved_ceiling",
        /// Silent: the source, or a network it is in, had its share of answers to senders that proved nothing.
        SourceLimited = "source_limited",
        /// Silent: the key sent more than one client needs.
        KeyLimited = "key_limited",
        /// Silent: a HELLO while the store is behind.
        ShedHello = "shed_hello",
        /// Silent: a BIND of a key not heard before, while the store is further behind.
        ShedBind = "shed_bind",
        /// Silent: a PRESENCE of a key not heard before, while the store is almost out of reach.
        ShedPresence = "shed_presence",
        /// Silent: the queue to the store was full.
        StoreBusy = "store_busy",
        /// Silent: every reply slot was taken.
        OutboxFull = "outbox_full",
    }
}

/// How many members [`DatagramOutcome`] has.
pub const DATAGRAM_OUTCOMES: usize = <DatagramOutcome as crate::counter::Label>::ALL.len();

labels! {
    /// What an introduction request came to, for `introductions_total`.
    pub enum IntroductionResult {
        /// Both peers were introduced, for the first and only time.
        Introduced = "introduced",
        /// The stored answer was given again to the bound endpoint.
        Replayed = "replayed",
        /// A bind was refused.
        Refused = "refused",
    }
}
