//! Whether a test that is named is there.

use std::collections::BTreeSet;

use crate::table::Proof;

/// Where the sources of each kind of test begin.
const SOURCES: &[(&str, &str)] = &[
    ("core", "dataplane/core/src"),
    ("shared", "shared/core/src"),
    ("node", "dataplane/node/src"),
    ("hand-overs", "tests/interleavings"),
    ("control", "control/src"),
    ("model", "tests/store_model"),
    ("clauses", "tests/clauses"),
    ("dependencies", "tests/dependencies"),
    ("e2e", "tests/end_to_end"),
];

/// The clauses in the list that makes tests of them, as `module::name`.
pub(crate) fn contract(list: &str) -> BTreeSet<String> {
    let begin = "macro_rules! store_contract_tests {";
    let list = list.split_once(begin).map_or("", |it| it.1);
    let list = list.split_once("{ @ $harness;").and_then(|it| it.1.split_once('}')).map_or("", |it| it.0);
    let mut clauses = BTreeSet::new();
    for module in list.split(';') {
        let Some((module, names)) = module.split_once(':') else { continue };
        let names = names.split(',').map(str::trim).filter(|it| !it.is_empty());
        clauses.extend(names.map(|it| format!("{}::{it}", module.trim())));
    }
    clauses
}

/// The clauses that a file of the contract writes.
pub(crate) fn contract_functions(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.lines().filter_map(|it| it.strip_prefix("pub fn "));
    functions.filter_map(|it| it.split_once("<H: Harness>(harness: &mut H)")).map(|it| it.0)
}

/// Whether the test is there: in the contract's list, or marked as a test in the file where its path leads.
pub(crate) fn exists(
    proof: &Proof,
    contract: &BTreeSet<String>,
    read: impl Fn(&str) -> Option<String>,
) -> bool {
    for run in ["store::tests::contract::", "store::tests::reluctant::"] {
        if let Some(clause) = proof.name.strip_prefix(run) {
            return proof.target == "core" && contract.contains(clause);
        }
    }
    let Some((_, sources)) = SOURCES.iter().find(|it| it.0 == proof.target) else { return false };
    let path: Vec<_> = proof.name.split("::").collect();
    let Some((name, modules)) = path.split_last() else { return false };
    // A module is a file, or stands within the file of one above it.
    (0..=modules.len()).rev().any(|depth| {
        let file = [&[*sources], &modules[..depth]].concat().join("/");
        let files = [format!("{file}.rs"), format!("{file}/mod.rs")];
        files.iter().filter_map(|it| read(it)).any(|text| has_test(&text, name))
    })
}

fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let begins = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ").and_then(|it| it.strip_prefix(name)).is_some_and(|it| it.starts_with("()"))
    };
    lines.iter().enumerate().filter(|(_, line)| begins(line)).any(|(at, _)| {
        let above = lines[..at].iter().rev().take_while(|it| it.starts_with("#["));
        above.into_iter().any(|it| it.starts_with("#[test]") || it.starts_with("#[tokio::test"))
    })
}
