//! The UDP socket: bound once, never shared, with what the kernel granted written down.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::address::Family;

/// What to ask of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Receive buffer to ask for, bytes as SO_RCVBUF counts them. The kernel charges 832 bytes for a small datagram
    /// and grants twice what is asked, so the default holds about 20,000 of them.
    pub receive_buffer_len: usize,
    /// Send buffer to ask for, bytes as SO_SNDBUF counts them.
    pub send_buffer_len: usize,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { receive_buffer_len: 8 << 20, send_buffer_len: 4 << 20 }
    }
}

/// Why an address could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket has the port; it is never shared with another process.
    #[error("UDP {address} is in use by another process; stop it or choose another port")]
    AddressInUse {
        /// What was asked.
        address: SocketAddr,
    },
    /// A port under 1024 without the right to it, or a security module's refusal.
    #[error("no permission to bind UDP {address}; ports below 1024 need CAP_NET_BIND_SERVICE")]
    PermissionDenied {
        /// What was asked.
        address: SocketAddr,
    },
    /// The address is not one of this machine's, or its family is switched off.
    #[error("UDP {address} is not an address of this machine")]
    NotAvailable {
        /// What was asked.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot set up UDP {address}: {step}")]
    Other {
        /// What was asked.
        address: SocketAddr,
        /// What failed.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One buffer of the socket: asked and granted, bytes in the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferGrant {
    /// What was asked.
    pub asked_len: usize,
    /// What was granted, half of what SO_RCVBUF or SO_SNDBUF reads back since the kernel doubles what is set. Less
    /// than asked when `net.core.rmem_max` or `wmem_max` clipped it.
    pub granted_len: usize,
}

impl BufferGrant {
    /// Whether the limit of the system cut what was asked.
    pub fn is_clipped(&self) -> bool {
        self.granted_len < self.asked_len
    }
}

/// What the kernel says of the socket now (SO_MEMINFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes charged for datagrams waiting to be received.
    pub receive_queued_len: u32,
    /// Bytes that may be charged.
    pub receive_limit_len: u32,
    /// Datagrams dropped since the socket's birth, modulo 2^32: the receive buffer was full, or the checksum wrong.
    pub drops: u32,
}

/// A bound UDP socket.
#[derive(Debug)]
pub struct BoundSocket {
    fd: OwnedFd,
    local_addr: SocketAddr,
    receive_buffer: BufferGrant,
    send_buffer: BufferGrant,
}

impl BoundSocket {
    /// The address bound, with the port the kernel chose if 0 was asked.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Receive buffer asked and granted.
    pub fn receive_buffer(&self) -> BufferGrant {
        self.receive_buffer
    }

    /// Send buffer asked and granted.
    pub fn send_buffer(&self) -> BufferGrant {
        self.send_buffer
    }

    /// Whether it is bound to a wildcard, so that datagrams carry the local address they were sent to.
    pub fn is_wildcard(&self) -> bool {
        self.local_addr.ip().is_unspecified()
    }

    /// Another handle on the same socket: to read its counts from another thread, or to keep it should the engine
    /// fail. The socket closes with its last handle.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, ..*self })
    }

    /// Queue and drops as the kernel has them now: one system call, exact, no need of another datagram.
    pub fn memory(&self) -> io::Result<SocketMemory> {
        // SK_MEMINFO_*: 0 receive allocated, 1 receive limit, ..., 8 drops.
        let mut values = [0_u32; 9];
        let mut len = size_of_val(&values) as libc::socklen_t;
        // SAFETY: `values` and `len` outlive the call, and `len` says exactly how much room `values` has.
        let outcome = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                (&raw mut values).cast(),
                &raw mut len,
            )
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(SocketMemory { receive_queued_len: values[0], receive_limit_len: values[1], drops: values[8] })
    }

    pub(crate) fn family(&self) -> Family {
        Family::of(self.local_addr)
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds a UDP socket, alone on its port: neither SO_REUSEADDR nor SO_REUSEPORT, so a second process is refused
/// instead of taking half the datagrams. An IPv6 wildcard takes IPv4 too.
pub fn bind(address: SocketAddr, options: SocketOptions) -> Result<BoundSocket, BindError> {
    let socket = prepare(address, options)?;
    socket.bind(&SockAddr::from(address)).map_err(|source| classify(address, "bind", source))?;
    finish(socket, address, options)
}

/// A socket with every option that must stand before it is bound.
pub(crate) fn prepare(address: SocketAddr, options: SocketOptions) -> Result<Socket, BindError> {
    let fail = |step| move |source| classify(address, step, source);
    let refuse = |step| move |errno: rustix::io::Errno| classify(address, step, errno.into());
    let wildcard = address.ip().is_unspecified();
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))
            .map_err(fail("socket"))?;
    // Answers fit through every link. So nothing is to be learnt of the path, and no stranger may teach us a narrow one
    // by ICMP; a link that is narrower still takes them in fragments rather than not at all. IP_RECVERR stays off, as
    // it is from birth: what a stranger says by ICMP is no answer of ours. An IPv6 socket speaks IPv4 as well.
    set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::OMIT).map_err(refuse("IP_MTU_DISCOVER"))?;
    if address.is_ipv6() {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::OMIT).map_err(refuse("IPV6_MTU_DISCOVER"))?;
        socket.set_only_v6(!wildcard).map_err(fail("IPV6_V6ONLY"))?;
    }
    let on = 1;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, on).map_err(fail("SO_RXQ_OVFL"))?;
    if wildcard {
        // Only here: it costs 5 to 22 % of the receive path.
        let (level, name) = match Family::of(address) {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_PKTINFO),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        };
        set_option(&socket, level, name, on).map_err(fail("packet info"))?;
    }
    ask_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, options.receive_buffer_len)
        .map_err(fail("SO_RCVBUF"))?;
    ask_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, options.send_buffer_len)
        .map_err(fail("SO_SNDBUF"))?;
    Ok(socket)
}

/// Reads back what a socket that is bound was granted.
pub(crate) fn finish(
    socket: Socket,
    address: SocketAddr,
    options: SocketOptions,
) -> Result<BoundSocket, BindError> {
    let fail = |step| move |source| classify(address, step, source);
    let local_addr = socket.local_addr().map_err(fail("getsockname"))?;
    let received = socket.recv_buffer_size().map_err(fail("SO_RCVBUF"))?;
    let sent = socket.send_buffer_size().map_err(fail("SO_SNDBUF"))?;
    Ok(BoundSocket {
        local_addr: local_addr.as_socket().unwrap_or(address),
        receive_buffer: BufferGrant { asked_len: options.receive_buffer_len, granted_len: received / 2 },
        send_buffer: BufferGrant { asked_len: options.send_buffer_len, granted_len: sent / 2 },
        fd: socket.into(),
    })
}

pub(crate) fn classify(address: SocketAddr, step: &'static str, source: io::Error) -> BindError {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => BindError::AddressInUse { address },
        Some(libc::EACCES | libc::EPERM) => BindError::PermissionDenied { address },
        Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::ENODEV) => BindError::NotAvailable { address },
        _ => BindError::Other { address, step, source },
    }
}

/// The forced option passes the system's limit but needs CAP_NET_ADMIN; the plain one is clipped silently.
fn ask_buffer(socket: &Socket, forced: libc::c_int, plain: libc::c_int, len: usize) -> io::Result<()> {
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX / 2).min(libc::c_int::MAX / 2);
    set_option(socket, libc::SOL_SOCKET, forced, len)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, plain, len))
}

fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` outlives the call, and `len` is its size.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{ip_mtu_discover, ipv6_mtu_discover};

    use super::*;

    #[test]
    fn a_second_bind_is_refused_by_name() {
        let first = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
        let second = bind(first.local_addr(), SocketOptions::default()).unwrap_err();
        assert!(matches!(second, BindError::AddressInUse { address } if address == first.local_addr()));
        assert!(second.to_string().contains(&first.local_addr().to_string()));
        // The wildcard of the same port overlaps and is refused too.
        let wildcard = SocketAddr::new("0.0.0.0".parse().unwrap(), first.local_addr().port());
        assert!(matches!(bind(wildcard, SocketOptions::default()), Err(BindError::AddressInUse { .. })));
    }

    #[test]
    fn a_foreign_address_is_not_available() {
        let error = bind("192.0.2.77:0".parse().unwrap(), SocketOptions::default()).unwrap_err();
        assert!(matches!(error, BindError::NotAvailable { .. }));
    }

    /// Nothing of the path is learnt, and no ICMP error is delivered: each could be a stranger's.
    #[test]
    fn the_network_teaches_it_nothing() {
        for (address, v6) in [("127.0.0.1:0", false), ("[::1]:0", true), ("[::]:0", true)] {
            let socket = bind(address.parse().unwrap(), SocketOptions::default()).unwrap();
            assert_eq!(ip_mtu_discover(&socket).unwrap(), Ipv4PathMtuDiscovery::OMIT);
            assert_eq!(option(&socket, libc::IPPROTO_IP, libc::IP_RECVERR), 0);
            if v6 {
                assert_eq!(ipv6_mtu_discover(&socket).unwrap(), Ipv6PathMtuDiscovery::OMIT);
                assert_eq!(option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR), 0);
            }
        }
    }

    fn option(socket: &BoundSocket, level: libc::c_int, name: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = -1;
        let mut len = size_of_val(&value) as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: `value` and `len` outlive the call, and `len` says how much room `value` has.
        let outcome = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
        assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
        value
    }

    #[test]
    fn causes_keep_their_kind() {
        let address = "127.0.0.1:1".parse().unwrap();
        let of = |errno| classify(address, "bind", io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::EACCES), BindError::PermissionDenied { .. }));
        assert!(matches!(of(libc::EMFILE), BindError::Other { step: "bind", .. }));
    }

    #[test]
    fn grants_are_read_back() {
        let options = SocketOptions { receive_buffer_len: 50_000, send_buffer_len: 40_000 };
        let socket = bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
        assert_eq!(socket.receive_buffer(), BufferGrant { asked_len: 50_000, granted_len: 50_000 });
        assert_eq!(socket.send_buffer().granted_len, 40_000);
        assert!(!socket.receive_buffer().is_clipped());
        let memory = socket.memory().unwrap();
        assert_eq!((memory.receive_queued_len, memory.receive_limit_len, memory.drops), (0, 100_000, 0));
    }
}
