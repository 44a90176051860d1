//! Exit codes, from sysexits.h, and the errors that lead to them.

use std::io;
use std::net::SocketAddr;

use rendezvous_net::{BindError, OpenError};

use crate::config::ConfigError;

/// How a command ends; the numbers are documented in `docs/operating.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// All went well.
    Ok = 0,
    /// The command line is wrong.
    Usage = 64,
    /// Input is malformed.
    BadData = 65,
    /// Something needed is not to be had: a port in use, a server that does not answer.
    Unavailable = 69,
    /// A defect of ours.
    Internal = 70,
    /// The system does not permit it.
    Permission = 77,
    /// The configuration is wrong.
    Config = 78,
}

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration is wrong.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The UDP address cannot be bound.
    #[error("listen.udp: {0}")]
    Udp(#[from] BindError),
    /// A TCP address cannot be bound.
    #[error("{key}: cannot listen on {address}: {source}")]
    Tcp {
        /// The configuration key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The engine asked for by name does not work here.
    #[error("dataplane.engine: {0}")]
    EngineRefused(String),
    /// The engine's trial went well and its opening did not.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log's filter is malformed.
    #[error("log.filter: {0}")]
    Log(String),
    /// The kernel refused something every process may have.
    #[error("cannot {step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A thread that serves ended.
    #[error("the {thread} thread ended: {cause}")]
    Thread {
        /// Which.
        thread: &'static str,
        /// How.
        cause: String,
    },
}

impl ServeError {
    /// For `map_err`.
    pub(crate) fn system(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { step, source }
    }

    /// The code to exit with.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Log(_) => ExitCode::Config,
            Self::Udp(BindError::PermissionDenied { .. }) => ExitCode::Permission,
            Self::Tcp { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::Udp(_) | Self::Tcp { .. } | Self::EngineRefused(_) => ExitCode::Unavailable,
            Self::Open(_) | Self::System { .. } | Self::Thread { .. } => ExitCode::Internal,
        }
    }
}
