//! Rows of either database, read by the names of their columns: what a record is made of is said once, in `records`.
//!
//! The databases differ in how they keep three things, and only here that is to be seen. PostgreSQL's text has no NUL, so what
//! callers chose freely stands there escaped, as bytes or as JSON, and in SQLite as it is. Moments of the older tables are
//! text in SQLite and numbers in PostgreSQL.
//!
//! Not here: the statements, which are each database's own (`sqlite`, `postgres`).

use std::str::FromStr;

use policy::CallOwner;
use ports::clock::UnixMillis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A stored value that cannot be what this program wrote.
#[derive(Debug, thiserror::Error)]
#[error("stored `{column}` of `{of}` cannot be read")]
pub(crate) struct Unreadable {
    pub(crate) column: &'static str,
    /// What it belongs to: a tool, tenant, agent, token or job.
    pub(crate) of: String,
}

/// The fault of a column that cannot be what this program wrote.
pub(crate) fn unreadable(column: &'static str, of: &str) -> Unreadable {
    Unreadable { column, of: of.to_owned() }
}

/// A row of a database. `of` says what the row is of, for the fault that names it.
pub(crate) trait StoredRow {
    /// What goes wrong in this database.
    type Fault: From<Unreadable>;

    /// Text, or nothing.
    fn opt_text(&self, column: &'static str) -> Result<Option<&str>, Self::Fault>;

    /// Text that somebody chose freely, or nothing: escaped where plain text has no NUL.
    fn opt_free_text(&self, column: &'static str) -> Result<Option<String>, Self::Fault>;

    /// The same where it is bytes instead.
    fn opt_byte_text(&self, column: &'static str, of: &str) -> Result<Option<String>, Self::Fault>;

    /// The same where it is a JSON string instead.
    fn opt_json_text(&self, column: &'static str, of: &str) -> Result<Option<String>, Self::Fault>;

    /// A whole number, or nothing.
    fn opt_int(&self, column: &'static str) -> Result<Option<i64>, Self::Fault>;

    /// A number with a fraction, or nothing.
    fn opt_real(&self, column: &'static str) -> Result<Option<f64>, Self::Fault>;

    /// Yes or no.
    fn flag(&self, column: &'static str) -> Result<bool, Self::Fault>;

    /// Bytes.
    fn bytes(&self, column: &'static str) -> Result<&[u8], Self::Fault>;

    /// A moment of the older tables, or nothing: text where it was text.
    fn opt_moment(&self, column: &'static str, of: &str) -> Result<Option<UnixMillis>, Self::Fault>;

    /// Text.
    fn text(&self, column: &'static str) -> Result<&str, Self::Fault> {
        there(self.opt_text(column)?, column)
    }

    /// Text that somebody chose freely.
    fn free_text(&self, column: &'static str) -> Result<String, Self::Fault> {
        there(self.opt_free_text(column)?, column)
    }

    /// A value that is written as text.
    fn word<T: FromStr>(&self, column: &'static str, of: &str) -> Result<T, Self::Fault> {
        Ok(self.text(column)?.parse().map_err(|_| unreadable(column, of))?)
    }

    /// A value that is written as text, or nothing.
    fn opt_word<T: FromStr>(&self, column: &'static str, of: &str) -> Result<Option<T>, Self::Fault> {
        Ok(self.opt_text(column)?.map(str::parse).transpose().map_err(|_| unreadable(column, of))?)
    }

    /// One of a few values, by its word.
    fn one_of<T>(&self, column: &'static str, of: &str, known: impl Fn(&str) -> Option<T>) -> Result<T, Self::Fault> {
        Ok(known(self.text(column)?).ok_or_else(|| unreadable(column, of))?)
    }

    /// One of a few values, by its word on the wire.
    fn tagged<T: DeserializeOwned>(&self, column: &'static str, of: &str) -> Result<T, Self::Fault> {
        Ok(self.opt_tagged(column, of)?.ok_or_else(|| unreadable(column, of))?)
    }

    /// One of a few values, by its word on the wire, or nothing.
    fn opt_tagged<T: DeserializeOwned>(&self, column: &'static str, of: &str) -> Result<Option<T>, Self::Fault> {
        let word = self.opt_text(column)?.map(|word| Value::String(word.to_owned()));
        Ok(word.map(serde_json::from_value).transpose().map_err(|_| unreadable(column, of))?)
    }

    /// JSON, which is kept as text so that it comes back as it was written.
    fn json<T: DeserializeOwned>(&self, column: &'static str, of: &str) -> Result<T, Self::Fault> {
        Ok(serde_json::from_str(self.text(column)?).map_err(|_| unreadable(column, of))?)
    }

    /// JSON, or nothing.
    fn opt_json<T: DeserializeOwned>(&self, column: &'static str, of: &str) -> Result<Option<T>, Self::Fault> {
        Ok(self.opt_text(column)?.map(serde_json::from_str).transpose().map_err(|_| unreadable(column, of))?)
    }

    /// A whole number.
    fn int(&self, column: &'static str) -> Result<i64, Self::Fault> {
        there(self.opt_int(column)?, column)
    }

    /// A number with a fraction.
    fn real(&self, column: &'static str) -> Result<f64, Self::Fault> {
        there(self.opt_real(column)?, column)
    }

    /// A number of a narrower kind, often one that is never negative.
    fn number<T: TryFrom<i64>>(&self, column: &'static str, of: &str) -> Result<T, Self::Fault> {
        Ok(T::try_from(self.int(column)?).map_err(|_| unreadable(column, of))?)
    }

    /// The same, or nothing.
    fn opt_number<T: TryFrom<i64>>(&self, column: &'static str, of: &str) -> Result<Option<T>, Self::Fault> {
        Ok(self.opt_int(column)?.map(T::try_from).transpose().map_err(|_| unreadable(column, of))?)
    }

    /// A moment.
    fn time(&self, column: &'static str) -> Result<UnixMillis, Self::Fault> {
        Ok(UnixMillis(self.int(column)?))
    }

    /// A moment, or nothing.
    fn opt_time(&self, column: &'static str) -> Result<Option<UnixMillis>, Self::Fault> {
        Ok(self.opt_int(column)?.map(UnixMillis))
    }

    /// A moment of the older tables.
    fn moment(&self, column: &'static str, of: &str) -> Result<UnixMillis, Self::Fault> {
        there(self.opt_moment(column, of)?, column)
    }

    /// Whose the row is: its columns `subject` and `delegators`.
    fn call_owner(&self, of: &str) -> Result<CallOwner, Self::Fault> {
        let (subject, delegators) = (self.text("subject")?, self.opt_text("delegators")?);
        Ok(CallOwner::kept(subject, delegators).map_err(|_| unreadable("delegators", of))?)
    }
}

/// The word for a value that is one of a few, as it is on the wire.
pub(crate) fn tag<T: Serialize>(value: T) -> String {
    let word = serde_json::to_value(value).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

/// What must be there.
fn there<T, F: From<Unreadable>>(value: Option<T>, column: &'static str) -> Result<T, F> {
    value.ok_or_else(|| unreadable(column, "a row").into())
}
