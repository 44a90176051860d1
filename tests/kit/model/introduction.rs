//! Binding endpoints to roles, and the introduction.

use core::time::Duration;

use rendezvous_shared::endpoint::Mapping;
use rendezvous_shared::id::{AttemptId, Role};
use rendezvous_shared::limits::{INTRODUCED_LIFETIME_MIN, PROOF_AGE_MAX, RECORD_GRACE};
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Refusal};
use rendezvous_shared::store::{Bind, BindAnswer, Introduction, Notice, Push, Remind, Reminder, Reply};

use super::NaiveStore;
use super::records::{Counted, Side, family_index};

/// The longest that one peer waits for the other to have heard.
const START_IN_MAX: Duration = Duration::from_secs(1);

impl NaiveStore {
    pub(super) fn bind(&mut self, request: &Bind) -> Result<Reply, Refusal> {
        self.refuse_when_drained()?;
        let role = self.authorise_bind(request)?;
        let newly_bound = self.bind_side(role, request)?;
        let attempt = self.attempt(request.attempt).ok_or(Refusal::NotFound)?;
        let remaining = attempt.deadline.since(self.now);
        let answer = match (attempt.host_side, attempt.joiner_side) {
            (Some(host), Some(joiner)) if attempt.times.introduced.is_some() => {
                let (own, peer) = if role == Role::Host { (host, joiner) } else { (joiner, host) };
                let own = told(request.attempt, &own, &peer).ok_or(Refusal::NotFound)?;
                self.introductions_replayed += 1;
                BindAnswer::Replayed { own }
            }
            (Some(host), Some(joiner)) => self.try_introduce(request.attempt, role, host, joiner)?,
            _ => {
                let notice = if newly_bound && role == Role::Joiner { self.notice_of(request) } else { None };
                BindAnswer::Waiting { peer_bound: false, remaining, notice }
            }
        };
        Ok(Reply::Bind(answer))
    }

    /// "What goes out unasked and again is decided when it is sent": a host is told while its joiner waits, peers that
    /// were introduced until they report, and nobody at an address that is proved no longer.
    pub(super) fn reminder(&self, request: &Remind) -> Option<Reminder> {
        let attempt = self.attempt(request.attempt)?;
        let (side, peer, report) = match request.role {
            Role::Host => (attempt.host_side, attempt.joiner_side, attempt.host_report),
            Role::Joiner => (attempt.joiner_side, attempt.host_side, attempt.joiner_report),
        };
        if attempt.times.introduced.is_some() {
            let side = side.filter(|it| report.is_none() && self.now.since(it.proved) <= PROOF_AGE_MAX)?;
            return Some(Reminder::Introduce(push(attempt.id, &side, &peer?)?));
        }
        let awaited = request.role == Role::Host && side.is_none();
        let listing = self.listing(attempt.listing).filter(|_| awaited)?;
        self.notice(listing, attempt).map(Reminder::Notice)
    }

    fn notice_of(&self, request: &Bind) -> Option<Notice> {
        let attempt = self.attempt(request.attempt)?;
        self.notice(self.listing(attempt.listing)?, attempt)
    }

    /// "Each role is bound by its own right", the host's while its listing lives.
    fn authorise_bind(&self, request: &Bind) -> Result<Role, Refusal> {
        let proof = &request.proof;
        if Self::is_host(proof) {
            self.authorise_host(proof)?;
        }
        let Some(attempt) = self.attempt(request.attempt) else {
            let host = self.listing_of_key(proof.key_id).map(|it| it.id);
            return Err(self
                .gone(request.attempt, |it| it.joiner_key == proof.key_id || host == Some(it.view.listing)));
        };
        self.role_in(attempt, proof.key_id).ok_or(Refusal::NotFound)
    }

    /// "The first endpoint bound for each role wins, an identical datagram is idempotent, and a different replay is
    /// rejected." Returns whether it was bound just now.
    fn bind_side(&mut self, role: Role, request: &Bind) -> Result<bool, Refusal> {
        let (proof, now, proved) = (&request.proof, self.now, self.proved(&request.proof));
        let attempt = self.attempt_mut(request.attempt).ok_or(Refusal::NotFound)?;
        let listing = attempt.listing;
        if let Some(side) = attempt.side_mut(role) {
            if side.endpoint != proof.source || side.candidates != request.candidates {
                return Err(Refusal::Conflict(ConflictReason::EndpointAlreadyBound));
            }
            if side.mapping == Mapping::Unknown {
                side.mapping = request.mapping;
            }
            if let Some(after) = Counted::after(Some(side.counted), proof) {
                side.counted = after;
                side.proved = side.proved.max(proved);
                side.local = proof.local;
            }
            return Ok(false);
        }
        let counted = match role {
            Role::Host => self.accept_sequence(listing, proof)?,
            Role::Joiner => Counted::after(None, proof).ok_or(Refusal::StaleSequence)?,
        };
        self.made += 1;
        let side = Side {
            key_id: proof.key_id,
            endpoint: proof.source,
            candidates: request.candidates,
            round_trip: request.round_trip,
            mapping: request.mapping,
            proved,
            local: proof.local,
            counted,
            order: self.made,
        };
        let attempt = self.attempt_mut(request.attempt).ok_or(Refusal::NotFound)?;
        *attempt.side_mut(role) = Some(side);
        match role {
            Role::Host => attempt.times.host_bound = Some(now),
            Role::Joiner => attempt.times.joiner_bound = Some(now),
        }
        Ok(true)
    }

    /// Both are bound: introduces them if the listing can be joined and both addresses were proved recently.
    fn try_introduce(
        &mut self,
        id: AttemptId,
        role: Role,
        host: Side,
        joiner: Side,
    ) -> Result<BindAnswer, Refusal> {
        let now = self.now;
        let attempt = self.attempt(id).ok_or(Refusal::NotFound)?;
        let joinable = self.listing(attempt.listing).is_some_and(|it| it.is_joinable(now));
        let proved = |side: &Side| now.since(side.proved) <= PROOF_AGE_MAX;
        if !joinable || !proved(&host) || !proved(&joiner) {
            let remaining = attempt.deadline.since(now);
            return Ok(BindAnswer::Waiting { peer_bound: true, remaining, notice: None });
        }
        let pairs = || host.endpoints().into_iter().zip(joiner.endpoints());
        if pairs().any(|(host, joiner)| host.is_some() && host == joiner) {
            self.finish_attempt(id, now, AttemptReason::SameEndpoint);
            return Err(Refusal::Conflict(ConflictReason::SameEndpoint));
        }
        if !pairs().any(|(host, joiner)| host.is_some() && joiner.is_some()) {
            self.finish_attempt(id, now, AttemptReason::NoCommonFamily);
            return Err(Refusal::Conflict(ConflictReason::NoCommonFamily));
        }
        let (own, peer) = if role == Role::Host { (host, joiner) } else { (joiner, host) };
        let introduction = told(id, &own, &peer).ok_or(Refusal::NotFound)?;
        let push = push(id, &peer, &own).ok_or(Refusal::NotFound)?;
        let attempt = self.attempt_mut(id).ok_or(Refusal::NotFound)?;
        attempt.times.introduced = Some(now);
        attempt.deadline = attempt.deadline.max(now.after(INTRODUCED_LIFETIME_MIN));
        let deadline = attempt.deadline.after(RECORD_GRACE);
        for record in self.attempt_records.iter_mut().filter(|it| it.target == id) {
            record.deadline = record.deadline.max(deadline);
        }
        self.introductions += 1;
        Ok(BindAnswer::Introduced { own: introduction, peer: push })
    }
}

/// What `own` is told of `peer` without asking.
fn push(attempt: AttemptId, own: &Side, peer: &Side) -> Option<Push> {
    let Side { key_id, endpoint, local, .. } = *own;
    Some(Push { key_id, endpoint, local, introduction: told(attempt, own, peer)? })
}

/// What `own` is told of `peer`: its endpoint in the family that `own` bound in, if both have one there, or else in the
/// other; the candidates of its network only behind one public address.
fn told(attempt: AttemptId, own: &Side, peer: &Side) -> Option<Introduction> {
    let (mine, theirs) = (own.endpoints(), peer.endpoints());
    let common = [0, 1].map(|family| theirs[family].filter(|_| mine[family].is_some()));
    let preferred = family_index(own.endpoint.family());
    let mut ordered = [common[preferred], common[1 - preferred]].into_iter().flatten();
    let behind_one_address = [0, 1]
        .into_iter()
        .any(|it| mine[it].zip(theirs[it]).is_some_and(|(mine, theirs)| mine.ip() == theirs.ip()));
    let ahead = peer.round_trip.saturating_sub(own.round_trip);
    Some(Introduction {
        attempt,
        peer: ordered.next()?,
        peer_second: ordered.next(),
        lan: if behind_one_address { peer.candidates.lan } else { [None; 2] },
        start_in: (ahead / 2).min(START_IN_MAX),
    })
}
