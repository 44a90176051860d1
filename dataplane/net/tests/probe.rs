//! Refusals of io_uring, made real where a thread can do it to itself.
#![expect(clippy::unwrap_used, reason = "all of this is test code")]

use std::sync::{Mutex, PoisonError};
use std::thread;

use rendezvous_net::{
    DecisionReason, EngineChoice, EngineDecision, EngineKind, EngineOptions, SocketOptions, bind,
    doctor_facts, open, probe, wake_pair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Makes the kernel answer `call` with `errno` on this thread from now on.
fn refuse(call: libc::c_long, errno: i32) {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = [
        libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 }, // the call's number
        libc::sock_filter { code: equal, jt: 0, jf: 1, k: call as u32 },
        libc::sock_filter { code: answer, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | errno as u32 },
        libc::sock_filter { code: answer, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes no pointers; this thread only loses the chance of new privileges.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the filter and its program outlive the call, which copies them.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0);
}

/// The limit on locked memory belongs to the process: one trial at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn probe_where(prepare: impl FnOnce() + Send + 'static) -> EngineDecision {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Memlock);
    let probing = move || {
        prepare();
        probe(EngineChoice::Auto, EngineOptions::default())
    };
    let decision = thread::spawn(probing).join().unwrap();
    setrlimit(Resource::Memlock, limit).unwrap();
    decision
}

/// The decision names what happened and the other engine runs all the same.
#[track_caller]
fn falls_back(decision: &EngineDecision, reason: DecisionReason) {
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

/// The limit binds only a thread without CAP_IPC_LOCK.
#[test]
fn too_little_locked_memory_is_told() {
    let decision = probe_where(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).unwrap();
        let maximum = getrlimit(Resource::Memlock).maximum;
        setrlimit(Resource::Memlock, Rlimit { current: Some(4096), maximum }).unwrap();
    });
    falls_back(&decision, DecisionReason::MemlockTooSmall);
}

#[test]
fn names_are_stable_and_read_back() {
    for choice in [EngineChoice::Auto, EngineChoice::Uring, EngineChoice::Mmsg] {
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
        (DecisionReason::Other(5), "io_uring_failed"),
    ];
    for (reason, name) in reasons {
        assert_eq!(reason.name(), name);
        assert!(reason.message().ends_with(['.']));
    }
}
