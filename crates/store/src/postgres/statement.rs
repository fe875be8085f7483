//! Values of statements, with their types.
//!
//! Naming the type of every value spares the round trips of preparing a statement, and lets the store work behind a pooler
//! that gives each transaction another connection (PG-2).

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::faults::Fault;

/// A value and its type.
pub(super) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// The present in milliseconds since 1970, where `$1` of the statement is [`PostgresStore::now`](super::PostgresStore::now):
/// the server's clock, unless a test has its own. Write statements as `format!("… {NOW} …")` with that value first.
pub(super) const NOW: &str = "coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// Text, or nothing.
pub(super) fn text(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::TEXT)
}

/// A whole number (`i64`), or nothing.
pub(super) fn int(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::INT8)
}

/// A number with a fraction (`f64`), or nothing.
pub(super) fn real(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::FLOAT8)
}

/// Yes or no, or nothing.
pub(super) fn boolean(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::BOOL)
}

/// Bytes, or nothing.
pub(super) fn bytes(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::BYTEA)
}

/// Several texts (`&[&str]`, `Vec<String>`), for `unnest` and `= ANY`.
pub(super) fn texts(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::TEXT_ARRAY)
}

/// Several times bytes, or nothing.
pub(super) fn byte_strings(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::BYTEA_ARRAY)
}

/// Several whole numbers.
pub(super) fn ints(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::INT8_ARRAY)
}

/// Several times yes or no.
pub(super) fn booleans(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::BOOL_ARRAY)
}

/// A column of a row by its name.
pub(super) fn column<'r, T: FromSql<'r>>(row: &'r Row, name: &'static str) -> Result<T, Fault> {
    Ok(row.try_get(name)?)
}
