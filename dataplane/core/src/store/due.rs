//! The expiry index: what is due next.
//!
//! Each object is filed exactly once, under a time not later than its deadline. A deadline that moves later
//! leaves the entry where it is; when the entry surfaces too early it is filed again. So refreshing costs
//! nothing here, and the index never holds more entries than there are objects.

use std::collections::BTreeSet;

use rendezvous_shared::id::AttemptId;
use rendezvous_shared::time::Instant;

use super::idempotency::RecordKey;
use super::{AttemptKey, ListingKey};

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Its lease, or the presence of one of its families.
    Listing(ListingKey),
    /// An active attempt.
    Attempt(AttemptKey),
    /// The result of a finished attempt.
    Result(AttemptId),
    /// An idempotency record of a registration.
    ListingRecord(RecordKey),
    /// An idempotency record of an attempt.
    AttemptRecord(RecordKey),
}

/// All entries, soonest first.
#[derive(Debug, Default)]
pub(super) struct DueIndex(BTreeSet<(Instant, Due)>);

impl DueIndex {
    /// Files a new object.
    pub(super) fn file(&mut self, at: Instant, due: Due) {
        self.0.insert((at, due));
    }

    /// Moves an object filed at `*filed` to an earlier time; a later one is left to surface.
    pub(super) fn hasten(&mut self, filed: &mut Instant, at: Instant, due: Due) {
        if at < *filed {
            self.0.remove(&(*filed, due));
            self.0.insert((at, due));
            *filed = at;
        }
    }

    /// Forgets an object that is removed before its time.
    pub(super) fn forget(&mut self, filed: Instant, due: Due) {
        self.0.remove(&(filed, due));
    }

    /// When the first entry surfaces.
    pub(super) fn first(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    /// Takes the first entry if it is due, with the time it was filed under.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, Due)> {
        let &(at, _) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, at: Instant, due: Due) -> bool {
        self.0.contains(&(at, due))
    }
}
