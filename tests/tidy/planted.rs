//! Each rule tried on text that breaks it, and on text that does not.

use crate::code::{self, CLOCK_READERS};
use crate::names;
use crate::pages::{self, DECISIONS};
use crate::tree::File;

type Rule = fn(&File) -> Vec<String>;

fn check(rule: Rule, path: &str, text: &str, findings: usize) {
    let found = rule(&File::new(path, text));
    assert_eq!(found.len(), findings, "{path}: {text}\n{found:?}");
    assert!(found.iter().all(|it| it.starts_with(path)), "{found:?}");
}

#[test]
fn unsafe_code() {
    check(code::stray_unsafe, "control/src/a.rs", "fn f() {\n    unsafe { g() }\n}", 1);
    check(code::stray_unsafe, "tests/kit/a.rs", "unsafe impl Send for A {}", 1);
    check(code::stray_unsafe, "dataplane/net/src/a.rs", "unsafe { g() }", 0);
    check(code::stray_unsafe, "control/src/a.rs", "#![forbid(unsafe_code)] // unsafe\nf(\"unsafe\");", 0);
    check(code::root_without_forbid, "control/src/lib.rs", "//! Words.\n// #![forbid(unsafe_code)]\n", 1);
    check(code::root_without_forbid, "control/src/lib.rs", "//! Words.\n#![forbid(unsafe_code)]\n", 0);
    check(code::root_without_forbid, "dataplane/net/src/lib.rs", "//! Words.\n", 0);
}

#[test]
fn crate_docs() {
    for (text, findings) in [("mod a;\n", 1), ("//! t\n", 1), ("", 1), ("//! The control plane.\n", 0)] {
        check(code::root_without_docs, "control/src/lib.rs", text, findings);
    }
}

#[test]
fn clocks() {
    let text = "#[expect(clippy::disallowed_methods, reason = \"here\")]\nfn now() {}\n";
    check(code::stray_clock, "control/src/a.rs", text, 1);
    check(code::stray_clock, "control/src/tests/a.rs", text, 0);
    check(code::stray_clock, CLOCK_READERS[0], text, 0);
    check(code::stray_clock, CLOCK_READERS[0], "fn now() {}\n", 1);
}

#[test]
fn lints() {
    check(code::allowed_lints, "a.rs", "#[allow(dead_code)]\n#![allow(missing_docs)]\n", 2);
    check(code::allowed_lints, "a.rs", "#[cfg_attr(test, allow(dead_code))]", 1);
    check(code::allowed_lints, "a.rs", "ceiling.allow(now); fn allow(&self) {} // #[allow(x)]", 0);
    check(code::ignored_tests, "a.rs", "#[ignore]\n#[ignore = \"\"]\n", 2);
    check(code::ignored_tests, "a.rs", "#[ignore = \"needs a network\"]\n", 0);
}

#[test]
fn leftovers() {
    check(code::leftovers, "a.rs", "todo!();\nunimplemented!();\ndbg!(x);\n", 3);
    check(code::leftovers, "a.rs", concat!("// FIX", "ME\n// XX", "X\n// TO", "DO: later\n"), 3);
    check(code::leftovers, "a.rs", "// todo!\nmy_todo!(); f(\"dbg!\");\n", 0);
}

#[test]
fn queues_and_sleep() {
    check(code::unbounded_queues, "a.rs", "let it = unbounded();\nlet it = mpsc::channel();", 2);
    check(code::unbounded_queues, "a.rs", "let it: UnboundedSender<u8> = mpsc::unbounded_channel().0;", 1);
    check(code::unbounded_queues, "a.rs", "let it = bounded(4); Bound::Unbounded; mpsc::channel(4);", 0);
    let sleeps = "std::thread::sleep(it);";
    check(code::sleeping_threads, "control/src/a.rs", sleeps, 1);
    check(code::sleeping_threads, "control/src/a.rs", &format!("#[cfg(test)]\nmod tests;\n{sleeps}"), 1);
    check(code::sleeping_threads, "control/src/a.rs", &format!("\n#[cfg(test)]\nmod tests {{\n{sleeps}"), 0);
    check(code::sleeping_threads, "tests/a.rs", sleeps, 0);
}

#[test]
fn lengths() {
    check(code::long_files, "a.rs", &"\n".repeat(501), 1);
    check(code::long_files, "a.rs", &"\n".repeat(500), 0);
    let function = |len: usize| {
        format!(
            "impl A {{\n    fn f(\n        a: u8,\n    ) {{\n{}    }}\n}}\n",
            "        g();\n".repeat(len - 4)
        )
    };
    check(code::long_functions, "a.rs", &function(81), 1);
    check(code::long_functions, "a.rs", &function(80), 0);
    let declared = format!("trait A {{\n    fn f();\n{}}}\n", "    fn g() {}\n".repeat(90));
    check(code::long_functions, "a.rs", &declared, 0);
}

#[test]
fn limits() {
    check(
        code::limits_without_reason,
        "limits.rs",
        "/// Why.\npub const A: u8 = 1;\npub const B: u8 = 1;\n",
        1,
    );
    check(code::limits_without_reason, "limits.rs", "/// Why.\n#[rustfmt::skip]\npub const A: u8 = 1;\n", 0);
}

#[test]
fn manifests() {
    let fields = "version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
                  license.workspace = true\npublish.workspace = true\n";
    let good = format!("[package]\nname = \"a\"\n{fields}[lints]\nworkspace = true\n");
    let check = |text: &str, findings| check(code::own_ways, "a/Cargo.toml", text, findings);
    check(&format!("{good}[dependencies]\nb.workspace = true\nc = {{ workspace = true }}\n"), 0);
    check(&format!("{good}[dependencies]\nb = \"1\"\n[dev-dependencies]\nc = {{ path = \"c\" }}\n"), 2);
    check(&good.replace("[lints]", "[metadata]"), 1);
    check(&good.replace("edition.workspace = true", "edition = \"2021\""), 1);
    check("[workspace]\n", 0);
}

#[test]
fn white_space() {
    check(pages::white_space, "a.md", "a \nb\tc\nd\r\ne", 4);
    check(pages::white_space, "a.rs", "", 0);
    check(pages::white_space, "a.rs", "a\n\n    b\n", 0);
}

#[test]
fn conflicts() {
    check(
        pages::unmerged,
        "a.md",
        &format!("{}<< ours\na\n=====\nb\n{}>> theirs\n", "<".repeat(5), ">".repeat(5)),
        2,
    );
    check(pages::unmerged, "a.md", "> a quotation\n<a>\n", 0);
}

#[test]
fn links() {
    let read = |path: &std::path::Path| match path.to_str()? {
        "docs/other.md" => Some("# Two words, `Code`\n```\n# no heading\n```\n".to_owned()),
        "docs/../src/a.rs" => Some(String::new()),
        _ => None,
    };
    let check = |text: &str, findings| {
        let found = pages::dead_links(&File::new("docs/page.md", text), read);
        assert_eq!(found.len(), findings, "{text}: {found:?}");
    };
    check(
        "# Here\n[a](other.md) [b](other.md#two-words-code) [c](../src/a.rs#L1) [d](#here) [e](https://a.b)\n",
        0,
    );
    check("[a](gone.md) [b](other.md#no-heading) [c](#there)\n", 3);
    check("```\n[a](gone.md)\n```\n`[a](gone.md)`\n", 0);
}

#[test]
fn decisions() {
    let page = |name: &str, text: &str| File::new(&format!("{DECISIONS}{name}"), text);
    let good = "# 0001. This\n\n## Context\n\n## Decision\n\n## Price\n";
    let index = page("README.md", "| [this](0001-this.md) |\n");
    let check = |pages: &[File], findings| {
        let found = pages::decisions(pages);
        assert_eq!(found.len(), findings, "{found:?}");
    };
    check(&[page("0001-this.md", good), index.clone()], 0);
    check(&[page("0001-this.md", good)], 1);
    check(&[page("0001-this.md", &good.replace("## Price", "## Cost")), index.clone()], 1);
    check(&[page("0001-this.md", &good.replace("# 0001.", "# 1.")), index.clone()], 1);
    check(&[page("0001-that.md", good), index.clone()], 1);
    check(&[page("0002-this.md", &good.replace("0001", "0002")), index], 2);
}

#[test]
fn shared_names() {
    let page = File::new(
        "a.md",
        "## Ends\n\n| name | |\n|---|---|\n| `one` | x |\n| `two` | x |\n\n## Others\n\n| `three` | x |\n",
    );
    assert_eq!(names::table_of_names(&page, "Ends", &["one", "two"]), Vec::<String>::new());
    let found = names::table_of_names(&page, "Ends", &["one", "three"]);
    assert!(found.len() == 2 && found[0].contains("`three`") && found[1].contains("`two`"), "{found:?}");

    let code = "out.gauge(\"depth\", help)?;\nout.counters(\n    \"ends\",\n    help,\n)?;\n";
    let written = names::metrics(&File::new("a.rs", code));
    assert_eq!(written.iter().map(String::as_str).collect::<Vec<_>>(), ["depth", "ends"]);
    let page = File::new("a.md", "| `p_ends_total{end}` | x |\n`p_depths`\n");
    assert_eq!(names::unmentioned(&page, &written, "p_", "metric"), ["a.md: describe the metric `p_depth`"]);

    let code = "pub struct A {\n    /// x\n    pub one: u8,\n    two: u8,\n}\npub struct B {\n    pub three: u8,\n}\n";
    let fields =
        |only| names::fields(&File::new("a.rs", code), only).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!((fields(None), fields(Some("B"))), ("one three".to_owned(), "three".to_owned()));
}
