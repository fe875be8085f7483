//! Columns whose types the database does not know: JSON in text, text in bytes, moments and spans in milliseconds.
//!
//! JSON is kept as text, so that it comes back as it was written; what callers chose freely is kept as bytes where plain text
//! could not hold it (PostgreSQL's has no NUL).

use std::time::Duration;

use base::SaturatingFrom as _;
use policy::CallOwner;
use ports::clock::UnixMillis;
use serde_json::Value;
use tokio_postgres::Row;

use super::faults::Fault;
use super::statement::{NOW, column, unreadable};

/// The first part of a statement that uses `clock.now`: one present for the whole of it. `$1` as for [`NOW`].
pub(super) fn with_clock() -> String {
    format!("WITH clock AS MATERIALIZED (SELECT {NOW} AS now)")
}

/// Whose a row is: its columns `subject` and `delegators`.
pub(super) fn call_owner(row: &Row, of: &str) -> Result<CallOwner, Fault> {
    CallOwner::kept(column(row, "subject")?, column(row, "delegators")?)
        .map_err(|_| unreadable("delegators", of).into())
}

/// A column with JSON.
pub(super) fn json(row: &Row, name: &'static str, of: &str) -> Result<Value, Fault> {
    serde_json::from_str(column(row, name)?).map_err(|_| unreadable(name, of).into())
}

/// A column with JSON, or nothing.
pub(super) fn opt_json<T: serde::de::DeserializeOwned>(
    row: &Row,
    name: &'static str,
    of: &str,
) -> Result<Option<T>, Fault> {
    let text: Option<&str> = column(row, name)?;
    text.map(serde_json::from_str).transpose().map_err(|_| unreadable(name, of).into())
}

/// Text that was kept as bytes, or nothing.
pub(super) fn opt_text(row: &Row, name: &'static str, of: &str) -> Result<Option<String>, Fault> {
    let bytes: Option<&[u8]> = column(row, name)?;
    bytes.map(|bytes| str::from_utf8(bytes).map(str::to_owned)).transpose().map_err(|_| unreadable(name, of).into())
}

/// A column with a moment.
pub(super) fn time(row: &Row, name: &'static str) -> Result<UnixMillis, Fault> {
    Ok(UnixMillis(column(row, name)?))
}

/// A column with a moment, or nothing.
pub(super) fn opt_time(row: &Row, name: &'static str) -> Result<Option<UnixMillis>, Fault> {
    Ok(column::<Option<i64>>(row, name)?.map(UnixMillis))
}

/// A column with a number that is never negative.
pub(super) fn number<T: TryFrom<i64>>(row: &Row, name: &'static str, of: &str) -> Result<T, Fault> {
    T::try_from(column::<i64>(row, name)?).map_err(|_| unreadable(name, of).into())
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
