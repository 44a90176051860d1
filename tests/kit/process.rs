//! A child process whose output is read as it comes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{Deadline, wait_for};

/// Lines of a child that may wait to be read; a child that says more than this waits itself.
const LINES_MAX: usize = 65_536;

/// A running child. Killed when dropped.
pub struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Starts `command`; its standard output and error are read together.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(name: &str, command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {command:?}: {error}"));
        let (sender, lines) = sync_channel(LINES_MAX);
        read_lines(child.stdout.take().expect("standard output is piped"), sender.clone());
        read_lines(child.stderr.take().expect("standard error is piped"), sender);
        Self { name: name.into(), child, lines, seen: Vec::new() }
    }

    /// The next line that `wanted` picks, of those not looked at yet.
    ///
    /// # Panics
    /// When it does not come within `within`; shows all that came.
    pub fn expect(&mut self, within: Duration, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Deadline::after(within);
        loop {
            match self.lines.recv_timeout(deadline.remaining()) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(end) => {
                    let how = if end == RecvTimeoutError::Timeout { "in time" } else { "before it ended" };
                    panic!("{} did not say {what} {how}; it said:\n{}", self.name, self.seen.join("\n"));
                }
            }
        }
    }

    /// Waits for its end, and returns how it ended and all it said.
    ///
    /// # Panics
    /// When it does not end within `within`.
    pub fn wait(&mut self, within: Duration) -> (ExitStatus, Vec<String>) {
        let name = self.name.clone();
        let status = wait_for(within, &format!("end of {name}"), || {
            self.seen.extend(self.lines.try_iter());
            self.child.try_wait().expect("a child can be waited for")
        });
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(1)) {
            self.seen.push(line);
        }
        (status, self.seen.clone())
    }

    /// All it said up to now.
    pub fn seen(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child is there");
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_lines(from: impl Read + Send + 'static, to: SyncSender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
}
