//! What may be asked of the store. The variants of the datagram path own nothing on the heap.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use crate::credential::KeyId;
use crate::endpoint::{Endpoint, Mapping};
use crate::id::{AttemptId, JoinCode, ListingId, PrincipalId, RevocationId, Role, SessionId, TenantId};
use crate::labels;
use crate::limits;
use crate::store::ListingDescription;
use crate::time::Instant;
use crate::wire::ReportResult;

/// The authenticated caller of a control-plane transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Its tenant; nothing of another tenant exists for it.
    pub tenant: TenantId,
    /// Itself; the owner of what it creates.
    pub principal: PrincipalId,
    /// Whether it may see and end what others of its tenant own.
    pub operator: bool,
}

/// What a valid datagram proves, as the ring thread verified it.
#[derive(Clone, Copy, Debug)]
pub struct DatagramProof {
    /// The credential whose secret made the MAC.
    pub key_id: KeyId,
    /// The source of the datagram, proved by its cookie.
    pub source: Endpoint,
    /// The local address that was asked, on a wildcard socket: what goes to the sender unasked must leave from there,
    /// or its NAT drops it.
    pub local: Option<IpAddr>,
    /// When it arrived.
    pub arrived: Instant,
    /// When the cookie it carried was issued.
    pub cookie_issued: Instant,
    /// The sender's session.
    pub session: SessionId,
    /// The sender's sequence.
    pub sequence: u64,
}

/// Keeps the sender's endpoint of its family proved for the key's listing; replaces it whole.
#[derive(Clone, Copy, Debug)]
pub struct RefreshPresence {
    /// The host's proof.
    pub proof: DatagramProof,
}

/// Ends the presence of the key's listing; the lease stays.
#[derive(Clone, Copy, Debug)]
pub struct EndPresence {
    /// The host's proof.
    pub proof: DatagramProof,
}

/// Further ways to reach the sender of a BIND.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Its endpoint in the other family, proved by a cookie of its own.
    pub second: Option<Endpoint>,
    /// Its candidates within a shared network, unproved.
    pub lan: [Option<Endpoint>; limits::LAN_CANDIDATES_MAX],
}

/// Binds the sender's endpoint to the key's role in the attempt, and introduces when both are bound.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// The sender's proof; the key's role is the role bound.
    pub proof: DatagramProof,
    /// The attempt; its MAC was made with the role's right in this attempt.
    pub attempt: AttemptId,
    /// Further ways to reach the sender.
    pub candidates: Candidates,
    /// Its round trip to the server as it measured it; zero when unknown.
    pub round_trip: Duration,
    /// Whether its NAT's mapping varies, as far as the server saw. No part of what makes a BIND the same again: a repeat may
    /// bring what was unknown.
    pub mapping: Mapping,
}

/// Asks what is to be sent now to one role of an attempt that was told something unasked and did not answer. Changes
/// nothing.
#[derive(Clone, Copy, Debug)]
pub struct Remind {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whom.
    pub role: Role,
}

/// Who reports on an attempt.
#[derive(Clone, Copy, Debug)]
pub enum Reporter {
    /// The sender of a datagram; the key's role is its role.
    Datagram(DatagramProof),
    /// A caller over HTTP: the listing's owner is the host, the attempt's owner the joiner.
    Caller(Caller),
}

/// Records how the punch went. The first report of each role counts.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Who reports.
    pub reporter: Reporter,
    /// On what.
    pub attempt: AttemptId,
    /// How it went.
    pub result: ReportResult,
}

/// A client's own name for a create, and a fingerprint of the canonical request it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Hash of the key the client chose; scoped to tenant and owner by the store.
    pub key: [u8; 16],
    /// Hash of the canonical request.
    pub fingerprint: [u8; 16],
}

/// What a principal's policy allows, evaluated within the creating transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Listings of this owner.
    pub listings_per_owner: u32,
    /// Listings of the tenant.
    pub listings_per_tenant: u32,
    /// Active attempts in the tenant.
    pub attempts_per_tenant: u32,
}

/// Publishes a listing and grants its lease and presence key.
#[derive(Clone, Debug)]
pub struct RegisterListing {
    /// The future owner.
    pub caller: Caller,
    /// What it may have.
    pub quotas: Quotas,
    /// For retries.
    pub idempotency: IdempotencyKey,
    /// What is published.
    pub description: ListingDescription,
    /// The lease wanted. The store grants whole seconds, not fewer, from [`limits::LEASE_MIN`] to
    /// [`limits::LEASE_MAX`].
    pub lease: Duration,
}

/// Extends a lease from exactly the version named.
#[derive(Clone, Copy, Debug)]
pub struct RenewLease {
    /// Must be the owner.
    pub caller: Caller,
    /// Of this listing.
    pub listing: ListingId,
    /// The version the caller believes current.
    pub version: u64,
    /// The lease wanted, granted as at [`RegisterListing::lease`]; `None` for as long as last time.
    pub lease: Option<Duration>,
}

/// Removes a listing with its presence and every attempt at it.
#[derive(Clone, Copy, Debug)]
pub struct DeleteListing {
    /// Must be the owner, or an operator of the tenant.
    pub caller: Caller,
    /// This listing.
    pub listing: ListingId,
}

/// How a listing is named.
#[derive(Clone, Copy, Debug)]
pub enum ListingLocator {
    /// By its id.
    Id(ListingId),
    /// By its join code.
    JoinCode(JoinCode),
}

/// Reads one listing.
#[derive(Clone, Copy, Debug)]
pub struct GetListing {
    /// Who asks.
    pub caller: Caller,
    /// For which.
    pub locator: ListingLocator,
}

/// What a browsing caller wants to see; an empty filter wants all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The listing's name starts with this.
    pub name_prefix: Option<String>,
    /// The listing has each of these attributes with exactly this value.
    pub attributes: Vec<(String, String)>,
    /// The listing takes at least this many players.
    pub player_capacity_min: Option<u32>,
    /// The listing takes at most this many players.
    pub player_capacity_max: Option<u32>,
}

/// Reads a page of listings in the order of their ids.
#[derive(Clone, Debug)]
pub struct BrowseListings {
    /// Who asks.
    pub caller: Caller,
    /// The protocol; with `owned` it may be left out.
    pub protocol: Option<Arc<str>>,
    /// Only the caller's own listings, visible or not.
    pub owned: bool,
    /// What is wanted.
    pub filter: Filter,
    /// Only ids greater than this.
    pub after: Option<ListingId>,
    /// At most this many, itself at most [`limits::PAGE_LEN_MAX`].
    pub limit: usize,
}

/// Opens an attempt of the caller at a listing and grants the joiner's key.
#[derive(Clone, Debug)]
pub struct CreateAttempt {
    /// The joiner.
    pub caller: Caller,
    /// What it may have.
    pub quotas: Quotas,
    /// For retries.
    pub idempotency: IdempotencyKey,
    /// At this listing.
    pub listing: ListingId,
    /// Shown to the host.
    pub note: Option<Arc<str>>,
    /// The life wanted. The store grants whole seconds, not fewer, from [`limits::ATTEMPT_MIN`] to
    /// [`limits::ATTEMPT_MAX`].
    pub lifetime: Duration,
}

/// Reads one attempt, live or just finished.
#[derive(Clone, Copy, Debug)]
pub struct GetAttempt {
    /// A party to it, or an operator of the tenant.
    pub caller: Caller,
    /// This attempt.
    pub attempt: AttemptId,
}

/// Reads the attempts at a listing that wait for its host.
#[derive(Clone, Copy, Debug)]
pub struct ListPending {
    /// Must be the owner.
    pub caller: Caller,
    /// Of this listing.
    pub listing: ListingId,
}

/// Ends an attempt that was not introduced: withdrawn by the joiner, declined by the host.
#[derive(Clone, Copy, Debug)]
pub struct CancelAttempt {
    /// A party to it.
    pub caller: Caller,
    /// This attempt.
    pub attempt: AttemptId,
}

/// What a revocation bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One listing: it is removed, and its owner learns why.
    Listing(ListingId),
    /// A principal: all it owns is removed with every attempt it takes part in, and nothing is done for it any more.
    Principal(PrincipalId),
}

/// Bars a listing or a principal of the caller's tenant for a while. Barring it again prolongs what there is.
#[derive(Clone, Copy, Debug)]
pub struct Revoke {
    /// Must be an operator of the tenant.
    pub caller: Caller,
    /// Whom or what.
    pub subject: Subject,
    /// For how long. The store grants whole seconds, not fewer, from [`limits::REVOCATION_MIN`] to
    /// [`limits::REVOCATION_MAX`].
    pub lifetime: Duration,
}

/// Reads a page of the tenant's revocations in the order of their ids.
#[derive(Clone, Copy, Debug)]
pub struct ListRevocations {
    /// Must be an operator of the tenant.
    pub caller: Caller,
    /// Only ids greater than this.
    pub after: Option<RevocationId>,
    /// At most this many, itself at most [`limits::PAGE_LEN_MAX`].
    pub limit: usize,
}

/// Lifts a revocation before its time. What was removed stays removed.
#[derive(Clone, Copy, Debug)]
pub struct LiftRevocation {
    /// Must be an operator of the tenant.
    pub caller: Caller,
    /// This one.
    pub revocation: RevocationId,
}

/// Starts the drain; idempotent, the earlier deadline wins.
#[derive(Clone, Copy, Debug)]
pub struct BeginDrain {
    /// Time until the store is cleared, at most [`limits::DRAIN_MAX`].
    pub window: Duration,
}

/// One thing asked of the store.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is described at its type")]
pub enum Transition {
    RefreshPresence(RefreshPresence),
    EndPresence(EndPresence),
    Bind(Bind),
    Remind(Remind),
    Report(Report),
    RegisterListing(Box<RegisterListing>),
    RenewLease(RenewLease),
    DeleteListing(DeleteListing),
    GetListing(GetListing),
    BrowseListings(Box<BrowseListings>),
    CreateAttempt(Box<CreateAttempt>),
    GetAttempt(GetAttempt),
    ListPending(ListPending),
    CancelAttempt(CancelAttempt),
    Revoke(Revoke),
    ListRevocations(ListRevocations),
    LiftRevocation(LiftRevocation),
    BeginDrain(BeginDrain),
    /// Reads how the drain stands.
    GetDrain,
}

labels! {
    /// The kind of a transition, for counting.
    #[expect(missing_docs, reason = "each is described at its type")]
    pub enum TransitionKind {
        RefreshPresence = "refresh_presence",
        EndPresence = "end_presence",
        Bind = "bind",
        Remind = "remind",
        Report = "report",
        RegisterListing = "register_listing",
        RenewLease = "renew_lease",
        DeleteListing = "delete_listing",
        GetListing = "get_listing",
        BrowseListings = "browse_listings",
        CreateAttempt = "create_attempt",
        GetAttempt = "get_attempt",
        ListPending = "list_pending",
        CancelAttempt = "cancel_attempt",
        Revoke = "revoke",
        ListRevocations = "list_revocations",
        LiftRevocation = "lift_revocation",
        BeginDrain = "begin_drain",
        GetDrain = "get_drain",
    }
}

impl Transition {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> TransitionKind {
        match self {
            Self::RefreshPresence(_) => TransitionKind::RefreshPresence,
            Self::EndPresence(_) => TransitionKind::EndPresence,
            Self::Bind(_) => TransitionKind::Bind,
            Self::Remind(_) => TransitionKind::Remind,
            Self::Report(_) => TransitionKind::Report,
            Self::RegisterListing(_) => TransitionKind::RegisterListing,
            Self::RenewLease(_) => TransitionKind::RenewLease,
            Self::DeleteListing(_) => TransitionKind::DeleteListing,
            Self::GetListing(_) => TransitionKind::GetListing,
            Self::BrowseListings(_) => TransitionKind::BrowseListings,
            Self::CreateAttempt(_) => TransitionKind::CreateAttempt,
            Self::GetAttempt(_) => TransitionKind::GetAttempt,
            Self::ListPending(_) => TransitionKind::ListPending,
            Self::CancelAttempt(_) => TransitionKind::CancelAttempt,
            Self::Revoke(_) => TransitionKind::Revoke,
            Self::ListRevocations(_) => TransitionKind::ListRevocations,
            Self::LiftRevocation(_) => TransitionKind::LiftRevocation,
            Self::BeginDrain(_) => TransitionKind::BeginDrain,
            Self::GetDrain => TransitionKind::GetDrain,
        }
    }
}

impl Transition {
    /// Who asks for it; nobody in particular for a datagram, a reminder and the drain.
    #[must_use]
    pub fn caller(&self) -> Option<Caller> {
        match self {
            Self::RefreshPresence(_)
            | Self::EndPresence(_)
            | Self::Bind(_)
            | Self::Remind(_)
            | Self::Report(Report { reporter: Reporter::Datagram(_), .. })
            | Self::BeginDrain(_)
            | Self::GetDrain => None,
            Self::Report(Report { reporter: Reporter::Caller(caller), .. }) => Some(*caller),
            Self::RegisterListing(it) => Some(it.caller),
            Self::RenewLease(it) => Some(it.caller),
            Self::DeleteListing(it) => Some(it.caller),
            Self::GetListing(it) => Some(it.caller),
            Self::BrowseListings(it) => Some(it.caller),
            Self::CreateAttempt(it) => Some(it.caller),
            Self::GetAttempt(it) => Some(it.caller),
            Self::ListPending(it) => Some(it.caller),
            Self::CancelAttempt(it) => Some(it.caller),
            Self::Revoke(it) => Some(it.caller),
            Self::ListRevocations(it) => Some(it.caller),
            Self::LiftRevocation(it) => Some(it.caller),
        }
    }
}

impl Candidates {
    /// The one of `own` and the second endpoint that is in `family`.
    #[must_use]
    pub fn in_family(&self, own: Endpoint, family: crate::endpoint::Family) -> Option<Endpoint> {
        [Some(own), self.second].into_iter().flatten().find(|it| it.family() == family)
    }
}

impl DatagramProof {
    /// The role its key is for.
    #[must_use]
    pub const fn role(&self) -> Option<Role> {
        self.key_id.role()
    }
}
