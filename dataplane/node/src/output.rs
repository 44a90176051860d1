//! What a person reads on standard output. A closed pipe is no reason to die.

use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard output.
pub fn line(text: impl fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Writes a line to standard error.
pub fn complain(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Where the log goes: standard error, as long as somebody reads it.
#[derive(Clone, Copy, Debug)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
