//! Results of finished attempts: what can still be asked for a while; no endpoint, no secret.

use hashbrown::HashTable;
use rendezvous_shared::id::{AttemptId, PrincipalId, TenantId};
use rendezvous_shared::limits::RESULT_LIFETIME;
use rendezvous_shared::store::{AttemptView, Phase};
use rendezvous_shared::time::Instant;

use super::ends::End;
use super::idempotency::roomy;
use super::lanes::{Link, Linked, List};
use super::records::OfPool;
use super::slab::{Slab, Slot};
use super::story::Story;

/// What is kept for a while of an attempt that ended.
#[derive(Debug)]
pub(super) struct AttemptResult {
    pub(super) tenant: TenantId,
    pub(super) host: PrincipalId,
    pub(super) joiner: PrincipalId,
    pub(super) story: Story,
    end: End,
    in_pool: Link<Self>,
}

impl AttemptResult {
    /// It can be asked for until then.
    fn deadline(&self) -> Instant {
        self.end.at.after(RESULT_LIFETIME)
    }

    pub(super) fn view(&self) -> AttemptView {
        self.story.view(Phase::Ended(self.end.reason), self.end.at, Some(self.end.at))
    }
}

super::records::linked! { AttemptResult, OfPool: in_pool; }

/// The results, bounded. A full pool keeps none: no older one is evicted for a newer.
///
/// They give their places back in the order in which they were kept. Attempts are not worked off quite in the order in
/// which they end, so a result may hold its place until one before it can no longer be asked for, and a full pool keeps no
/// other meanwhile.
#[derive(Debug)]
pub(super) struct Results {
    slab: Slab<AttemptResult>,
    in_order: List<AttemptResult, OfPool>,
    by_id: HashTable<Slot<AttemptResult>>,
    hasher: ahash::RandomState,
    /// Results that found no room.
    pub(super) dropped: u64,
}

impl Results {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slab: Slab::new(limit),
            in_order: List::EMPTY,
            by_id: HashTable::with_capacity(roomy(limit)),
            hasher: ahash::RandomState::new(),
            dropped: 0,
        }
    }

    /// Results held, ceiling, most ever held.
    pub(super) const fn usage(&self) -> (usize, usize, usize) {
        (self.slab.len(), self.slab.limit(), self.slab.high_water())
    }

    pub(super) fn get(&self, now: Instant, id: AttemptId) -> Option<&AttemptResult> {
        let slot = self.slot(id)?;
        Some(&self.slab[slot]).filter(|result| result.deadline() > now)
    }

    fn slot(&self, id: AttemptId) -> Option<Slot<AttemptResult>> {
        self.by_id.find(self.hash(id), |&slot| self.slab[slot].story.id() == id).copied()
    }

    fn hash(&self, id: AttemptId) -> u64 {
        self.hasher.hash_one(id.to_bytes())
    }

    /// Keeps the result of an attempt that ended, unless the pool is full or the result's time is over already.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        end: End,
        (tenant, host, joiner): (TenantId, PrincipalId, PrincipalId),
        story: Story,
    ) {
        if self.slab.is_full() && !self.work_off_one(now) {
            self.dropped += 1;
            return;
        }
        let result = AttemptResult { tenant, host, joiner, story, end, in_pool: Link::ALONE };
        if result.deadline() <= now {
            return;
        }
        let slot = self.slab.insert(result);
        self.in_order.push(&mut self.slab, slot);
        let hash = self.hash(story.id());
        let Self { slab, by_id, hasher, .. } = self;
        by_id.insert_unique(hash, slot, |&slot| hasher.hash_one(slab[slot].story.id().to_bytes()));
    }

    /// Forgets one whose time is over, if there is any.
    pub(super) fn work_off_one(&mut self, now: Instant) -> bool {
        let Some(slot) = self.in_order.first() else { return false };
        if self.slab[slot].deadline() > now {
            return false;
        }
        let hash = self.hash(self.slab[slot].story.id());
        if let Ok(entry) = self.by_id.find_entry(hash, |&it| it == slot) {
            entry.remove();
        }
        self.in_order.remove(&mut self.slab, slot);
        self.slab.remove(slot);
        true
    }

    /// Reads those that are forgotten next, and where they are looked for.
    pub(super) fn read_due(&self, now: Instant) -> impl Iterator<Item = u64> + '_ {
        let due = self.in_order.iter(&self.slab).take_while(move |&slot| self.slab[slot].deadline() <= now);
        due.map(|slot| self.slot(self.slab[slot].story.id()).map_or(0, |it| it.index() as u64))
    }

    /// When the next place is given back.
    pub(super) fn soonest(&self) -> Option<Instant> {
        self.in_order.first().map(|slot| self.slab[slot].deadline())
    }

    pub(super) fn check(&self) {
        assert!(self.slab.len() <= self.slab.limit(), "results over their ceiling");
        assert_eq!(self.by_id.len(), self.slab.len(), "the index of results");
        assert_eq!(self.in_order.iter(&self.slab).count(), self.slab.len(), "the list of results");
        for (slot, result) in self.slab.iter() {
            assert_eq!(self.slot(result.story.id()), Some(slot), "a result is not found by its id");
        }
    }
}
