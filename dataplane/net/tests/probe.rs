//! Refusals of io_uring, made real where a thread can do it to itself.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is test code")]

#[path = "support/seccomp.rs"]
mod seccomp;

use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rendezvous_net::{
    DecisionReason, EngineChoice, EngineDecision, EngineKind, EngineOptions, OpenError, SocketOptions, bind,
    doctor_facts, open, open_decided, probe, wake_pair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccomp::{hold, restrict};

/// Makes the kernel answer `call` with `errno` on this thread from now on.
fn refuse(call: libc::c_long, errno: i32) {
    restrict(&[call], None, libc::SECCOMP_RET_ERRNO | errno as u32, 0);
}

/// As [`refuse`], only where the second argument of the call is `second`.
fn refuse_where(call: libc::c_long, second: u32, errno: i32) {
    restrict(&[call], Some(second), libc::SECCOMP_RET_ERRNO | errno as u32, 0);
}

/// The limit on locked memory belongs to the process: one trial at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn probe_where(prepare: impl FnOnce() + Send + 'static) -> EngineDecision {
    alone(move || {
        prepare();
        probe(EngineChoice::Auto, EngineOptions::default())
    })
}

/// Runs `work` on a thread of its own, which may restrict itself, while no other test of this file does.
fn alone<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Memlock);
    let outcome = thread::spawn(work).join();
    setrlimit(Resource::Memlock, limit).unwrap();
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The decision names what happened and the other engine runs all the same.
#[track_caller]
fn falls_back(decision: &EngineDecision, reason: DecisionReason) {
    println!("{}: {} ({})", decision.reason.name(), decision.reason.message(), decision.detail);
    assert_eq!((decision.kind, decision.reason), (EngineKind::Mmsg, reason), "{}", decision.detail);
    assert!(decision.reason.is_fallback() && !decision.detail.is_empty());
    let (gate, _waker) = wake_pair().unwrap();
    let socket = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
    open(decision.kind, socket, &gate, EngineOptions::default()).unwrap();
}

#[test]
fn works_here_or_says_why() {
    let decision = probe_where(|| {});
    match decision.kind {
        EngineKind::TokioUring => panic!("nobody asked for it"),
        EngineKind::Uring => assert_eq!(decision.reason, DecisionReason::Preferred),
        EngineKind::Mmsg => falls_back(&decision, decision.reason),
    }
    let decision = probe(EngineChoice::Mmsg, EngineOptions::default());
    assert_eq!((decision.kind, decision.reason), (EngineKind::Mmsg, DecisionReason::Requested));
    assert!(decision.honours_choice());
}

#[test]
fn a_seccomp_filter_is_told_from_other_refusals() {
    if doctor_facts().io_uring_disabled.unwrap_or(0) != 0 {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let decision = probe_where(move || refuse(libc::SYS_io_uring_setup, errno));
        falls_back(&decision, DecisionReason::RefusedBySeccomp);
        assert!(decision.detail.contains("io_uring_setup"), "{}", decision.detail);
    }
    // Allowed to set up, refused later: the trial finds it.
    let decision = probe_where(|| refuse(libc::SYS_io_uring_enter, libc::EPERM));
    falls_back(&decision, DecisionReason::RefusedBySeccomp);
    let decision = probe_where(|| refuse(libc::SYS_io_uring_register, libc::EPERM));
    falls_back(&decision, DecisionReason::RefusedBySeccomp);
}

#[test]
fn an_old_kernel_and_surprises_are_told_apart() {
    let decision = probe_where(|| refuse(libc::SYS_io_uring_setup, libc::EINVAL));
    falls_back(&decision, DecisionReason::KernelTooOld);
    let decision = probe_where(|| refuse(libc::SYS_io_uring_setup, libc::EMFILE));
    falls_back(&decision, DecisionReason::Other(libc::EMFILE));
}

/// Operations of io_uring_register(2), with the kernel that brought each. One without it answers EINVAL.
const REGISTRATIONS: [(u32, &str, &str); 4] = [
    (2, "5.1", "registering files"),
    (22, "5.19", "registering the buffer ring"),
    (11, "5.10", "restricting the ring"),
    (12 | THROUGH_REGISTERED, "5.10", "enabling the ring"),
];
/// By then the ring has a place among the thread's registered ones, which a flag says.
const THROUGH_REGISTERED: u32 = 1 << 31;

#[test]
fn a_kernel_without_an_operation_is_told_with_the_operation() {
    for (registration, since, step) in REGISTRATIONS {
        let decision =
            probe_where(move || refuse_where(libc::SYS_io_uring_register, registration, libc::EINVAL));
        falls_back(&decision, DecisionReason::KernelTooOld);
        assert!(decision.detail.contains(step), "before {since}: {}", decision.detail);
    }
}

/// Held in a system call for good, as by a kernel that hangs. A second is promised; ten are waited for.
#[test]
fn a_kernel_that_hangs_is_given_up() {
    let (given_up, waiting) = sync_channel(1);
    let hanging = move || {
        alone(move || {
            let held = hold(&[libc::SYS_io_uring_setup]);
            let decision = probe(EngineChoice::Auto, EngineOptions::default());
            // Recvmmsg needs none of it, and what was left behind is let go only now.
            falls_back(&decision, DecisionReason::TrialTimedOut);
            given_up.send(decision).unwrap();
            drop(held);
        });
    };
    let hanging = thread::spawn(hanging);
    let decision = waiting.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(decision.honours_choice(), "auto");
    hanging.join().unwrap();
}

/// Its trial goes well, and then the real thing is refused.
#[test]
fn an_engine_that_cannot_be_opened_after_all_is_replaced() {
    for choice in [EngineChoice::Auto, EngineChoice::Uring] {
        if probe(choice, EngineOptions::default()).kind != EngineKind::Uring {
            return;
        }
        alone(move || {
            let options = EngineOptions::default();
            let trial = probe(choice, options);
            refuse(libc::SYS_io_uring_setup, libc::EPERM);
            let (gate, _waker) = wake_pair().unwrap();
            let socket = bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default()).unwrap();
            let address = socket.local_addr();
            match open_decided(trial, socket, &gate, options) {
                Ok((engine, decision)) => {
                    assert_eq!(choice, EngineChoice::Auto, "whoever names one may rather stop");
                    assert_eq!((engine.kind(), engine.local_addr()), (EngineKind::Mmsg, address));
                    falls_back(&decision, DecisionReason::RefusedBySeccomp);
                    assert!(decision.detail.contains("after a trial that went well"), "{}", decision.detail);
                }
                Err(error) => {
                    assert_eq!(choice, EngineChoice::Uring, "{error}");
                    assert!(matches!(error, OpenError::Refused { step: "io_uring_setup", .. }), "{error}");
                }
            }
        });
    }
}

#[test]
fn tokio_uring_has_the_same_causes() {
    let asked = |prepare: fn()| {
        alone(move || {
            prepare();
            probe(EngineChoice::TokioUring, EngineOptions::default())
        })
    };
    for (prepare, reason) in [
        ((|| refuse(libc::SYS_io_uring_setup, libc::EPERM)) as fn(), DecisionReason::RefusedBySeccomp),
        // The library would panic twice here, which ends a process.
        (|| refuse(libc::SYS_io_uring_enter, libc::EPERM), DecisionReason::RefusedBySeccomp),
        (|| refuse(libc::SYS_io_uring_setup, libc::EINVAL), DecisionReason::KernelTooOld),
        (lock_little_memory, DecisionReason::MemlockTooSmall),
    ] {
        let decision = asked(prepare);
        falls_back(&decision, reason);
        assert!(!decision.honours_choice());
    }
}

/// Value 1 leaves io_uring to the privileged, so it is refused to this thread and to nobody else who is privileged.
#[test]
#[ignore = "changes a sysctl of the machine for a moment, which hits every other unprivileged user of io_uring"]
fn the_sysctl_is_told_from_other_refusals() {
    const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            std::fs::write(SYSCTL, &self.0).unwrap();
        }
    }
    let decision = {
        let _restore = Restore(std::fs::read_to_string(SYSCTL).unwrap());
        std::fs::write(SYSCTL, "1").unwrap();
        probe_where(|| drop_capability(CapabilitySet::SYS_ADMIN))
    };
    falls_back(&decision, DecisionReason::DisabledBySysctl);
}

fn drop_capability(capability: CapabilitySet) {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(capability);
    set_capabilities(None, sets).unwrap();
}

fn lock_little_memory() {
    drop_capability(CapabilitySet::IPC_LOCK);
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(4096), maximum }).unwrap();
}

/// The limit binds only a thread without CAP_IPC_LOCK.
#[test]
fn too_little_locked_memory_is_told() {
    let decision = probe_where(lock_little_memory);
    falls_back(&decision, DecisionReason::MemlockTooSmall);
}

#[test]
fn names_are_stable_and_read_back() {
    for choice in [EngineChoice::Auto, EngineChoice::Uring, EngineChoice::TokioUring, EngineChoice::Mmsg] {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    assert!("io_uring".parse::<EngineChoice>().unwrap_err().to_string().contains("uring"));
    let reasons = [
        (DecisionReason::Requested, "requested"),
        (DecisionReason::Preferred, "preferred"),
        (DecisionReason::RefusedBySeccomp, "io_uring_refused_by_seccomp"),
        (DecisionReason::DisabledBySysctl, "io_uring_disabled_by_sysctl"),
        (DecisionReason::MemlockTooSmall, "memlock_too_small"),
        (DecisionReason::KernelTooOld, "kernel_too_old"),
        (DecisionReason::TrialTimedOut, "io_uring_timed_out"),
        (DecisionReason::Other(5), "io_uring_failed"),
    ];
    for (reason, name) in reasons {
        assert_eq!(reason.name(), name);
        assert!(reason.message().ends_with(['.']));
    }
}
