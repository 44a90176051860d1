//! The io_uring engine: one multishot receive into a provided buffer ring, replies by address, one enter a turn.
//!
//! Who owns what the kernel points at:
//! * a receive buffer is the kernel's from `give` until a completion names it, then ours until given again;
//! * an outbox slot is the kernel's from `stage` until enter has consumed its entry. `MSG_DONTWAIT` makes a send fail
//!   at once rather than park, so a consumed send is a finished one and its slot is free without a completion. This
//!   would be wrong under SQPOLL or zero-copy sends;
//! * the eventfd's value lands in a word of the buffers' region, never read by us.

mod buffers;
mod ring;

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fixed, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{cqueue, opcode, squeue};

use crate::address::{CONTROL_LEN, NAME_LEN, decode_control, decode_name};
use crate::counters::{EngineCounters, RearmReason};
use crate::engine::{Engine, EngineKind, EngineOptions, Meta, OpenError, is_fatal_receive};
use crate::outbox::{Outbox, Slot};
use crate::socket::BoundSocket;
use crate::wake::{WakeEvent, WakeGate};
use crate::{DATAGRAM_LEN_MAX, header};
use buffers::{Buffers, Pending};
use ring::Ring;

/// Registered files.
const SOCKET: Fixed = Fixed(0);
const EVENT: Fixed = Fixed(1);

/// What a completion belongs to.
const RECEIVE: u64 = 1;
const WAKE: u64 = 2;
const SEND: u64 = 3;

/// How long a drop waits for the kernel to let go, in rounds of 10 ms.
const QUIESCE_ROUNDS: usize = 100;

pub(crate) struct UringEngine {
    // The ring goes first, then what its operations point at.
    ring: Ring,
    buffers: ManuallyDrop<Buffers>,
    /// Message headers of the slots, for packet info; empty unless bound to a wildcard.
    send_headers: Box<[SendHeader]>,
    outbox: Outbox,
    /// Template of the multishot receive: only the two lengths are read. Boxed, to stay in place should the engine
    /// move before the kernel has read it.
    template: Box<libc::msghdr>,
    /// Received and not yet handed over.
    pending: Pending,
    counters: EngineCounters,
    /// Sends the kernel consumed and refused; their difference is what was sent. Kept apart because a refusal may
    /// arrive late when the completion queue overflows.
    sends_consumed: u64,
    sends_refused: u64,
    receive_armed: bool,
    wake_armed: bool,
    fatal: Option<i32>,
    #[expect(dead_code, reason = "keeps the eventfd open for the read in flight")]
    event: WakeEvent,
    socket: BoundSocket,
}

struct SendHeader {
    header: libc::msghdr,
    vector: libc::iovec,
}

impl UringEngine {
    pub(crate) fn new(
        socket: BoundSocket,
        gate: &WakeGate,
        options: EngineOptions,
    ) -> Result<Self, OpenError> {
        let at = |step| move |source: io::Error| OpenError::at(EngineKind::Uring, step)(source);
        let event = gate.event();
        let files = [socket.as_fd().as_raw_fd(), event.as_fd().as_raw_fd()];
        let buffers = Buffers::new(options.buffers).map_err(at("mmap of the buffers"))?;
        let ring = Ring::new(&options, &files, &buffers)?;

        let mut template = Box::new(header::empty());
        template.msg_namelen = NAME_LEN as libc::socklen_t;
        template.msg_controllen = CONTROL_LEN;
        let outbox = Outbox::new(options.outbox_slots, socket.family(), socket.is_wildcard());
        let send_headers = if socket.is_wildcard() { outbox.capacity() } else { 0 };
        let mut engine = Self {
            ring,
            pending: Pending::new(buffers.count()),
            buffers: ManuallyDrop::new(buffers),
            send_headers: (0..send_headers).map(|_| SendHeader::empty()).collect(),
            outbox,
            template,
            counters: EngineCounters::default(),
            sends_consumed: 0,
            sends_refused: 0,
            receive_armed: false,
            wake_armed: false,
            fatal: None,
            event,
            socket,
        };
        engine.buffers.give_all();
        Ok(engine)
    }

    /// Keeps a receive and a read of the eventfd in flight. Without a free buffer the receive would end at once.
    fn arm(&mut self) -> io::Result<()> {
        if !self.receive_armed && !self.pending.is_full() {
            let entry = opcode::RecvMsgMulti::new(SOCKET, &raw const *self.template, buffers::GROUP);
            self.receive_armed = self.push(entry.build().user_data(RECEIVE))?;
        }
        if !self.wake_armed {
            let entry = opcode::Read::new(EVENT, self.buffers.wake_word(), 8);
            self.wake_armed = self.push(entry.build().user_data(WAKE))?;
        }
        Ok(())
    }

    /// Puts every queued reply into the submission queue, entering early whenever that is full.
    fn stage_replies(&mut self) -> io::Result<()> {
        while let Some((index, slot)) = self.outbox.next_unstaged() {
            let entry = match self.send_headers.get_mut(index) {
                Some(header) => header.send(slot),
                None => send(slot),
            };
            let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(SEND);
            if !self.push(entry)? {
                break;
            }
            self.outbox.stage();
        }
        Ok(())
    }

    /// Queues one entry; `false` if there is no room even after an enter, which only a kernel short of memory causes.
    fn push(&mut self, entry: squeue::Entry) -> io::Result<bool> {
        if self.ring.sq.is_full() {
            self.enter(false, None)?;
            self.release_consumed();
            // Refusals of a long flush would overflow the completion queue.
            self.reap();
        }
        // SAFETY: what the entry points at stays in place until the kernel is done with it, as the top of this file
        // says. Template, headers and slots are owned by this engine and read while enter consumes the entry, never
        // later; an entry not consumed dies with the ring. The buffers outlive the last completion, or leak.
        let pushed = unsafe { self.ring.sq.push(&entry) };
        Ok(pushed.is_ok())
    }

    /// One `io_uring_enter`: submits, and waits for a completion if told to.
    fn enter(&mut self, wait: bool, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.sq.sync();
        let idle = self.ring.sq.is_empty() && !self.ring.sq.taskrun() && !self.ring.sq.cq_overflow();
        let entered = match (wait, timeout) {
            (false, _) if idle => return Ok(()),
            (false, _) => self.ring.submitter.submit(),
            (true, None) => self.ring.submitter.submit_and_wait(1),
            (true, Some(timeout)) => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        self.ring.sq.sync();
        match entered.map_err(|error| error.raw_os_error()) {
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR)) => Ok(()),
            Err(Some(libc::EAGAIN | libc::ENOMEM | libc::EBUSY)) => {
                self.counters.enters_refused += 1;
                Ok(())
            }
            Err(errno) => Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO))),
        }
    }

    /// Frees the slots of staged replies once every entry is consumed; until then none, since the queue does not
    /// say whose entry is left.
    fn release_consumed(&mut self) {
        if self.ring.sq.is_empty() {
            self.sends_consumed += self.outbox.release_staged() as u64;
        }
    }

    /// Takes every completion.
    fn reap(&mut self) {
        self.ring.cq.sync();
        while let Some(entry) = self.ring.cq.next() {
            self.on_completion(entry.user_data(), entry.result(), entry.flags());
        }
        // Tells the kernel that they are taken; else the next wait would return at once.
        self.ring.cq.sync();
        // Refusals that did not fit are still to come; till then the difference would claim too much.
        if !self.ring.sq.cq_overflow() {
            self.counters.sent = self.sends_consumed.saturating_sub(self.sends_refused);
        }
    }

    fn on_completion(&mut self, operation: u64, result: i32, flags: u32) {
        match operation {
            RECEIVE => self.on_receive(result, flags),
            WAKE => {
                self.wake_armed = false;
                self.counters.wakes += u64::from(result > 0);
            }
            // Only failures complete: successes are skipped.
            _ => {
                self.sends_refused += 1;
                self.counters.send_errors.add(result.saturating_neg());
            }
        }
    }

    fn on_receive(&mut self, result: i32, flags: u32) {
        if let (Some(buffer), Ok(len)) = (cqueue::buffer_select(flags), u16::try_from(result)) {
            self.pending.push(buffer, len);
        }
        let errno = result.min(0).saturating_neg();
        if errno != 0 && errno != libc::ENOBUFS {
            self.counters.receive_errors.add(errno);
        }
        if cqueue::more(flags) {
            return;
        }
        // Over, whatever the result; the next turn arms it again.
        self.receive_armed = false;
        let reason = match errno {
            0 => RearmReason::LostMore,
            libc::ENOBUFS => RearmReason::NoBuffers,
            _ => RearmReason::Error,
        };
        self.counters.rearms[reason as usize] += 1;
        if is_fatal_receive(errno) {
            self.fatal = Some(errno);
        }
    }

    /// Takes every operation back, so that the kernel writes nowhere into our memory any more. Returns whether it
    /// confirmed.
    fn quiesce(&mut self) -> bool {
        let _ = self.enter(false, None);
        for _ in 0..QUIESCE_ROUNDS {
            if self.ring.sq.is_empty() && !self.receive_armed && !self.wake_armed {
                return true;
            }
            // Fails with ENOENT when there is nothing left to cancel; what counts is the completions.
            let _ = self.ring.submitter.register_sync_cancel(None, CancelBuilder::any());
            if self.enter(true, Some(Duration::from_millis(10))).is_err() {
                return false;
            }
            self.reap();
        }
        false
    }
}

impl Engine for UringEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Uring
    }

    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.outbox_full = self.outbox.refused();
        self.arm()?;
        self.stage_replies()?;
        // An early enter may have shown that an operation is over; then the next turn arms it before it blocks.
        let armed = self.receive_armed && self.wake_armed;
        let wait = armed && self.pending.is_empty() && timeout != Some(Duration::ZERO);
        self.enter(wait, timeout)?;
        self.release_consumed();
        self.reap();
        match self.fatal.take() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }

    fn receive(&mut self, batch_max: usize, sink: &mut dyn FnMut(Meta, &[u8], &mut Outbox)) -> usize {
        let mut handed = 0;
        while handed < batch_max
            && let Some((buffer, len)) = self.pending.pop()
        {
            handed += 1;
            // SAFETY: a completion named the buffer and it is given back below only, so the kernel is off it.
            let bytes = unsafe { self.buffers.bytes(buffer, len) };
            match parse(bytes, &self.template) {
                Some((meta, payload, drops)) => {
                    self.counters.received += 1;
                    self.counters.received_truncated += u64::from(meta.truncated);
                    if let Some(drops) = drops {
                        self.counters.note_drops(drops);
                    }
                    sink(meta, payload, &mut self.outbox);
                }
                None => self.counters.receive_errors.add(libc::EAFNOSUPPORT),
            }
            self.buffers.give(buffer);
        }
        // Before the next turn arms a receive that ended for want of them.
        self.buffers.publish();
        self.counters.outbox_full = self.outbox.refused();
        handed
    }

    fn counters(&self) -> &EngineCounters {
        &self.counters
    }
}

impl Drop for UringEngine {
    fn drop(&mut self) {
        let quiet = self.quiesce();
        self.ring.unregister();
        if quiet {
            // SAFETY: dropped here and never used again; every operation that pointed into it has completed.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
        // Not quiet: the buffers leak, for a kernel that may still write into them.
    }
}

impl SendHeader {
    fn empty() -> Self {
        Self { header: header::empty(), vector: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }
    }

    /// Reply with packet info.
    fn send(&mut self, slot: &Slot) -> squeue::Entry {
        self.vector = header::vector(slot);
        self.header = header::reply(slot, &raw mut self.vector);
        opcode::SendMsg::new(SOCKET, &raw const self.header).flags(libc::MSG_DONTWAIT as u32).build()
    }
}

/// Reply by address alone: no header, no vector; 3 to 5 % cheaper.
fn send(slot: &Slot) -> squeue::Entry {
    opcode::Send::new(SOCKET, slot.payload().as_ptr(), slot.payload().len() as u32)
        .flags(libc::MSG_DONTWAIT)
        .dest_addr(slot.name().as_ptr().cast())
        .dest_addr_len(slot.name().len() as libc::socklen_t)
        .build()
}

/// Takes a filled buffer apart: addressing, payload, running count of drops.
fn parse<'a>(bytes: &'a [u8], template: &libc::msghdr) -> Option<(Meta, &'a [u8], Option<u32>)> {
    let message = RecvMsgOut::parse(bytes, template).ok()?;
    // The accessors borrow from `message`; the payload is the tail of the buffer.
    let payload_len = message.payload_data().len();
    let payload = &bytes[bytes.len() - payload_len..];
    let control = decode_control(message.control_data());
    let source = decode_name(message.name_data())?;
    let truncated = message.is_payload_truncated() || payload_len > DATAGRAM_LEN_MAX;
    let meta = Meta { source, local: control.local, truncated };
    Some((meta, &payload[..payload_len.min(DATAGRAM_LEN_MAX)], control.drops))
}

#[cfg(test)]
mod tests;
