//! Holds three things together: the clauses of the store as [docs/store.md] tells them, the tests that prove them, and
//! the mistakes that those tests must find. None may lack another.
//!
//! What it cannot show: that a test proves what its clause says. `plant-faults` comes nearer to that.
//!
//! [docs/store.md]: ../docs/store.md
#![cfg(test)]

#[path = "clauses/planted.rs"]
mod planted;
#[path = "clauses/proofs.rs"]
mod proofs;
#[path = "clauses/table.rs"]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rendezvous_testkit::faults::Faults;

use proofs::{contract, contract_functions, exists};
use table::{Clause, Proof};

/// The mistakes that everybody expects to be found, by the words their list describes them with.
const NAMED: [&str; 10] = [
    "skip a quota check",
    "evict when full",
    "insert revocation after removal",
    "forget linked attempts",
    "accept a stale version",
    "off-by-one at a ceiling",
    "expire late",
    "honour a pre-restart capability",
    "forget a live idempotency record",
    "allow a second introduction",
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(top().join(path)).ok()
}

/// All that is held together.
struct Material {
    clauses: Vec<Clause>,
    faults: Faults,
    /// Each clause of the contract as `module::name`, as its list has it.
    contract: BTreeSet<String>,
}

impl Material {
    fn of(page: &str, faults: &str, contract_list: &str) -> Self {
        Self {
            clauses: table::clauses(page).unwrap(),
            faults: Faults::parse(faults).unwrap(),
            contract: contract(contract_list),
        }
    }

    fn here() -> Self {
        let text = |path: &str| read(path).unwrap_or_else(|| panic!("no {path}"));
        Self::of(
            &text("docs/store.md"),
            &text("tests/faults/store.toml"),
            &text("shared/core/src/store/contract.rs"),
        )
    }

    /// The tests of each clause, by its number.
    fn tests(&self) -> BTreeMap<&str, BTreeSet<&Proof>> {
        let proofs = self.clauses.iter().map(|it| (it.number.as_str(), it.proofs.iter().collect()));
        proofs.collect()
    }
}

/// Numbers go up by one, within a section and from one to the next.
fn wrong_numbers(material: &Material) -> Vec<String> {
    let mut found = Vec::new();
    let (mut section, mut place) = (0, 0);
    for clause in &material.clauses {
        let next = [format!("{section}.{}", place + 1), format!("{}.1", section + 1)];
        if !next.contains(&clause.number) {
            found.push(format!("clause {} does not follow {section}.{place}", clause.number));
        }
        if let Some((one, other)) = clause.number.split_once('.') {
            (section, place) = (one.parse().unwrap_or(0), other.parse().unwrap_or(0));
        }
    }
    found
}

/// Each clause has a test that is there, or says why it has none.
fn unproved(material: &Material, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for clause in &material.clauses {
        if clause.proofs.is_empty() != clause.reason.is_some() {
            found.push(format!("clause {}: name its tests, or say `not testable:` and why", clause.number));
        }
        for proof in clause.proofs.iter().filter(|it| !exists(it, &material.contract, &read)) {
            found.push(format!("clause {}: there is no test {} {}", clause.number, proof.target, proof.name));
        }
    }
    found
}

/// Each clause that can be tested has a mistake, and each mistake its clauses and their tests.
fn unbroken(material: &Material) -> Vec<String> {
    let tests = material.tests();
    let mut found = Vec::new();
    for clause in material.clauses.iter().filter(|it| !it.proofs.is_empty()) {
        if !material.faults.faults.iter().any(|it| it.clauses.contains(&clause.number)) {
            found.push(format!("clause {}: plant a mistake that breaks it", clause.number));
        }
    }
    for fault in &material.faults.faults {
        for number in &fault.clauses {
            let Some(known) = tests.get(number.as_str()) else {
                found.push(format!("{}: there is no clause {number}", fault.why));
                continue;
            };
            for name in &fault.tests {
                let proof = Proof { target: fault.target.clone(), name: name.clone() };
                if !known.contains(&proof) {
                    found.push(format!("{}: {name} is not a test of clause {number}", fault.why));
                }
            }
        }
    }
    for name in NAMED.into_iter().filter(|it| !material.faults.faults.iter().any(|at| at.why.contains(it))) {
        found.push(format!("no mistake is called `{name}`"));
    }
    found
}

/// Each mistake can be made: what it replaces stands in its file exactly once.
fn unplantable(material: &Material, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let planted = |fault: &rendezvous_testkit::faults::Fault| {
        let text = read(&fault.file).ok_or_else(|| format!("{}: there is no {}", fault.why, fault.file));
        text.and_then(|it| fault.plant(&it)).err()
    };
    material.faults.faults.iter().filter_map(planted).collect()
}

/// Each clause of the contract proves a clause of the page.
fn unmentioned(material: &Material) -> Vec<String> {
    let mentioned: BTreeSet<_> = material.clauses.iter().flat_map(|it| &it.proofs).collect();
    let is_mentioned = |clause: &&String| {
        let name = |run: &str| format!("store::tests::{run}::{clause}");
        let proof = |run| Proof { target: "core".to_owned(), name: name(run) };
        mentioned.contains(&proof("contract")) || mentioned.contains(&proof("reluctant"))
    };
    let missing = material.contract.iter().filter(|it| !is_mentioned(it));
    missing.map(|it| format!("{it} is in the contract and proves nothing on the page")).collect()
}

/// The page and the list run the same tests by the same words.
fn unlike_commands(material: &Material, page: &str) -> Vec<String> {
    let told = |(name, arguments): &(&String, &Vec<String>)| {
        page.contains(&format!("| {name} | `cargo test {}` |", arguments.join(" ")))
    };
    let missing = material.faults.targets.iter().filter(|it| !told(it));
    missing.map(|(name, _)| format!("the page runs the tests called {name} otherwise")).collect()
}

#[track_caller]
fn nothing(found: Vec<String>) {
    assert!(found.is_empty(), "{} to mend:\n{}\n", found.len(), found.join("\n"));
}

#[test]
fn clauses_are_numbered_throughout() {
    nothing(wrong_numbers(&Material::here()));
}

#[test]
fn every_clause_has_a_test_that_is_there() {
    nothing(unproved(&Material::here(), read));
}

#[test]
fn every_clause_has_a_mistake_that_breaks_it() {
    nothing(unbroken(&Material::here()));
}

#[test]
fn every_mistake_can_be_made() {
    nothing(unplantable(&Material::here(), read));
}

#[test]
fn every_contract_test_has_a_clause() {
    nothing(unmentioned(&Material::here()));
}

#[test]
fn page_and_list_run_the_same_tests() {
    nothing(unlike_commands(&Material::here(), &read("docs/store.md").unwrap()));
}

/// No clause is left out of the list that makes tests of them, and each implementation takes the whole list.
#[test]
fn both_implementations_run_the_whole_contract() {
    let list = Material::here().contract;
    let mut written = BTreeSet::new();
    for module in list.iter().filter_map(|it| it.split_once("::")).map(|it| it.0).collect::<BTreeSet<_>>() {
        let text = read(&format!("shared/core/src/store/contract/{module}.rs")).unwrap();
        written.extend(contract_functions(&text).map(|it| format!("{module}::{it}")));
    }
    assert_eq!(written, list, "clauses that are written, and those that are made tests of");
    for (path, runs) in [("dataplane/core/src/store/tests.rs", 2), ("tests/store_model/contract.rs", 1)] {
        let text = read(path).unwrap();
        assert_eq!(text.matches("store_contract_tests!(").count(), runs, "{path}");
    }
}
