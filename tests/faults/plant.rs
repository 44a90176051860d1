//! Plants each fault of a list in a copy of the sources and demands that the tests named for it turn red: a test that
//! passes whatever the store does proves nothing.
//!
//! ```text
//! cargo run -p rendezvous-testkit --bin plant-faults -- tests/faults/store.toml [part of a clause, a reason or a test]
//! ```
//!
//! The copy and all that is built lie under `target/faults`, or under `CARGO_TARGET_DIR`. Nothing runs side by side.
//! What it cannot show: that a test finds any other mistake than the one planted.
#![forbid(unsafe_code)]

#[path = "plant/tests.rs"]
mod tests;
#[path = "plant/tree.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rendezvous_testkit::faults::{Fault, Faults};

use tests::{Outcome, Runner};
use tree::Copy;

/// Longest run of one fault's tests; one that hangs is as red as one that fails. Several times what the longest takes, since
/// one that is merely slow would be taken for red: the comparison with the model, not optimised, runs for two minutes.
const RUN_MAX: Duration = Duration::from_secs(600);

/// What became of a fault.
enum End {
    /// Each of its tests turned red, or hung.
    Caught(&'static str),
    /// These stayed green.
    Slipped(Vec<String>),
    /// It could not be planted or did not compile.
    Unusable(String),
}

fn main() -> ExitCode {
    let mut out = io::stdout();
    let (list, filter) = match arguments() {
        Ok(it) => it,
        Err(usage) => return end(&mut out, 64, &usage),
    };
    match run(&mut out, &list, filter.as_deref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => end(&mut out, 70, &error),
    }
}

fn end(out: &mut impl Write, code: u8, what: &str) -> ExitCode {
    // Nobody is left to tell when even this fails.
    let _ = writeln!(out, "{what}");
    ExitCode::from(code)
}

fn arguments() -> Result<(PathBuf, Option<String>), String> {
    let mut arguments = std::env::args().skip(1);
    let list = arguments.next().ok_or("usage: plant-faults LIST [FILTER]")?;
    let filter = arguments.next();
    if arguments.next().is_some() {
        return Err("usage: plant-faults LIST [FILTER]".to_owned());
    }
    Ok((list.into(), filter))
}

/// Whether the filter names this fault.
fn is_wanted(fault: &Fault, filter: Option<&str>) -> bool {
    let Some(filter) = filter else { return true };
    fault.clauses.iter().any(|it| it == filter)
        || fault.why.contains(filter)
        || fault.tests.iter().any(|it| it.contains(filter))
}

/// Plants everything wanted. True when all of it was caught.
fn run(out: &mut impl Write, list: &Path, filter: Option<&str>) -> Result<bool, String> {
    let say = |out: &mut dyn Write, line: &str| writeln!(out, "{line}").map_err(|error| error.to_string());
    let list = Faults::read(list)?;
    let wanted: Vec<_> = list.faults.iter().filter(|it| is_wanted(it, filter)).collect();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target/faults".into(), PathBuf::from);
    let target = std::path::absolute(target).map_err(|error| error.to_string())?;
    let copy = Copy::new(&target.join("planted"))?;
    let runner = Runner { top: copy.top(), target: &target, longest: RUN_MAX };
    say(out, &format!("{} faults, in a copy at {}", wanted.len(), copy.top().display()))?;
    check_unplanted(&runner, &list, &wanted)?;
    say(out, "every test named passes with nothing planted")?;
    let mut counts = [0_usize; 3];
    for fault in wanted {
        let end = plant(&runner, &copy, &list, fault)?;
        let (count, told) = match &end {
            End::Caught(how) => (0, (*how).to_owned()),
            End::Slipped(green) => (1, format!("SLIPPED: {}", green.join(", "))),
            End::Unusable(why) => (2, format!("UNUSABLE: {why}")),
        };
        counts[count] += 1;
        let tests = fault.tests.join(", ");
        say(out, &format!("| {} | {} | {tests} | {told} |", fault.clauses.join(" "), fault.why))?;
    }
    let [caught, slipped, unusable] = counts;
    say(out, &format!("{caught} caught, {slipped} slipped, {unusable} unusable"))?;
    Ok(slipped + unusable == 0)
}

/// Every test that a wanted fault names exists, and passes while nothing is wrong.
fn check_unplanted(runner: &Runner<'_>, list: &Faults, wanted: &[&Fault]) -> Result<(), String> {
    let mut by_target = BTreeMap::<&str, BTreeSet<&str>>::new();
    for fault in wanted {
        by_target.entry(&fault.target).or_default().extend(fault.tests.iter().map(String::as_str));
    }
    for (target, tests) in by_target {
        let tests: Vec<_> = tests.into_iter().collect();
        let outcome = runner.run(&list.targets[target], &tests)?;
        let Outcome::Ran(ran) = outcome else { return Err(format!("{target}: {outcome:?}")) };
        let wrong: Vec<_> = tests.iter().filter(|it| ran.get(**it) != Some(&true)).copied().collect();
        if !wrong.is_empty() {
            return Err(format!("{target}: missing, or red with nothing planted: {}", wrong.join(", ")));
        }
    }
    Ok(())
}

/// Plants one fault, runs its tests, and mends the copy again.
fn plant(runner: &Runner<'_>, copy: &Copy, list: &Faults, fault: &Fault) -> Result<End, String> {
    let right = copy.read(&fault.file)?;
    let wrong = match fault.plant(&right) {
        Ok(it) => it,
        Err(why) => return Ok(End::Unusable(why)),
    };
    copy.write(&fault.file, &wrong)?;
    let tests: Vec<_> = fault.tests.iter().map(String::as_str).collect();
    let outcome = runner.run(&list.targets[&fault.target], &tests);
    copy.write(&fault.file, &right)?;
    Ok(match outcome? {
        Outcome::DidNotCompile(why) => End::Unusable(format!("it does not compile: {why}")),
        Outcome::Hung => End::Caught("caught: it hung"),
        Outcome::Ran(ran) => {
            // One that is not reported took the process down with it: red.
            let green: Vec<_> = tests.iter().filter(|it| ran.get(**it) == Some(&true)).collect();
            if green.is_empty() {
                End::Caught("caught")
            } else {
                End::Slipped(green.into_iter().map(|it| (*it).to_owned()).collect())
            }
        }
    })
}
