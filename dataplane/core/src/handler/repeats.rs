//! NOTICE and INTRODUCE are sent unasked at most three times, a quarter of a second apart: one lost datagram must
//! not lock a player out. An answer from the one they are for cancels the rest.

use std::collections::{HashMap, VecDeque};

use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::limits::{RESEND_INTERVAL, RESENDS_MAX, RESENDS_PLANNED_MAX};
use rendezvous_shared::time::Instant;

use super::Answer;

type Target = (AttemptId, Role);

#[derive(Debug)]
struct Plan {
    answer: Answer,
    left: u8,
    at: Instant,
}

/// What is still to be repeated; never grows.
#[derive(Debug)]
pub(super) struct Repeats {
    plans: HashMap<Target, Plan, ahash::RandomState>,
    /// In order of time, because every distance is the same. May hold entries of plans that were cancelled.
    queue: VecDeque<(Instant, Target)>,
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self {
            // Twice the room: the map then reuses the places of removed entries instead of growing.
            plans: HashMap::with_capacity_and_hasher(2 * RESENDS_PLANNED_MAX, ahash::RandomState::default()),
            queue: VecDeque::with_capacity(RESENDS_PLANNED_MAX),
        }
    }

    /// Plans the repeats of `answer`, which was just sent for the first time. With no room left there are none.
    pub(super) fn plan(&mut self, now: Instant, attempt: AttemptId, role: Role, answer: &Answer) {
        if self.queue.len() >= RESENDS_PLANNED_MAX {
            return;
        }
        let target = (attempt, role);
        let at = now.after(RESEND_INTERVAL);
        self.plans.insert(target, Plan { answer: answer.clone(), left: RESENDS_MAX - 1, at });
        self.queue.push_back((at, target));
    }

    pub(super) fn cancel(&mut self, attempt: AttemptId, role: Role) {
        self.plans.remove(&(attempt, role));
    }

    pub(super) fn due(&mut self, now: Instant, max: usize, mut send: impl FnMut(&Answer)) {
        let mut sent = 0;
        while let Some(&(at, target)) = self.queue.front() {
            if at > now || sent == max {
                return;
            }
            self.queue.pop_front();
            let Some(plan) = self.plans.get_mut(&target).filter(|plan| plan.at == at) else { continue };
            plan.answer.mark_repeat();
            send(&plan.answer);
            sent += 1;
            plan.left -= 1;
            if plan.left == 0 {
                self.plans.remove(&target);
            } else {
                plan.at = now.after(RESEND_INTERVAL);
                self.queue.push_back((plan.at, target));
            }
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|&(at, _)| at)
    }

    /// Room in the map and in the queue, to show that neither ever grows.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> (usize, usize) {
        (self.plans.capacity(), self.queue.capacity())
    }
}
