//! NOTICE and INTRODUCE are sent unasked at most three times, a quarter of a second apart: one lost datagram must
//! not lock a player out. An answer from the one they are for cancels the rest.
//!
//! Nothing that was sent is kept: what a repeat says, and where it goes, is asked of the store when it is due, or a host
//! that has moved on would be told at an endpoint that is dead, and a joiner that withdrew would be announced still.

use std::collections::{HashMap, VecDeque};

use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::limits::{RESEND_INTERVAL, RESENDS_MAX, RESENDS_PLANNED_MAX};
use rendezvous_shared::store::{Notice, Push, Remind, Reminder, Reply};
use rendezvous_shared::time::Instant;

use super::{Answer, Handler};

type Target = (AttemptId, Role);

/// A repeat that is due, while the store is asked what it says.
#[derive(Clone, Copy, Debug)]
pub struct DueRepeat(Target);

#[derive(Debug)]
struct Plan {
    left: u8,
    /// When it is due; [`ASKED`] while the store is asked.
    at: Instant,
}

/// Later than anything is due.
const ASKED: Instant = Instant::MAX;

/// What is still to be repeated; never grows.
#[derive(Debug)]
pub(super) struct Repeats {
    plans: HashMap<Target, Plan, ahash::RandomState>,
    /// In order of time, because every distance is the same. May hold entries of plans that were cancelled.
    queue: VecDeque<(Instant, Target)>,
    /// Repeats that the store is asked for: they come back into the queue.
    asked: usize,
}

impl Handler {
    /// A repeat that is due at `now`, and what the store is to be asked for it. The reply goes to [`Self::on_reminded`]; if
    /// it cannot be asked, [`Self::leave_out`].
    pub fn next_repeat(&mut self, now: Instant) -> Option<(Remind, DueRepeat)> {
        self.repeats.due(now)
    }

    /// A repeat for which there was no room. It is not made up for: the next one is as far away as ever.
    pub fn leave_out(&mut self, now: Instant, due: DueRepeat) {
        self.repeats.answered(now, due, true);
    }

    /// What the store's reply to a reminder becomes: a datagram for whom it is for, unless that one answered meanwhile or
    /// there is nothing to say any more.
    pub fn on_reminded(&mut self, now: Instant, due: DueRepeat, reply: &Reply) -> Option<Answer> {
        let reminder = match reply {
            Reply::Reminded(reminder) => reminder.as_ref(),
            // Another reply is the store's defect, or it is gone.
            _ => None,
        };
        let ordinal = self.repeats.answered(now, due, reminder.is_some())?;
        match reminder? {
            Reminder::Notice(notice) => Some(self.notice(now, notice, ordinal)),
            Reminder::Introduce(push) => self.pushed(now, push),
        }
    }

    /// When the next unasked repeat is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.repeats.next()
    }

    pub(super) fn notice(&mut self, now: Instant, notice: &Notice, ordinal: u8) -> Answer {
        let cookie = self.cookies.issue(now, &notice.host_key, notice.endpoint);
        let secret = self.master.secret(&notice.host_key);
        Answer::notice(secret, cookie, notice, ordinal)
    }

    /// INTRODUCE for a peer that did not ask just now.
    pub(super) fn pushed(&mut self, now: Instant, push: &Push) -> Option<Answer> {
        let Push { key_id, endpoint, local, introduction: told } = push;
        let cookie = self.cookies.issue(now, key_id, *endpoint);
        let secret = self.right(key_id, key_id.role()?, Some(told.attempt));
        let punch = self.master.punch_secret(told.attempt);
        Some(Answer::introduce(*endpoint, *local, &secret, punch, cookie, told))
    }
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self {
            // Twice the room: the map then reuses the places of removed entries instead of growing.
            plans: HashMap::with_capacity_and_hasher(2 * RESENDS_PLANNED_MAX, ahash::RandomState::default()),
            queue: VecDeque::with_capacity(RESENDS_PLANNED_MAX),
            asked: 0,
        }
    }

    /// Plans the repeats of what was just sent to `role` for the first time. With no room left there are none.
    pub(super) fn plan(&mut self, now: Instant, attempt: AttemptId, role: Role) {
        if self.queue.len() + self.asked >= RESENDS_PLANNED_MAX {
            return;
        }
        let target = (attempt, role);
        let at = now.after(RESEND_INTERVAL);
        self.plans.insert(target, Plan { left: RESENDS_MAX - 1, at });
        self.queue.push_back((at, target));
    }

    pub(super) fn cancel(&mut self, attempt: AttemptId, role: Role) {
        self.plans.remove(&(attempt, role));
    }

    pub(super) fn due(&mut self, now: Instant) -> Option<(Remind, DueRepeat)> {
        while let Some((at, target)) = self.queue.pop_front_if(|(at, _)| *at <= now) {
            let Some(plan) = self.plans.get_mut(&target).filter(|plan| plan.at == at) else { continue };
            plan.at = ASKED;
            self.asked += 1;
            let (attempt, role) = target;
            return Some((Remind { attempt, role }, DueRepeat(target)));
        }
        None
    }

    /// A repeat that was due is sent now, or there is nothing to say any more. Returns which sending it is. The distance to
    /// the next is kept from now and not from when it was due: the store may have taken its time.
    pub(super) fn answered(&mut self, now: Instant, due: DueRepeat, goes_on: bool) -> Option<u8> {
        self.asked = self.asked.saturating_sub(1);
        let DueRepeat(target) = due;
        // One that was cancelled meanwhile, and perhaps planned anew.
        let plan = self.plans.get_mut(&target).filter(|plan| plan.at == ASKED)?;
        let ordinal = RESENDS_MAX - plan.left + 1;
        plan.left -= 1;
        if plan.left == 0 || !goes_on {
            self.plans.remove(&target);
        } else {
            plan.at = now.after(RESEND_INTERVAL);
            self.queue.push_back((plan.at, target));
        }
        Some(ordinal)
    }

    fn next(&self) -> Option<Instant> {
        self.queue.front().map(|&(at, _)| at)
    }

    /// Room in the map and in the queue, to show that neither ever grows.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> (usize, usize) {
        (self.plans.capacity(), self.queue.capacity())
    }
}
