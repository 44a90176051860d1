//! The repository's own texts.

use std::path::{Path, PathBuf};

/// A text file, its path relative to the top with `/` between names.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn is_page(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Whether all of it is for tests.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// A finding at a line of it, counted from 0.
    pub(crate) fn finding(&self, line: usize, what: impl AsRef<str>) -> String {
        format!("{}:{}: {}", self.path, line + 1, what.as_ref())
    }
}

/// The top of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file, page and manifest.
pub(crate) fn files() -> Vec<File> {
    let mut files = Vec::new();
    walk(&top(), "", &mut files);
    assert!(files.iter().filter(|it| it.is_rust()).count() > 50, "most of the tree was not found");
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn walk(directory: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(&entry.path(), &format!("{path}/"), files);
            }
        } else if [".rs", ".md", "Cargo.toml"].iter().any(|it| name.ends_with(it)) {
            files.push(File { path, text: std::fs::read_to_string(entry.path()).unwrap() });
        }
    }
}
