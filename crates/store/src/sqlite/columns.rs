//! Columns with types of their own: read back from text, or named in a fault when they cannot be.

use policy::CallOwner;
use ports::clock::UnixMillis;
use rusqlite::Row;
use serde_json::Value;

use super::faults::{Fault, Unreadable};
use super::registry::time;

/// A column with a type that is written as text.
pub(super) fn word<T: std::str::FromStr>(row: &Row<'_>, column: &'static str, of: &str) -> Result<T, Fault> {
    row.get::<_, String>(column)?.parse().map_err(|_| unreadable(column, of).into())
}

/// Whose a row is: its columns `subject` and `delegators`.
pub(super) fn call_owner(row: &Row<'_>, of: &str) -> Result<CallOwner, Fault> {
    let (subject, delegators): (String, Option<String>) = (row.get("subject")?, row.get("delegators")?);
    CallOwner::kept(&subject, delegators.as_deref()).map_err(|_| unreadable("delegators", of).into())
}

/// JSON text.
pub(super) fn json(text: &str, column: &'static str, of: &str) -> Result<Value, Unreadable> {
    serde_json::from_str(text).map_err(|_| unreadable(column, of))
}

/// A column with JSON, or nothing.
pub(super) fn opt_json(row: &Row<'_>, column: &'static str, of: &str) -> Result<Option<Value>, Fault> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(|text| json(&text, column, of)).transpose()?)
}

/// A column with a moment.
pub(super) fn time_of(row: &Row<'_>, column: &'static str, of: &str) -> Result<UnixMillis, Fault> {
    Ok(time(&row.get::<_, String>(column)?, column, of)?)
}

/// A column with a moment, or nothing.
pub(super) fn opt_time(row: &Row<'_>, column: &'static str, of: &str) -> Result<Option<UnixMillis>, Fault> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(|text| time(&text, column, of)).transpose()?)
}

/// The fault of a column that cannot be what this program wrote.
pub(super) fn unreadable(column: &'static str, of: &str) -> Unreadable {
    Unreadable { column, of: of.to_owned() }
}
