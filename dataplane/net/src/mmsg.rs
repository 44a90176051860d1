//! The engine that works everywhere: recvmmsg and sendmmsg behind poll.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::address::{CONTROL_LEN, NAME_LEN, decode_control, decode_name};
use crate::counters::EngineCounters;
use crate::engine::{Engine, EngineKind, EngineOptions, Meta, OpenError, is_fatal_receive};
use crate::memory::Region;
use crate::outbox::Outbox;
use crate::socket::BoundSocket;
use crate::wake::{WakeEvent, WakeGate};
use crate::{BUFFER_LEN, DATAGRAM_LEN_MAX, header};

/// Datagrams a system call, either way.
const BATCH: usize = 64;

/// Layout of the region: payloads, then names, control messages and vectors, one of each for a datagram of the
/// batch. Every offset is a multiple of 32, which aligns the vectors.
const NAME_STRIDE: usize = 32;
const NAMES_OFFSET: usize = BATCH * BUFFER_LEN;
const CONTROLS_OFFSET: usize = NAMES_OFFSET + BATCH * NAME_STRIDE;
const VECTORS_OFFSET: usize = CONTROLS_OFFSET + BATCH * CONTROL_LEN;
const VECTOR_LEN: usize = size_of::<libc::iovec>();
const REGION_LEN: usize = VECTORS_OFFSET + BATCH * VECTOR_LEN;

pub(crate) struct MmsgEngine {
    socket: BoundSocket,
    event: WakeEvent,
    outbox: Outbox,
    counters: EngineCounters,
    /// Headers of the receive; all they point to is in `region`.
    headers: Box<[libc::mmsghdr]>,
    region: Region,
    /// Headers received and not yet handed over.
    next: usize,
    filled: usize,
    send_headers: Box<[libc::mmsghdr]>,
    send_vectors: Box<[libc::iovec]>,
}

impl MmsgEngine {
    pub(crate) fn new(
        socket: BoundSocket,
        gate: &WakeGate,
        options: EngineOptions,
    ) -> Result<Self, OpenError> {
        let region =
            Region::new(REGION_LEN).map_err(OpenError::at(EngineKind::Mmsg, "mmap of the buffers"))?;
        let headers = (0..BATCH).map(|index| receive_header(&region, index)).collect();
        let blank = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            outbox: Outbox::new(options.outbox_slots, socket.family(), socket.is_wildcard()),
            socket,
            event: gate.event(),
            counters: EngineCounters::default(),
            headers,
            region,
            next: 0,
            filled: 0,
            send_headers: vec![libc::mmsghdr { msg_hdr: header::empty(), msg_len: 0 }; BATCH].into(),
            send_vectors: vec![blank; BATCH].into(),
        })
    }

    /// Sends all that is queued; what the kernel refuses is counted and passed over.
    fn flush(&mut self) {
        self.counters.outbox_full = self.outbox.refused();
        while !self.outbox.is_empty() {
            let mut staged = 0;
            while staged < BATCH {
                let Some((_, slot)) = self.outbox.next_unstaged() else { break };
                self.send_vectors[staged] = header::vector(slot);
                let vector = &raw mut self.send_vectors[staged];
                self.send_headers[staged].msg_hdr = header::reply(slot, vector);
                self.outbox.stage();
                staged += 1;
            }
            self.send(staged);
            self.outbox.release_staged();
        }
    }

    fn send(&mut self, staged: usize) {
        let mut done = 0;
        while done < staged {
            let rest = &mut self.send_headers[done..staged];
            // SAFETY: the headers point into slots and vectors of this engine, which nothing touches before `flush`
            // releases the slots after this call.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_fd().as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(sent) {
                // It stops early before the one that fails; the next call starts there and tells why.
                Ok(sent) if sent > 0 => {
                    done += sent;
                    self.counters.sent += sent as u64;
                }
                _ => match last_errno() {
                    libc::EINTR => {}
                    errno => {
                        self.counters.send_errors.add(errno);
                        done += 1;
                    }
                },
            }
        }
    }

    /// Takes what the socket holds, without waiting.
    fn fill(&mut self) -> io::Result<()> {
        for header in &mut self.headers[..self.filled] {
            // The kernel wrote what it used; the room must be stated anew.
            header.msg_hdr.msg_namelen = NAME_LEN as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL_LEN;
        }
        self.next = 0;
        self.filled = 0;
        // SAFETY: the headers point into `region`, which lives as long as this engine; no slice of it is
        // alive, since `receive` lends them only inside its own call.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if let Ok(received) = usize::try_from(received) {
            self.filled = received;
            return Ok(());
        }
        match last_errno() {
            libc::EAGAIN | libc::EINTR => Ok(()),
            errno if is_fatal_receive(errno) => Err(io::Error::from_raw_os_error(errno)),
            errno => {
                self.counters.receive_errors.add(errno);
                Ok(())
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // A duration beyond what the kernel's clock holds is as good as for ever.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.event, PollFlags::IN)];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [readable, woken] = [&watched[0], &watched[1]].map(|watched| !watched.revents().is_empty());
        if woken {
            // Readable and read by nobody else, so it does not block.
            rustix::io::read(&self.event, &mut [0_u8; 8])?;
            self.counters.wakes += 1;
        }
        if readable { self.fill() } else { Ok(()) }
    }
}

impl Engine for MmsgEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Mmsg
    }

    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.flush();
        if self.next < self.filled {
            return Ok(());
        }
        // First without poll: under load there is always something, and poll would be a second system call.
        self.fill()?;
        if self.filled > 0 || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.wait(timeout)
    }

    fn receive(&mut self, batch_max: usize, sink: &mut dyn FnMut(Meta, &[u8], &mut Outbox)) -> usize {
        let end = self.filled.min(self.next.saturating_add(batch_max));
        let start = self.next;
        for index in start..end {
            self.next = index + 1;
            let header = &self.headers[index];
            let name_len = (header.msg_hdr.msg_namelen as usize).min(NAME_LEN);
            let control_len = header.msg_hdr.msg_controllen.min(CONTROL_LEN);
            let len = (header.msg_len as usize).min(BUFFER_LEN);
            let truncated = len > DATAGRAM_LEN_MAX || header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            // SAFETY: the kernel writes into the region only during `fill`, which needs `&mut self`.
            let name = unsafe { self.region.bytes(NAMES_OFFSET + index * NAME_STRIDE, name_len) };
            // SAFETY: as above.
            let control = unsafe { self.region.bytes(CONTROLS_OFFSET + index * CONTROL_LEN, control_len) };
            // SAFETY: as above.
            let bytes = unsafe { self.region.bytes(index * BUFFER_LEN, len.min(DATAGRAM_LEN_MAX)) };
            let control = decode_control(control);
            if let Some(drops) = control.drops {
                self.counters.note_drops(drops);
            }
            let Some(source) = decode_name(name) else {
                self.counters.receive_errors.add(libc::EAFNOSUPPORT);
                continue;
            };
            self.counters.received += 1;
            self.counters.received_truncated += u64::from(truncated);
            sink(Meta { source, local: control.local, truncated }, bytes, &mut self.outbox);
        }
        self.counters.outbox_full = self.outbox.refused();
        end - start
    }

    fn counters(&self) -> &EngineCounters {
        &self.counters
    }
}

/// The header of the `index`th datagram of a batch; its vector is written into the region here.
fn receive_header(region: &Region, index: usize) -> libc::mmsghdr {
    let vector = region.pointer(VECTORS_OFFSET + index * VECTOR_LEN, VECTOR_LEN).cast::<libc::iovec>();
    let value = libc::iovec {
        iov_base: region.pointer(index * BUFFER_LEN, BUFFER_LEN).as_ptr().cast(),
        iov_len: BUFFER_LEN,
    };
    // SAFETY: `pointer` proved the room, the layout keeps the alignment, and no kernel call knows the region yet.
    unsafe { vector.write(value) };
    let mut header = header::empty();
    header.msg_name = region.pointer(NAMES_OFFSET + index * NAME_STRIDE, NAME_LEN).as_ptr().cast();
    header.msg_control = region.pointer(CONTROLS_OFFSET + index * CONTROL_LEN, CONTROL_LEN).as_ptr().cast();
    header.msg_iov = vector.as_ptr();
    header.msg_iovlen = 1;
    // The lengths are stated before each call, for the headers the last one used; at first for all.
    header.msg_namelen = NAME_LEN as libc::socklen_t;
    header.msg_controllen = CONTROL_LEN;
    libc::mmsghdr { msg_hdr: header, msg_len: 0 }
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
