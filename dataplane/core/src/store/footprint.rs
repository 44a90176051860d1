//! The memory that the limits can reach, from the sizes of what is kept.

use std::mem::size_of;

use rendezvous_shared::id::{JoinCode, PrincipalId};
use rendezvous_shared::limits::{
    ATTRIBUTE_KEY_LEN_MAX, ATTRIBUTE_VALUE_LEN_MAX, ATTRIBUTES_MAX, Limits, NAME_LEN_MAX, NOTE_LEN_MAX,
    PROTOCOL_LEN_MAX, SLOT_LEN_MAX,
};

use super::RETIRED_MAX;
use super::idempotency::{AttemptRecord, ListingRecord, roomy};
use super::records::{Attempt, Listing};
use super::results::AttemptResult;
use super::revocations::REVOCATION_LEN;
use super::slab::{Slab, Slot};
use super::tenants::{Owned, Principal, Protocol, Published};

/// Bytes a full store needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Records and indexes: fixed for each entry.
    pub records: usize,
    /// Names, attributes and notes, if every one were as long as it may be.
    pub texts: usize,
}

/// Trees are counted at half full, the worst they run at.
const TREE_SLACK: usize = 2;
/// The counts before shared texts.
const SHARED_HEADER: usize = 2 * size_of::<usize>();

/// What `limits` can reach, when every listing has an owner, a slot and a protocol of its own.
#[must_use]
pub fn footprint(limits: &Limits) -> Footprint {
    let named = size_of::<(Box<str>, Slot<Listing>)>() + size_of::<(JoinCode, Slot<Listing>)>();
    let indexed = size_of::<Owned>() + size_of::<Published>() + named;
    let principal = size_of::<(PrincipalId, Principal)>();
    let used_names = size_of::<(Box<str>, Protocol)>() + principal;
    let listing = Slab::<Listing>::ENTRY_LEN + SHARED_HEADER + TREE_SLACK * (indexed + used_names);
    let attempt = Slab::<Attempt>::ENTRY_LEN + SHARED_HEADER + TREE_SLACK * principal;
    // Two lengths of up to two bytes before each attribute.
    let attributes = ATTRIBUTES_MAX * (4 + ATTRIBUTE_KEY_LEN_MAX + ATTRIBUTE_VALUE_LEN_MAX);
    let text = attributes + NAME_LEN_MAX + 2 * PROTOCOL_LEN_MAX + 2 * SLOT_LEN_MAX;
    Footprint {
        records: (limits.listings + RETIRED_MAX) * listing
            + limits.attempts * attempt
            + limits.listing_records * Slab::<ListingRecord>::ENTRY_LEN
            + limits.attempt_records * Slab::<AttemptRecord>::ENTRY_LEN
            + limits.attempt_results * Slab::<AttemptResult>::ENTRY_LEN
            + table(limits.listing_records)
            + table(limits.attempt_records)
            + table(limits.attempt_results)
            + limits.revocations * TREE_SLACK * REVOCATION_LEN,
        texts: limits.listings * text + limits.attempts * NOTE_LEN_MAX,
    }
}

/// A hash table of slots: a power of two of them, up to seven eighths full, with a byte of control each.
fn table(limit: usize) -> usize {
    let places = (roomy(limit) * 8).div_ceil(7).next_power_of_two();
    places * (size_of::<u32>() + 1)
}

#[cfg(test)]
mod tests {
    use hashbrown::HashTable;

    use super::*;

    /// A hundred more of each collection are counted as the hundred they are.
    #[test]
    fn each_ceiling_is_counted() {
        const MORE: usize = 100;
        let base = Limits::DEFAULT;
        let records = |limits: Limits| footprint(&limits).records - footprint(&base).records;
        let listings = records(Limits { listings: base.listings + MORE, ..base });
        assert!(
            listings >= MORE * (Slab::<Listing>::ENTRY_LEN + size_of::<Owned>() + size_of::<Published>())
        );
        let attempts = records(Limits { attempts: base.attempts + MORE, ..base });
        assert!(attempts >= MORE * (Slab::<Attempt>::ENTRY_LEN + size_of::<(PrincipalId, Principal)>()));
        let revocations = records(Limits { revocations: base.revocations + MORE, ..base });
        assert!(revocations >= MORE * REVOCATION_LEN);
        // Tables grow by powers of two.
        let doubled = [
            (Limits { listing_records: 2 * base.listing_records, ..base }, Slab::<ListingRecord>::ENTRY_LEN),
            (Limits { attempt_records: 2 * base.attempt_records, ..base }, Slab::<AttemptRecord>::ENTRY_LEN),
            (Limits { attempt_results: 2 * base.attempt_results, ..base }, Slab::<AttemptResult>::ENTRY_LEN),
        ];
        for ((limits, entry), more) in
            doubled.into_iter().zip([base.listing_records, base.attempt_records, base.attempt_results])
        {
            assert_eq!(records(limits), more * entry + table(2 * more) - table(more));
        }
        let texts = |limits: Limits| footprint(&limits).texts - footprint(&base).texts;
        assert!(
            texts(Limits { listings: base.listings + MORE, ..base })
                >= MORE * ATTRIBUTES_MAX * ATTRIBUTE_VALUE_LEN_MAX
        );
        assert_eq!(texts(Limits { attempts: base.attempts + MORE, ..base }), MORE * NOTE_LEN_MAX);
    }

    /// What is counted for a table is what one takes.
    #[test]
    fn a_table_takes_what_is_counted() {
        for limit in [100, 7_168, 25_000, 100_000] {
            let taken = HashTable::<Slot<Listing>>::with_capacity(roomy(limit)).allocation_size();
            assert!(
                (taken / 2..=taken + 64).contains(&table(limit)),
                "{limit}: {taken}, not {}",
                table(limit)
            );
        }
    }
}
