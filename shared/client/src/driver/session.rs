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

/// A machine with the sockets and clock that drive it: one socket, or one for each address family. Dropping it closes
/// them.
#[derive(Debug)]
pub struct Session<M> {
    machine: M,
    socket: UdpSocket,
    /// Of the other family.
    second: Option<UdpSocket>,
    clock: SystemClock,
    /// Not taken by its socket yet; the machine's own queue waits behind it.
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
        let socket = UdpSocket::bind(any_port(server)).await?;
        Ok(Self { machine, socket, second: None, clock, stalled: None })
    }

    /// Moves to a new port, in the family of `server`.
    ///
    /// # Errors
    /// What the system says to the bind.
    pub async fn rebind(&mut self, server: SocketAddr) -> io::Result<()> {
        self.socket = UdpSocket::bind(any_port(server)).await?;
        Ok(())
    }

    /// Has a socket of the other family, that of `server`, beside the first; none for `None`. One that is there and
    /// fits stays.
    ///
    /// # Errors
    /// What the system says to the bind.
    pub async fn set_second(&mut self, server: Option<SocketAddr>) -> io::Result<()> {
        match server {
            None => self.second = None,
            Some(server) => {
                let held = self.second.as_ref().map(UdpSocket::local_addr).transpose()?;
                if held.is_none_or(|held| held.is_ipv4() != server.is_ipv4()) {
                    self.second = Some(UdpSocket::bind(any_port(server)).await?);
                }
            }
        }
        Ok(())
    }

    /// The local port of the socket of the family of `like`, where there is one.
    #[must_use]
    pub fn local_port(&self, like: SocketAddr) -> Option<u16> {
        let addresses = [Some(&self.socket), self.second.as_ref()].into_iter().flatten();
        let mut addresses = addresses.filter_map(|socket| socket.local_addr().ok());
        addresses.find(|it| it.is_ipv4() == like.is_ipv4()).map(|it| it.port())
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
                // Bound before the old one is closed, so it cannot be the same port again. Not awaited: an event
                // already taken must not be lost to a caller that drops this future.
                if M::wants_new_port(&event) {
                    self.socket = like(&self.socket)?;
                }
                if M::wants_new_second_port(&event)
                    && let Some(second) = &self.second
                {
                    self.second = Some(like(second)?);
                }
                return Ok(Stamped { at: self.clock.now(), event });
            }
            let wait = self.clock.until(self.machine.next_timeout());
            let second = async {
                match &self.second {
                    Some(second) => second.readable().await,
                    None => core::future::pending().await,
                }
            };
            let stalled = self.stalled.as_ref().and_then(|transmit| self.socket_for(transmit.to));
            let writable = async {
                match stalled {
                    Some(socket) => socket.writable().await,
                    None => core::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                readable = self.socket.readable() => {
                    readable?;
                    self.receive(false);
                }
                readable = second => {
                    readable?;
                    self.receive(true);
                }
                writable = writable => writable?,
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
            let Some(socket) = self.socket_for(transmit.to) else { continue };
            match socket.try_send_to(transmit.bytes(), transmit.to) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled = Some(transmit);
                    return;
                }
                Err(error) => tracing::trace!(%error, to = %transmit.to, "a datagram was not sent"),
            }
        }
    }

    /// The socket that reaches the family of `to`; without one a datagram counts as lost.
    fn socket_for(&self, to: SocketAddr) -> Option<&UdpSocket> {
        let fits = |socket: &&UdpSocket| socket.local_addr().is_ok_and(|own| own.is_ipv4() == to.is_ipv4());
        [Some(&self.socket), self.second.as_ref()].into_iter().flatten().find(fits)
    }

    fn receive(&mut self, second: bool) {
        // One byte more than any datagram may have: what fills it was cut off or is too long.
        let mut buffer = [0; limits::DATAGRAM_LEN_MAX + 1];
        for _ in 0..BURST_MAX {
            let socket = self.second.as_ref().filter(|_| second).unwrap_or(&self.socket);
            match socket.try_recv_from(&mut buffer) {
                Ok((len, from)) => self.machine.handle_datagram(self.clock.now(), from, &buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // ICMP errors of earlier sends; the datagram that caused them is lost, nothing else is.
                Err(error) => tracing::trace!(%error, "an error instead of a datagram"),
            }
            self.flush();
        }
    }
}

/// Another socket of the same family, on another port.
fn like(socket: &UdpSocket) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(any_port(socket.local_addr()?))?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// All addresses of the family of `like`, and a port of the system's choice.
fn any_port(like: SocketAddr) -> SocketAddr {
    let any = if like.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, 0)
}
