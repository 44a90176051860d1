//! A ring thread without its kernel: the real handler, boxes that travel to the store and back, and counters, as in
//! `dataplane/node`.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rendezvous_core::handler::{Action, Answer, DueRepeat, Handler, Load, Pending, Received};
use rendezvous_shared::counter::{Counters, Label};
use rendezvous_shared::credential::KeyId;
use rendezvous_shared::endpoint::Endpoint;
use rendezvous_shared::limits::ANSWER_LEN_MAX;
use rendezvous_shared::outcome::{DATAGRAM_OUTCOMES, DatagramOutcome};
use rendezvous_shared::store::{BindAnswer, Reminder, Reply, Transition};
use rendezvous_shared::time::Instant;

use crate::oracle::{Oracle, Seen, Verdict, broken};

/// Datagrams taken from the socket in one turn.
const RECEIVE_MAX: usize = 16;
/// Unasked repeats sent in one turn.
const REPEATS_MAX: usize = 8;

/// A datagram in the socket's buffer.
pub(crate) struct Arrived {
    /// Its source.
    pub(crate) from: SocketAddr,
    /// Where it was sent.
    pub(crate) to: SocketAddr,
    /// Whether it was cut off.
    pub(crate) truncated: bool,
    /// Its payload.
    pub(crate) bytes: Vec<u8>,
}

/// A datagram that leaves.
pub(crate) struct Leaving {
    /// The address it leaves from.
    pub(crate) from: SocketAddr,
    /// Where it goes.
    pub(crate) to: SocketAddr,
    /// Its payload.
    pub(crate) bytes: Vec<u8>,
}

/// What a transition was asked for.
enum Asked {
    Datagram(Box<Pending>, Seen),
    Repeat(DueRepeat),
}

/// Transitions on their way to the store, or replies on their way back.
#[derive(Default)]
pub(crate) struct Batch {
    asked: Vec<Asked>,
    /// For the store.
    pub(crate) transitions: Vec<Transition>,
    /// From the store.
    pub(crate) replies: Vec<Reply>,
}

/// Sizes of a ring's queues.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Boxes, and transitions in each.
    pub(crate) boxes: (usize, usize),
    /// Places in the outbox.
    pub(crate) outbox: usize,
    /// Datagrams in the socket's buffer.
    pub(crate) socket: usize,
}

/// A ring thread's state.
pub(crate) struct Ring {
    handler: Handler,
    /// Where each family is asked.
    asked: [SocketAddr; 2],
    sizes: Sizes,
    socket: VecDeque<Arrived>,
    free: usize,
    filling: Option<Batch>,
    /// To the store.
    pub(crate) to_store: VecDeque<Batch>,
    /// Back from the store.
    pub(crate) from_store: VecDeque<Batch>,
    /// It stands still until then.
    pub(crate) paused_until: Instant,
    /// The socket takes next to nothing until then.
    pub(crate) stalled_until: Instant,
    received: u64,
    in_flight: u64,
    outcomes: Counters<DatagramOutcome, DATAGRAM_OUTCOMES>,
}

/// What a turn works with.
pub(crate) struct Turn<'a> {
    /// The server's clock.
    pub(crate) now: Instant,
    /// Who watches.
    pub(crate) oracle: &'a mut Oracle,
    /// What leaves.
    pub(crate) out: Vec<Leaving>,
    /// Outcomes of this turn.
    pub(crate) ends: Vec<DatagramOutcome>,
    room: usize,
}

impl<'a> Turn<'a> {
    /// A turn at `now`.
    pub(crate) const fn new(now: Instant, oracle: &'a mut Oracle) -> Self {
        Self { now, oracle, out: Vec::new(), ends: Vec::new(), room: 0 }
    }
}

impl Ring {
    /// A ring around `handler`.
    pub(crate) fn new(handler: Handler, asked: [SocketAddr; 2], sizes: Sizes) -> Self {
        Self {
            handler,
            asked,
            sizes,
            socket: VecDeque::new(),
            free: sizes.boxes.0,
            filling: None,
            to_store: VecDeque::new(),
            from_store: VecDeque::new(),
            paused_until: Instant::ZERO,
            stalled_until: Instant::ZERO,
            received: 0,
            in_flight: 0,
            outcomes: Counters::new(),
        }
    }

    /// A datagram reached the socket; false when its buffer is full and the kernel drops it.
    pub(crate) fn arrive(&mut self, datagram: Arrived) -> bool {
        let room = self.socket.len() < self.sizes.socket;
        if room {
            self.socket.push_back(datagram);
        }
        room
    }

    /// When it next has something to do.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let busy = !self.socket.is_empty() || !self.from_store.is_empty();
        let at = if busy { now } else { self.handler.next_timeout().unwrap_or(Instant::MAX) };
        at.max(self.paused_until)
    }

    /// Whether nothing waits anywhere, and so nothing may be in flight.
    pub(crate) fn check_idle(&self) {
        let idle = self.socket.is_empty()
            && self.filling.is_none()
            && self.to_store.is_empty()
            && self.from_store.is_empty();
        if idle && (self.in_flight != 0 || self.received != self.outcomes.total()) {
            broken(
                "every datagram has one end",
                format_args!("{} {} {:?}", self.received, self.in_flight, self.outcomes),
            );
        }
    }

    /// Receives, repeats, answers, hands over: as often as there is something to do.
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>) {
        turn.room = if turn.now < self.stalled_until { 1 } else { self.sizes.outbox };
        self.handler.set_load(Load::of(self.sizes.boxes.0 - self.free, self.sizes.boxes.0));
        for _ in 0..RECEIVE_MAX {
            let Some(datagram) = self.socket.pop_front() else { break };
            self.receive(turn, &datagram);
        }
        self.hand_over();
        self.repeat(turn.now);
        while let Some(batch) = self.from_store.pop_front() {
            self.settle(turn, batch);
        }
        self.hand_over();
        if self.received != self.outcomes.total() + self.in_flight {
            broken(
                "received = sum of outcomes + in flight",
                format_args!("{} {:?} {}", self.received, self.outcomes, self.in_flight),
            );
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, datagram: &Arrived) {
        self.received += 1;
        let Arrived { from, to, truncated, bytes } = datagram;
        let seen = turn.oracle.proofs.on_received(turn.now, *from, *to, *truncated, bytes);
        let received = Received { source: *from, local: Some(to.ip()), truncated: *truncated, bytes };
        let action = self.handler.on_datagram(turn.now, &received);
        turn.oracle.proofs.on_judged(&seen, &action);
        let outcome = match action {
            Action::Silence(outcome) => outcome,
            Action::Answer(answer, outcome) => {
                let (Verdict::Hello(key) | Verdict::Proves(key)) = &seen.verdict else {
                    broken(
                        "only who proved something, or says HELLO, is answered at once",
                        format_args!("{seen:?}"),
                    )
                };
                self.check_answer(&answer, &seen);
                if self.send(turn, &answer, key, false) { outcome } else { DatagramOutcome::OutboxFull }
            }
            Action::Submit(transition, pending) => {
                if let Some(batch) = self.batch() {
                    batch.transitions.push(transition);
                    batch.asked.push(Asked::Datagram(Box::new(pending), seen));
                    self.in_flight += 1;
                    return;
                }
                DatagramOutcome::StoreBusy
            }
        };
        self.end(turn, outcome);
    }

    fn end(&mut self, turn: &mut Turn<'_>, outcome: DatagramOutcome) {
        self.outcomes.count(outcome);
        turn.ends.push(outcome);
    }

    fn batch(&mut self) -> Option<&mut Batch> {
        if self.filling.as_ref().is_some_and(|batch| batch.transitions.len() >= self.sizes.boxes.1) {
            self.hand_over();
        }
        if self.filling.is_none() {
            self.free = self.free.checked_sub(1)?;
            self.filling = Some(Batch::default());
        }
        self.filling.as_mut()
    }

    /// Hands over what was collected. (The node keeps its last box back until that is full, so as to hand over whole
    /// batches under load; here the store may be reached by a single datagram.)
    fn hand_over(&mut self) {
        self.to_store.extend(self.filling.take());
    }

    fn settle(&mut self, turn: &mut Turn<'_>, batch: Batch) {
        if batch.replies.len() != batch.asked.len() {
            broken(
                "one reply for each transition, in order",
                format_args!("{} for {}", batch.replies.len(), batch.asked.len()),
            );
        }
        for (asked, reply) in batch.asked.iter().zip(&batch.replies) {
            let (pending, seen) = match asked {
                Asked::Datagram(pending, seen) => (pending, seen),
                Asked::Repeat(due) => {
                    let answer = self.handler.on_reminded(turn.now, *due, reply);
                    self.send_unasked(turn, answer.as_ref(), reply);
                    continue;
                }
            };
            let settled = self.handler.on_reply(turn.now, pending, reply);
            turn.oracle.proofs.on_settled(seen, settled.outcome);
            let mut outcome = settled.outcome;
            if let (Some(answer), Verdict::Proves(key)) = (&settled.answer, &seen.verdict) {
                self.check_answer(answer, seen);
                if !self.send(turn, answer, key, false) {
                    outcome = DatagramOutcome::OutboxFull;
                }
            }
            self.send_unasked(turn, settled.unasked.as_ref(), reply);
            self.in_flight -= 1;
            self.end(turn, outcome);
        }
        self.free += 1;
    }

    /// What goes to somebody who did not ask goes where the store said in this reply.
    fn send_unasked(&self, turn: &mut Turn<'_>, answer: Option<&Answer>, reply: &Reply) {
        let Some(answer) = answer else { return };
        let (key, to, beside) = unasked_of(reply);
        if Endpoint::from(answer.to()) != to {
            broken(
                "what goes unasked goes to the endpoint the store named",
                format_args!("{} {to}", answer.to()),
            );
        }
        self.send(turn, answer, &key, !beside);
    }

    /// An answer goes where the question came from, and leaves from where it went.
    fn check_answer(&self, answer: &Answer, seen: &Seen) {
        if Endpoint::from(answer.to()) != seen.source || answer.from() != Some(seen.asked.ip()) {
            broken(
                "an answer goes to the sender, from the address asked",
                format_args!("{} {:?} {seen:?}", answer.to(), answer.from()),
            );
        }
    }

    fn repeat(&mut self, now: Instant) {
        for _ in 0..REPEATS_MAX {
            let Some((remind, due)) = self.handler.next_repeat(now) else { return };
            if let Some(batch) = self.batch() {
                batch.transitions.push(Transition::Remind(remind));
                batch.asked.push(Asked::Repeat(due));
            } else {
                self.handler.leave_out(now, due);
            }
        }
    }

    /// Puts an answer into the outbox; false when that is full.
    fn send(&self, turn: &mut Turn<'_>, answer: &Answer, key: &KeyId, unasked: bool) -> bool {
        let mut bytes = vec![0; ANSWER_LEN_MAX];
        let len = answer.encode(&mut bytes);
        bytes.truncate(len);
        let room = turn.room > 0;
        if room {
            turn.room -= 1;
            turn.oracle.proofs.on_sent(turn.now, answer.to().into(), &bytes, key, unasked);
            let ip =
                answer.from().unwrap_or_else(|| broken("a wildcard socket says where from", answer.to()));
            let from = SocketAddr::new(ip, self.asked[0].port());
            turn.out.push(Leaving { from, to: answer.to(), bytes });
        }
        room
    }
}

/// Whose unasked datagram a reply brings about: its key, its endpoint, and whether it goes beside an answer to it.
fn unasked_of(reply: &Reply) -> (KeyId, Endpoint, bool) {
    match reply {
        Reply::Presence(grant) if let Some(notice) = &grant.pending => {
            (notice.host_key, notice.endpoint, true)
        }
        Reply::Bind(BindAnswer::Waiting { notice: Some(notice), .. }) => {
            (notice.host_key, notice.endpoint, false)
        }
        Reply::Bind(BindAnswer::Introduced { peer, .. })
        | Reply::Reminded(Some(Reminder::Introduce(peer))) => (peer.key_id, peer.endpoint, false),
        Reply::Reminded(Some(Reminder::Notice(notice))) => (notice.host_key, notice.endpoint, false),
        other => broken("nothing goes unasked but what the store said", format_args!("{other:?}")),
    }
}

/// Names of outcomes, for the log.
pub(crate) fn names(ends: &[DatagramOutcome]) -> String {
    ends.iter().map(|it| it.name()).collect::<Vec<_>>().join(" ")
}
