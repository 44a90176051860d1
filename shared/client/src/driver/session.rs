//! One machine on one UDP socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rendezvous_shared::limits;
use rendezvous_shared::time::{Clock, Instant};
use tokio::net::UdpSocket;

use super::clock::SystemClock;
use crate::machine::{Machine, Transmit};

/// Datagrams taken in one turn before events are handed out.
const BURST_MAX: usize = 32;

/// A machine with the socket and clock that drive it. Dropping it closes the socket.
#[derive(Debug)]
pub struct Session<M> {
    machine: M,
    socket: UdpSocket,
    clock: SystemClock,
    /// Not taken by the socket yet; the machine's own queue waits behind it.
    stalled: Option<Transmit>,
}

/// An event and when the machine had it.
#[derive(Clone, Debug)]
pub struct Stamped<E> {
    /// On the session's clock.
    pub at: Instant,
    /// What happened.
    pub event: E,
}

impl<M: Machine> Session<M> {
    /// Binds a socket of the family of `server` to a port the system chooses, on all addresses.
    ///
    /// # Errors
    /// What the system says to the bind.
    pub async fn bind(machine: M, server: SocketAddr, clock: SystemClock) -> io::Result<Self> {
        Ok(Self { machine, socket: UdpSocket::bind(any_port(server)).await?, clock, stalled: None })
    }

    /// Moves to a new port, in the family of `server`.
    ///
    /// # Errors
    /// What the system says to the bind.
    pub async fn rebind(&mut self, server: SocketAddr) -> io::Result<()> {
        self.socket = UdpSocket::bind(any_port(server)).await?;
        Ok(())
    }

    /// The machine, to look at.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine and the present instant, to change it; what it wants sent goes out with the next
    /// [`Session::next`] or [`Session::flush`].
    pub fn machine_mut(&mut self) -> (&mut M, Instant) {
        (&mut self.machine, self.clock.now())
    }

    /// The local address; its IP is unspecified.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Drives the machine until it has an event. May be dropped at any await without losing one.
    ///
    /// A new port is bound here when the machine asks for one; the event is handed out all the same.
    ///
    /// # Errors
    /// Only what ends a socket for good; errors of single datagrams count as loss.
    pub async fn next(&mut self) -> io::Result<Stamped<M::Event>> {
        loop {
            self.flush();
            if let Some(event) = self.machine.poll_event() {
                if M::wants_new_port(&event) {
                    // Bound before the old one is closed, so it cannot be the same port again. Not awaited: an event
                    // already taken must not be lost to a caller that drops this future.
                    let socket = std::net::UdpSocket::bind(any_port(self.socket.local_addr()?))?;
                    socket.set_nonblocking(true)?;
                    self.socket = UdpSocket::from_std(socket)?;
                }
                return Ok(Stamped { at: self.clock.now(), event });
            }
            let wait = self.clock.until(self.machine.next_timeout());
            tokio::select! {
                biased;
                readable = self.socket.readable() => {
                    readable?;
                    self.receive();
                }
                writable = self.socket.writable(), if self.stalled.is_some() => writable?,
                () = tokio::time::sleep(wait) => {}
            }
            self.machine.handle_timeout(self.clock.now());
        }
    }

    /// Sends what waits. What the system refuses counts as lost: the machines resend. What it has no room for now
    /// goes out with a later call; a new socket says so too, until the runtime has polled it once, and losing the
    /// first HELLO to that would cost a back-off at every start.
    pub fn flush(&mut self) {
        while let Some(transmit) = self.stalled.take().or_else(|| self.machine.poll_transmit()) {
            match self.socket.try_send_to(transmit.bytes(), transmit.to) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled = Some(transmit);
                    return;
                }
                Err(error) => tracing::trace!(%error, to = %transmit.to, "a datagram was not sent"),
            }
        }
    }

    fn receive(&mut self) {
        // One byte more than any datagram may have: what fills it was cut off or is too long.
        let mut buffer = [0; limits::DATAGRAM_LEN_MAX + 1];
        for _ in 0..BURST_MAX {
            match self.socket.try_recv_from(&mut buffer) {
                Ok((len, from)) => self.machine.handle_datagram(self.clock.now(), from, &buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // ICMP errors of earlier sends; the datagram that caused them is lost, nothing else is.
                Err(error) => tracing::trace!(%error, "an error instead of a datagram"),
            }
            self.flush();
        }
    }
}

/// All addresses of the family of `like`, and a port of the system's choice.
fn any_port(like: SocketAddr) -> SocketAddr {
    let any = if like.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, 0)
}
