//! The engine on the library tokio-uring: a few receives that never end, a send for each reply, all on a runtime of
//! its own that runs while a turn does.
//!
//! It is here to be compared with, and for whoever trusts that library more than our own ring. What it costs: several
//! allocations for each operation, inside of the library; an `epoll_wait` beside each enter; no restricted ring; a
//! timeout in whole milliseconds. A reply waits while the send buffer is full instead of being refused. The library
//! panics where the kernel refuses an enter, which ends the thread. Its receive has no control messages, so this
//! engine cannot tell which address a datagram was sent to, and refuses a socket bound to a wildcard.
//!
//! A receive in flight owns its buffer, and dropping its future would lose what it receives. So each has a task that
//! awaits it to its end, and is never dropped before the runtime is. That one cancels what is in flight, and returns
//! when the kernel has let go of all of it.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use io_uring::IoUring;
use io_uring::opcode::Nop;
use tokio_uring::fs::File;
use tokio_uring::net::UdpSocket;

use crate::address::decode_name;
use crate::counters::EngineCounters;
use crate::desk::Desk;
use crate::engine::{Engine, EngineKind, EngineOptions, Meta, OpenError, is_fatal_receive};
use crate::outbox::Outbox;
use crate::socket::BoundSocket;
use crate::wake::WakeGate;
use crate::{BUFFER_LEN, DATAGRAM_LEN_MAX, REPLY_LEN_MAX};

/// Receives in flight, each with a buffer of its own. Every one of them watches the socket, and a datagram wakes them
/// all; with one alone, each datagram costs an enter of its own.
const RECEIVES: usize = 8;

/// A reply on its way; gives its payload's buffer back, and the errno if it was refused.
type Sending = Pin<Box<dyn Future<Output = (Option<i32>, Vec<u8>)>>>;

pub(crate) struct TokioUringEngine {
    /// Replies in the kernel's hands, or about to be. Before the runtime, so that it goes first.
    sends: FuturesUnordered<Sending>,
    /// Owns the ring. To drop it cancels every operation and waits for it.
    runtime: tokio_uring::Runtime,
    /// The library's hold on the socket.
    async_socket: Rc<UdpSocket>,
    desk: Rc<Desk>,
    /// Buffers of replies that are gone.
    spare: Vec<Vec<u8>>,
    outbox: Outbox,
    counters: EngineCounters,
    socket: BoundSocket,
}

impl TokioUringEngine {
    pub(crate) fn new(
        socket: BoundSocket,
        gate: &WakeGate,
        options: EngineOptions,
    ) -> Result<Self, OpenError> {
        const KIND: EngineKind = EngineKind::TokioUring;
        if socket.is_wildcard() {
            return Err(OpenError::Wildcard { kind: KIND, address: socket.local_addr() });
        }
        let descriptor = socket.as_fd().try_clone_to_owned().map_err(OpenError::at(KIND, "dup"))?;
        let event = gate.event().as_fd().try_clone_to_owned().map_err(OpenError::at(KIND, "dup"))?;
        let outbox = Outbox::new(options.outbox_slots, socket.family(), false);
        // Every operation completes once, so with room for all at once the completion queue cannot overflow.
        let at_once = (RECEIVES + outbox.capacity() + 2) as u32;
        let entries = options.submission_entries.max(2);
        ask_first(entries).map_err(OpenError::at(KIND, "io_uring_setup or io_uring_enter"))?;
        // DEFER_TASKRUN, which the other ring has, would be deafness here: the library waits in epoll and reads the
        // completion queue without the enter that fills it.
        let mut ring = tokio_uring::uring_builder();
        ring.dontfork().setup_single_issuer().setup_coop_taskrun();
        ring.setup_cqsize(options.completion_entries.max(entries).max(at_once));
        let runtime = tokio_uring::Runtime::new(tokio_uring::builder().entries(entries).uring_builder(&ring))
            .map_err(OpenError::at(KIND, "io_uring_setup"))?;

        let engine = Self {
            sends: FuturesUnordered::new(),
            runtime,
            async_socket: Rc::new(UdpSocket::from_std(descriptor.into())),
            desk: Rc::new(Desk::new(RECEIVES)),
            spare: Vec::with_capacity(outbox.capacity()),
            outbox,
            counters: EngineCounters::default(),
            socket,
        };
        let event = File::from_std(event.into());
        engine.runtime.block_on(async {
            tokio_uring::spawn(watch(event, Rc::clone(&engine.desk)));
            for index in 0..RECEIVES {
                let socket = Rc::clone(&engine.async_socket);
                tokio_uring::spawn(receive(socket, index, Rc::clone(&engine.desk)));
            }
        });
        Ok(engine)
    }

    /// Makes a send of each reply queued, as far as fewer are on their way than the outbox holds.
    fn stage_replies(&mut self) {
        while self.sends.len() < self.outbox.capacity()
            && let Some((_, slot)) = self.outbox.next_unstaged()
        {
            let mut payload = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(REPLY_LEN_MAX));
            payload.clear();
            payload.extend_from_slice(slot.payload());
            // What `push` encoded is an address of one of both families.
            if let Some(to) = decode_name(slot.name()) {
                self.sends.push(Box::pin(send(Rc::clone(&self.async_socket), payload, to)));
            }
            self.outbox.stage();
            // The payload was copied, so the slot is free.
            self.outbox.release_staged();
        }
    }
}

impl Engine for TokioUringEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::TokioUring
    }

    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.outbox_full = self.outbox.refused();
        self.stage_replies();
        let wait = self.desk.is_empty() && timeout != Some(Duration::ZERO);
        let Self { sends, spare, counters, desk, .. } = self;
        self.runtime.block_on(async {
            desk.resume();
            if !wait {
                poll_fn(|cx| drain(sends, spare, counters, cx)).await;
                // Completes after all that was submitted before it and did not have to wait.
                let _ = tokio_uring::no_op().await;
                return poll_fn(|cx| drain(sends, spare, counters, cx)).await;
            }
            let event = poll_fn(|cx| {
                let _ = drain(sends, spare, counters, cx);
                desk.poll_event(cx)
            });
            match timeout {
                None => event.await,
                Some(timeout) => drop(tokio::time::timeout(timeout, event).await),
            }
        });
        self.counters.wakes += self.desk.take_wakes();
        while let Some(errno) = self.desk.take_error() {
            if is_fatal_receive(errno) {
                return Err(io::Error::from_raw_os_error(errno));
            }
            self.counters.receive_errors.add(errno);
        }
        Ok(())
    }

    fn receive(&mut self, batch_max: usize, sink: &mut dyn FnMut(Meta, &[u8], &mut Outbox)) -> usize {
        let mut handed = 0;
        while handed < batch_max
            && let Some((index, source, bytes)) = self.desk.take_datagram()
        {
            handed += 1;
            let truncated = bytes.len() > DATAGRAM_LEN_MAX;
            self.counters.received += 1;
            self.counters.received_truncated += u64::from(truncated);
            let meta = Meta { source: canonical(source), local: None, truncated };
            sink(meta, &bytes[..bytes.len().min(DATAGRAM_LEN_MAX)], &mut self.outbox);
            self.desk.give_back(index, bytes);
        }
        // No control message tells of drops here, so the socket is asked, once a batch.
        if handed > 0
            && let Ok(memory) = self.socket.memory()
        {
            self.counters.note_drops(memory.drops);
        }
        self.counters.outbox_full = self.outbox.refused();
        handed
    }

    fn counters(&self) -> &EngineCounters {
        &self.counters
    }
}

/// An operation through a ring of our own: where an enter is refused the library panics, and once more while it is
/// dropped, which would be the end of the process.
fn ask_first(entries: u32) -> io::Result<()> {
    let mut builder: io_uring::Builder = IoUring::builder();
    let mut ring = builder.dontfork().setup_single_issuer().setup_coop_taskrun().build(entries)?;
    // SAFETY: a no-operation points at nothing.
    let pushed = unsafe { ring.submission().push(&Nop::new().build()) };
    pushed.map_err(|_| io::ErrorKind::Other)?;
    ring.submit_and_wait(1)?;
    Ok(())
}

/// Submits what was not yet, and counts what is over; always ready.
fn drain(
    sends: &mut FuturesUnordered<Sending>,
    spare: &mut Vec<Vec<u8>>,
    counters: &mut EngineCounters,
    cx: &mut Context<'_>,
) -> Poll<()> {
    while let Poll::Ready(Some((refused, payload))) = sends.poll_next_unpin(cx) {
        match refused {
            None => counters.sent += 1,
            Some(errno) => counters.send_errors.add(errno),
        }
        spare.push(payload);
    }
    Poll::Ready(())
}

/// Receives into one buffer for ever; waits until that comes back before it receives again.
async fn receive(socket: Rc<UdpSocket>, index: usize, desk: Rc<Desk>) {
    let mut buffer = Vec::with_capacity(BUFFER_LEN);
    loop {
        // The library takes the length for what is filled already.
        buffer.clear();
        let (outcome, filled) = socket.recv_from(buffer).await;
        match outcome {
            Ok((_, source)) => desk.put_datagram(index, source, filled),
            Err(error) => desk.put_error(index, errno_of(&error), filled),
        }
        buffer = desk.buffer(index).await;
    }
}

/// Reads the eventfd for ever.
async fn watch(event: File, desk: Rc<Desk>) {
    let mut count = Vec::with_capacity(8);
    loop {
        count.clear();
        let (outcome, read) = event.read_at(count, 0).await;
        count = read;
        match outcome {
            Ok(_) => desk.put_wake(),
            // Nobody could wake the thread any more.
            Err(_) => return desk.put_fatal(),
        }
    }
}

async fn send(socket: Rc<UdpSocket>, payload: Vec<u8>, to: SocketAddr) -> (Option<i32>, Vec<u8>) {
    let (outcome, payload) = socket.send_to(payload, to).await;
    (outcome.err().as_ref().map(errno_of), payload)
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// `::ffff:a.b.c.d` as IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => {
            v6.ip().to_ipv4_mapped().map_or(address, |ip| SocketAddr::V4(SocketAddrV4::new(ip, v6.port())))
        }
        SocketAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::ErrnoClass;
    use crate::socket::{SocketOptions, bind};
    use crate::wake::wake_pair;

    /// Most errnos can be caused by a network, and `tests/contract` does. Here all of them come in where the library
    /// hands them over.
    #[test]
    fn it_goes_on_after_every_errno() {
        if std::env::var_os("RENDEZVOUS_NET_SKIP_URING").is_some() {
            return;
        }
        let (gate, _waker) = wake_pair().unwrap();
        let socket = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
        let mut engine = TokioUringEngine::new(socket, &gate, EngineOptions::default()).unwrap();
        let mut told = 0;
        for errno in 1..134 {
            engine.sends.push(Box::pin(async move { (Some(errno), Vec::new()) }));
            engine.desk.put_error(0, errno, Vec::with_capacity(BUFFER_LEN));
            let outcome = engine.turn(Some(Duration::ZERO));
            if is_fatal_receive(errno) {
                assert_eq!(outcome.unwrap_err().raw_os_error(), Some(errno));
            } else {
                outcome.unwrap();
                told += 1;
            }
            assert_eq!(engine.counters.receive_errors.total(), told);
            assert_eq!(engine.counters.send_errors.total(), errno as u64);
        }
        for class in ErrnoClass::ALL {
            println!("{}: {} sends", class.name(), engine.counters.send_errors.get(class));
            assert!(engine.counters.send_errors.get(class) > 0);
        }
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(b"still there", engine.local_addr()).unwrap();
        for _ in 0..100 {
            engine.turn(Some(Duration::from_millis(20))).unwrap();
            if engine.receive(1, &mut |_, bytes, _| assert_eq!(bytes, b"still there")) == 1 {
                return;
            }
        }
        panic!("it is deaf");
    }
}
