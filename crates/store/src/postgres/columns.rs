//! Rows of PostgreSQL: how this database keeps the values that `crate::records` reads, and spans and bounds as it computes
//! with them.
//!
//! What callers chose freely is kept escaped (`stored_text`), as bytes or as JSON, because plain text has no NUL.

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use tokio_postgres::Row;

use super::faults::Fault;
use super::statement::{NOW, column};
use super::stored_text::given;
use crate::stored_row::{StoredRow, unreadable};

impl StoredRow for Row {
    type Fault = Fault;

    fn opt_text(&self, name: &'static str) -> Result<Option<&str>, Fault> {
        column(self, name)
    }

    fn opt_free_text(&self, name: &'static str) -> Result<Option<String>, Fault> {
        Ok(self.opt_text(name)?.map(given))
    }

    fn opt_byte_text(&self, name: &'static str, of: &str) -> Result<Option<String>, Fault> {
        let bytes: Option<&[u8]> = column(self, name)?;
        Ok(bytes.map(str::from_utf8).transpose().map_err(|_| unreadable(name, of))?.map(str::to_owned))
    }

    fn opt_json_text(&self, name: &'static str, of: &str) -> Result<Option<String>, Fault> {
        self.opt_json(name, of)
    }

    fn opt_int(&self, name: &'static str) -> Result<Option<i64>, Fault> {
        column(self, name)
    }

    fn opt_real(&self, name: &'static str) -> Result<Option<f64>, Fault> {
        column(self, name)
    }

    fn flag(&self, name: &'static str) -> Result<bool, Fault> {
        column(self, name)
    }

    fn bytes(&self, name: &'static str) -> Result<&[u8], Fault> {
        column(self, name)
    }

    fn opt_moment(&self, name: &'static str, _: &str) -> Result<Option<UnixMillis>, Fault> {
        self.opt_time(name)
    }
}

/// The first part of a statement that uses `clock.now`: one present for the whole of it. `$1` as for [`NOW`].
pub(super) fn with_clock() -> String {
    format!("WITH clock AS MATERIALIZED (SELECT {NOW} AS now)")
}

/// A span as the database computes with it. Longer ones than a century are one: sums must not overflow.
pub(super) fn millis(span: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 60 * 60 * 1000;
    i64::try_from(span.as_millis()).unwrap_or(CENTURY).min(CENTURY)
}

/// A bound as the database has it.
pub(super) fn limit(most: usize) -> i64 {
    i64::saturating_from(most)
}
