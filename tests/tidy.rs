//! Rules of the house that a machine can check. Each rule is a function over text, and is itself tried on text
//! planted to break it, so that none can stop finding anything unnoticed.
//!
//! What it cannot check: whether names are good, comments true and functions cut at the right place.
#![cfg(test)]

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/lexer.rs"]
mod lexer;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/planted.rs"]
mod planted;
#[path = "tidy/tree.rs"]
mod tree;

use std::collections::BTreeSet;
use std::path::Path;

use cargo_metadata::{MetadataCommand, TargetKind};
use rendezvous_shared::counter::Label;
use rendezvous_shared::outcome::{
    AttemptReason, ConflictReason, DatagramOutcome, IntroductionResult, OutcomeKind, Pool, QuotaScope,
};
use rendezvous_shared::store::TransitionKind;

use tree::{File, files, top};

fn tidy(findings: Vec<String>) {
    assert!(findings.is_empty(), "{} to mend:\n{}\n", findings.len(), findings.join("\n"));
}

fn rust(rule: impl Fn(&File) -> Vec<String>) {
    tidy(files().iter().filter(|it| it.is_rust()).flat_map(rule).collect());
}

fn file(path: &str) -> File {
    let text = std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    File::new(path, &text)
}

/// The roots of every crate of ours; of libraries and binaries only if `shipped`.
fn roots(shipped: bool) -> Vec<File> {
    let metadata = MetadataCommand::new().manifest_path(top().join("Cargo.toml")).no_deps().exec().unwrap();
    let packages = metadata.workspace_packages();
    let targets = packages.iter().flat_map(|it| &it.targets);
    let fits = |kind: &TargetKind| !shipped || matches!(kind, TargetKind::Lib | TargetKind::Bin);
    let wanted = targets.filter(|it| it.kind.iter().any(fits));
    let paths = wanted.filter_map(|it| it.src_path.strip_prefix(&metadata.workspace_root).ok());
    let roots: BTreeSet<&str> = paths.map(|it| it.as_str()).collect();
    assert!(roots.len() > 8, "most crates were not found: {roots:?}");
    roots.into_iter().map(file).collect()
}

#[test]
fn unsafe_stands_in_net_only() {
    rust(code::stray_unsafe);
}

#[test]
fn every_other_library_and_binary_forbids_unsafe() {
    tidy(roots(true).iter().flat_map(code::root_without_forbid).collect());
}

#[test]
fn every_crate_says_what_it_is() {
    tidy(roots(false).iter().flat_map(code::root_without_docs).collect());
}

#[test]
fn only_the_edge_reads_a_clock() {
    rust(code::stray_clock);
}

#[test]
fn exceptions_to_lints_are_expectations() {
    rust(code::allowed_lints);
}

#[test]
fn ignored_tests_give_a_reason() {
    rust(code::ignored_tests);
}

#[test]
fn nothing_is_left_over() {
    rust(code::leftovers);
}

#[test]
fn every_queue_has_a_bound() {
    rust(code::unbounded_queues);
}

#[test]
fn no_serving_thread_sleeps() {
    rust(code::sleeping_threads);
}

#[test]
fn files_are_short() {
    rust(code::long_files);
}

#[test]
fn functions_are_short() {
    rust(code::long_functions);
}

#[test]
fn every_limit_has_a_reason() {
    tidy(code::limits_without_reason(&file("shared/core/src/limits.rs")));
}

#[test]
fn members_do_as_the_workspace_does() {
    let files = files();
    tidy(files.iter().filter(|it| it.path.ends_with("Cargo.toml")).flat_map(code::own_ways).collect());
}

#[test]
fn white_space_is_clean() {
    tidy(files().iter().flat_map(pages::white_space).collect());
}

#[test]
fn no_conflict_is_left() {
    tidy(files().iter().flat_map(pages::unmerged).collect());
}

#[test]
fn links_lead_somewhere() {
    let read = |path: &Path| {
        let path = top().join(path);
        if path.is_dir() { Some(String::new()) } else { std::fs::read_to_string(path).ok() }
    };
    let files = files();
    tidy(files.iter().filter(|it| it.is_page()).flat_map(|page| pages::dead_links(page, read)).collect());
}

#[test]
fn decisions_are_numbered_listed_and_priced() {
    let mut pages = files();
    pages.retain(|it| it.path.starts_with(pages::DECISIONS));
    tidy(pages::decisions(&pages));
}

#[test]
fn every_label_is_explained() {
    fn names<L: Label>() -> Vec<&'static str> {
        L::ALL.iter().map(|it| it.name()).collect()
    }
    let page = file("docs/observability.md");
    let tables = [
        ("Datagram outcomes", names::<DatagramOutcome>()),
        ("Transitions", names::<TransitionKind>()),
        ("Outcomes of transitions", names::<OutcomeKind>()),
        ("Pools", names::<Pool>()),
        ("Conflicts", names::<ConflictReason>()),
        ("Quota scopes", names::<QuotaScope>()),
        ("Attempt reasons", names::<AttemptReason>()),
        ("Introduction results", names::<IntroductionResult>()),
    ];
    tidy(tables.iter().flat_map(|(heading, names)| names::table_of_names(&page, heading, names)).collect());
}

#[test]
fn every_metric_is_explained() {
    let files = files();
    let written = files.iter().filter(|it| it.path == "control/src/metrics.rs").flat_map(names::metrics);
    tidy(names::unmentioned(&file("docs/observability.md"), &written.collect(), "rendezvous_", "metric"));
}

#[test]
fn every_key_is_explained() {
    let mut keys = names::fields(&file("dataplane/node/src/config.rs"), None);
    keys.extend(names::fields(&file("shared/core/src/limits.rs"), Some("Limits")));
    assert!(keys.len() > 15, "most keys were not found: {keys:?}");
    tidy(names::unmentioned(&file("docs/operating.md"), &keys, "", "key"));
}
