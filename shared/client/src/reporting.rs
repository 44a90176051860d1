//! REPORT: telling the server what came of an attempt, until it says that it heard.

use core::time::Duration;

use rendezvous_shared::credential::{Direction, Secret};
use rendezvous_shared::id::AttemptId;
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Kind, Report, ReportResult};
use zerocopy::byteorder::big_endian::U16;

use crate::dialog::{BACKOFF_MIN, Dialog};
use crate::machine::{Backoff, Outbox, Recent, Transmit, in_ms};

/// REPORTs sent for want of an ACK: about 6 s. It is a courtesy; the players are long connected.
const REPORTS_MAX: u32 = 5;
/// Longest distance between REPORTs.
const REPORT_BACKOFF_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Reporting {
    result: ReportResult,
    round_trip: Duration,
    backoff: Backoff,
    pub(crate) next_at: Instant,
    tries: u32,
    sent: Recent,
}

impl Reporting {
    pub(crate) fn new(result: ReportResult, round_trip: Duration, now: Instant) -> Self {
        let backoff = Backoff::new(BACKOFF_MIN, REPORT_BACKOFF_MAX);
        Self { result, round_trip, backoff, next_at: now, tries: 0, sent: Recent::default() }
    }

    /// Whether it was sent as often as it is worth.
    pub(crate) const fn is_spent(&self) -> bool {
        self.tries >= REPORTS_MAX
    }

    /// Whether `sequence` numbers one of its tries.
    pub(crate) fn has_sent(&self, sequence: u64) -> bool {
        self.sent.find(sequence).is_some()
    }

    /// The next try; without a usable cookie it counts as lost.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        attempt: AttemptId,
        secret: &Secret,
        dialog: &mut Dialog,
        out: &mut Outbox,
    ) {
        self.tries += 1;
        self.next_at = now.after(self.backoff.next(&mut dialog.rng));
        let len = limits::REPORT_LEN_MIN;
        let Some(proof) = dialog.proof(now, Kind::Report, len) else { return };
        self.sent.push(proof.sequence.get(), now);
        let body = Report {
            proof,
            attempt: attempt.to_bytes(),
            result: self.result.to_byte(),
            reserved: [0; 1],
            rtt_ms: U16::new(in_ms(self.round_trip)),
            reserved_2: [0; 4],
        };
        out.push(Transmit::sealed(dialog.server(), &body, len, Direction::ToServer, secret));
    }
}
