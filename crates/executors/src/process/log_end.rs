//! The end of a program's log, shared by whoever reads the program and whoever is told about it afterwards.
//!
//! A call that is ended from outside takes the reader with it, and what it had read must not be lost: the reason why a
//! program did not answer in time is usually in its last lines.

use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;

use super::streams::StreamTail;

/// Bytes of a stray line that is shown. Of a longer one nothing is: it is redacted later, and half a secret looks like none.
const STRAY_BYTES_MAX: usize = 1_000;

/// The last bytes of what a program wrote to stderr. Every clone is the same log.
#[derive(Debug, Clone)]
pub struct LogEnd(Arc<Mutex<StreamTail>>);

impl Default for LogEnd {
    /// Keeps nothing until somebody says how much ([`keep`](Self::keep)).
    fn default() -> Self {
        Self(Arc::new(Mutex::new(StreamTail::new(0))))
    }
}

impl LogEnd {
    /// Keeps so many bytes from now on.
    pub(super) fn keep(&self, bytes_max: usize) {
        self.lock().keep(bytes_max);
    }

    pub(super) fn extend(&self, bytes: &[u8]) {
        self.lock().extend(bytes);
    }

    /// How many bytes there were in all.
    pub(super) fn seen(&self) -> u64 {
        self.lock().seen()
    }

    /// Counts anew, for the next call.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// The whole lines that are kept.
    pub(super) fn text(&self) -> String {
        self.lock().text()
    }

    /// Adds a line of stdout that does not belong there, so that whoever may read the log sees which one it was.
    pub(super) fn note_stray(&self, number: Option<usize>, line: &[u8]) {
        let shown = match line.len() {
            0..=STRAY_BYTES_MAX => String::from_utf8_lossy(line).trim_end().to_owned(),
            bytes => format!("({bytes} bytes, too long to be shown)"),
        };
        let place = number.map(|number| format!(", line {number}")).unwrap_or_default();
        let mut tail = self.lock();
        let begins = if tail.ends_with_line() { "" } else { "\n" };
        tail.extend(format!("{begins}[stdout{place}, not part of the result] {shown}\n").as_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, StreamTail> {
        self.0.lock_unpoisoned()
    }
}
