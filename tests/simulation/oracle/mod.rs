//! The oracle: what must hold whatever happens, judged from the requests, the replies and the bytes on the wire.
//!
//! It is no second store: it predicts no introduction and no order. It keeps what was acknowledged and what was proved,
//! and says when a reply contradicts either. It panics with the property that is broken.

mod attempts;
mod audit;
mod drain;
mod ends;
mod introductions;
mod listings;
mod presences;
mod proofs;
mod reminders;
mod revocations;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use rendezvous_shared::credential::MasterKey;
use rendezvous_shared::endpoint::{AddressPolicy, Family};
use rendezvous_shared::id::{AttemptId, InstanceId, ListingId, PrincipalId, RevocationId, TenantId};
use rendezvous_shared::limits::{Limits, RECORD_GRACE, SEQUENCE_JUMP_MAX};
use rendezvous_shared::outcome::{ConflictReason, Refusal};
use rendezvous_shared::store::{Caller, DatagramProof, IdempotencyKey, Quotas, Reply, Transition};
use rendezvous_shared::time::Instant;

pub(crate) use audit::browse;
pub(crate) use proofs::{Proofs, Seen, Verdict};

use attempts::AttemptFact;
use listings::ListingFact;
use proofs::bytes_of;

/// Says which property is broken and how.
pub(crate) fn broken(property: &str, how: impl fmt::Display) -> ! {
    panic!("PROPERTY BROKEN: {property}: {how}")
}

type RecordKey = (TenantId, PrincipalId, [u8; 16]);

#[derive(Clone, Copy, Debug)]
struct Record<Id> {
    fingerprint: [u8; 16],
    target: Id,
    deadline: Instant,
}

/// What a key stands for at some instant.
enum Known<Id> {
    New,
    Reused,
    Same(Id),
}

fn known<Id: Copy>(
    records: &BTreeMap<RecordKey, Record<Id>>,
    key: &RecordKey,
    now: Instant,
    it: IdempotencyKey,
) -> Known<Id> {
    match records.get(key).filter(|record| record.deadline > now) {
        None => Known::New,
        Some(record) if record.fingerprint != it.fingerprint => Known::Reused,
        Some(record) => Known::Same(record.target),
    }
}

fn record_key(caller: Caller, idempotency: IdempotencyKey) -> RecordKey {
    (caller.tenant, caller.principal, idempotency.key)
}

/// Session, issue of the cookie that opened it or the eve of a farewell since, highest sequence.
type Freshness = (u64, Instant, u64);

/// What was acknowledged by one instance of the server, and what was proved to it.
pub(crate) struct Oracle {
    /// What addresses proved.
    pub(crate) proofs: Proofs,
    limits: Limits,
    quotas: Quotas,
    listings: BTreeMap<ListingId, ListingFact>,
    attempts: BTreeMap<AttemptId, AttemptFact>,
    listing_records: BTreeMap<RecordKey, Record<ListingId>>,
    attempt_records: BTreeMap<RecordKey, Record<AttemptId>>,
    freshness: BTreeMap<([u8; 32], bool), Freshness>,
    revocations: BTreeMap<RevocationId, revocations::RevocationFact>,
    drain: Option<Instant>,
    attempts_created: u64,
    introductions: u64,
}

impl Oracle {
    /// Nothing acknowledged, nothing proved: a server that just started.
    pub(crate) fn new(
        instance: InstanceId,
        master: MasterKey,
        policy: AddressPolicy,
        limits: Limits,
        quotas: Quotas,
    ) -> Self {
        Self {
            proofs: Proofs::new(instance, master, policy),
            limits,
            quotas,
            listings: BTreeMap::new(),
            attempts: BTreeMap::new(),
            listing_records: BTreeMap::new(),
            attempt_records: BTreeMap::new(),
            freshness: BTreeMap::new(),
            revocations: BTreeMap::new(),
            drain: None,
            attempts_created: 0,
            introductions: 0,
        }
    }

    /// Judges what the store answered to `transition` at `now`.
    pub(crate) fn on_reply(&mut self, now: Instant, transition: &Transition, reply: &Reply) {
        if self.drained(now) {
            return self.check_drained(now, transition, reply);
        }
        if self.check_barred(now, transition, reply) {
            return;
        }
        match (transition, reply) {
            (Transition::Revoke(it), _) => self.on_revoke(now, it, reply),
            (Transition::LiftRevocation(it), _) => self.on_lift(now, it, reply),
            (Transition::ListRevocations(it), _) => self.on_list_revocations(now, it, reply),
            (Transition::RefreshPresence(it), _) => self.on_presence(now, &it.proof, reply, false),
            (Transition::EndPresence(it), _) => self.on_presence(now, &it.proof, reply, true),
            (Transition::RegisterListing(it), _) => self.on_register(now, it, reply),
            (Transition::RenewLease(it), _) => self.on_renew(now, it, reply),
            (Transition::DeleteListing(it), _) => self.on_delete(now, it, reply),
            (Transition::GetListing(it), _) => self.on_get_listing(now, it, reply),
            (Transition::BrowseListings(it), Reply::Page(page)) => self.on_page(now, it, page),
            (Transition::Bind(it), _) => self.on_bind(now, it, reply),
            (Transition::Remind(it), Reply::Reminded(reminder)) => {
                self.on_reminded(now, it, reminder.as_ref())
            }
            (Transition::Report(it), _) => self.on_report(now, it, reply),
            (Transition::CreateAttempt(it), _) => self.on_create(now, it, reply),
            (Transition::GetAttempt(it), _) => self.on_get_attempt(now, it, reply),
            (Transition::ListPending(it), _) => self.on_pending(now, it, reply),
            (Transition::CancelAttempt(it), _) => self.on_cancel(now, it, reply),
            (Transition::BeginDrain(it), Reply::Drain(view)) => self.on_begin_drain(now, it, view),
            (Transition::GetDrain, Reply::Drain(view)) => self.on_drain_view(now, view),
            _ => broken("each transition has its reply", format_args!("{transition:?} {reply:?}")),
        }
    }

    /// Whether `proof` is newer than all its key used before, in its family; takes note of it if so.
    fn moves_on(&mut self, proof: &DatagramProof) -> bool {
        let place = (bytes_of(&proof.key_id), proof.source.family() == Family::V6);
        let (session, sequence) = (proof.session.0, proof.sequence);
        let next = match self.freshness.get(&place) {
            Some(&(known, opened, highest)) if known == session && highest > 0 => (sequence > highest
                && sequence - highest <= SEQUENCE_JUMP_MAX
                && proof.cookie_issued >= opened)
                .then_some((session, opened, sequence)),
            Some(&(_, opened, _)) if proof.cookie_issued <= opened => None,
            _ => (sequence <= SEQUENCE_JUMP_MAX).then_some((session, proof.cookie_issued, sequence)),
        };
        if let Some(next) = next {
            self.freshness.insert(place, next);
        }
        next.is_some()
    }

    /// A host took its leave: what carries a cookie issued before that was sent before it, in either family.
    fn takes_leave(&mut self, proof: &DatagramProof) {
        let came = Instant::from_millis(proof.arrived.as_millis());
        let eve = Instant::from_nanos(came.as_nanos().saturating_sub(1));
        for v6 in [false, true] {
            let known = self.freshness.entry((bytes_of(&proof.key_id), v6)).or_insert((0, eve, 0));
            known.1 = known.1.max(eve);
        }
    }
}

/// What is granted to whoever asks for `wanted`: whole seconds, not fewer, within `least..=most`.
fn granted(wanted: Duration, least: Duration, most: Duration) -> Duration {
    let up = wanted.as_secs().saturating_add(u64::from(wanted.subsec_nanos() > 0));
    Duration::from_secs(up).clamp(least, most)
}

/// A record is kept until this long after what it stands for.
fn record_deadline(resource: Instant) -> Instant {
    resource.after(RECORD_GRACE)
}

/// The conflict a reply states.
fn conflict(reply: &Reply) -> Option<ConflictReason> {
    match reply {
        Reply::Refused(Refusal::Conflict(reason)) => Some(*reason),
        _ => None,
    }
}
