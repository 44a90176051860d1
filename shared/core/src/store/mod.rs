//! The store boundary: everything that decides who may do what, behind one synchronous, serialised trait.
//!
//! [`Transition`]s go in, [`Reply`]s come out, one each, in order. Nothing outside an implementation decides
//! about authority, and no implementation reads a clock: `now` is handed in. An implementation must pass the
//! functions of [`contract`].

pub mod contract;
mod description;
mod reply;
mod transition;

pub use description::{
    AttributeMask, Attributes, DescriptionParts, ListingDescription, MalformedDescription, Visibility,
};
pub use reply::{
    AttemptGrant, AttemptReasonCounters, AttemptView, BindAnswer, DrainView, Introduction, LeaseGrant,
    ListingGrant, ListingView, Notice, Page, PendingAttempt, Phase, PhaseTimes, PoolUsage, PresenceGrant,
    Push, Reminder, Reply, RevocationPage, RevocationView, StoreStats,
};
pub use transition::{
    BeginDrain, Bind, BrowseListings, Caller, CancelAttempt, Candidates, CreateAttempt, DatagramProof,
    DeleteListing, EndPresence, Filter, GetAttempt, GetListing, IdempotencyKey, LiftRevocation, ListPending,
    ListRevocations, ListingLocator, Quotas, RefreshPresence, RegisterListing, Remind, RenewLease, Report,
    Reporter, Revoke, Subject, Transition, TransitionKind,
};

use crate::time::Instant;

/// The atomic, ephemeral store of all authority.
///
/// Each transition is applied whole or not at all, in the order given, by one caller at a time. What is due at
/// `now` is gone, as far as any caller can tell, before the first transition of the batch is looked at: nobody sees
/// it, and it takes nobody's place in a pool or quota. Its memory is given back later, in bounded steps. A full
/// collection refuses; nothing is ever evicted, and no queue grows.
pub trait EphemeralRendezvousStore {
    /// Applies `batch` in order at `now` and pushes one reply for each onto `replies`.
    ///
    /// `now` never goes back between calls.
    fn apply(&mut self, now: Instant, batch: &[Transition], replies: &mut Vec<Reply>);

    /// When [`Self::expire`] next has something to do, so that the store thread knows how long it may sleep. Not later
    /// than now while there is more to do at once.
    fn next_deadline(&self) -> Option<Instant>;

    /// Gives back a bounded part of what is due at `now`, with no transition to apply.
    fn expire(&mut self, now: Instant);

    /// What each pool holds and how the store stands. What is due and not given back yet is counted.
    fn stats(&self) -> StoreStats;
}
