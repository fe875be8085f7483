//! Moving whole stores: backups, restoring them, and going from SQLite to PostgreSQL. (STORE-008)
//!
//! ```text
//!  SQLite file ── VACUUM INTO ──▶ file                                   a backup, and back by putting the file in place
//!  PostgreSQL ─── one snapshot ─▶ rows as lines ─▶ an empty PostgreSQL   a backup, and back
//!  SQLite file ── rows, shaped ─────────────────▶ an empty PostgreSQL   going on with many instances
//! ```
//!
//! Which tables and columns there are is asked of the databases themselves, and which tables are ours of the steps that
//! make them, so a table that a later step adds is moved without a word here; what is *not* the same on both sides is in
//! the small map of [`shapes`]. What follows from other tables (search index, counters, leases of processes) is left out
//! and made anew.
//!
//! Invariants
//! - MOVE-1: what was moved is read back and compared with where it came from, by the number of rows and a digest per table.
//! - MOVE-2: nothing is written into a database that holds anything, except to go on with a copy that was broken off.
//! - MOVE-3: a database into which a copy is not finished is neither opened as a store nor backed up.
//! - MOVE-4: a database that has taken steps which this program does not know is not backed up: what those steps have made
//!   would be missing. Tables that no step has made are somebody else's, and are left alone.
//!
//! Not here: the audit log and the file a backup is in (`cli`), reading and writing the two databases (their modules).

mod copy;
mod row;
mod shapes;
mod sum;

use std::fmt;

pub use copy::{CopyReport, copy_to_postgres};
pub use row::{RowCell, TableRow, read_line, write_line};
use shapes::from_sqlite;
pub(crate) use shapes::{NUMBERS, in_backup, is_moved, order};
pub use sum::{RowSum, TableSum};

pub use crate::postgres::{PostgresDump, PostgresLoad};
pub use crate::sqlite::{
    ReplaceError, SqliteSource, back_up, check_backup, forget_clear_texts, hold_jobs, put_in_place,
};

/// A column whose texts are sealed, and what a copy has in place of one that is not.
#[derive(Debug, Clone, Copy)]
pub struct ClearColumn {
    pub table: &'static str,
    pub column: &'static str,
    /// What sealed texts begin with.
    pub sealed: &'static str,
    pub instead: Replacement,
}

/// How jobs end that waited or ran when a backup was made: nobody knows whether they were done since.
#[derive(Debug, Clone)]
pub struct HeldJobs {
    /// The error of each, as JSON, with [`HeldJobs::ANY_ID`] in place of its id.
    pub error: String,
    /// When they end.
    pub now: ports::clock::UnixMillis,
}

impl HeldJobs {
    /// Stands for the id of a job.
    pub const ANY_ID: &str = "00000000-0000-0000-0000-000000000000";
    /// Which jobs: those whose work must not be done twice. What a job does may be sealed; a call that must not be repeated is
    /// tried once.
    pub(crate) const WHICH: &str = "ended_at IS NULL AND (kind IN ('execute_workflow', 'send_notification') \
                                    OR (kind = 'tool_call' AND attempts_max = 1))";
}

/// Calls that ended as jobs and never got a line in the ledger: restored ones, and those of them that a person says were done.
/// They keep the keys of their acts (LEDGER-5).
pub(crate) const ENDED_WITHOUT_LINE: &str = "((state = 'failed' AND error LIKE '%\"cause\":\"restored\"%') OR (state = 'done' \
     AND EXISTS (SELECT 1 FROM job_events WHERE job_events.seq = jobs.seq AND job_events.kind = 'resolved') \
     AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.invocation_id = jobs.id)))";

/// What stands in place of a text that must not be in a copy.
#[derive(Debug, Clone, Copy)]
pub enum Replacement {
    /// Always this.
    Text(&'static str),
    /// What is made of it; none if it may stay. For columns with few rows.
    Made(fn(&str) -> Option<String>),
}

impl ClearColumn {
    /// What a copy has in place of this text; none if it may stay.
    pub fn forgotten(&self, text: &str) -> Option<String> {
        match self.instead {
            _ if text.starts_with(self.sealed) => None,
            Replacement::Text(nothing) => (text != nothing).then(|| nothing.to_owned()),
            Replacement::Made(made) => made(text),
        }
    }
}

/// What a column holds, as far as moving it is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnKind {
    Text,
    Integer,
    Real,
    Boolean,
    Bytes,
    /// JSON whose text may be written anew: compared by its canonical text.
    Json,
    /// A moment; moved as microseconds since 1970.
    Moment,
    /// Whatever else the database knows, by its own text; the name of the type.
    Other(String),
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    pub kind: ColumnKind,
    /// The database's own name of the type.
    pub type_name: String,
    /// Numbered by the database: a counter stands behind it.
    pub is_numbered: bool,
}

/// A table, its columns in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTable {
    pub name: String,
    pub columns: Vec<TableColumn>,
    /// What its rows are ordered by: the primary key, or what lets rows come after those they refer to.
    pub order: Vec<String>,
    /// Which rows, if not all of them.
    pub filter: Option<&'static str>,
}

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferProgress<'a> {
    /// What is being done.
    pub doing: &'a str,
    pub rows: u64,
    pub rows_total: u64,
}

/// Why a move did not succeed. For the person at the terminal; no password is in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The SQLite file cannot be used.
    #[error(transparent)]
    Sqlite(#[from] crate::sqlite::SqliteOpenError),
    /// The PostgreSQL database cannot be used.
    #[error(transparent)]
    Postgres(#[from] crate::postgres::PostgresOpenError),
    /// A statement failed on the way.
    #[error("a statement failed while `{table}` was moved: {said}")]
    Statement {
        table: String,
        /// What the database said; never with values.
        said: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is something in the database already.
    #[error("the database is not empty: make a new one for it (`CREATE DATABASE`) and name that")]
    NotEmpty,
    /// A copy from somewhere else was begun there.
    #[error("a copy from another store was begun in this database and not finished: make a new database and name that")]
    OtherCopy,
    /// A table has no counterpart.
    #[error("table `{table}` has no counterpart there: both sides must be of the same release")]
    NoTable { table: String },
    /// A column has no counterpart.
    #[error("column `{column}` of table `{table}` has no counterpart there: both sides must be of the same release")]
    NoColumn { table: String, column: String },
    /// A value cannot be written on the other side.
    #[error("a value of `{column}` in table `{table}` cannot be moved: {problem}")]
    Value { table: String, column: String, problem: &'static str },
    /// A line of a backup makes no sense.
    #[error("line {line} of table `{table}` in the backup cannot be read")]
    Line { table: String, line: u64 },
    /// What was written is not what was read.
    #[error("table `{table}` is not the same on both sides: {from} there, {to} here; the copy is not to be used")]
    Differs { table: String, from: RowSum, to: RowSum },
    /// What was read of the backup is not what was written into it.
    #[error("table `{table}` is not what the backup says it is: the backup is damaged")]
    Damaged { table: String },
    /// The backup was made by a newer release.
    #[error("the backup was made by a newer Gantry (step {found}, this one knows {known}): upgrade this binary")]
    Newer { found: i32, known: i32 },
}

impl StoreTable {
    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The names of the columns, quoted and with commas.
    pub(crate) fn column_list(&self) -> String {
        list(self.columns.iter().map(|column| quoted(&column.name)))
    }
}

/// A name as both databases take it, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// With commas.
pub(crate) fn list(parts: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let mut all = String::new();
    for part in parts {
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.push_str(&part.to_string());
    }
    all
}
