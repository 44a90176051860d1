//! A host's way to the server in one address family: the dialog there, and presence kept fresh by it.

use core::time::Duration;

use rand::RngExt;
use rendezvous_shared::credential::Direction;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::limits;
use rendezvous_shared::time::Instant;
use rendezvous_shared::wire::{Ack, Bye, Kind, Presence, Signed};

use crate::dialog::{BACKOFF_MAX, BACKOFF_MIN, Dialog, SILENCES_MAX};
use crate::machine::{Backoff, Outbox, Recent, Transmit};

#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) dialog: Dialog,
    /// Where the server sees this side, if that is known.
    pub(crate) own: Option<Endpoint>,
    at: Instant,
    sent: Recent,
    unanswered: u32,
    backoff: Backoff,
}

impl Way {
    pub(crate) fn new(dialog: Dialog) -> Self {
        Self {
            dialog,
            own: None,
            at: Instant::MAX,
            sent: Recent::default(),
            unanswered: 0,
            backoff: Backoff::new(BACKOFF_MIN, BACKOFF_MAX),
        }
    }

    /// Begins with a HELLO, after another key or registration.
    pub(crate) fn start(&mut self, now: Instant) {
        self.sent.clear();
        self.at = Instant::MAX;
        self.unanswered = 0;
        self.backoff.reset();
        self.dialog.seek(now);
    }

    /// The address was proved because that was asked for: PRESENCE follows at once.
    pub(crate) const fn on_proved(&mut self, now: Instant) {
        self.at = now;
        self.unanswered = 0;
    }

    /// BYE goes out next, by [`Way::poll_bye`].
    pub(crate) fn start_bye(&mut self, now: Instant) {
        self.sent.clear();
        self.at = now;
        self.backoff.reset();
    }

    /// Whether a cookie is held that can be used.
    pub(crate) fn is_proved(&self, now: Instant) -> bool {
        self.dialog.current_cookie(now).is_some()
    }

    /// Whether PRESENCE is being answered.
    pub(crate) const fn is_present(&self) -> bool {
        !self.dialog.seeking() && self.unanswered < SILENCES_MAX
    }

    /// When the PRESENCE or BYE was sent that `sequence` numbers, if it is one of the last.
    pub(crate) fn sent_at(&self, sequence: u64) -> Option<Instant> {
        self.sent.find(sequence)
    }

    /// Takes the ACK to a PRESENCE or BYE; false when it is not genuine.
    pub(crate) fn on_ack(&mut self, now: Instant, ack: &Signed<'_, Ack>) -> bool {
        if !self.dialog.verifies(|secret| ack.verify(Direction::ToClient, secret)) {
            return false;
        }
        self.sent.clear();
        self.unanswered = 0;
        self.backoff.reset();
        self.dialog.learn_cookie(now, ack.body.cookie);
        true
    }

    /// Plans the next PRESENCE for before `refresh` is over.
    pub(crate) fn plan(&mut self, now: Instant, refresh: Duration) {
        // A tenth to a fifth early: hosts spread, and none is ever late by its own doing.
        self.at = now.after(refresh.mul_f64(self.dialog.rng.random_range(0.8..0.9)));
    }

    /// Sends PRESENCE and HELLO when they are due.
    pub(crate) fn poll(&mut self, now: Instant, out: &mut Outbox) {
        self.poll_presence(now, out);
        self.dialog.poll_hello(now, out);
    }

    pub(crate) const fn next_timeout(&self) -> Instant {
        if self.dialog.seeking() { self.dialog.hello_at() } else { self.at }
    }

    /// When [`Way::poll_bye`] is wanted.
    pub(crate) const fn bye_at(&self) -> Instant {
        self.at
    }

    fn poll_presence(&mut self, now: Instant, out: &mut Outbox) {
        if self.dialog.seeking() || now < self.at {
            return;
        }
        let len = limits::PRESENCE_LEN_MIN;
        let silent = self.unanswered >= SILENCES_MAX;
        let proof = if silent { None } else { self.dialog.proof(now, Kind::Presence, len) };
        let Some(proof) = proof else {
            // The back-off goes on: only an ACK shows that PRESENCE gets through.
            self.at = Instant::MAX;
            return self.dialog.seek(now);
        };
        self.sent.push(proof.sequence.get(), now);
        let presence = Presence { proof };
        let (server, secret) = (self.dialog.server(), &self.dialog.key.secret);
        out.push(Transmit::sealed(server, &presence, len, Direction::ToServer, secret));
        if self.unanswered > 0 {
            // A restarted server is silent to an old key and says who it is only in a CHALLENGE: asking with the
            // first repeat instead of after three silences brings a host back seconds earlier.
            self.dialog.send_hello(now, out);
        }
        self.unanswered += 1;
        self.at = now.after(self.backoff.next(&mut self.dialog.rng));
    }

    /// Sends one BYE; false without a cookie to prove it by.
    pub(crate) fn send_bye(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let len = limits::REPORT_LEN_MIN;
        let Some(proof) = self.dialog.proof(now, Kind::Bye, len) else { return false };
        self.sent.push(proof.sequence.get(), now);
        let bye = Bye { proof };
        let (server, secret) = (self.dialog.server(), &self.dialog.key.secret);
        out.push(Transmit::sealed(server, &bye, len, Direction::ToServer, secret));
        self.at = now.after(BACKOFF_MIN);
        true
    }
}
