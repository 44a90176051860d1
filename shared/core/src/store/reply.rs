//! What the store answers. The variants of the datagram path own nothing on the heap.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use crate::counter::Counters;
use crate::credential::KeyId;
use crate::endpoint::{Endpoint, Mapping};
use crate::id::{AttemptId, JoinCode, ListingId, RevocationId};
use crate::limits;
use crate::outcome::{AttemptReason, OutcomeKind, Pool, Refusal};
use crate::store::{ListingDescription, Subject};
use crate::time::Instant;
use crate::wire::ReportResult;

/// A lease as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The version to renew from.
    pub version: u64,
    /// What was granted, from the last registration or renewal.
    pub lifetime: Duration,
    /// When it ends.
    pub deadline: Instant,
    /// The current presence key.
    pub presence_key: KeyId,
}

/// The answer to a registration. While the listing lives, the same registration again has the same answer: not
/// visible, the first version, lifetime and deadline of its lease, whatever became of it since. Only the presence key
/// is the current one, which differs once a renewal has replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingGrant {
    /// The listing as it was registered.
    pub view: ListingView,
    /// Its first lease, and its presence key.
    pub lease: LeaseGrant,
    /// Whether it had been registered before with the same key.
    pub replayed: bool,
}

/// A listing as a caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingView {
    /// Its id.
    pub id: ListingId,
    /// What was published.
    pub description: ListingDescription,
    /// Its join code, shown to its owner and to whoever used it; only unlisted ones have one.
    pub join_code: Option<JoinCode>,
    /// Whether it can be joined now: lease and presence are fresh.
    pub visible: bool,
    /// Whether the caller owns it.
    pub owned: bool,
    /// Its lease as it stands; the version is the owner's business.
    pub lease: LeaseGrant,
    /// When the presence of each family ends: IPv4, IPv6. None where there is none.
    pub presence_deadlines: [Option<Instant>; 2],
}

/// A page of listings in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The listings.
    pub listings: Vec<ListingView>,
    /// Continue after this id; `None` when the end was reached.
    pub next_after: Option<ListingId>,
}

/// The answer to a creation. While the attempt lives, the same creation again has the same answer, whatever became of
/// it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptGrant {
    /// The attempt.
    pub id: AttemptId,
    /// At this listing.
    pub listing: ListingId,
    /// The joiner's key.
    pub joiner_key: KeyId,
    /// What was granted.
    pub lifetime: Duration,
    /// When it ends; an introduction may give it longer.
    pub deadline: Instant,
    /// Whether it had been created before with the same key.
    pub replayed: bool,
}

/// How far an attempt came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody is bound.
    Created,
    /// One role is bound.
    Bound,
    /// Both peers have been given each other's endpoint.
    Introduced,
    /// It ended, for this reason.
    Ended(AttemptReason),
}

/// When an attempt reached its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTimes {
    /// It was created.
    pub created: Instant,
    /// The host's role was bound.
    pub host_bound: Option<Instant>,
    /// The joiner's role was bound.
    pub joiner_bound: Option<Instant>,
    /// The peers were introduced.
    pub introduced: Option<Instant>,
    /// The first report came.
    pub reported: Option<Instant>,
    /// It ended.
    pub ended: Option<Instant>,
}

/// An attempt as its parties see it: no endpoint, no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// Its id.
    pub id: AttemptId,
    /// At this listing.
    pub listing: ListingId,
    /// How far it came.
    pub phase: Phase,
    /// When.
    pub times: PhaseTimes,
    /// When it ends, or ended.
    pub deadline: Instant,
    /// The families the host is bound in: IPv4, IPv6.
    pub host_families: [bool; 2],
    /// The families the joiner is bound in: IPv4, IPv6.
    pub joiner_families: [bool; 2],
    /// Whether the host's NAT mapping was seen to vary.
    pub host_mapping: Mapping,
    /// Whether the joiner's was.
    pub joiner_mapping: Mapping,
    /// What the host reported.
    pub host_report: Option<ReportResult>,
    /// What the joiner reported.
    pub joiner_report: Option<ReportResult>,
}

/// An attempt that waits for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingAttempt {
    /// Its id.
    pub id: AttemptId,
    /// What the joiner wrote.
    pub note: Option<Arc<str>>,
    /// Whether the joiner is bound, so that a BIND of the host introduces.
    pub joiner_bound: bool,
    /// When it ends.
    pub deadline: Instant,
}

/// How long a host's lease and presence still last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresenceGrant {
    /// Remaining lease.
    pub lease_remaining: Duration,
    /// Remaining presence; zero after BYE.
    pub presence_remaining: Duration,
    /// Whether the server is draining.
    pub draining: bool,
    /// An attempt whose joiner waits for this host.
    pub pending: Option<Notice>,
}

/// A host to be told of a joiner that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The attempt.
    pub attempt: AttemptId,
    /// The host's presence key.
    pub host_key: KeyId,
    /// The host's endpoint, proved by its last presence no more than [`limits::PROOF_AGE_MAX`] ago.
    pub endpoint: Endpoint,
    /// The local address that this presence asked; [`crate::store::DatagramProof::local`].
    pub local: Option<IpAddr>,
    /// Remaining life of the attempt.
    pub remaining: Duration,
}

/// What one peer is told of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The attempt.
    pub attempt: AttemptId,
    /// The peer's endpoint, in the family of the receiver's where the peer has one.
    pub peer: Endpoint,
    /// The peer's endpoint in the other family.
    pub peer_second: Option<Endpoint>,
    /// The peer's candidates in a network both share.
    pub lan: [Option<Endpoint>; limits::LAN_CANDIDATES_MAX],
    /// Wait this long after receipt, so that both start together.
    pub start_in: Duration,
}

/// An introduction for the peer that did not ask just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// The credential it bound with.
    pub key_id: KeyId,
    /// The endpoint it bound.
    pub endpoint: Endpoint,
    /// The local address that it last asked from there; [`crate::store::DatagramProof::local`].
    pub local: Option<IpAddr>,
    /// What it is told.
    pub introduction: Introduction,
}

/// What a BIND came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAnswer {
    /// Bound; the other role is awaited.
    Waiting {
        /// Whether the other role is bound already; then its proof is too old or something else is awaited.
        peer_bound: bool,
        /// Remaining life of the attempt.
        remaining: Duration,
        /// The host to be told.
        notice: Option<Notice>,
    },
    /// Introduced by this BIND.
    Introduced {
        /// For the sender.
        own: Introduction,
        /// For its peer.
        peer: Push,
    },
    /// Introduced before; the stored answer again.
    Replayed {
        /// For the sender.
        own: Introduction,
    },
}

/// What there is to send, unasked and once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reminder {
    /// To a host whose joiner still waits.
    Notice(Notice),
    /// To a peer that was introduced and has not reported.
    Introduce(Push),
}

/// A revocation as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationView {
    /// Its id.
    pub id: RevocationId,
    /// What it bars.
    pub subject: Subject,
    /// Until when.
    pub deadline: Instant,
}

/// A page of revocations in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationPage {
    /// The revocations.
    pub revocations: Vec<RevocationView>,
    /// Continue after this id; `None` when the end was reached.
    pub next_after: Option<RevocationId>,
}

/// How the drain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainView {
    /// Not begun.
    Serving,
    /// Begun; cleared at the deadline.
    Draining {
        /// When.
        deadline: Instant,
        /// Attempts still live.
        attempts: usize,
    },
    /// The deadline came; nothing is there for anybody any more.
    Drained,
}

/// The end of one transition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at its type")]
pub enum Reply {
    /// Of a refresh, and of a BYE.
    Presence(PresenceGrant),
    Bind(BindAnswer),
    /// What is to be sent to whom it was asked for; nothing when it would reach nobody or say nothing.
    Reminded(Option<Reminder>),
    /// A report was recorded, or had been.
    Reported,
    Registered(Box<ListingGrant>),
    Renewed(LeaseGrant),
    /// The listing is gone.
    Deleted,
    Listing(Box<ListingView>),
    Page(Page),
    AttemptCreated(Box<AttemptGrant>),
    Attempt(Box<AttemptView>),
    Pending(Vec<PendingAttempt>),
    /// The attempt is over.
    Cancelled,
    Revoked(RevocationView),
    Revocations(RevocationPage),
    /// The revocation is gone.
    Lifted,
    Drain(DrainView),
    /// Nothing was done, but where [`Refusal`] says otherwise.
    Refused(Refusal),
}

impl Reply {
    /// The kind of end it is.
    #[must_use]
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Refused(refusal) => refusal.kind(),
            Self::Bind(BindAnswer::Replayed { .. }) => OutcomeKind::Replayed,
            Self::Registered(grant) if grant.replayed => OutcomeKind::Replayed,
            Self::AttemptCreated(grant) if grant.replayed => OutcomeKind::Replayed,
            _ => OutcomeKind::Applied,
        }
    }
}

/// One pool's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool.
    pub pool: Pool,
    /// Entries held.
    pub used: usize,
    /// Its ceiling.
    pub limit: usize,
    /// The most it ever held.
    pub high_water: usize,
}

/// How many attempts ended for each reason.
pub type AttemptReasonCounters =
    Counters<AttemptReason, { <AttemptReason as crate::counter::Label>::ALL.len() }>;

/// How the store stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Each pool.
    pub pools: [PoolUsage; 6],
    /// Listings with at least one fresh presence; lags by up to [`limits::GAUGE_LAG_MAX`].
    pub presence_fresh: usize,
    /// Public ones among them; lags as much.
    pub listings_visible: usize,
    /// How the drain stands.
    pub drain: DrainView,
    /// How attempts ended.
    pub attempt_reasons: AttemptReasonCounters,
    /// Introductions made.
    pub introductions: u64,
    /// Introductions answered again.
    pub introductions_replayed: u64,
    /// Results of finished attempts that were not kept because their pool was full.
    pub results_dropped: u64,
}
