//! Freshness of datagrams: session and sequence, per credential and address family.

use rendezvous_shared::id::SessionId;
use rendezvous_shared::limits::SEQUENCE_JUMP_MAX;
use rendezvous_shared::store::DatagramProof;
use rendezvous_shared::time::Instant;

/// The session a credential uses, and how far it has counted. The default is that of one that has sent nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Freshness {
    session: SessionId,
    /// When the cookie was issued that opened the session; or the eve of the farewell since, see [`Self::end`].
    opened: Instant,
    /// The highest sequence accepted; 0 when there was none.
    highest: u64,
}

impl Freshness {
    /// A word of it.
    pub(super) const fn word(self) -> u64 {
        self.highest
    }

    /// What to remember after `proof`, or nothing when it is older than what was accepted before.
    ///
    /// A datagram delayed on its way from a port that is gone carries an old session or sequence, so it never
    /// reinstates that port. A new session must have been opened by a cookie issued later than the present one's, and no
    /// datagram of a session carries an older cookie than the one that opened it.
    pub(super) fn accept(self, proof: &DatagramProof) -> Option<Self> {
        let sequence = proof.sequence;
        if sequence == 0 || sequence == u64::MAX {
            return None;
        }
        let same_session = self.highest != 0 && self.session == proof.session;
        if same_session {
            let fresh = proof.cookie_issued >= self.opened
                && sequence > self.highest
                && sequence - self.highest <= SEQUENCE_JUMP_MAX;
            return fresh.then_some(Self { highest: sequence, ..self });
        }
        let is_untouched = self.highest == 0 && self.opened == Instant::ZERO;
        if !is_untouched && proof.cookie_issued <= self.opened {
            return None;
        }
        (sequence <= SEQUENCE_JUMP_MAX).then_some(Self {
            session: proof.session,
            opened: proof.cookie_issued,
            highest: sequence,
        })
    }

    /// What to remember after a farewell: whatever carries a cookie issued up to `eve` was sent before it, in whichever
    /// session.
    pub(super) fn end(self, eve: Instant) -> Self {
        Self { opened: self.opened.max(eve), ..self }
    }
}
