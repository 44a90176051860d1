//! File descriptors: each peer has a socket.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Failure;

/// Connections, pipes, epoll and what the runtime needs.
const OTHERS: u64 = 256;

/// Raises the soft limit to the hard one when `sockets` need it.
pub(crate) fn raise(sockets: u64) -> Result<(), Failure> {
    let needed = sockets + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum
        && maximum < needed
    {
        return Err(Failure::Unavailable(format!(
            "{needed} file descriptors are needed and the hard limit is {maximum}: \
             raise it (ulimit -Hn) or lower --hosts and --concurrency"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .map_err(|error| Failure::Unavailable(format!("cannot raise RLIMIT_NOFILE: {error}")))
}
