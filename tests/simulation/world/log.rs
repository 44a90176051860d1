//! The log of a world: one line for everything that happens. The same seed writes the same bytes.

use core::fmt;
use core::hash::Hasher;
use std::fmt::Write;
use std::hash::DefaultHasher;

use rendezvous_shared::time::Instant;

/// Lines of text.
#[derive(Default)]
pub(crate) struct Log(String);

impl Log {
    /// Writes a line.
    pub(crate) fn line(&mut self, now: Instant, what: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{} {what}", now.as_nanos() / 1_000);
    }

    /// All of it.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The last `lines` lines.
    pub(crate) fn tail(&self, lines: usize) -> &str {
        let start = self.0.rmatch_indices('\n').nth(lines).map_or(0, |(at, _)| at + 1);
        &self.0[start..]
    }

    /// A hash of all of it, the same in every process.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.0.as_bytes());
        hasher.finish()
    }
}
