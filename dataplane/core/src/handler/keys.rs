//! What the ring remembers of a key that proved itself: its budgets, how far its sequence got, and whether the store
//! called it dead.
//!
//! Only a datagram with a good MAC gets here, so no stranger can take a place, spend a budget or move a sequence. The
//! table has a fixed size. A key that finds no place is not remembered and not limited: refusing it would let the
//! others speak against it. The store decides all the same; what is kept here only spares it what it would refuse.

use core::time::Duration;

use rendezvous_shared::credential::{KeyId, MasterKey};
use rendezvous_shared::endpoint::Family;
use rendezvous_shared::id::Role;
use rendezvous_shared::limits::{HELLO_BUDGET, HOST_KEY_BUDGET, JOINER_KEY_BUDGET, REPEAT_BUDGET};
use rendezvous_shared::store::DatagramProof;
use rendezvous_shared::time::Instant;
use zerocopy::IntoBytes;

use crate::budget::{Budget, Debt, ticks};

/// Places that a key may be in.
const WAYS: usize = 4;

/// What a datagram of a key is, before the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Further on than what this key sent before.
    Fresh,
    /// Sent before, or overtaken, which does not matter to what it says.
    Repeat,
    /// Sent before, or overtaken, and void by that.
    Stale,
    /// Beyond the key's own budget.
    Limited,
    /// The store said that the key is dead. It stays so.
    Dead,
}

/// Of one key in one address family. Two share a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
struct Entry {
    /// Of the key's hash; 0 is an empty place.
    tag: u32,
    /// When the cookie that opened the session was issued, in ticks.
    opened: u32,
    /// The low half of the session's id.
    session: u32,
    hello: Debt,
    fresh: Debt,
    repeats: Debt,
    /// The highest sequence of the session; [`DEAD`] for a key that the store called dead.
    highest: u64,
}

/// No sequence that is ever let through.
const DEAD: u64 = u64::MAX;

const _: () = assert!(size_of::<Entry>() == 32);

#[derive(Debug)]
pub(super) struct Keys {
    sets: Box<[[Entry; WAYS]]>,
    hasher: ahash::RandomState,
    host: Budget,
    joiner: Budget,
    hello: Budget,
    repeats: Budget,
}

impl Keys {
    /// Room for `keys` keys in one family each, at least.
    pub(super) fn new(master: &MasterKey, keys: usize) -> Self {
        let sets = (keys / WAYS).max(1).next_power_of_two();
        let seed = master.subkey("key table", 0);
        let word = |nth: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&seed[nth * 8..][..8]);
            u64::from_le_bytes(bytes)
        };
        let budget = |(per_second, burst)| Budget::new(per_second, burst);
        Self {
            sets: vec![[Entry::default(); WAYS]; sets].into(),
            hasher: ahash::RandomState::with_seeds(word(0), word(1), word(2), word(3)),
            host: budget(HOST_KEY_BUDGET),
            joiner: budget(JOINER_KEY_BUDGET),
            hello: budget(HELLO_BUDGET),
            repeats: budget(REPEAT_BUDGET),
        }
    }

    /// Whether a HELLO with a good MAC is within what its key may have.
    pub(super) fn hello(&mut self, now: Instant, key_id: &KeyId, family: Family) -> bool {
        let budget = self.hello;
        self.place(now, key_id, family).is_none_or(|entry| budget.take(now, &mut entry.hello))
    }

    /// How a datagram with a good MAC stands; moves the sequence. `in_order` says that one that was overtaken is void.
    pub(super) fn proved(&mut self, now: Instant, proof: &DatagramProof, in_order: bool) -> Standing {
        let own = match proof.key_id.role() {
            Some(Role::Host) => self.host,
            _ => self.joiner,
        };
        let repeats = self.repeats;
        let Some(entry) = self.place(now, &proof.key_id, proof.source.family()) else {
            return Standing::Fresh;
        };
        if entry.highest == DEAD {
            return if repeats.take(now, &mut entry.repeats) { Standing::Dead } else { Standing::Limited };
        }
        if !entry.moves(proof) {
            if in_order {
                return Standing::Stale;
            }
            return if repeats.take(now, &mut entry.repeats) { Standing::Repeat } else { Standing::Limited };
        }
        if own.take(now, &mut entry.fresh) { Standing::Fresh } else { Standing::Limited }
    }

    /// Whether the key has been let through before.
    pub(super) fn knows(&self, key_id: &KeyId, family: Family) -> bool {
        let (set, tag) = self.slot(key_id, family);
        self.sets[set].iter().any(|entry| entry.tag == tag && entry.highest > 0)
    }

    /// Forgets the session whose mark the datagram of that sequence set, the store having refused it: a leap too far, say.
    /// What the store takes must not be held up here.
    pub(super) fn take_back(&mut self, key_id: &KeyId, family: Family, sequence: u64) {
        let (set, tag) = self.slot(key_id, family);
        if let Some(entry) = self.sets[set].iter_mut().find(|it| it.tag == tag && it.highest == sequence) {
            entry.highest = 0;
        }
    }

    /// Remembers that the store called the key dead.
    pub(super) fn bury(&mut self, now: Instant, key_id: &KeyId, family: Family) {
        if let Some(entry) = self.place(now, key_id, family) {
            entry.highest = DEAD;
        }
    }

    /// The key's place, or one that nobody needs any more.
    fn place(&mut self, now: Instant, key_id: &KeyId, family: Family) -> Option<&mut Entry> {
        let (set, tag) = self.slot(key_id, family);
        let set = &mut self.sets[set];
        if let Some(found) = set.iter().position(|entry| entry.tag == tag) {
            return Some(&mut set[found]);
        }
        let oldest = (0..WAYS).max_by_key(|&way| set[way].idle(now))?;
        let entry = &mut set[oldest];
        if entry.idle(now).is_zero() {
            return None;
        }
        *entry = Entry { tag, ..Entry::default() };
        Some(entry)
    }

    #[expect(clippy::cast_possible_truncation, reason = "both are parts of a hash")]
    fn slot(&self, key_id: &KeyId, family: Family) -> (usize, u32) {
        let hash = self.hasher.hash_one((key_id.as_bytes(), family));
        (hash as usize & (self.sets.len() - 1), ((hash >> 32) as u32).max(1))
    }
}

impl Entry {
    /// Whether the datagram is further on than all before it, which it then sets the mark for. Another session counts
    /// only with a cookie that is newer than the one the present session began with, as in the store.
    #[expect(clippy::cast_possible_truncation, reason = "half of a random number tells sessions apart")]
    fn moves(&mut self, proof: &DatagramProof) -> bool {
        let (session, issued) = (proof.session.0 as u32, ticks(proof.cookie_issued));
        if self.highest == 0 || (session != self.session && issued.wrapping_sub(self.opened) as i32 > 0) {
            (self.session, self.opened, self.highest) = (session, issued, proof.sequence);
            return true;
        }
        let further = session == self.session && proof.sequence > self.highest;
        if further {
            self.highest = proof.sequence;
        }
        further
    }

    /// How long nothing has been owed here; an empty place is older than any.
    fn idle(&self, now: Instant) -> Duration {
        match self.tag {
            0 => Duration::MAX,
            _ => self.hello.idle(now).min(self.fresh.idle(now)).min(self.repeats.idle(now)),
        }
    }
}

#[cfg(test)]
mod tests;
