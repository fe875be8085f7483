//! Whole files: copying one while a server writes to it, checking a copy, and putting one in the place of another.
//!
//! A copy is made by SQLite itself from one snapshot (`VACUUM INTO`): it never begins anew because somebody writes, as the
//! backup interface does, and holds nobody up.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, named_params};

use super::open::{Location, SqliteOpenError};
use super::transfer::open;
use crate::transfer::{ClearColumn, HeldJobs, Replacement};

/// Why a file could not be put in the place of another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The file is not one that may be put there, or somebody uses what is there.
    #[error(transparent)]
    Open(#[from] SqliteOpenError),
    /// There is one, and nobody said that it may go.
    #[error("there is a `{file}` already")]
    Exists { file: String },
    /// The disk said no.
    #[error("`{file}` cannot be put in place: {source}")]
    Disk {
        file: String,
        #[source]
        source: io::Error,
    },
}

/// Copies the store at `from` into a new file, beside a running server or alone, and checks the copy. Blocks.
pub fn back_up(from: &Path, to: &Path) -> Result<(), SqliteOpenError> {
    let (source, copy) = (Location::new(from), Location::new(to));
    source.check_for_moving()?;
    // Made by us, because SQLite would ask the umask for the mode.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let file = file.map_err(|error| copy.unreadable(error))?;
    let connection = open(from).map_err(|error| source.classify(error))?;
    let target = to.to_string_lossy();
    connection
        .execute("VACUUM INTO :target", named_params! { ":target": &*target })
        .map_err(|error| source.classify(error))?;
    file.sync_all().map_err(|error| copy.unreadable(error))?;
    check_backup(to)
}

/// Takes out of a copy what stands in these columns in clear, so that nobody can read it there. Says of how many rows. Blocks.
pub fn forget_clear_texts(copy: &Path, columns: &[ClearColumn]) -> Result<usize, SqliteOpenError> {
    let location = Location::new(copy);
    let forget = || {
        let connection = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // One file, whatever the store is in.
        connection.pragma_update(None, "journal_mode", "delete")?;
        let mut forgotten = 0;
        for column in columns {
            forgotten += forget_column(&connection, column)?;
        }
        if forgotten > 0 {
            // Pages that are free still hold what was there.
            connection.execute_batch("VACUUM")?;
        }
        Ok(forgotten)
    };
    forget().map_err(|error: rusqlite::Error| location.classify(error))
}

fn forget_column(connection: &Connection, of: &ClearColumn) -> rusqlite::Result<usize> {
    if !has_table(connection, of.table)? {
        return Ok(0);
    }
    let ClearColumn { table, column, sealed, .. } = of;
    let clear = format!("substr({column}, 1, length(:sealed)) <> :sealed");
    match of.instead {
        Replacement::Text(text) => {
            let replace = format!("UPDATE {table} SET {column} = :text WHERE {column} <> :text AND {clear}");
            connection.execute(&replace, named_params! { ":sealed": *sealed, ":text": text })
        }
        Replacement::Made(made) => {
            let mut statement = connection.prepare(&format!("SELECT DISTINCT {column} FROM {table} WHERE {clear}"))?;
            let texts = statement
                .query_map(
                    named_params! {
                        ":sealed": sealed,
                    },
                    |row| row.get(0),
                )?
                .collect::<rusqlite::Result<Vec<String>>>()?;
            let mut replace =
                connection.prepare(&format!("UPDATE {table} SET {column} = :instead WHERE {column} = :text"))?;
            let mut forgotten = 0;
            for text in texts {
                if let Some(instead) = made(&text) {
                    forgotten += replace.execute(named_params! { ":text": text, ":instead": instead })?;
                }
            }
            Ok(forgotten)
        }
    }
}

/// Ends the jobs of a copy that must not be begun by whoever opens it; says how many. Blocks.
pub fn hold_jobs(copy: &Path, held: &HeldJobs) -> Result<usize, SqliteOpenError> {
    let location = Location::new(copy);
    let hold = || {
        let mut connection = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // One file, whatever the store is in.
        connection.pragma_update(None, "journal_mode", "delete")?;
        if !has_table(&connection, "jobs")? {
            return Ok(0);
        }
        let transaction = connection.transaction()?;
        let (which, now, any) = (HeldJobs::WHICH, held.now.0, HeldJobs::ANY_ID);
        transaction.execute(
            &format!(
                "INSERT INTO job_events (seq, number, at, kind, data)
                 SELECT seq, events + 1, :now, 'failed', '{{\"error\":' || replace(:error, :terms, id) || '}}'
                 FROM jobs WHERE {which}"
            ),
            named_params! { ":now": now, ":error": held.error, ":terms": any },
        )?;
        let ended = transaction.execute(
            &format!(
                "UPDATE jobs SET state = 'failed', owner_id = NULL, ended_at = :now, error = replace(:error, :terms, id),
                                 events = events + 1
                 WHERE {which}"
            ),
            named_params! { ":now": now, ":error": held.error, ":terms": any },
        )?;
        // The counters of tenants are the writer's own; those of flows follow the states.
        transaction.execute(
            "UPDATE job_tenants SET
                 waiting = (SELECT count(*) FROM jobs WHERE state IN ('delayed', 'queued')
                            AND (job_tenants.tenant_id = '' OR jobs.tenant_id = job_tenants.tenant_id)),
                 ready = CASE job_tenants.tenant_id WHEN '' THEN ready
                         ELSE (SELECT count(*) FROM jobs WHERE state = 'queued'
                         AND jobs.tenant_id = job_tenants.tenant_id) END,
                 running = (SELECT count(*) FROM jobs WHERE state = 'running'
                            AND (job_tenants.tenant_id = '' OR jobs.tenant_id = job_tenants.tenant_id))",
            [],
        )?;
        transaction.commit()?;
        Ok(ended)
    };
    hold().map_err(|error: rusqlite::Error| location.classify(error))
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name)";
    connection.query_row(is_there, named_params! { ":name": name }, |row| row.get(0))
}

/// Is this file a whole store that this program can open? Reads all of it. Blocks.
pub fn check_backup(file: &Path) -> Result<(), SqliteOpenError> {
    let location = Location::new(file);
    location.check_for_moving()?;
    let connection = open(file).map_err(|error| location.classify(error))?;
    let verdict: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|error| location.classify(error))?;
    if verdict == "ok" { Ok(()) } else { Err(location.damaged()) }
}

/// Puts a checked file in the place of the store at `to`, which no server may be using. One that is there goes aside, under
/// the name that is answered, if `replace` says so. Blocks.
pub fn put_in_place(new: &Path, to: &Path, replace: bool, stamp: &str) -> Result<Option<PathBuf>, ReplaceError> {
    let location = Location::new(to);
    let _lock = location.lock_directory()?;
    let disk = |source| ReplaceError::Disk { file: location.name().to_owned(), source };
    let aside = if to.try_exists().map_err(disk)? {
        if !replace {
            return Err(ReplaceError::Exists { file: location.name().to_owned() });
        }
        let aside = with_suffix(to, &format!(".replaced-{stamp}"));
        // The log belongs to its file: without it the last commits would be gone, with another one all of them.
        for suffix in ["-wal", "-shm", ""] {
            match std::fs::rename(with_suffix(to, suffix), with_suffix(&aside, suffix)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(disk)?,
            }
        }
        Some(aside)
    } else {
        None
    };
    std::fs::rename(new, to).map_err(disk)?;
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(disk)?;
    Ok(aside)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}
