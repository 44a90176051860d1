//! A child that may not use io_uring.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Its system call number: the same on every architecture, since it came after their tables were united.
const IO_URING_SETUP: i64 = 425;

/// Runs `start` where `io_uring_setup` is refused with EPERM, as default container profiles do. The filter holds the
/// calling thread of `start` alone, and every process it starts.
///
/// # Panics
/// When the filter cannot be installed, or `start` panics.
pub fn without_io_uring<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    let filter = SeccompFilter::new(
        [(IO_URING_SETUP, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(1), // EPERM
        std::env::consts::ARCH.try_into().expect("seccomp knows this architecture"),
    );
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter of one rule");
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            apply_filter(&program).expect("a process may restrict itself");
            start()
        });
        filtered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
