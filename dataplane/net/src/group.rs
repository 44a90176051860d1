//! Several sockets on one port, for several rings of one process.
//!
//! The first is bound as every socket here is, alone on its port: whoever has the port already, another process of
//! ours with its group included, makes that fail. Only then is SO_REUSEPORT turned on, and the others join. So of two
//! processes that start at once one has the port and the other is refused, and neither needs a lock beside the
//! kernel's own.
//!
//! What it cannot do: the kernel lets any program of the same user join later that asks for SO_REUSEPORT itself,
//! without asking first as this one does; it would take its share of the datagrams. Decision 0018 says what was
//! rejected that would forbid it.

use std::net::SocketAddr;

use socket2::{SockAddr, Socket};

use crate::socket::{BindError, BoundSocket, SocketOptions, classify, finish, prepare};

/// Binds `count` sockets, at least one, to the same address, each with buffers of its own.
///
/// The kernel steers by a hash of source and destination, address and port: what comes from one client goes to one
/// socket for as long as all of them are open. When one closes the others share its clients, and some of theirs move.
///
/// # Errors
/// As [`crate::bind`]; a port that another group has is in use like any other.
pub fn bind_group(
    address: SocketAddr,
    count: usize,
    options: SocketOptions,
) -> Result<Vec<BoundSocket>, BindError> {
    let first = crate::bind(address, options)?;
    // With the port that the kernel chose, if 0 was asked.
    let bound = first.local_addr();
    let mut group = Vec::with_capacity(count.max(1));
    if count > 1 {
        share(&socket2::SockRef::from(&first), bound)?;
    }
    group.push(first);
    while group.len() < count {
        let socket = prepare(bound, options)?;
        share(&socket, bound)?;
        socket.bind(&SockAddr::from(bound)).map_err(|source| classify(bound, "bind", source))?;
        group.push(finish(socket, bound, options)?);
    }
    Ok(group)
}

fn share(socket: &Socket, address: SocketAddr) -> Result<(), BindError> {
    socket.set_reuse_port(true).map_err(|source| classify(address, "SO_REUSEPORT", source))
}
