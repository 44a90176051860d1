//! Exit codes, from sysexits.h but for 1, and the failures that lead to them.

/// Every check held.
pub(crate) const OK: u8 = 0;
/// The run went to its end and a check did not hold.
pub(crate) const CHECK_FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const INTERNAL: u8 = 70;

/// Why a run did not come to its checks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line, or a file it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be started or reached, or the system gives too little.
    #[error("{0}")]
    Unavailable(String),
    /// A defect of this program, or the system refused what every process may have.
    #[error("{0}")]
    Internal(String),
}

impl Failure {
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Internal(_) => INTERNAL,
        }
    }
}
