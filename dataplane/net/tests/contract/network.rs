//! A network of one thread's own, in which it may route, filter and reject as it likes.
//!
//! Everything a sender can be told happens here for a reason: a route that prohibits, a filter that drops, a neighbour
//! that never answers.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Where an engine is bound; its answers may leave by any interface, as they may not from 127.0.0.1.
pub(crate) const HOME: &str = "10.66.0.1";

/// What becomes of a datagram to each address; nothing listens on any.
pub(crate) const PROHIBITED: &str = "10.66.1.1:9";
pub(crate) const UNREACHABLE: &str = "10.66.2.1:9";
pub(crate) const BLACK_HOLE: &str = "10.66.3.1:9";
pub(crate) const NO_ROUTE: &str = "10.66.4.1:9";
pub(crate) const FILTERED: &str = "10.66.5.1:9";
/// The neighbour is known and the queue of the interface takes nothing.
pub(crate) const QUEUE_FULL: &str = "10.66.7.2:9";
/// The interface takes datagrams of 128 bytes.
pub(crate) const NARROW: &str = "10.66.8.2:9";
/// The neighbour does not answer, so datagrams to it wait.
pub(crate) const SILENT: &str = "10.66.9.2:9";

/// Ports on the local machine that reject: with the errno that each ICMP message becomes.
pub(crate) const REJECTING: [(u16, &str, &str, i32); 7] = [
    (4001, "ipv4", "icmp type port-unreachable", libc::ECONNREFUSED),
    (4002, "ipv4", "icmp type prot-unreachable", libc::ENOPROTOOPT),
    (4003, "ipv4", "icmp type admin-prohibited", libc::EHOSTUNREACH),
    (4004, "ipv4", "icmp type host-prohibited", libc::EHOSTUNREACH),
    (4005, "ipv6", "icmpv6 type port-unreachable", libc::ECONNREFUSED),
    (4006, "ipv6", "icmpv6 type admin-prohibited", libc::EACCES),
    (4007, "ipv6", "icmpv6 type policy-fail", libc::EACCES),
];

const LINKS: &str = "\
link set lo up
addr add 10.66.0.1/32 dev lo
addr add 10.66.5.1/32 dev lo
route add prohibit 10.66.1.0/24
route add unreachable 10.66.2.0/24
route add blackhole 10.66.3.0/24
link add full type veth peer name full-end
link set full up
link set full-end up
addr add 10.66.7.1/24 dev full
neigh add 10.66.7.2 lladdr 02:00:00:00:00:02 dev full
link add narrow type veth peer name narrow-end
link set narrow up
link set narrow-end up
addr add 10.66.8.1/24 dev narrow
neigh add 10.66.8.2 lladdr 02:00:00:00:00:02 dev narrow
link set narrow mtu 128
link add silent type veth peer name silent-end
link set silent up
link set silent-end up
addr add 10.66.9.1/24 dev silent
";

/// Takes the calling thread into a network of its own; `false`, and the reason printed, if it may not.
pub(crate) fn enter() -> bool {
    // SAFETY: only this thread leaves the network it shares; it has opened nothing there yet.
    match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
        Ok(()) => {}
        Err(Errno::PERM) => {
            println!("left out: a network of its own takes CAP_SYS_ADMIN");
            return false;
        }
        Err(errno) => panic!("unshare: {errno}"),
    }
    feed("ip", &["-batch", "-"], LINKS);
    // A queue of no length refuses every datagram.
    feed("tc", &["-batch", "-"], "qdisc replace dev full root pfifo limit 0\n");
    let rejects = REJECTING.map(|(port, protocol, with, _)| {
        format!("meta nfproto {protocol} udp dport {port} reject with {with}\n")
    });
    let rejects = rejects.concat();
    feed(
        "nft",
        &["-f", "-"],
        &format!(
            "table inet t {{\nchain out {{\ntype filter hook output priority 0;\nip daddr 10.66.5.1 drop\n}}\n\
             chain in {{\ntype filter hook input priority 0;\n{rejects}}}\n}}\n"
        ),
    );
    true
}

/// Runs one of the tools that a network is made with.
pub(crate) fn feed(program: &str, arguments: &[&str], input: &str) {
    let child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program} (of iproute2 or nftables): {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program} {arguments:?}\n{input}");
}
