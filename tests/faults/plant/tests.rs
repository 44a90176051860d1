//! Building a target's tests in the copy and running some of them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How cargo is run in the copy.
pub(crate) struct Runner<'a> {
    pub(crate) top: &'a Path,
    pub(crate) target: &'a Path,
    pub(crate) longest: Duration,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Each test that was reported, and whether it passed.
    Ran(BTreeMap<String, bool>),
    /// The compiler's first error.
    DidNotCompile(String),
    /// Not all tests ended in time.
    Hung,
}

impl Runner<'_> {
    /// Builds the tests of one target and runs exactly `tests` of them.
    pub(crate) fn run(&self, target: &[String], tests: &[&str]) -> Result<Outcome, String> {
        let executable = match self.build(target)? {
            Ok(it) => it,
            Err(why) => return Ok(Outcome::DidNotCompile(why)),
        };
        let mut run = Command::new(executable);
        run.current_dir(self.top).args(["--exact", "--test-threads=2"]).args(tests);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        self.watch(run.map_err(|error| format!("the tests do not start: {error}"))?)
    }

    /// The executable of the target's tests, or the compiler's first error.
    fn build(&self, target: &[String]) -> Result<Result<PathBuf, String>, String> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(self.top).env("CARGO_TARGET_DIR", self.target);
        // Compiling is most of the time it takes; the tests are quick as they are.
        cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--quiet"]).args(target);
        let built = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        if !built.status.success() {
            let errors = String::from_utf8_lossy(&built.stderr).into_owned();
            let first = errors.lines().find(|it| it.starts_with("error")).unwrap_or("no error told");
            return Ok(Err(first.to_owned()));
        }
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let messages = messages.lines().filter_map(|it| serde_json::from_str::<serde_json::Value>(it).ok());
        let tests = messages.filter(|it| it["profile"]["test"] == true);
        let mut executables = tests.filter_map(|it| it["executable"].as_str().map(PathBuf::from));
        let executable = executables.next_back();
        executable.map(Ok).ok_or_else(|| format!("cargo test {target:?} builds no tests"))
    }

    /// Reads what the tests report until they end, or ends them.
    fn watch(&self, mut run: Child) -> Result<Outcome, String> {
        let mut pipe = run.stdout.take().ok_or("no output")?;
        let (report, reported) = sync_channel(1);
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            let read = pipe.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned());
            // Nobody listens any more when it took too long.
            let _ = report.send(read);
        });
        let text = match reported.recv_timeout(self.longest) {
            Ok(text) => text.map_err(|error| error.to_string())?,
            Err(RecvTimeoutError::Timeout) => {
                run.kill().map_err(|error| error.to_string())?;
                run.wait().map_err(|error| error.to_string())?;
                return Ok(Outcome::Hung);
            }
            Err(RecvTimeoutError::Disconnected) => return Err("the reader of the tests is gone".to_owned()),
        };
        run.wait().map_err(|error| error.to_string())?;
        reader.join().map_err(|_| "the reader of the tests panicked")?;
        Ok(Outcome::Ran(text.lines().filter_map(ending).collect()))
    }
}

/// The test whose end a line tells, and whether it passed.
fn ending(line: &str) -> Option<(String, bool)> {
    let (name, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    Some((name.to_owned(), end == "ok"))
}
