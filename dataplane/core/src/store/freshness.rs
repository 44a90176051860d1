//! Freshness of datagrams: session and sequence, per credential and address family.

use rendezvous_shared::id::SessionId;
use rendezvous_shared::limits::SEQUENCE_JUMP_MAX;
use rendezvous_shared::store::DatagramProof;
use rendezvous_shared::time::Instant;

/// The session a credential uses, and how far it has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    session: SessionId,
    /// When the cookie was issued that opened the session.
    opened: Instant,
    highest: u64,
}

/// What to remember after `proof`, or nothing when it is older than what was accepted before.
///
/// A datagram delayed on its way from a port that is gone carries an old session or sequence, so it never
/// reinstates that port. A new session must have been opened by a cookie issued later than the present one's.
pub(super) fn accept(before: Option<Freshness>, proof: &DatagramProof) -> Option<Freshness> {
    let sequence = proof.sequence;
    if sequence == 0 || sequence == u64::MAX {
        return None;
    }
    match before {
        Some(known) if known.session == proof.session => {
            let fresh = sequence > known.highest && sequence - known.highest <= SEQUENCE_JUMP_MAX;
            fresh.then_some(Freshness { highest: sequence, ..known })
        }
        Some(known) if proof.cookie_issued <= known.opened => None,
        Some(_) | None => (sequence <= SEQUENCE_JUMP_MAX).then_some(Freshness {
            session: proof.session,
            opened: proof.cookie_issued,
            highest: sequence,
        }),
    }
}
