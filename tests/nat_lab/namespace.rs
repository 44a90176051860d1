//! Network namespaces of this process: made, wired, entered, and gone at the end whatever happened.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Numbers the namespaces of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace with its loopback up. Removed when dropped, with all interfaces in it.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one. The process id in its name keeps two labs on one machine apart.
    pub(crate) fn new(what: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rvlab-{}-{number}-{what}", std::process::id());
        pipe("ip", &["netns", "add", &name], "");
        let namespace = Self { name };
        namespace.ip("link set lo up");
        // What a forwarder must do, and no waiting for addresses that only this process hands out.
        for (key, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv4/conf/all/send_redirects", "0"),
            ("net/ipv4/conf/default/send_redirects", "0"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            ("net/ipv6/conf/default/accept_dad", "0"),
            ("net/ipv6/conf/default/accept_ra", "0"),
        ] {
            namespace.set(key, value);
        }
        // Where that is on, a NAT sees bridged packets too, and takes what stays in a network for its own.
        for family in ["iptables", "ip6tables"] {
            let key = format!("net/bridge/bridge-nf-call-{family}");
            if std::path::Path::new("/proc/sys").join(&key).exists() {
                namespace.set(&key, "0");
            }
        }
        namespace
    }

    fn set(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/{key}");
        self.within(|| std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
    }

    /// Runs lines of `ip` in it.
    pub(crate) fn ip(&self, lines: &str) {
        pipe("ip", &["-n", &self.name, "-batch", "-"], lines);
    }

    /// Loads a ruleset into it.
    pub(crate) fn nft(&self, ruleset: &str) {
        self.within(|| pipe("nft", &["-f", "-"], ruleset));
    }

    /// The packets that a named counter of its table `inet watch` counted.
    pub(crate) fn counted(&self, counter: &str) -> u64 {
        let text = self.within(|| pipe("nft", &["list", "counter", "inet", "watch", counter], ""));
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets").skip(1);
        words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{counter}: {text}"))
    }

    /// Runs `work` on a thread of its own that sits in this namespace; what it starts stays there.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                use std::os::fd::AsFd;
                let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root enters");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A cable between two namespaces, up on both ends.
    pub(crate) fn link(&self, own: &str, other: &Self, theirs: &str) {
        let (from, to) = (&self.name, &other.name);
        let line = format!("link add {own} netns {from} type veth peer name {theirs} netns {to}");
        pipe("ip", &["-batch", "-"], &line);
        self.ip(&format!("link set {own} up"));
        other.ip(&format!("link set {theirs} up"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Not by `pipe`: a panic while another one unwinds would end the process and leave the rest behind.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).stderr(Stdio::null()).status();
    }
}

/// Runs a program with `input`; returns what it printed.
fn pipe(program: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("standard input is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("a child can be waited for");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} says {said} to\n{input}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Why no lab can be set up here; `None` when it can.
pub(crate) fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, for network namespaces".into());
    }
    for (program, argument) in [("ip", "-V"), ("nft", "-v")] {
        let run = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !run.is_ok_and(|status| status.success()) {
            return Some(format!("there is no `{program}`: install iproute2 and nftables"));
        }
    }
    let trial = format!("rvlab-{}-trial", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &trial]).output();
    let _ = Command::new("ip").args(["netns", "del", &trial]).stderr(Stdio::null()).status();
    match made {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("no namespaces here: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Some(format!("no namespaces here: {error}")),
    }
}
