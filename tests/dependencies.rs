//! Proves by `cargo metadata` that dependencies between our crates point one way, and that what they depend on is
//! released: no alpha, no release candidate, nothing from a git repository.
//!
//! The table below is the architecture. A crate that is not in it fails, so that whoever adds one decides where
//! it stands. What this cannot show: dependencies of dependencies are only looked at where they are ours.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Each crate of ours, and which of ours it may depend on outside of its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("rendezvous-shared", &[]),
    ("rendezvous-client", &["rendezvous-shared"]),
    ("rendezvous-core", &["rendezvous-shared"]),
    ("rendezvous-net", &[]),
    ("rendezvous-control", &["rendezvous-shared"]),
    (
        "rendezvous",
        &[
            "rendezvous-client",
            "rendezvous-control",
            "rendezvous-core",
            "rendezvous-net",
            "rendezvous-shared",
        ],
    ),
    ("rendezvous-loadtest", &["rendezvous-client", "rendezvous-shared"]),
    // The leaves: they may use everything below them.
    (
        "rendezvous-benches",
        &[
            "rendezvous-client",
            "rendezvous-control",
            "rendezvous-core",
            "rendezvous-net",
            "rendezvous-shared",
        ],
    ),
    (
        "rendezvous-testkit",
        &[
            "rendezvous-client",
            "rendezvous-control",
            "rendezvous-core",
            "rendezvous-net",
            "rendezvous-shared",
        ],
    ),
];

/// Nobody depends on them, except in tests.
const LEAVES: &[&str] = &["rendezvous", "rendezvous-loadtest", "rendezvous-benches", "rendezvous-testkit"];

/// A crate of ours with what it depends on.
struct Member {
    name: String,
    /// Of ours: for the build, and for tests only.
    uses: BTreeSet<String>,
    tests_use: BTreeSet<String>,
    /// Everybody else's.
    foreign: BTreeSet<String>,
}

fn metadata() -> Metadata {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap()
}

fn members(metadata: &Metadata) -> Vec<Member> {
    let packages = metadata.workspace_packages();
    let ours: BTreeSet<String> = packages.iter().map(|it| it.name.to_string()).collect();
    let member = |package: &&cargo_metadata::Package| {
        let of_kind = |test: bool, own: bool| {
            let fits = |it: &&cargo_metadata::Dependency| {
                (it.kind == DependencyKind::Development) == test && ours.contains(&it.name) == own
            };
            package.dependencies.iter().filter(fits).map(|it| it.name.clone()).collect::<BTreeSet<_>>()
        };
        Member {
            name: package.name.to_string(),
            uses: of_kind(false, true),
            tests_use: of_kind(true, true),
            foreign: &of_kind(false, false) | &of_kind(true, false),
        }
    };
    packages.iter().map(member).collect()
}

/// Every edge, as a table to read.
fn table(members: &[Member]) -> String {
    let list = |names: &BTreeSet<String>| match names.len() {
        0 => "-".to_owned(),
        _ => names.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
    };
    let line =
        |it: &Member| format!("{:<20} -> {}   (tests: {})\n", it.name, list(&it.uses), list(&it.tests_use));
    members.iter().map(line).collect()
}

/// What is wrong with the edges between `members`.
fn wrong_edges(members: &[Member]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for member in members {
        let name = member.name.as_str();
        let Some(may_use) = allowed.get(name) else {
            wrong
                .push(format!("{name} is not in the table of tests/dependencies.rs: decide where it stands"));
            continue;
        };
        for used in &member.uses {
            if LEAVES.contains(&used.as_str()) {
                wrong.push(format!(
                    "{name} builds on {used}, a leaf: only tests may, move what is shared down"
                ));
            } else if !may_use.contains(&used.as_str()) {
                wrong.push(format!(
                    "{name} must not depend on {used}: turn the edge round or hand the value in"
                ));
            }
        }
    }
    for (name, _) in ALLOWED {
        if !members.iter().any(|it| it.name == *name) {
            wrong.push(format!("{name} is in the table of tests/dependencies.rs and not in the workspace"));
        }
    }
    wrong
}

/// Which of the packages in `lock` that `direct` names are not releases.
fn unreleased(lock: &str, direct: &BTreeSet<String>) -> Vec<String> {
    let lock: toml::Table = lock.parse().unwrap();
    let text = |package: &toml::Value, key: &str| {
        package.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
    };
    let mut wrong = Vec::new();
    for package in lock["package"].as_array().unwrap() {
        let [name, version, source] = ["name", "version", "source"].map(|key| text(package, key));
        if !direct.contains(&name) {
            continue;
        }
        // Behind a `+` stands the upstream's version, as in 0.9.1+3.2.0-beta: that is no pre-release of the crate.
        if version.split('+').next().is_some_and(|it| it.contains('-')) {
            wrong.push(format!("{name} {version} is a pre-release: depend on a released version"));
        }
        if source.starts_with("git+") {
            wrong.push(format!("{name} comes from a git repository: depend on a released version"));
        }
    }
    wrong
}

#[test]
fn dependencies_point_one_way() {
    let members = members(&metadata());
    let table = table(&members);
    println!("{table}");
    let wrong = wrong_edges(&members);
    assert!(wrong.is_empty(), "{}\n\n{table}", wrong.join("\n"));
}

#[test]
fn what_we_depend_on_is_released() {
    let metadata = metadata();
    let direct = members(&metadata).into_iter().flat_map(|it| it.foreign).collect();
    let lock = std::fs::read_to_string(metadata.workspace_root.join("Cargo.lock")).unwrap();
    let wrong = unreleased(&lock, &direct);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rules_find_planted_edges() {
    let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let plain = |name: &str, uses: &[&str]| Member {
        name: name.to_owned(),
        uses: set(uses),
        tests_use: set(&["rendezvous-testkit"]),
        foreign: BTreeSet::new(),
    };
    let good: Vec<_> = ALLOWED.iter().map(|(name, uses)| plain(name, uses)).collect();
    assert_eq!(wrong_edges(&good), Vec::<String>::new(), "a leaf in tests is no edge");
    for (name, uses, finding) in [
        ("rendezvous-core", "rendezvous-control", "must not depend on rendezvous-control"),
        ("rendezvous-net", "rendezvous-shared", "must not depend on rendezvous-shared"),
        ("rendezvous-loadtest", "rendezvous-core", "must not depend on rendezvous-core"),
        ("rendezvous-control", "rendezvous-testkit", "a leaf"),
        ("rendezvous-news", "rendezvous-shared", "not in the table"),
    ] {
        let mut members: Vec<_> = ALLOWED.iter().map(|(name, uses)| plain(name, uses)).collect();
        members.retain(|it| it.name != name);
        members.push(plain(name, &[uses]));
        let wrong = wrong_edges(&members);
        assert!(wrong.len() == 1 && wrong[0].contains(finding), "{name}: {wrong:?}");
    }
    assert_eq!(wrong_edges(&good[1..]).len(), 1, "a crate of the table that is gone");
}

#[test]
fn the_rules_find_planted_versions() {
    let lock = r#"
        [[package]]
        name = "released"
        version = "1.2.3+4.5.6-beta"
        source = "registry+index"
        [[package]]
        name = "early"
        version = "1.0.0-rc.1"
        source = "registry+index"
        [[package]]
        name = "forked"
        version = "1.0.0"
        source = "git+somewhere"
        [[package]]
        name = "not-ours-to-choose"
        version = "1.0.0-alpha"
        source = "registry+index"
    "#;
    let direct = ["released", "early", "forked"].map(String::from).into();
    let wrong = unreleased(lock, &direct);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("early") && wrong[1].starts_with("forked"));
}
