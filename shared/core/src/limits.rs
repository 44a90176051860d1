//! Every limit of the product with its reason, and the relations between them.
//!
//! Constants are protocol or design limits; [`Limits`] are the ceilings an operator may set. A changed default
//! changes `docs/operating.md` and, where an ADR set it, that ADR.

use core::time::Duration;

// ---- Time -------------------------------------------------------------------------------------------------

/// Shortest lease. Below it renewals would outweigh everything else.
pub const LEASE_MIN: Duration = Duration::from_secs(10);
/// Lease granted when none is asked for: a dead host is gone within a minute.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(60);
/// Longest lease: a dead host must not linger.
pub const LEASE_MAX: Duration = Duration::from_secs(300);
/// How long a presence lasts: two refreshes may be lost.
pub const PRESENCE_LIFETIME: Duration = Duration::from_secs(30);
/// What hosts are told to refresh at; also short enough to keep NAT mappings open (30 s is the common limit).
pub const PRESENCE_REFRESH: Duration = Duration::from_secs(10);
/// Shortest attempt.
pub const ATTEMPT_MIN: Duration = Duration::from_secs(5);
/// Attempt granted when nothing is asked for.
pub const ATTEMPT_DEFAULT: Duration = Duration::from_secs(20);
/// Longest attempt.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(60);
/// An introduced attempt lives at least this much longer, so that a lost answer can be asked for again.
pub const INTRODUCED_LIFETIME_MIN: Duration = Duration::from_secs(5);
/// Age up to which an address counts as proved.
pub const PROOF_AGE_MAX: Duration = Duration::from_secs(30);
/// How far in the future a cookie's time may lie: ring threads read the clock once per batch.
pub const COOKIE_FUTURE_MAX: Duration = Duration::from_secs(2);
/// A new cookie secret each; two live, so one lives longer than any cookie.
pub const COOKIE_SECRET_LIFETIME: Duration = Duration::from_secs(60);
/// Life of a presence key; reissued on renewal once half of it is over.
pub const PRESENCE_KEY_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// A retry of a create is recognised this long after its resource's deadline.
pub const RECORD_GRACE: Duration = Duration::from_secs(60);
/// How long the result of a finished attempt can be asked for.
pub const RESULT_LIFETIME: Duration = Duration::from_secs(60);
/// Shortest revocation: it covers every key that was issued before.
pub const REVOCATION_MIN: Duration = PRESENCE_KEY_LIFETIME;
/// Revocation when nothing is asked for.
pub const REVOCATION_DEFAULT: Duration = REVOCATION_MIN;
/// Longest revocation: a year, longer than a server runs.
pub const REVOCATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// By how much the gauges of fresh presences may lag: they are counted by ticks of this length.
pub const GAUGE_LAG_MAX: Duration = Duration::from_nanos(1 << 27);
/// Longest drain, and the default one.
pub const DRAIN_MAX: Duration = Duration::from_secs(30);
/// Distance between unasked repeats towards a proved address.
pub const RESEND_INTERVAL: Duration = Duration::from_millis(250);
/// NOTICE and INTRODUCE are sent unasked at most this often.
pub const RESENDS_MAX: u8 = 3;
/// Distance between punches that peers are told to keep.
pub const PUNCH_INTERVAL: Duration = Duration::from_millis(100);
/// Punches after which peers are told to give up: five seconds' worth.
pub const PUNCHES_MAX: u8 = 50;
/// Longest long poll for pending attempts.
pub const LONG_POLL_MAX: Duration = Duration::from_secs(30);

// ---- Wire -------------------------------------------------------------------------------------------------

/// Longest datagram of the protocol; fits the smallest path MTU in use (IPv6's 1,280 less headers).
pub const DATAGRAM_LEN_MAX: usize = 1200;
/// HELLO, PRESENCE: at least twice the longest answer they can get, headers counted.
pub const HELLO_LEN_MIN: usize = 160;
/// See [`HELLO_LEN_MIN`].
pub const PRESENCE_LEN_MIN: usize = 160;
/// BIND: with headers it pays for two INTRODUCEs, its own answer and the peer's.
pub const BIND_LEN_MIN: usize = 352;
/// REPORT, BYE: above ACK.
pub const REPORT_LEN_MIN: usize = 128;
/// Longest REPORT or BYE.
pub const REPORT_LEN_MAX: usize = 256;
/// Largest answer to an unproved address.
pub const CHALLENGE_LEN_MAX: usize = 88;
/// Largest datagram the server sends.
pub const ANSWER_LEN_MAX: usize = 160;
/// Source ports below it belong to services that could be made to answer.
pub const SOURCE_PORT_MIN: u16 = 1024;
/// A sequence may jump at most this far ahead.
pub const SEQUENCE_JUMP_MAX: u64 = 1 << 20;
/// LAN candidates in a BIND.
pub const LAN_CANDIDATES_MAX: usize = 2;
/// Answers to unproved addresses a second, over all sources; half is reserved for HELLOs with a good MAC.
pub const UNPROVED_ANSWERS_PER_SECOND: u32 = 20_000;
/// Of these, what the probe port may use: clients ask there once for each attempt at most.
pub const PROBE_ANSWERS_PER_SECOND: u32 = 2_000;
/// Ring threads at most.
pub const RINGS_MAX: usize = 16;
/// Prefixes of IPv4 that are charged together for an answer to a sender that proved nothing: the address, and the
/// networks that one party usually has.
pub const SOURCE_PREFIXES_V4: [u32; 4] = [32, 24, 20, 18];
/// The same of IPv6, where a client has a /64 at least.
pub const SOURCE_PREFIXES_V6: [u32; 4] = [64, 56, 48, 32];
/// Answers a second, and at once, for each of these prefixes. A client asks four times in its first second; behind an
/// address there may be several.
pub const SOURCE_BUDGETS: [(u32, u32); 4] = [(10, 20), (100, 200), (400, 800), (1_000, 2_000)];
/// Places for the budgets of each of these prefixes: 64 KiB each. Ten thousand networks at a time share few.
pub const SOURCE_PLACES: usize = 1 << 14;
/// Datagrams a second, and at once, of one host's key: a BIND four times a second for each of twenty joiners a second,
/// and presence.
pub const HOST_KEY_BUDGET: (u32, u32) = (100, 200);
/// The same of a joiner's key: a BIND four times a second, and a REPORT.
pub const JOINER_KEY_BUDGET: (u32, u32) = (20, 40);
/// HELLOs of one key that draw on what is reserved for good MACs; a client sends fewer for each of its sockets.
pub const HELLO_BUDGET: (u32, u32) = (10, 20);
/// Repeats of what a key sent before, which anybody who listens can send.
pub const REPEAT_BUDGET: (u32, u32) = (10, 20);
/// Keys that a ring remembers at most: 32 MiB of them. Those beyond are not limited one by one.
pub const KEYS_REMEMBERED_MAX: usize = 1 << 20;

// ---- What a listing holds ---------------------------------------------------------------------------------

/// Bytes of a listing's name.
pub const NAME_LEN_MAX: usize = 128;
/// Bytes of a protocol's name.
pub const PROTOCOL_LEN_MAX: usize = 64;
/// Bytes of a slot's name.
pub const SLOT_LEN_MAX: usize = 64;
/// Attributes of a listing.
pub const ATTRIBUTES_MAX: usize = 16;
/// Bytes of an attribute's key.
pub const ATTRIBUTE_KEY_LEN_MAX: usize = 64;
/// Bytes of an attribute's value.
pub const ATTRIBUTE_VALUE_LEN_MAX: usize = 256;
/// Largest player capacity.
pub const PLAYERS_MAX: u32 = 65_535;
/// Bytes of a joiner's note.
pub const NOTE_LEN_MAX: usize = 256;
/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 128;
/// Listings on a page.
pub const PAGE_LEN_MAX: usize = 100;
/// Listings on a page when nothing is asked for.
pub const PAGE_LEN_DEFAULT: usize = 50;
/// Entries examined for one page; a page of a picky filter comes back short, with a cursor.
pub const PAGE_EXAMINED_MAX: usize = 512;
/// Attempts shown at once to a host.
pub const PENDING_ATTEMPTS_MAX: usize = 100;

// ---- HTTP -------------------------------------------------------------------------------------------------

/// Bytes of a request body.
pub const BODY_LEN_MAX: usize = 64 * 1024;
/// Header fields of a request.
pub const HEADERS_MAX: usize = 64;
/// Bytes of a request's head.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Connections of the admin listener: operators and monitoring, apart from what callers may take.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Parameters of a query: every filter there is, and the others.
pub const QUERY_PARAMETERS_MAX: usize = ATTRIBUTES_MAX + 16;
/// Time for the first bytes, and for the whole head, of a request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

// ---- Queues -----------------------------------------------------------------------------------------------

/// Transitions handed to the store in one message.
pub const BATCH_LEN_MAX: usize = 64;
/// Batches a ring thread owns, so also the most that wait for the store: 4,096 transitions.
pub const BATCHES_PER_RING: usize = STORE_QUEUE_MAX / BATCH_LEN_MAX;
/// Transitions of the datagram path that wait for the store.
pub const STORE_QUEUE_MAX: usize = 4096;
/// HTTP transitions that wait for the store.
pub const HTTP_LANE_MAX: usize = 64;
/// Operator transitions that wait for the store: drain, revoke, health, metrics.
pub const OPERATOR_LANE_MAX: usize = 8;
/// How long an HTTP request waits for a place in its lane before it is refused: longer than any pause of the store
/// thread, shorter than anybody's patience. Those who wait are bounded by the connections and their streams.
pub const LANE_WAIT: Duration = Duration::from_millis(250);
/// HTTP transitions applied before the datagram lane is looked at again, so neither starves the other.
pub const HTTP_BURST_MAX: usize = 16;
/// Unasked repeats a ring thread has planned: two for each active attempt of the default ceiling would be
/// 20,000; a flood of binds above it costs repeats, never an introduction.
pub const RESENDS_PLANNED_MAX: usize = 8192;

/// The ceilings an operator may set. Each is a pool or a quota of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Listings.
    pub listings: usize,
    /// Active attempts.
    pub attempts: usize,
    /// Idempotency records of registrations.
    pub listing_records: usize,
    /// Idempotency records of attempts.
    pub attempt_records: usize,
    /// Results kept of finished attempts.
    pub attempt_results: usize,
    /// Revocations.
    pub revocations: usize,
    /// Listings of one principal, unless its policy says otherwise.
    pub listings_per_owner: u32,
    /// Listings of one tenant, unless the policy says otherwise.
    pub listings_per_tenant: u32,
    /// Active attempts in one tenant, unless the policy says otherwise.
    pub attempts_per_tenant: u32,
    /// HTTP connections.
    pub connections: usize,
    /// HTTP connections of one address.
    pub connections_per_address: usize,
}

impl Limits {
    /// The defaults: the product's stated ceilings.
    pub const DEFAULT: Self = Self {
        listings: 25_000,
        attempts: 10_000,
        listing_records: 50_000,
        attempt_records: 40_000,
        attempt_results: 20_000,
        revocations: 16_384,
        listings_per_owner: 1_000,
        listings_per_tenant: 10_000,
        attempts_per_tenant: 4_000,
        connections: 1_024,
        connections_per_address: 32,
    };
    /// Most listings that may be configured.
    pub const LISTINGS_MAX: usize = 1_000_000;
    /// Most attempts that may be configured.
    pub const ATTEMPTS_MAX: usize = 400_000;
    /// Most records, or results, of one kind: those of a full store, four times over.
    pub const RECORDS_MAX: usize = 4 * Self::LISTINGS_MAX;
    /// Most revocations: each listing's and each owner's.
    pub const REVOCATIONS_MAX: usize = 2 * Self::LISTINGS_MAX;
    /// Most connections: as many as a process may usually have descriptors.
    pub const CONNECTIONS_MAX: usize = 1 << 20;

    /// Checks the relations between limits.
    ///
    /// # Errors
    /// The first relation that does not hold, with its arithmetic.
    pub fn check(&self) -> Result<(), ContradictoryLimits> {
        let at_least = |name, value, floor_name, floor| {
            if value >= floor {
                Ok(())
            } else {
                Err(ContradictoryLimits::TooSmall { name, value, floor_name, floor })
            }
        };
        let at_most = |name, value, ceiling| {
            if value <= ceiling {
                Ok(())
            } else {
                Err(ContradictoryLimits::TooLarge { name, value, ceiling })
            }
        };
        at_most("listings", self.listings, Self::LISTINGS_MAX)?;
        at_most("attempts", self.attempts, Self::ATTEMPTS_MAX)?;
        at_most("listing_records", self.listing_records, Self::RECORDS_MAX)?;
        at_most("attempt_records", self.attempt_records, Self::RECORDS_MAX)?;
        at_most("attempt_results", self.attempt_results, Self::RECORDS_MAX)?;
        at_most("revocations", self.revocations, Self::REVOCATIONS_MAX)?;
        at_most("connections", self.connections, Self::CONNECTIONS_MAX)?;
        at_least("listing_records", self.listing_records, "listings", self.listings)?;
        at_least("attempt_records", self.attempt_records, "attempts", self.attempts)?;
        at_least("connections", self.connections, "connections_per_address", self.connections_per_address)?;
        at_least("connections_per_address", self.connections_per_address, "one", 1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Limits that cannot hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContradictoryLimits {
    /// A limit is below one it must cover.
    #[error("limits.{name} = {value} is below {floor_name} = {floor}, which it must cover")]
    TooSmall {
        /// The limit that is too small.
        name: &'static str,
        /// Its value.
        value: usize,
        /// What it must cover.
        floor_name: &'static str,
        /// The value of that.
        floor: usize,
    },
    /// A limit is above what the product is built for.
    #[error("limits.{name} = {value} is above {ceiling}, the most this server is built for")]
    TooLarge {
        /// The limit that is too large.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The most it may be.
        ceiling: usize,
    },
}

const _: () = {
    assert!(LEASE_MIN.as_secs() <= LEASE_DEFAULT.as_secs() && LEASE_DEFAULT.as_secs() <= LEASE_MAX.as_secs());
    assert!(ATTEMPT_MIN.as_secs() <= ATTEMPT_DEFAULT.as_secs());
    assert!(ATTEMPT_DEFAULT.as_secs() <= ATTEMPT_MAX.as_secs());
    assert!(INTRODUCED_LIFETIME_MIN.as_secs() <= ATTEMPT_MIN.as_secs());
    assert!(PRESENCE_REFRESH.as_secs() * 3 <= PRESENCE_LIFETIME.as_secs(), "two refreshes may be lost");
    assert!(PROOF_AGE_MAX.as_secs() + COOKIE_FUTURE_MAX.as_secs() <= COOKIE_SECRET_LIFETIME.as_secs());
    assert!(PRESENCE_KEY_LIFETIME.as_secs() / 2 > LEASE_MAX.as_secs(), "a renewal comes before the key ends");
    assert!(HELLO_LEN_MIN >= CHALLENGE_LEN_MAX && BIND_LEN_MIN >= 2 * ANSWER_LEN_MAX);
    assert!(STORE_QUEUE_MAX.is_multiple_of(BATCH_LEN_MAX));
    assert!(BATCHES_PER_RING >= 2, "a ring keeps its last box back until another one is free");
    assert!(PAGE_LEN_DEFAULT <= PAGE_LEN_MAX && PAGE_LEN_MAX <= PAGE_EXAMINED_MAX);
    assert!(
        Limits::DEFAULT.listings <= Limits::LISTINGS_MAX && Limits::DEFAULT.attempts <= Limits::ATTEMPTS_MAX
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_together() {
        assert_eq!(Limits::DEFAULT.check(), Ok(()));
    }

    #[test]
    fn a_contradiction_is_named_with_its_numbers() {
        let limits = Limits { listing_records: 10, ..Limits::DEFAULT };
        let text = limits.check().unwrap_err().to_string();
        assert_eq!(text, "limits.listing_records = 10 is below listings = 25000, which it must cover");
        let limits = Limits { attempts: 400_001, attempt_records: 1_000_000, ..Limits::DEFAULT };
        assert!(limits.check().unwrap_err().to_string().contains("limits.attempts = 400001 is above 400000"));
    }
}
