//! How a request of the control plane can fail.

use core::time::Duration;

use rendezvous_shared::api::Problem;

/// Why a request came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControlError {
    /// The server answered with a problem.
    #[error("{} {}: {}", problem.status, problem.code, problem.detail)]
    Problem {
        /// As it came; `code` is stable.
        problem: Box<Problem>,
        /// The pause it asks for.
        retry_after: Option<Duration>,
    },
    /// No answer: whether something was done is not known. Repeat with the same idempotency key.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The answer cannot be read.
    #[error("the server's answer cannot be read: {0}")]
    Malformed(String),
    /// This client cannot do that, and nothing was sent.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

impl ControlError {
    /// The stable code of a problem.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem { problem, .. } => Some(&problem.code),
            _ => None,
        }
    }

    /// The version to renew from, where the one sent was stale.
    #[must_use]
    pub fn latest_version(&self) -> Option<u64> {
        match self {
            Self::Problem { problem, .. } => problem.latest_version,
            _ => None,
        }
    }

    /// The pause the server asks for.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the object is not there, or no longer: register again.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Problem { problem, .. } if matches!(problem.status, 404 | 410))
    }

    /// Whether the same request may succeed later: no answer, 429, or 503 and its kind.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem { problem, .. } => problem.status == 429 || problem.status >= 500,
            Self::Unreachable(_) => true,
            Self::Malformed(_) | Self::Unsupported(_) => false,
        }
    }
}
