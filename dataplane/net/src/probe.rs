//! Which engine this machine allows, found by trying it, and why.

mod trial;

use std::fmt;
use std::str::FromStr;

use crate::engine::{Engine, EngineKind, EngineOptions, OpenError, open};
use crate::facts::{DoctorFacts, doctor_facts};
use crate::socket::BoundSocket;
use crate::wake::WakeGate;
use trial::{Failure, try_engine};

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
    /// io_uring through tokio-uring; never chosen by `Auto`.
    TokioUring,
    /// recvmmsg.
    Mmsg,
}

impl EngineChoice {
    /// The engine that is asked for by name.
    pub const fn named(self) -> Option<EngineKind> {
        match self {
            Self::Auto => None,
            Self::Uring => Some(EngineKind::Uring),
            Self::TokioUring => Some(EngineKind::TokioUring),
            Self::Mmsg => Some(EngineKind::Mmsg),
        }
    }
}

/// Not the name of an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {0:?}; there are auto, uring, tokio-uring and mmsg")]
pub struct UnknownEngine(pub String);

impl FromStr for EngineChoice {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        match text {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "tokio-uring" => Ok(Self::TokioUring),
            "mmsg" => Ok(Self::Mmsg),
            _ => Err(UnknownEngine(text.to_owned())),
        }
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.named().map_or("auto", EngineKind::name))
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
    /// The trial did not end in time; a thread is left to it.
    TrialTimedOut,
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
            Self::TrialTimedOut => "io_uring_timed_out",
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
            Self::TrialTimedOut => {
                "io_uring did not finish its trial within a second; whatever it waits for in the kernel still waits."
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
        self.choice.named().is_none_or(|kind| kind == self.kind)
    }
}

/// Tries the engine on a loopback socket, with `options` since the limits depend on them, for a second at most. Needs
/// to be asked once, at start; a ring thread may open its engine with the answer.
pub fn probe(choice: EngineChoice, options: EngineOptions) -> EngineDecision {
    let decide = |kind, reason, detail| EngineDecision { choice, kind, reason, detail };
    let (kind, good) = match choice.named() {
        None => (EngineKind::Uring, DecisionReason::Preferred),
        Some(kind) => (kind, DecisionReason::Requested),
    };
    if kind == EngineKind::Mmsg {
        return decide(kind, good, String::new());
    }
    match try_engine(kind, options) {
        Ok(()) => decide(kind, good, String::new()),
        Err(failure) => {
            let reason = classify(&failure, &doctor_facts());
            decide(EngineKind::Mmsg, reason, failure.to_string())
        }
    }
}

/// As [`open`], with the engine that was decided on. If that cannot be built although its trial went well, and nobody
/// asked for it by name, recvmmsg takes the socket, and the decision given back says so.
///
/// # Errors
/// What refused the engine asked for by name, or recvmmsg.
pub fn open_decided(
    decision: EngineDecision,
    socket: BoundSocket,
    gate: &WakeGate,
    options: EngineOptions,
) -> Result<(Box<dyn Engine>, EngineDecision), OpenError> {
    let kind = decision.kind;
    let refused = |source| OpenError::Refused { kind, step: "dup of the socket", source };
    let spare = socket.try_clone().map_err(refused)?;
    let failure = match open(kind, socket, gate, options) {
        Ok(engine) => return Ok((engine, decision)),
        Err(error) if kind == EngineKind::Mmsg || decision.choice != EngineChoice::Auto => return Err(error),
        Err(error) => Failure::Open(error),
    };
    let reason = classify(&failure, &doctor_facts());
    let detail = format!("after a trial that went well: {failure}");
    let engine = open(EngineKind::Mmsg, spare, gate, options)?;
    Ok((engine, EngineDecision { kind: EngineKind::Mmsg, reason, detail, ..decision }))
}

fn classify(failure: &Failure, facts: &DoctorFacts) -> DecisionReason {
    let errno = match failure {
        Failure::Open(OpenError::Refused { source, .. }) => source.raw_os_error().unwrap_or(0),
        Failure::Open(OpenError::Wildcard { .. }) | Failure::Panicked => return DecisionReason::Other(0),
        Failure::TimedOut => return DecisionReason::TrialTimedOut,
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

#[cfg(test)]
mod tests {
    use std::io;

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
            Failure::Open(OpenError::Refused {
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
            (Failure::TimedOut, new.clone(), DecisionReason::TrialTimedOut),
            (Failure::Panicked, new.clone(), DecisionReason::Other(0)),
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
