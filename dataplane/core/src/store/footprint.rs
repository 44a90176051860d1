//! The memory that the limits can reach, from the sizes of what is kept.

use std::mem::size_of;

use rendezvous_shared::id::{AttemptId, JoinCode, ListingId, TenantId};
use rendezvous_shared::limits::{
    ATTRIBUTE_KEY_LEN_MAX, ATTRIBUTE_VALUE_LEN_MAX, ATTRIBUTES_MAX, Limits, NAME_LEN_MAX, NOTE_LEN_MAX,
    PROTOCOL_LEN_MAX, SLOT_LEN_MAX,
};
use rendezvous_shared::store::ListingDescription;
use rendezvous_shared::time::Instant;

use super::due::Due;
use super::idempotency::RecordKey;
use super::records::{Attempt, AttemptResult, Listing};
use super::{AttemptKey, ListingKey};

/// Bytes a full store needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Records and indexes: fixed for each entry.
    pub records: usize,
    /// Names, attributes and notes, if every one were as long as it may be.
    pub texts: usize,
}

/// What `limits` can reach. Trees and tables are counted at half full, the worst they run at.
#[must_use]
pub fn footprint(limits: &Limits) -> Footprint {
    const TREE_SLACK: usize = 2;
    let due = TREE_SLACK * size_of::<(Instant, Due)>();
    let ids = TREE_SLACK * size_of::<ListingId>();
    let named =
        TREE_SLACK * (size_of::<(TenantId, String, ListingKey)>() + size_of::<(TenantId, JoinCode)>());
    let listing = size_of::<Listing>() + size_of::<ListingDescription>() + due + 2 * ids + named;
    let pair = TREE_SLACK * size_of::<(ListingKey, AttemptKey)>();
    let attempt = size_of::<Attempt>() + due + 2 * pair;
    // Key, fingerprint, target, deadline, filing.
    let record = TREE_SLACK * (size_of::<RecordKey>() + 48) + due;
    let result = TREE_SLACK * (size_of::<AttemptId>() + size_of::<AttemptResult>()) + due;
    let attributes =
        ATTRIBUTES_MAX * (2 * size_of::<String>() + ATTRIBUTE_KEY_LEN_MAX + ATTRIBUTE_VALUE_LEN_MAX);
    let text = attributes + NAME_LEN_MAX + PROTOCOL_LEN_MAX + 2 * SLOT_LEN_MAX;
    Footprint {
        records: limits.listings * listing
            + limits.attempts * attempt
            + (limits.listing_records + limits.attempt_records) * record
            + limits.attempt_results * result,
        texts: limits.listings * text + limits.attempts * NOTE_LEN_MAX,
    }
}
