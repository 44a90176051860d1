//! What is kept of each tenant: everything is scoped by it, so every index of names is its own.

use core::ops::Bound::{Excluded, Included};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use rendezvous_shared::id::{JoinCode, PrincipalId};

use super::lanes::List;
use super::records::{Attempt, Listing, OfJoiner};
use super::slab::Slot;

/// A tenant that has listings, and attempts at them.
#[derive(Debug, Default)]
pub(super) struct Tenant {
    pub(super) principals: BTreeMap<PrincipalId, Principal>,
    /// Listings by owner, in the order of their ids.
    pub(super) owned: BTreeSet<Owned>,
    pub(super) protocols: BTreeMap<Box<str>, Protocol>,
    /// The last number given to a protocol.
    protocol_numbers: u32,
    /// Public listings by protocol, in the order of their ids.
    pub(super) public: BTreeSet<Published>,
    /// A listing that is over and not worked off may still stand here.
    pub(super) slots: BTreeMap<Box<str>, Slot<Listing>>,
    pub(super) join_codes: BTreeMap<JoinCode, Slot<Listing>>,
}

/// A principal that owns listings or has attempts.
#[derive(Debug)]
pub(super) struct Principal {
    pub(super) listings: u32,
    /// The attempts it made.
    pub(super) joined: List<Attempt, OfJoiner>,
}

/// A protocol that listings of a tenant use. Its number stands for its name in the index.
#[derive(Debug)]
pub(super) struct Protocol {
    pub(super) number: u32,
    listings: u32,
}

/// Where a listing stands among those of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owned {
    pub(super) owner: PrincipalId,
    pub(super) place: Place,
}

/// Where a public listing stands among those of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Published {
    pub(super) protocol: u32,
    pub(super) place: Place,
}

/// A listing in the order of ids: the tag is the upper half of an id. Packed to four bytes, so that an entry of an
/// index takes 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    tag: [u32; 2],
    pub(super) slot: Slot<Listing>,
}

impl Place {
    pub(super) const fn new(tag: u64, slot: Slot<Listing>) -> Self {
        Self { tag: [(tag >> 32) as u32, tag as u32], slot }
    }

    /// Before and behind all places after `tag`. Tags are unguessable, so nobody makes two that are equal, and none is
    /// at either end.
    const fn range(after: Option<u64>) -> (Self, Self) {
        let from = match after {
            Some(tag) => Self::new(tag, Slot::HIGHEST),
            None => Self::new(0, Slot::LOWEST),
        };
        (from, Self::new(u64::MAX, Slot::HIGHEST))
    }
}

impl Tenant {
    /// Whether it has no listing any more, and so no attempt.
    pub(super) fn is_unused(&self) -> bool {
        self.principals.is_empty()
    }

    pub(super) fn listings_of(&self, owner: PrincipalId) -> u32 {
        self.principals.get(&owner).map_or(0, |it| it.listings)
    }

    /// An owner's listings in the order of their ids, those after `tag`.
    pub(super) fn owned_by(
        &self,
        owner: PrincipalId,
        after: Option<u64>,
    ) -> impl Iterator<Item = Place> + '_ {
        let (from, to) = Place::range(after);
        self.owned
            .range((Excluded(Owned { owner, place: from }), Included(Owned { owner, place: to })))
            .map(|it| it.place)
    }

    /// The public listings of a protocol in the order of their ids, those after `tag`.
    pub(super) fn published(&self, protocol: u32, after: Option<u64>) -> impl Iterator<Item = Place> + '_ {
        let (from, to) = Place::range(after);
        let (from, to) = (Published { protocol, place: from }, Published { protocol, place: to });
        self.public.range((Excluded(from), Included(to))).map(|it| it.place)
    }

    pub(super) fn principal(&mut self, id: PrincipalId) -> &mut Principal {
        self.principals.entry(id).or_insert(Principal { listings: 0, joined: List::EMPTY })
    }

    /// Takes something from a principal, and forgets it if it has nothing any more.
    pub(super) fn take_from_principal(&mut self, id: PrincipalId, take: impl FnOnce(&mut Principal)) {
        if let Entry::Occupied(mut principal) = self.principals.entry(id) {
            take(principal.get_mut());
            if principal.get().listings == 0 && principal.get().joined.first().is_none() {
                principal.remove();
            }
        }
    }

    /// One more listing uses the protocol of this name; returns its number.
    pub(super) fn use_protocol(&mut self, name: &str) -> u32 {
        if let Some(protocol) = self.protocols.get_mut(name) {
            protocol.listings += 1;
            return protocol.number;
        }
        // Not used again before four thousand million new names came and went.
        self.protocol_numbers = self.protocol_numbers.wrapping_add(1);
        let number = self.protocol_numbers;
        self.protocols.insert(name.into(), Protocol { number, listings: 1 });
        number
    }

    pub(super) fn release_protocol(&mut self, name: &str) {
        if let Some(protocol) = self.protocols.get_mut(name) {
            protocol.listings -= 1;
            if protocol.listings == 0 {
                self.protocols.remove(name);
            }
        }
    }

    /// How many listings use each protocol; for the invariants.
    pub(super) fn protocol_use(&self) -> BTreeMap<&str, u32> {
        self.protocols.iter().map(|(name, it)| (&**name, it.listings)).collect()
    }
}
