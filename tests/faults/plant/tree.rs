//! A copy of the sources to do damage in.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy; what is in it is what git would commit.
pub(crate) struct Copy {
    top: PathBuf,
}

impl Copy {
    /// Copies the workspace to `top`. A file that is there already with the same text is left alone, so that what was
    /// built of it is still good.
    pub(crate) fn new(top: &Path) -> Result<Self, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut git = Command::new("git");
        git.current_dir(&source).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = git.output().map_err(|error| format!("git ls-files: {error}"))?;
        if !listed.status.success() {
            return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
        }
        let listed = String::from_utf8(listed.stdout).map_err(|error| error.to_string())?;
        let names: BTreeSet<_> = listed.split('\0').filter(|it| source.join(it).is_file()).collect();
        let copy = Self { top: top.to_owned() };
        copy.forget_all_but(top, &names)?;
        for name in names {
            let text = fs::read(source.join(name)).map_err(|error| format!("{name}: {error}"))?;
            if fs::read(top.join(name)).ok().as_ref() != Some(&text) {
                copy.put(name, &text)?;
            }
        }
        Ok(copy)
    }

    /// Removes what is in the copy and not in the sources any more.
    fn forget_all_but(&self, directory: &Path, names: &BTreeSet<&str>) -> Result<(), String> {
        let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
        for path in entries.filter_map(Result::ok).map(|it| it.path()) {
            let name = path.strip_prefix(&self.top).ok().and_then(Path::to_str).unwrap_or_default();
            if path.is_dir() {
                self.forget_all_but(&path, names)?;
            } else if !names.contains(name) {
                fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(())
    }

    fn put(&self, name: &str, text: &[u8]) -> Result<(), String> {
        let path = self.top.join(name);
        let directory = path.parent().unwrap_or(&self.top);
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, text));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    pub(crate) fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.top.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        self.put(name, text.as_bytes())
    }
}
