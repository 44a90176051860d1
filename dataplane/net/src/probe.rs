//! Which engine this machine allows, found by trying it, and why.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

use crate::engine::{Engine, EngineKind, EngineOptions, OpenError};
use crate::facts::{DoctorFacts, doctor_facts};
use crate::socket::{SocketOptions, bind};
use crate::uring::UringEngine;
use crate::wake::wake_pair;

/// Each step of the trial waits so long at most, in so many turns; the whole trial at most a second.
const TURN: Duration = Duration::from_millis(50);
const TURNS_MAX: usize = 5;
/// io_uring with all that the engine uses (`NO_SQARRAY` is the latest).
const KERNEL_MIN: (u32, u32) = (6, 6);

/// Which engine the operator wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring if it works here, recvmmsg if not.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// recvmmsg.
    Mmsg,
}

/// Not the name of an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {0:?}; there are auto, uring and mmsg")]
pub struct UnknownEngine(pub String);

impl FromStr for EngineChoice {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        match text {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "mmsg" => Ok(Self::Mmsg),
            _ => Err(UnknownEngine(text.to_owned())),
        }
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Mmsg => "mmsg",
        })
    }
}

/// Why an engine was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// The operator asked for it, and it works.
    Requested,
    /// It is preferred, and it works.
    Preferred,
    /// The kernel has io_uring, but the call was refused: a seccomp filter, as container profiles have it.
    RefusedBySeccomp,
    /// `kernel.io_uring_disabled` is 1 or 2.
    DisabledBySysctl,
    /// RLIMIT_MEMLOCK is too small for the rings.
    MemlockTooSmall,
    /// The kernel lacks something that the engine needs.
    KernelTooOld,
    /// Anything else; the errno, or 0 if there was none.
    Other(i32),
}

impl DecisionReason {
    /// Stable name, for logs and a metrics label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Preferred => "preferred",
            Self::RefusedBySeccomp => "io_uring_refused_by_seccomp",
            Self::DisabledBySysctl => "io_uring_disabled_by_sysctl",
            Self::MemlockTooSmall => "memlock_too_small",
            Self::KernelTooOld => "kernel_too_old",
            Self::Other(_) => "io_uring_failed",
        }
    }

    /// One sentence for a person, with what to do about it.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Requested => "The configuration asks for this engine and it works here.",
            Self::Preferred => "io_uring works here with every operation the engine uses.",
            Self::RefusedBySeccomp => {
                "A seccomp or container profile refuses io_uring; allow io_uring_setup, io_uring_enter and \
                 io_uring_register to use it."
            }
            Self::DisabledBySysctl => {
                "The sysctl kernel.io_uring_disabled forbids io_uring to this process; set it to 0 to use it."
            }
            Self::MemlockTooSmall => {
                "The limit on locked memory (RLIMIT_MEMLOCK) is too small for the rings; raise it (LimitMEMLOCK= \
                 in systemd) to use io_uring."
            }
            Self::KernelTooOld => {
                "The kernel lacks an io_uring operation the engine needs; Linux 6.6 or later has them all."
            }
            Self::Other(_) => "io_uring failed its trial for an unexpected reason; see the detail.",
        }
    }

    /// Whether it names something that went wrong.
    pub const fn is_fallback(self) -> bool {
        !matches!(self, Self::Requested | Self::Preferred)
    }
}

/// The engine to use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDecision {
    /// What was asked.
    pub choice: EngineChoice,
    /// What to use.
    pub kind: EngineKind,
    /// Why.
    pub reason: DecisionReason,
    /// What the trial saw: the step and the kernel's answer; empty if it went well or was not needed.
    pub detail: String,
}

impl EngineDecision {
    /// Whether an engine asked for by name is the one to be used; whoever named one may rather stop than fall back.
    pub fn honours_choice(&self) -> bool {
        self.choice != EngineChoice::Uring || self.kind == EngineKind::Uring
    }
}

/// Tries the engine on a loopback socket, with `options` since the limits depend on them, for a second at most. Needs
/// to be asked once, at start; a ring thread may open its engine with the answer.
pub fn probe(choice: EngineChoice, options: EngineOptions) -> EngineDecision {
    let decide = |kind, reason, detail| EngineDecision { choice, kind, reason, detail };
    if choice == EngineChoice::Mmsg {
        return decide(EngineKind::Mmsg, DecisionReason::Requested, String::new());
    }
    match try_uring(options) {
        Ok(()) if choice == EngineChoice::Auto => {
            decide(EngineKind::Uring, DecisionReason::Preferred, String::new())
        }
        Ok(()) => decide(EngineKind::Uring, DecisionReason::Requested, String::new()),
        Err(failure) => {
            let reason = classify(&failure, &doctor_facts());
            decide(EngineKind::Mmsg, reason, failure.to_string())
        }
    }
}

/// How the trial ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{}: {}", .0.step, .0.source)]
    Open(#[from] OpenError),
    /// The ring was set up, but an operation did not do what it should.
    #[error("{step} did not work on a ring that was set up{}", errno_text(*.errno))]
    Trial { step: &'static str, errno: i32 },
    /// Not io_uring's fault.
    #[error("{step}: {source}")]
    Surroundings { step: &'static str, source: io::Error },
}

fn errno_text(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", io::Error::from_raw_os_error(errno)) }
}

fn classify(failure: &Failure, facts: &DoctorFacts) -> DecisionReason {
    let errno = match failure {
        Failure::Open(error) => error.source.raw_os_error().unwrap_or(0),
        Failure::Trial { errno, .. } => *errno,
        Failure::Surroundings { source, .. } => {
            return DecisionReason::Other(source.raw_os_error().unwrap_or(0));
        }
    };
    let old = facts.kernel_version().is_some_and(|version| version < KERNEL_MIN);
    match errno {
        libc::EPERM if facts.io_uring_disabled.unwrap_or(0) != 0 => DecisionReason::DisabledBySysctl,
        // A kernel without the call answers ENOSYS; the sysctl shows that this one has it.
        libc::ENOSYS if old && facts.io_uring_disabled.is_none() && !facts.seccomp_active => {
            DecisionReason::KernelTooOld
        }
        libc::EPERM | libc::ENOSYS => DecisionReason::RefusedBySeccomp,
        libc::ENOMEM => DecisionReason::MemlockTooSmall,
        libc::EINVAL => DecisionReason::KernelTooOld,
        _ if matches!(failure, Failure::Trial { .. }) => DecisionReason::KernelTooOld,
        errno => DecisionReason::Other(errno),
    }
}

/// Every operation the engine uses, once and more: set-up, two datagrams through one multishot receive, a reply by
/// address, a wake.
fn try_uring(options: EngineOptions) -> Result<(), Failure> {
    let around = |step| move |source| Failure::Surroundings { step, source };
    let socket_options = SocketOptions { receive_buffer_len: 1 << 16, send_buffer_len: 1 << 16 };
    let socket = bind((Ipv4Addr::LOCALHOST, 0).into(), socket_options).map_err(|error| {
        Failure::Surroundings { step: "loopback socket", source: io::Error::other(error) }
    })?;
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(around("loopback socket"))?;
    peer.set_read_timeout(Some(TURN)).map_err(around("loopback socket"))?;
    peer.connect(socket.local_addr()).map_err(around("loopback socket"))?;
    let (gate, waker) = wake_pair().map_err(around("eventfd"))?;

    let mut engine = UringEngine::new(socket, &gate, options)?;
    for byte in 0..2 {
        peer.send(&[byte]).map_err(around("loopback send"))?;
        until(&mut engine, "multishot receive", |engine| {
            engine.receive(usize::MAX, &mut |meta, bytes, outbox| {
                let _full = outbox.push(meta.source, meta.local, |reply| {
                    reply[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                });
            }) > 0
        })?;
    }
    // Once for the replies; a multishot receive that ended after one datagram would have been armed again by now.
    turn(&mut engine, Duration::ZERO, "send")?;
    let mut reply = [0; 2];
    for byte in 0..2 {
        let refused = engine.counters().send_errors.iter().find(|(_, count)| *count > 0);
        match peer.recv(&mut reply) {
            Ok(1) if reply[0] == byte => {}
            _ => {
                let step = refused.map_or("send with an address", |_| "send with an address (refused)");
                return Err(Failure::Trial { step, errno: 0 });
            }
        }
    }
    if engine.counters().rearms_total() > 0 {
        return Err(Failure::Trial { step: "multishot receive (ended early)", errno: 0 });
    }
    let sleep = gate.prepare_to_sleep();
    waker.wake();
    until(&mut engine, "read of the eventfd", |engine| engine.counters().wakes > 0)?;
    sleep.awake();
    Ok(())
}

fn until(
    engine: &mut UringEngine,
    step: &'static str,
    mut done: impl FnMut(&mut UringEngine) -> bool,
) -> Result<(), Failure> {
    for _ in 0..TURNS_MAX {
        turn(engine, TURN, step)?;
        if done(engine) {
            return Ok(());
        }
    }
    Err(Failure::Trial { step, errno: 0 })
}

fn turn(engine: &mut UringEngine, timeout: Duration, step: &'static str) -> Result<(), Failure> {
    engine
        .turn(Some(timeout))
        .map_err(|error| Failure::Trial { step, errno: error.raw_os_error().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(release: &str, disabled: Option<u32>, seccomp_active: bool) -> DoctorFacts {
        DoctorFacts {
            kernel_release: release.into(),
            io_uring_disabled: disabled,
            memlock_len_max: Some(8 << 20),
            files_max: None,
            rmem_max_len: None,
            seccomp_active,
        }
    }

    /// The causes that a test cannot make real without changing the machine.
    #[test]
    fn causes_are_told_apart() {
        let setup = |errno| {
            Failure::Open(OpenError {
                kind: EngineKind::Uring,
                step: "io_uring_setup",
                source: io::Error::from_raw_os_error(errno),
            })
        };
        let trial = |errno| Failure::Trial { step: "multishot receive", errno };
        let new = facts("6.18.1-x", Some(0), false);
        for (failure, facts, expected) in [
            (setup(libc::EPERM), facts("6.18.1", Some(2), true), DecisionReason::DisabledBySysctl),
            (setup(libc::EPERM), facts("6.18.1", Some(1), false), DecisionReason::DisabledBySysctl),
            (setup(libc::EPERM), facts("6.1.9", None, true), DecisionReason::RefusedBySeccomp),
            (setup(libc::ENOSYS), facts("4.19.0", None, false), DecisionReason::KernelTooOld),
            (setup(libc::ENOSYS), facts("4.19.0", None, true), DecisionReason::RefusedBySeccomp),
            (setup(libc::ENOSYS), facts("6.18.1", Some(0), false), DecisionReason::RefusedBySeccomp),
            (setup(libc::ENOMEM), new.clone(), DecisionReason::MemlockTooSmall),
            (setup(libc::EINVAL), new.clone(), DecisionReason::KernelTooOld),
            (setup(libc::EMFILE), new.clone(), DecisionReason::Other(libc::EMFILE)),
            (trial(0), new.clone(), DecisionReason::KernelTooOld),
            (trial(libc::EOPNOTSUPP), new.clone(), DecisionReason::KernelTooOld),
            (trial(libc::EPERM), new.clone(), DecisionReason::RefusedBySeccomp),
            (
                Failure::Surroundings { step: "loopback socket", source: io::ErrorKind::Other.into() },
                new,
                DecisionReason::Other(0),
            ),
        ] {
            assert_eq!(classify(&failure, &facts), expected, "{failure}");
        }
    }
}
