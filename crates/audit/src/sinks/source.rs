//! Where couriers read from: the log, by sequence number.

use std::fmt;
use std::io;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its index in the log; the first is 0.
    pub seq: u64,
    /// Without its newline.
    pub line: String,
}

/// Reads records that are durable. Blocking: couriers call it where blocking is allowed.
pub trait Source: Send + Sync + fmt::Debug {
    /// Up to `max` records from `from` on, in order and without a gap. Empty at the end of the log.
    ///
    /// # Errors
    /// When the log cannot be read, or has a record that is none.
    fn read(&self, from: u64, max: usize) -> io::Result<Vec<Entry>>;

    /// How many records the log has, which is the number the next one gets.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn end(&self) -> io::Result<u64>;
}
