//! The log of a call's program, for a kernel that reads it when the call is over, however it ended.
//!
//! A call that is ended from outside (at its deadline, when it is cancelled) takes every word from its executor. So the
//! executor does not hand the log over with its answer: it leaves a reading here before the tool begins, and the kernel takes
//! it afterwards. What is read is the end of the log, bounded, and without the credentials that the tool was given; the
//! kernel redacts it.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use base::MutexExt as _;

/// Reads the end of a log, once.
type LogReading = Box<dyn FnOnce() -> String + Send>;

/// Where an executor leaves how to read the log of a call's program.
///
/// ```
/// # use gantry_ports::program_log::ProgramLog;
/// let log = ProgramLog::default();
/// assert_eq!(log.take(), None, "a call without a program has no log");
/// log.leave(|| "half way".to_owned());
/// assert_eq!(log.take().as_deref(), Some("half way"));
/// ```
#[derive(Default)]
pub struct ProgramLog(Mutex<Option<LogReading>>);

impl ProgramLog {
    /// Leaves a reading, in place of an earlier one. It must not wait.
    pub fn leave(&self, reading: impl FnOnce() -> String + Send + 'static) {
        *self.lock() = Some(Box::new(reading));
    }

    /// What the program wrote last; `None` if there was no program, or somebody has read it.
    pub fn take(&self) -> Option<String> {
        let reading = self.lock().take();
        reading.map(|read| read())
    }

    fn lock(&self) -> MutexGuard<'_, Option<LogReading>> {
        self.0.lock_unpoisoned()
    }
}

impl fmt::Debug for ProgramLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgramLog").field(&self.lock().is_some()).finish()
    }
}
