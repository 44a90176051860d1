//! The server process: started, read until it is ready, ended by SIGTERM.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::exit::Failure;

/// From start to `ready`.
const START_MAX: Duration = Duration::from_secs(15);
/// From SIGTERM to its end: the longest drain and some.
const STOP_MAX: Duration = Duration::from_secs(40);
/// Lines of its log shown when it fails.
const LOG_LINES_SHOWN: usize = 20;

/// Where a server listens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    /// URL of the public API.
    pub(crate) http: String,
    /// URL of the admin API.
    pub(crate) admin: String,
}

/// A server of our own. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) addresses: Addresses,
    /// What it printed before it was ready.
    pub(crate) banner: Vec<String>,
    folder: TempDir,
    _drained: tokio::task::JoinHandle<()>,
}

/// How a server ended.
pub(crate) struct Ended {
    /// `exit status: 0`, or what else the system says.
    pub(crate) status: String,
    pub(crate) clean: bool,
}

impl Server {
    /// Starts `binary`, or the one beside this program, with `config`, and waits until it is ready.
    pub(crate) async fn start(binary: Option<&Path>, config: &str) -> Result<Self, Failure> {
        let binary = find(binary)?;
        let io = |error: std::io::Error| Failure::Unavailable(format!("temporary folder: {error}"));
        let folder = tempfile::Builder::new().prefix("rendezvous-loadtest-").tempdir().map_err(io)?;
        let file = folder.path().join("server.toml");
        std::fs::write(&file, config).map_err(io)?;
        let log = std::fs::File::create(folder.path().join("server.log")).map_err(io)?;
        let mut child = Command::new(&binary)
            .args(["serve".as_ref(), "--config".as_ref(), file.as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::Unavailable(format!("cannot start {}: {error}", binary.display())))?;
        let stdout =
            child.stdout.take().ok_or_else(|| Failure::Internal("the server has no stdout".into()))?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = tokio::time::timeout(START_MAX, until_ready(&mut lines)).await;
        let banner = match ready {
            Ok(Some(banner)) => banner,
            Ok(None) => return Err(not_started("it ended before it was ready", folder.path())),
            Err(_) => return Err(not_started("it is not ready after 15 s", folder.path())),
        };
        let addresses = addresses(&banner)
            .ok_or_else(|| Failure::Unavailable("the server did not print its addresses".into()))?;
        // Read on, or a full pipe would stop the server.
        let drained = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, addresses, banner, folder, _drained: drained })
    }

    /// Sends SIGTERM to the process that was started here and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<Ended, Failure> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)
                .map_err(|error| Failure::Internal(format!("cannot send SIGTERM: {error}")))?;
        }
        Ok(match tokio::time::timeout(STOP_MAX, self.child.wait()).await {
            Ok(Ok(status)) => Ended { status: status.to_string(), clean: status.success() },
            Ok(Err(error)) => Ended { status: error.to_string(), clean: false },
            Err(_) => Ended { status: "still there 40 s after SIGTERM; killed".into(), clean: false },
        })
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(self.folder.path())
    }
}

fn not_started(what: &str, folder: &Path) -> Failure {
    Failure::Unavailable(format!("the server cannot be started: {what}; its log:\n{}", log_tail(folder)))
}

fn log_tail(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let own = std::env::current_exe().map_err(|error| Failure::Internal(error.to_string()))?;
    let path = own.with_file_name("rendezvous");
    if path.is_file() {
        return Ok(path);
    }
    let release = if own.parent().is_some_and(|it| it.ends_with("release")) { " --release" } else { "" };
    Err(Failure::Unavailable(format!(
        "{} is missing; build it with `cargo build{release} -p rendezvous`, or name one by --server-binary",
        path.display()
    )))
}

/// All lines before `ready`; `None` when its output ends first.
async fn until_ready(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<Vec<String>> {
    let mut banner = Vec::new();
    loop {
        let line = lines.next_line().await.ok()??;
        if line.trim() == "ready" {
            return Some(banner);
        }
        banner.push(line);
    }
}

/// From lines such as `  http    http://127.0.0.1:7780  listings and attempts`.
fn addresses(banner: &[String]) -> Option<Addresses> {
    let find = |name| {
        banner.iter().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(name)).then(|| words.next().map(str::to_owned)).flatten()
        })
    };
    Some(Addresses { http: find("http")?, admin: find("admin")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_banner() {
        let banner =
            ["rendezvous 0.1.0", "  http    http://127.0.0.1:1  x", "  admin   http://127.0.0.1:2  y"];
        let found = addresses(&banner.map(str::to_owned)).unwrap();
        assert_eq!((found.http.as_str(), found.admin.as_str()), ("http://127.0.0.1:1", "http://127.0.0.1:2"));
        assert!(addresses(&["ready".to_owned()]).is_none());
    }

    #[test]
    fn a_missing_binary_is_told_with_the_command_that_builds_it() {
        // Beside a test binary, in `deps`, there is none.
        let error = find(None).unwrap_err();
        assert_eq!(error.code(), 69);
        assert!(error.to_string().contains("-p rendezvous"), "{error}");
    }
}
