//! Rules about Rust code and manifests.

use crate::lexer::{code_only, is_word};
use crate::tree::File;

/// Lines of a file, of a function.
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 80;

/// Where `unsafe` may stand.
const UNSAFE_HOME: &str = "dataplane/net/";

/// The files that may read a clock, and so may expect the lint that forbids it.
pub(crate) const CLOCK_READERS: &[&str] = &[
    "dataplane/node/src/clock.rs",
    "shared/client/src/driver/clock.rs",
    "loadtest/src/clock.rs",
    "benches/engines.rs",
    "benches/store/rounds.rs",
];

/// The lines, counted from 0, in whose code the word `word` stands.
fn lines_with_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.lines().enumerate().filter(move |(_, line)| has_word(line, word)).map(|(index, _)| index)
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// `unsafe` stands in the crate that speaks to the kernel only.
pub(crate) fn stray_unsafe(file: &File) -> Vec<String> {
    if file.path.starts_with(UNSAFE_HOME) {
        return Vec::new();
    }
    let what = "`unsafe` outside dataplane/net: find a safe way, or move what needs it there";
    lines_with_word(&code_only(&file.text), "unsafe").map(|line| file.finding(line, what)).collect()
}

/// Every other library and binary forbids it.
pub(crate) fn root_without_forbid(root: &File) -> Vec<String> {
    let forbids = code_only(&root.text).lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
    if forbids || root.path.starts_with(UNSAFE_HOME) {
        return Vec::new();
    }
    vec![root.finding(0, "add `#![forbid(unsafe_code)]` below the crate's docs")]
}

/// Every crate says what it is.
pub(crate) fn root_without_docs(root: &File) -> Vec<String> {
    let first = root.text.lines().next().unwrap_or_default();
    let words = first.strip_prefix("//!").unwrap_or_default().split_whitespace().count();
    if words >= 3 {
        return Vec::new();
    }
    vec![root.finding(0, "begin with `//!` and a sentence on what the crate is; below, what it cannot do")]
}

/// Only the edge reads a clock.
pub(crate) fn stray_clock(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let expects = |line: &&str| has_word(line, "clippy::disallowed_methods") && has_word(line, "expect");
    let mut found = code.lines().enumerate().filter(|(_, line)| expects(line)).peekable();
    if CLOCK_READERS.contains(&file.path.as_str()) {
        let unused = found.peek().is_none();
        let what = "expects no disallowed method any more: take it off CLOCK_READERS in tests/tidy/code.rs";
        return if unused { vec![file.finding(0, what)] } else { Vec::new() };
    }
    if file.is_test() {
        return Vec::new();
    }
    let what = "a disallowed method outside CLOCK_READERS (tests/tidy/code.rs): take `now` as an argument, \
                or wait for work instead of sleeping";
    found.map(|(line, _)| file.finding(line, what)).collect()
}

/// Exceptions to lints are `#[expect(.., reason = "..")]`, which says so once it is not needed any more.
pub(crate) fn allowed_lints(file: &File) -> Vec<String> {
    let allows =
        |line: &str| line.contains("[allow(") || (line.contains("cfg_attr") && has_word(line, "allow"));
    let what = "write `#[expect(lint, reason = \"...\")]` instead of `allow`";
    let code = code_only(&file.text);
    let lines = code.lines().enumerate().filter(|(_, line)| allows(line));
    lines.map(|(line, _)| file.finding(line, what)).collect()
}

/// A test that does not run says why.
pub(crate) fn ignored_tests(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let bare = |line: &&str| line.contains("#[ignore") && !line.contains("#[ignore = \"");
    let nameless = |line: &&str| line.contains("#[ignore = \"\"");
    let what = "give the reason, as in `#[ignore = \"needs two network namespaces\"]`";
    let lines = code.lines().enumerate().filter(|(_, line)| bare(line) || nameless(line));
    lines.map(|(line, _)| file.finding(line, what)).collect()
}

/// Nothing is left for later in the text.
pub(crate) fn leftovers(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let mut found = Vec::new();
    for (index, (line, raw)) in code.lines().zip(file.text.lines()).enumerate() {
        for name in ["todo", "unimplemented", "dbg"] {
            if line.contains(&format!("{name}!")) && has_word(line, name) {
                found.push(file.finding(index, format!("`{name}!` is left over: finish or remove it")));
            }
        }
        for mark in [concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")] {
            if has_word(raw, mark) {
                found.push(
                    file.finding(index, format!("{mark}: do it, or open an issue and remove the mark")),
                );
            }
        }
    }
    found
}

/// Every queue has a bound.
pub(crate) fn unbounded_queues(file: &File) -> Vec<String> {
    let what = "every queue has a bound: use the bounded one and make full an outcome";
    let code = code_only(&file.text);
    let lines = code.lines().enumerate().filter(|(_, line)| {
        ["unbounded", "unbounded_channel", "UnboundedSender", "UnboundedReceiver"]
            .iter()
            .any(|it| has_word(line, it))
            || line.contains("mpsc::channel()")
    });
    lines.map(|(line, _)| file.finding(line, what)).collect()
}

/// What serves does not sleep on a thread.
pub(crate) fn sleeping_threads(file: &File) -> Vec<String> {
    if file.is_test() {
        return Vec::new();
    }
    let what = "wait for work or a deadline instead of sleeping";
    let code = code_only(&file.text);
    let serving = code.split_once("\n#[cfg(test)]\nmod tests {").map_or(code.as_str(), |(before, _)| before);
    let lines = serving.lines().enumerate().filter(|(_, line)| line.contains("thread::sleep"));
    lines.map(|(line, _)| file.finding(line, what)).collect()
}

/// A file is read in one sitting.
pub(crate) fn long_files(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines <= FILE_LINES_MAX {
        return Vec::new();
    }
    vec![
        file.finding(FILE_LINES_MAX, format!("{lines} lines, at most {FILE_LINES_MAX}: split it by meaning")),
    ]
}

/// A function is seen at once. Relies on rustfmt: a function ends with the brace at its own indentation.
pub(crate) fn long_functions(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let lines: Vec<&str> = code.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| has_word(line, "fn")) {
        let opens = lines[start..].iter().position(|it| it.trim_end().ends_with(['{', ';', '}']));
        let body = opens.is_some_and(|it| lines[start + it].trim_end().ends_with('{'));
        let is_end_at = |it: &str| indent(it) == indent(line) && it.trim_start().starts_with('}');
        let Some(len) = lines[start..].iter().position(|it| is_end_at(it)).filter(|_| body) else { continue };
        if len + 1 > FUNCTION_LINES_MAX {
            let what = format!("{} lines, at most {FUNCTION_LINES_MAX}: split it by meaning", len + 1);
            found.push(file.finding(start, what));
        }
    }
    found
}

/// Every limit is there for a reason.
pub(crate) fn limits_without_reason(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub const ")) {
        let above = lines[..index].iter().rev().find(|it| !it.starts_with("#["));
        // A function is described by its own rule, missing_docs.
        if !line.starts_with("pub const fn") && !above.is_some_and(|it| it.starts_with("/// ")) {
            found.push(file.finding(index, "say with `///` what the limit bounds and why it is what it is"));
        }
    }
    found
}

/// Members take lints, edition and versions from the workspace.
pub(crate) fn own_ways(manifest: &File) -> Vec<String> {
    let table: toml::Table = manifest.text.parse().unwrap();
    if !table.contains_key("package") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let inherits = |value: Option<&toml::Value>| {
        value.and_then(|it| it.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    if !inherits(table.get("lints")) {
        found.push(manifest.finding(0, "add `[lints] workspace = true`"));
    }
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        if !inherits(table["package"].get(key)) {
            found.push(manifest.finding(0, format!("write `{key}.workspace = true`")));
        }
    }
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let entries = table.get(section).and_then(toml::Value::as_table).into_iter().flatten();
        for (name, _) in entries.filter(|(_, value)| !inherits(Some(value))) {
            let what = format!(
                "put the version of {name} into the top Cargo.toml and write `{name}.workspace = true`"
            );
            found.push(manifest.finding(0, what));
        }
    }
    found
}
