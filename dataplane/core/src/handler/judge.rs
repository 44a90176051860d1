//! What a received datagram comes to: checks from cheap to dear, and nothing remembered before the MAC is verified.

use core::time::Duration;

use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::{AddressPolicy, Endpoint, Mapping};
use rendezvous_shared::id::Role;
use rendezvous_shared::outcome::{DatagramOutcome, Refusal};
use rendezvous_shared::store::{
    Bind, Candidates, DatagramProof, EndPresence, RefreshPresence, Report, Reporter, Transition,
};
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{self, Claim, Hello, Proof, Request, Signed};

use super::keys::Standing;
use super::{Action, Answer, Handler, Load, Pending, Received, RequestKind, admit};

impl Handler {
    /// What `received` comes to at `now`.
    pub fn on_datagram(&mut self, now: Instant, received: &Received<'_>) -> Action {
        match self.judge(now, received) {
            Ok(action) => action,
            Err(outcome) => Action::Silence(outcome),
        }
    }

    fn judge(&mut self, now: Instant, received: &Received<'_>) -> Result<Action, DatagramOutcome> {
        if received.truncated {
            return Err(DatagramOutcome::Oversized);
        }
        if let Some(answer) = self.options.self_probe.as_ref().and_then(|it| it.answer(received.bytes)) {
            let answer = Answer::self_probe(received.source, received.local, answer);
            return Ok(Action::Answer(answer, DatagramOutcome::SelfProbe));
        }
        let request = wire::parse_request(received.bytes)?;
        let source = admit::admit(&self.options, received)?;
        match request {
            Request::Hello(hello) => self.hello(now, received, source, &hello),
            Request::Proved(_, _) if self.options.hello_only => Err(DatagramOutcome::BadType),
            Request::Proved(proof, claim) => self.proved(now, received, source, &proof, claim),
        }
    }

    /// Answers HELLO whoever sent it: an old key must learn of the new instance. A good MAC draws on the reserved half
    /// of the ceiling, as long as its key does not overdo it; all others on what their source has left.
    fn hello(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        source: Endpoint,
        hello: &Signed<'_, Hello>,
    ) -> Result<Action, DatagramOutcome> {
        if self.load >= Load::Half {
            return Err(DatagramOutcome::ShedHello);
        }
        let key_id = &hello.body.key_id;
        let known = key_id.instance() == self.options.instance
            && hello.verify(Direction::ToServer, &self.master.secret(key_id))
            && self.keys.hello(now, key_id, source.family());
        if !known && self.options.policy != AddressPolicy::Test && !self.sources.take(now, source) {
            return Err(DatagramOutcome::SourceLimited);
        }
        if !self.ceiling.allow(now, known) {
            return Err(DatagramOutcome::UnprovedCeiling);
        }
        let cookie = self.cookies.issue(now, key_id, source);
        let nonce = hello.body.nonce;
        let answer = Answer::challenge(source, received.local, nonce, self.options.instance, cookie);
        Ok(Action::Answer(answer, DatagramOutcome::Challenged))
    }

    /// A datagram with a proof: of the address by its cookie, then of the key by its MAC.
    fn proved(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        source: Endpoint,
        signed: &Signed<'_, Proof>,
        claim: Claim<'_>,
    ) -> Result<Action, DatagramOutcome> {
        let proof = signed.body;
        let role = self.check_key(now, claim, proof)?;
        let cookie_issued = self.cookies.check(now, &proof.key_id, source, &proof.cookie)?;
        let sequence = proof.sequence.get();
        if sequence == 0 || sequence == u64::MAX {
            return Err(DatagramOutcome::BadSequence);
        }
        let secret = self.right(&proof.key_id, role, claim.attempt());
        // Verified whatever this source did before: a budget spent by bad MACs must not refuse a good one, and to
        // verify costs less than the kernel took to hand it over.
        if !signed.verify(Direction::ToServer, &secret) {
            self.sources.charge(now, source);
            return Err(DatagramOutcome::BadMac);
        }
        let proven = DatagramProof {
            key_id: proof.key_id,
            source,
            local: received.local,
            arrived: now,
            cookie_issued,
            session: proof.session(),
            sequence,
        };
        let (transition, request) = self.transition(now, claim, proven)?;
        let pending = Pending {
            request,
            source,
            local: received.local,
            key_id: proof.key_id,
            secret,
            session: proven.session,
            sequence,
        };
        self.shed(&pending)?;
        let in_order = matches!(request, RequestKind::Presence | RequestKind::Bye);
        match self.keys.proved(now, &proven, in_order) {
            Standing::Limited => Err(DatagramOutcome::KeyLimited),
            // The store would say the same, to each of them.
            Standing::Stale => Err(DatagramOutcome::StaleSequence),
            Standing::Dead => {
                let cookie = self.cookies.issue(now, &proof.key_id, source);
                let answer = Answer::refusal(&pending, cookie, Refusal::NotFound);
                Ok(Action::Answer(answer, DatagramOutcome::RefusedNotFound))
            }
            Standing::Repeat | Standing::Fresh => Ok(Action::Submit(transition, pending)),
        }
    }

    /// While the store is behind, what is new waits, so that what was begun can end.
    fn shed(&self, pending: &Pending) -> Result<(), DatagramOutcome> {
        let (from, outcome) = match pending.request {
            RequestKind::Bind(_) => (Load::FiveEighths, DatagramOutcome::ShedBind),
            RequestKind::Presence => (Load::ThreeQuarters, DatagramOutcome::ShedPresence),
            RequestKind::Report(_) | RequestKind::Bye => return Ok(()),
        };
        let is_new = || !self.keys.knows(&pending.key_id, pending.source.family());
        if self.load >= from && is_new() { Err(outcome) } else { Ok(()) }
    }

    /// A key of this instance, not past its end, of a role that sends this type.
    fn check_key(&self, now: Instant, claim: Claim<'_>, proof: &Proof) -> Result<Role, DatagramOutcome> {
        let role = proof.key_id.role().ok_or(DatagramOutcome::BadKey)?;
        let may_send = role == Role::Host || matches!(claim, Claim::Bind(_) | Claim::Report(_));
        let live = proof.key_id.instance() == self.options.instance && proof.key_id.expires() > now;
        if may_send && live { Ok(role) } else { Err(DatagramOutcome::BadKey) }
    }

    fn transition(
        &self,
        now: Instant,
        claim: Claim<'_>,
        proof: DatagramProof,
    ) -> Result<(Transition, RequestKind), DatagramOutcome> {
        Ok(match claim {
            Claim::Presence => {
                (Transition::RefreshPresence(RefreshPresence { proof }), RequestKind::Presence)
            }
            Claim::Bye => (Transition::EndPresence(EndPresence { proof }), RequestKind::Bye),
            Claim::Bind(bind) => {
                let candidates = self.candidates(now, bind, &proof)?;
                let attempt = bind.attempt();
                let round_trip = Duration::from_millis(bind.rtt_ms.get().into());
                let mapping = self.mapping(now, bind, &proof);
                let bind = Bind { proof, attempt, candidates, round_trip, mapping };
                (Transition::Bind(bind), RequestKind::Bind(attempt))
            }
            Claim::Report(report) => {
                let attempt = report.attempt();
                let result = wire::ReportResult::from_byte(report.result).ok_or(DatagramOutcome::BadField)?;
                let reporter = Reporter::Datagram(proof);
                (Transition::Report(Report { reporter, attempt, result }), RequestKind::Report(attempt))
            }
        })
    }

    /// Whether the sender's mapping varies by destination: the cookie that the probe port gave is for the address and
    /// port that were seen there.
    fn mapping(&self, now: Instant, bind: &wire::Bind, proof: &DatagramProof) -> Mapping {
        let Some(cookies) = self.probe_cookies.as_ref().filter(|_| bind.probe_cookie.issued_ms.get() != 0)
        else {
            return Mapping::Unknown;
        };
        match cookies.check(now, &proof.key_id, proof.source, &bind.probe_cookie) {
            Ok(_) => Mapping::Stable,
            Err(DatagramOutcome::StaleCookie) => Mapping::Unknown,
            Err(_) => Mapping::Varies,
        }
    }

    /// The further endpoints of a BIND: the second proved by a cookie of its own, the others private.
    fn candidates(
        &self,
        now: Instant,
        bind: &wire::Bind,
        proof: &DatagramProof,
    ) -> Result<Candidates, DatagramOutcome> {
        let second = bind.second.get();
        if let Some(second) = second {
            if second.family() == proof.source.family() {
                return Err(DatagramOutcome::BadField);
            }
            admit::admit_endpoint(&self.options, second)?;
            self.cookies.check(now, &proof.key_id, second, &bind.second_cookie)?;
        }
        let lan = bind.lan.map(|it| it.get());
        if !lan.into_iter().flatten().all(rendezvous_shared::endpoint::is_lan_candidate) {
            return Err(DatagramOutcome::BadField);
        }
        Ok(Candidates { second, lan })
    }
}
