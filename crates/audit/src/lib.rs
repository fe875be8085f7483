//! The audit log: one line of JSON per record, in files that are only ever appended to.
//!
//! This is the embedded default of DESIGN §4. Records are durable when [`FileLog::append`] returns: one write and one
//! `fdatasync` per batch. A file that has grown to its limit is left alone for ever and the next one begun.
//!
//! Invariants
//! - AUD-A: a line is whole or it is the last one; opening after a crash cuts off a torn last line.
//! - AUD-B: records never contain parameters or results, only their digests.

mod cloud_event;
#[cfg(feature = "conformance")]
pub mod conformance;
mod file_log;
mod line;
mod reader;
mod segments;
pub mod sinks;

pub use cloud_event::{CloudEventError, SOURCE, TYPE_PREFIX, cloud_event};
pub use file_log::{FileLog, OpenError};
pub use reader::{BATCH_BYTES_MAX, Entry, LogReader};
