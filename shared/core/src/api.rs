//! The JSON bodies of the HTTP control plane, as both its server and its clients use them.
//!
//! Requests refuse unknown fields. Times: `*_ms` are milliseconds on the monotonic clock, `*_at` are wall time
//! in RFC 3339 and informational only: moving the wall clock moves no deadline.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, ListingId};

/// `POST /v1/listings`, request.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// The game's protocol, 1–64 bytes.
    pub protocol: String,
    /// Shown to players, 1–128 bytes.
    pub name: String,
    /// Whether it is browsed.
    #[serde(default)]
    pub visibility: VisibilityBody,
    /// Players it takes, 1–65,535.
    pub player_capacity: u32,
    /// At most 16 of at most 64-byte keys and 256-byte values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// A name, unique in the tenant, under which the owner's next registration replaces this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The lease wanted, 10,000–300,000 ms; 60,000 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// Whether a listing is browsed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum VisibilityBody {
    /// By everybody in the tenant.
    #[default]
    Public,
    /// No: found by id or join code only.
    Unlisted,
}

/// `POST /v1/listings`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct RegisterResponse {
    /// The listing.
    pub listing: ListingBody,
    /// Its lease.
    pub lease: LeaseBody,
    /// The key to prove the host's address with.
    pub presence: PresenceBody,
    /// Where to send datagrams.
    pub udp: UdpBody,
    /// The server's instance, 16 hexadecimal digits.
    pub instance: String,
}

/// A listing.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ListingBody {
    /// Its id.
    pub id: ListingId,
    /// The game's protocol.
    pub protocol: String,
    /// Shown to players.
    pub name: String,
    /// Whether it is browsed.
    pub visibility: VisibilityBody,
    /// Players it takes.
    pub player_capacity: u32,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Whether it can be joined now.
    pub visible: bool,
    /// Whether the caller owns it.
    pub owned: bool,
    /// Its slot; owners only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Its join code; owners of unlisted ones only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_code: Option<String>,
    /// Its lease; owners only, and not repeated where the lease stands beside the listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseBody>,
    /// Remaining presence in ms, the longer of both families; owners only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence_remaining_ms: Option<u64>,
}

/// A lease.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct LeaseBody {
    /// The version to renew from.
    pub version: u64,
    /// What was granted.
    pub ttl_ms: u64,
    /// What remains; left out in answers to a create, which repeat byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// When it ends, by wall time.
    pub expires_at: String,
}

/// A presence key.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct PresenceBody {
    /// 64 hexadecimal digits.
    pub key_id: String,
    /// 64 hexadecimal digits; secret.
    pub secret: String,
    /// How often to send PRESENCE.
    pub refresh_ms: u64,
    /// How long one lasts.
    pub ttl_ms: u64,
    /// When the key ends, by wall time; a renewal hands out the next one before.
    pub expires_at: String,
}

impl core::fmt::Debug for PresenceBody {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PresenceBody").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Where to send datagrams.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct UdpBody {
    /// `address:port`, one for each family served.
    pub endpoints: Vec<String>,
    /// The same addresses with the probe port, if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probe_endpoints: Vec<String>,
}

/// `GET /v1/listings`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PageResponse {
    /// In the order of their ids.
    pub listings: Vec<ListingBody>,
    /// Pass it back to go on; absent at the end. A page may be short and still have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `PUT /v1/listings/{id}/lease`, request.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The version believed current; may be given as `If-Match` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The lease wanted; as long as last time when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// `PUT /v1/listings/{id}/lease`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct RenewResponse {
    /// The lease now.
    pub lease: LeaseBody,
    /// The current presence key; another than before once half its life is over.
    pub presence: PresenceBody,
}

/// `POST /v1/listings/{id}/attempts`, request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct AttemptRequest {
    /// Shown to the host, at most 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The life wanted, 5,000–60,000 ms; 20,000 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// `POST /v1/listings/{id}/attempts`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct AttemptResponse {
    /// The attempt.
    pub id: AttemptId,
    /// At this listing.
    pub listing_id: ListingId,
    /// The joiner's key.
    pub joiner: JoinerBody,
    /// What was granted.
    pub ttl_ms: u64,
    /// When it ends, by wall time.
    pub expires_at: String,
    /// Where to send datagrams.
    pub udp: UdpBody,
    /// The server's instance, 16 hexadecimal digits.
    pub instance: String,
}

/// A joiner's key.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct JoinerBody {
    /// 64 hexadecimal digits.
    pub key_id: String,
    /// 64 hexadecimal digits; secret.
    pub secret: String,
}

impl core::fmt::Debug for JoinerBody {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinerBody").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// `GET /v1/listings/{id}/attempts`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PendingResponse {
    /// Those that wait for the host.
    pub attempts: Vec<PendingBody>,
}

/// An attempt that waits for its host.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PendingBody {
    /// Its id.
    pub id: AttemptId,
    /// What the joiner wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether a BIND of the host introduces now.
    pub joiner_bound: bool,
    /// What remains of its life.
    pub remaining_ms: u64,
}

/// `GET /v1/attempts/{id}`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct AttemptBody {
    /// Its id.
    pub id: AttemptId,
    /// At this listing.
    pub listing_id: ListingId,
    /// `created`, `bound`, `introduced` or `ended`.
    pub phase: String,
    /// Why it ended; absent while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds from creation to each phase reached.
    pub times_ms: PhaseTimesBody,
    /// What remains of its life; 0 once it ended.
    pub remaining_ms: u64,
    /// The host's side.
    pub host: SideBody,
    /// The joiner's side.
    pub joiner: SideBody,
}

/// Milliseconds from creation to each phase reached.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the phase it names")]
pub struct PhaseTimesBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_bound: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joiner_bound: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introduced: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
}

/// One side of an attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct SideBody {
    /// `ipv4`, `ipv6`: those it bound an endpoint in.
    pub families: Vec<String>,
    /// What it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// `stable` or `varies`: whether its NAT gives it another port for each destination; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<String>,
}

/// `POST /v1/attempts/{id}/report`, request.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    /// `connected`, `peer_silent`, `peer_unrecognised` or `aborted`.
    pub result: String,
}

/// `POST /v1/drain`, request; the body may be left out.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Time until all is cleared, at most 30,000 ms, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
}

/// `GET` and `POST /v1/drain`, answer.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct DrainResponse {
    /// `serving`, `draining` or `drained`.
    pub state: String,
    /// Time until all is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Attempts still live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<usize>,
}

/// Every error answer: RFC 9457, `application/problem+json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Problem {
    /// `about:blank`: the code says it all.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable, for programs.
    pub code: String,
    /// For people.
    pub detail: String,
    /// The field that broke a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Which conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The version to renew from, on `stale_version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_version: Option<u64>,
    /// The full pool, on `capacity_exceeded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whose quota, on `quota_exceeded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}
