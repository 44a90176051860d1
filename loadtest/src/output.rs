//! What a person reads. A closed pipe is no reason to die.

use std::fmt;
use std::io::Write;

/// Writes a line to standard output.
pub(crate) fn line(text: impl fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Writes a line to standard error.
pub(crate) fn complain(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
