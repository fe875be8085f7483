//! Where the tables of the two stores differ, and what is left out of a backup.
//!
//! Everything that is not named here has the same name on both sides and is carried over as it is; differences of type
//! alone (a moment as text or as a number, 0 and 1 or a boolean, text or bytes) are settled by the types.

use super::row::RowCell;
use super::{ColumnKind, MoveError};

/// Tables that follow from others, or hold nothing but the leases of running processes.
const LEFT_OUT: &[&str] = &[
    // Numbers and index of the search, built anew when the store is opened.
    "registry_tenants",
    "search_corpora",
    "search_documents",
    "search_postings",
    "search_terms",
    // Vectors of tools: a model makes them again, and until then tools are found by words.
    "vector_spaces",
    "vectors",
    // Counters that follow the jobs.
    "job_tenants",
    "job_flows",
    // Keys: a backup has none unless they are asked for, and those are asked of the data directory.
    "installation_secrets",
    // The searchable copy of the audit logs, which every instance fills again from its own log.
    "archive_logs",
    "audit_records",
    "tool_invocations",
    // How far the audit logs of instances have come: each says it again.
    "log_heads",
    // Who is alive: nobody, when a store is moved.
    "presence",
    "instances",
    "job_owners",
    "ledger_owners",
    "checkpoint_attempts",
];
/// Tables of this prefix are about the database itself.
const OWN_PREFIX: &str = "gantry_";

/// Columns whose value is made on the way out of SQLite: table, column, expression.
const MADE: &[(&str, &str, &str)] = &[
    ("ledger", "claim", "0"),
    ("job_bodies", "tenant_id", "(SELECT tenant_id FROM jobs WHERE jobs.seq = job_bodies.seq)"),
    ("job_events", "tenant_id", "(SELECT tenant_id FROM jobs WHERE jobs.seq = job_events.seq)"),
];
/// Columns of SQLite that are numbered anew on the other side.
const NUMBERED_ANEW: &[(&str, &str)] = &[("tool_definitions", "tool_key")];
/// Plain text in SQLite, a string of JSON in PostgreSQL, whose text cannot hold every character.
const JSON_STRINGS: &[(&str, &str)] = &[("jobs", "phase"), ("jobs", "cancel_asked")];

/// Rows that are not those of the table's own order, because rows refer to rows of the same table.
const ORDERS: &[(&str, &[&str])] = &[("checkpoints", &["chain", "checkpoint_id"])];

/// The single numbers are there from the start: they are replaced, all but the one that has the search index built anew.
pub(crate) const NUMBERS: &str = "store_numbers";
const NUMBERS_IN_BACKUP: &str = "name <> 'search_pipeline'";
const NUMBERS_FROM_SQLITE: &str = "name IN ('probes', 'access_epoch')";

/// Is a table of the store part of a backup?
pub(crate) fn is_moved(table: &str) -> bool {
    !table.starts_with(OWN_PREFIX) && !LEFT_OUT.contains(&table)
}

/// What the rows of a table are ordered by, if not by its key.
pub(crate) fn order(table: &str) -> Option<Vec<String>> {
    let (_, columns) = ORDERS.iter().find(|(name, _)| *name == table)?;
    Some(columns.iter().map(ToString::to_string).collect())
}

/// Which rows of a table are in a backup.
pub(crate) fn in_backup(table: &str) -> Option<&'static str> {
    (table == NUMBERS).then_some(NUMBERS_IN_BACKUP)
}

/// Which rows of a table go from SQLite to PostgreSQL.
pub(crate) fn from_sqlite(table: &str) -> Option<&'static str> {
    (table == NUMBERS).then_some(NUMBERS_FROM_SQLITE)
}

/// The expression that makes a column which SQLite does not have.
pub(super) fn made(table: &str, column: &str) -> Option<&'static str> {
    MADE.iter().find(|(of, name, _)| *of == table && *name == column).map(|(.., made)| *made)
}

/// Is a column of SQLite left behind?
pub(super) fn is_numbered_anew(table: &str, column: &str) -> bool {
    NUMBERED_ANEW.contains(&(table, column))
}

/// A value of SQLite as the other side keeps it.
pub(super) fn shaped(table: &str, column: &str, to: &ColumnKind, cell: RowCell) -> Result<RowCell, MoveError> {
    let wrong = |problem| MoveError::Value { table: table.to_owned(), column: column.to_owned(), problem };
    if JSON_STRINGS.contains(&(table, column))
        && let RowCell::Text(text) = cell
    {
        return Ok(RowCell::Text(serde_json::Value::String(text).to_string()));
    }
    Ok(match (to, cell) {
        (_, RowCell::Null) => RowCell::Null,
        (ColumnKind::Bytes, RowCell::Text(text)) => RowCell::Bytes(text.into_bytes()),
        (ColumnKind::Boolean, RowCell::Integer(number @ (0 | 1))) => RowCell::Boolean(number == 1),
        (ColumnKind::Integer, RowCell::Text(text)) => {
            RowCell::Integer(moment(&text).ok_or_else(|| wrong("it is no moment"))?.0)
        }
        (ColumnKind::Moment, RowCell::Text(text)) => {
            RowCell::Integer(moment(&text).ok_or_else(|| wrong("it is no moment"))?.1)
        }
        (ColumnKind::Json, RowCell::Text(text)) => {
            let value = serde_json::from_str(&text).map_err(|_| wrong("it is no JSON"))?;
            RowCell::Text(contract::canonical::to_canonical_string(&value))
        }
        (ColumnKind::Text | ColumnKind::Other(_), RowCell::Text(text)) if text.contains('\0') => {
            return Err(wrong("PostgreSQL cannot keep text with a zero character in it"));
        }
        (ColumnKind::Real, RowCell::Integer(number)) => {
            // Small whole numbers that were written into a column of fractions.
            RowCell::Real(i32::try_from(number).map(f64::from).map_err(|_| wrong("it is no number of this size"))?)
        }
        (ColumnKind::Text | ColumnKind::Other(_), cell @ RowCell::Text(_))
        | (ColumnKind::Integer, cell @ RowCell::Integer(_))
        | (ColumnKind::Real, cell @ RowCell::Real(_))
        | (ColumnKind::Bytes, cell @ RowCell::Bytes(_)) => cell,
        _ => return Err(wrong("it is of another type")),
    })
}

/// Milliseconds and microseconds since 1970.
fn moment(text: &str) -> Option<(i64, i64)> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    Some((moment.as_millisecond(), moment.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_differ_are_settled_and_what_cannot_be_is_refused() {
        let text = |text: &str| RowCell::Text(text.to_owned());
        for (to, from, expected) in [
            (ColumnKind::Integer, text("2026-01-01T00:00:00.123Z"), Some(RowCell::Integer(1_767_225_600_123))),
            (ColumnKind::Moment, text("1970-01-01T00:00:01Z"), Some(RowCell::Integer(1_000_000))),
            (ColumnKind::Integer, RowCell::Integer(-7), Some(RowCell::Integer(-7))),
            (ColumnKind::Boolean, RowCell::Integer(1), Some(RowCell::Boolean(true))),
            (ColumnKind::Boolean, RowCell::Integer(2), None),
            (ColumnKind::Bytes, text("ä\0"), Some(RowCell::Bytes("ä\0".into()))),
            (ColumnKind::Text, text("a\0"), None),
            (ColumnKind::Text, RowCell::Bytes(vec![1]), None),
            (ColumnKind::Integer, text("soon"), None),
            (ColumnKind::Json, text("{ \"b\": 1.0, \"a\": 2 }"), Some(text("{\"a\":2,\"b\":1}"))),
            (ColumnKind::Real, RowCell::Integer(3), Some(RowCell::Real(3.0))),
            (ColumnKind::Boolean, RowCell::Null, Some(RowCell::Null)),
        ] {
            let shaped = shaped("some", "column", &to, from.clone());
            assert_eq!(shaped.ok(), expected, "{from:?} as {to:?}");
        }
        let phase = shaped("jobs", "phase", &ColumnKind::Text, text("at \"3\"\0")).unwrap();
        assert_eq!(phase, text("\"at \\\"3\\\"\\u0000\""));
    }

    #[test]
    fn what_follows_from_other_tables_is_left_out() {
        for (table, moved) in
            [("ledger", true), ("gantry_steps", false), ("search_terms", false), ("vectors", false), ("jobs", true)]
        {
            assert_eq!(is_moved(table), moved, "{table}");
        }
    }
}
