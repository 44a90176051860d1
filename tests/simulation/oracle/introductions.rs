//! Binding and introducing: who was told of whom, and whether each had proved to be there.

use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::id::Role;
use rendezvous_shared::limits::INTRODUCED_LIFETIME_MIN;
use rendezvous_shared::outcome::{AttemptReason, ConflictReason, Refusal};
use rendezvous_shared::store::{Bind, BindAnswer, Introduction, Push, Reply};
use rendezvous_shared::time::Instant;

use super::attempts::{AttemptFact, SideFact, place};
use super::{Oracle, broken, record_deadline};

impl Oracle {
    pub(super) fn on_bind(&mut self, now: Instant, request: &Bind, reply: &Reply) {
        let proof = &request.proof;
        let Some(role) = proof.role() else { broken("a BIND has a role", format_args!("{proof:?}")) };
        let fact = self.live_attempt(now, request.attempt);
        let right = fact.filter(|it| match role {
            Role::Host => self.listing_of(now, &proof.key_id) == Some(it.listing),
            Role::Joiner => it.key == proof.key_id,
        });
        let Some(fact) = right.cloned() else {
            if !matches!(reply, Reply::Refused(Refusal::NotFound | Refusal::Expired)) {
                broken(
                    "nobody binds without a right in a live attempt",
                    format_args!("{request:?} {reply:?}"),
                );
            }
            return;
        };
        let side = fact.sides[place(role)];
        let same = side.is_none_or(|it| it.endpoint == proof.source && it.candidates == request.candidates);
        let ended = |reason| matches!(reply, Reply::Refused(Refusal::Conflict(it)) if *it == reason);
        match reply {
            Reply::Refused(Refusal::StaleSequence) if side.is_none() => {
                let stale = match role {
                    Role::Host => !self.moves_on(proof),
                    Role::Joiner => proof.sequence > rendezvous_shared::limits::SEQUENCE_JUMP_MAX,
                };
                if !stale {
                    broken("a newer datagram is not stale", format_args!("{proof:?}"));
                }
            }
            _ if ended(ConflictReason::EndpointAlreadyBound) && !same => {}
            _ if !same => {
                broken("the first endpoint bound wins", format_args!("{request:?} {reply:?} {side:?}"))
            }
            Reply::Bind(_)
            | Reply::Refused(Refusal::Conflict(
                ConflictReason::SameEndpoint | ConflictReason::NoCommonFamily,
            )) => {
                self.on_bound(now, role, request, fact, reply);
            }
            _ => broken(
                "an acknowledged attempt lives until its deadline",
                format_args!("{request:?} {reply:?}"),
            ),
        }
    }

    fn on_bound(&mut self, now: Instant, role: Role, request: &Bind, mut fact: AttemptFact, reply: &Reply) {
        let proof = &request.proof;
        let newly = fact.sides[place(role)].is_none();
        if newly && role == Role::Host && !self.moves_on(proof) {
            broken("an older datagram binds no host", format_args!("{proof:?}"));
        }
        self.proofs.on_accepted(proof, Some(request.attempt));
        let (key, endpoint, candidates) = (proof.key_id, proof.source, request.candidates);
        let mapping = request.mapping;
        let side = fact.sides[place(role)].get_or_insert(SideFact { key, endpoint, candidates, mapping });
        side.mapping = side.mapping.or(mapping);
        match reply {
            Reply::Refused(Refusal::Conflict(reason)) => {
                let same = fact.endpoints().is_some_and(|[host, joiner]| {
                    host.iter().flatten().any(|it| joiner.contains(&Some(*it)))
                });
                let apart = fact.endpoints().is_some_and(|[host, joiner]| {
                    let families = |side: [Option<Endpoint>; 2]| side.map(|it| it.map(Endpoint::family));
                    families(host).iter().flatten().all(|it| !families(joiner).contains(&Some(*it)))
                });
                let (right, end) = match reason {
                    ConflictReason::SameEndpoint => (same, AttemptReason::SameEndpoint),
                    _ => (apart, AttemptReason::NoCommonFamily),
                };
                if !right {
                    broken("an attempt is not ended without cause", format_args!("{reason:?} {fact:?}"));
                }
                fact.end(now, end);
            }
            Reply::Bind(BindAnswer::Waiting { notice, peer_bound, .. }) => {
                if *peer_bound != fact.sides[1 - place(role)].is_some() || fact.introduced.is_some() {
                    broken("BOUND says whether the peer is bound", format_args!("{reply:?} {fact:?}"));
                }
                self.attempts.insert(request.attempt, fact.clone());
                if let Some(notice) = notice {
                    self.check_notice(now, fact.listing, notice);
                }
            }
            Reply::Bind(BindAnswer::Replayed { own })
                if fact.introduced.is_none_or(|told| told[place(role)] != *own) =>
            {
                broken("the stored introduction is repeated as it was", format_args!("{own:?} {fact:?}"));
            }
            Reply::Bind(BindAnswer::Introduced { own, peer }) => {
                self.on_introduced(now, role, &mut fact, own, peer)
            }
            _ => {}
        }
        if fact.ended.is_some() && fact.introduced.is_some() {
            broken("an introduced attempt is not ended by a BIND", format_args!("{fact:?}"));
        }
        self.attempts.insert(request.attempt, fact);
    }

    fn on_introduced(
        &mut self,
        now: Instant,
        role: Role,
        fact: &mut AttemptFact,
        own: &Introduction,
        peer: &Push,
    ) {
        if fact.introduced.is_some() {
            broken("no introduction happens twice", format_args!("{fact:?}"));
        }
        let [Some(host), Some(joiner)] = fact.sides else {
            broken("both roles are bound before an introduction", format_args!("{fact:?}"));
        };
        for side in [host, joiner] {
            if !self.proofs.has_bound(now, &side.key, own.attempt, side.endpoint) {
                broken(
                    "no address is introduced that did not prove itself within 30 s",
                    format_args!("{side:?} at {now:?}"),
                );
            }
        }
        if self.live_listing(now, fact.listing).is_none_or(|it| !it.visible(now)) {
            broken("no introduction without a fresh presence", format_args!("{fact:?}"));
        }
        let (mine, other) = if role == Role::Host { (host, joiner) } else { (joiner, host) };
        let pushed =
            peer.endpoint == other.endpoint && peer.key_id == other.key && host.endpoint != joiner.endpoint;
        if !pushed || !tells_of(own, &mine, &other) || !tells_of(&peer.introduction, &other, &mine) {
            broken("each is told of the other and nobody else", format_args!("{own:?} {peer:?} {fact:?}"));
        }
        let told = if role == Role::Host { [*own, peer.introduction] } else { [peer.introduction, *own] };
        fact.introduced = Some(told);
        fact.deadline = fact.deadline.max(now.after(INTRODUCED_LIFETIME_MIN));
        self.introductions += 1;
        if let Some(record) = self.attempt_records.get_mut(&fact.record) {
            record.deadline = record.deadline.max(record_deadline(fact.deadline));
        }
    }
}

impl AttemptFact {
    /// Where host and joiner can be reached, once both are bound.
    fn endpoints(&self) -> Option<[[Option<Endpoint>; 2]; 2]> {
        let all = |side: SideFact| [Some(side.endpoint), side.candidates.second];
        Some([all(self.sides[0]?), all(self.sides[1]?)])
    }
}

/// Whether what `own` is told is where `peer` proved to be, in `own`'s family where the peer has one, and LAN
/// candidates only behind one address.
fn tells_of(told: &Introduction, own: &SideFact, peer: &SideFact) -> bool {
    let proved = [Some(peer.endpoint), peer.candidates.second];
    let second =
        told.peer_second.is_none_or(|it| proved.contains(&Some(it)) && it.family() != told.peer.family());
    let common = [Some(own.endpoint), own.candidates.second]
        .into_iter()
        .flatten()
        .any(|it| it.family() == told.peer.family());
    let ips = |side: &SideFact| [Some(side.endpoint), side.candidates.second].map(|it| it.map(Endpoint::ip));
    let together = ips(own).iter().flatten().any(|ip| ips(peer).contains(&Some(*ip)));
    let lan = if together { told.lan == peer.candidates.lan } else { told.lan == [None; 2] };
    proved.contains(&Some(told.peer)) && second && common && lan
}
