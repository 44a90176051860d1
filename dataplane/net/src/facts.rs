//! Facts about the machine, for `rendezvous doctor`.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// What decides which engine can run and how much it may buffer. `None` where the machine does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorFacts {
    /// Such as `6.18.44`.
    pub kernel_release: String,
    /// `kernel.io_uring_disabled`: 0 everyone may, 1 only the privileged, 2 nobody. Absent before Linux 6.6.
    pub io_uring_disabled: Option<u32>,
    /// RLIMIT_MEMLOCK, soft, bytes; `None` is unlimited.
    pub memlock_len_max: Option<u64>,
    /// RLIMIT_NOFILE, soft, descriptors; `None` is unlimited.
    pub files_max: Option<u64>,
    /// `net.core.rmem_max`, bytes: what SO_RCVBUF is clipped to without CAP_NET_ADMIN.
    pub rmem_max_len: Option<u64>,
    /// Whether a seccomp filter or strict mode holds this thread.
    pub seccomp_active: bool,
}

/// Reads the facts now; a few small files of /proc.
pub fn doctor_facts() -> DoctorFacts {
    DoctorFacts {
        kernel_release: kernel_release(),
        io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
        memlock_len_max: getrlimit(Resource::Memlock).current,
        files_max: getrlimit(Resource::Nofile).current,
        rmem_max_len: number("/proc/sys/net/core/rmem_max"),
        seccomp_active: fs::read_to_string("/proc/thread-self/status").is_ok_and(|s| seccomp_active(&s)),
    }
}

fn number<N: std::str::FromStr>(path: &str) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn seccomp_active(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
}

/// The release without the distributor's suffix being judged; `unknown` if it is not text.
fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "unknown".into(), |s| s.trim().into())
}

impl DoctorFacts {
    /// Major and minor number of the kernel.
    pub(crate) fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel_release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_there() {
        let facts = doctor_facts();
        assert!(facts.kernel_version().is_some_and(|version| version >= (5, 0)), "{facts:?}");
        assert!(facts.rmem_max_len.is_some());
        assert!(facts.files_max.is_none_or(|files| files > 0));
    }

    #[test]
    fn seccomp_is_told_from_its_filters() {
        assert!(seccomp_active("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!seccomp_active("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
    }
}
