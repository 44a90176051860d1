//! The ceilings that histories run under: roomy, tight, without places for records, wide.

use proptest::prelude::*;
use proptest::sample::select;
use rendezvous_shared::limits::Limits;

use crate::steps::Setup;
use crate::strategies::{just, weighted};

/// Any setup.
pub(crate) fn setup() -> BoxedStrategy<Setup> {
    let ceiling = || select(vec![0_usize, 1, 2, 3, 5, 8]);
    let roomy = Limits {
        listings: 12,
        attempts: 12,
        listing_records: 60,
        attempt_records: 60,
        attempt_results: 1_000_000,
        revocations: 8,
        ..Limits::DEFAULT
    };
    let tight =
        (ceiling(), ceiling(), ceiling(), ceiling(), ceiling()).prop_map(move |(a, b, c, d, revocations)| {
            // Mostly no fewer records than what they stand for, as the configuration demands.
            Limits {
                listings: a,
                attempts: b,
                listing_records: a + c,
                attempt_records: b + d,
                revocations,
                ..roomy
            }
        });
    let scarce = (ceiling(), ceiling()).prop_map(move |(listing_records, attempt_records)| Limits {
        listing_records,
        attempt_records,
        ..roomy
    });
    // More than a store gives back in one call, and no more than stands on one page.
    let wide = Limits {
        listings: 90,
        attempts: 150,
        listing_records: 250,
        attempt_records: 400,
        revocations: 90,
        ..roomy
    };
    let limits = weighted(vec![(4, just(roomy)), (3, tight.boxed()), (1, scarce.boxed()), (3, just(wide))]);
    (limits, any::<bool>(), select(vec![1_000_000_000_000_000, 0, 1]))
        .prop_map(|(limits, keep, start)| {
            let attempt_results = if keep { limits.attempt_results } else { 0 };
            Setup { limits: Limits { attempt_results, ..limits }, start }
        })
        .boxed()
}
