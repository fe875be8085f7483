//! Rows of SQLite: how this database keeps the values that `crate::records` reads.
//!
//! Moments of the older tables are text, which has the order of time.

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use rusqlite::{Row, Rows};

use super::faults::Fault;
use crate::stored_row::{StoredRow, Unreadable, unreadable};

impl StoredRow for Row<'_> {
    type Fault = Fault;

    fn opt_text(&self, column: &'static str) -> Result<Option<&str>, Fault> {
        Ok(self.get_ref(column)?.as_str_or_null().map_err(|_| unreadable(column, "a row"))?)
    }

    fn opt_free_text(&self, column: &'static str) -> Result<Option<String>, Fault> {
        Ok(self.get(column)?)
    }

    fn opt_byte_text(&self, column: &'static str, _: &str) -> Result<Option<String>, Fault> {
        Ok(self.get(column)?)
    }

    fn opt_json_text(&self, column: &'static str, _: &str) -> Result<Option<String>, Fault> {
        Ok(self.get(column)?)
    }

    fn opt_int(&self, column: &'static str) -> Result<Option<i64>, Fault> {
        Ok(self.get(column)?)
    }

    fn opt_real(&self, column: &'static str) -> Result<Option<f64>, Fault> {
        Ok(self.get(column)?)
    }

    fn flag(&self, column: &'static str) -> Result<bool, Fault> {
        Ok(self.get(column)?)
    }

    fn bytes(&self, column: &'static str) -> Result<&[u8], Fault> {
        Ok(self.get_ref(column)?.as_blob().map_err(|_| unreadable(column, "a row"))?)
    }

    fn opt_moment(&self, column: &'static str, of: &str) -> Result<Option<UnixMillis>, Fault> {
        Ok(self.opt_text(column)?.map(|text| moment(text, column, of)).transpose()?)
    }
}

/// Each row of an answer.
pub(super) fn all<'r, T>(
    mut rows: Rows<'r>,
    mut read: impl FnMut(&Row<'r>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// The first row of an answer.
pub(super) fn first<'r, T>(
    mut rows: Rows<'r>,
    read: impl Fn(&Row<'r>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    rows.next()?.map(read).transpose()
}

/// A bound as the database has it.
pub(super) fn limit(most: usize) -> i64 {
    i64::saturating_from(most)
}

/// A moment so long ago.
pub(super) fn ago(now: UnixMillis, span: Duration) -> i64 {
    now.0.saturating_sub(i64::saturating_from(span.as_millis()))
}

fn moment(text: &str, column: &'static str, of: &str) -> Result<UnixMillis, Unreadable> {
    let stamp: jiff::Timestamp = text.parse().map_err(|_| unreadable(column, of))?;
    Ok(UnixMillis(stamp.as_millisecond()))
}
