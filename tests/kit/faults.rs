//! The list of planted faults: for each clause of the store a mistake that somebody could make, and the tests that
//! must turn red when it is made.
//!
//! `plant-faults` makes each of them in a copy of the sources; `tests/clauses.rs` holds the list to the clauses.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// The list as it stands in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// What cargo is told to run one kind of test: each name stands for `cargo test` and these arguments.
    pub targets: BTreeMap<String, Vec<String>>,
    /// The faults.
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
}

/// One mistake.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The clauses it breaks, by their numbers in `docs/store.md`.
    pub clauses: Vec<String>,
    /// What the mistake is.
    pub why: String,
    /// Where it is made, relative to the top of the repository.
    pub file: String,
    /// The text that is right; it stands in the file exactly once.
    pub find: String,
    /// The text that is wrong.
    pub replace: String,
    /// Which of [`Faults::targets`] its tests are in.
    #[serde(default = "Fault::usual_target")]
    pub target: String,
    /// The tests that must turn red, as cargo prints them.
    pub tests: Vec<String>,
}

impl Fault {
    fn usual_target() -> String {
        "core".to_owned()
    }

    /// The file with the mistake in it.
    ///
    /// # Errors
    /// When what is right does not stand there exactly once, or the mistake is none.
    pub fn plant(&self, text: &str) -> Result<String, String> {
        let found = text.matches(self.find.as_str()).count();
        if found != 1 || self.find == self.replace {
            return Err(format!("{}: its text stands {found} times in {}", self.why, self.file));
        }
        Ok(text.replacen(&self.find, &self.replace, 1))
    }
}

impl Faults {
    /// The list in `text`.
    ///
    /// # Errors
    /// Where it is malformed, or names a target that it does not describe.
    pub fn parse(text: &str) -> Result<Self, String> {
        let list: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for fault in &list.faults {
            if !list.targets.contains_key(&fault.target) {
                return Err(format!("{}: no target {}", fault.why, fault.target));
            }
            if fault.tests.is_empty() || fault.clauses.is_empty() {
                return Err(format!("{}: name a clause and a test", fault.why));
            }
        }
        Ok(list)
    }

    /// The list in the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or [`Self::parse`] refuses it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
