//! Whole files: copying one while a server writes to it, putting one in the place of another, and reading every table.
//!
//! A copy is made by SQLite itself from one snapshot (`VACUUM INTO`): it never begins anew because somebody writes, as the
//! backup interface does, and holds nobody up.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use tokio::sync::mpsc;

use super::open::{Location, SqliteOpenError};
use crate::transfer::{
    ClearColumn, ColumnKind, HeldJobs, MoveError, Replacement, RowCell, RowSum, StoreTable, TableColumn, TableRow,
    TableSum, is_moved, quoted,
};

/// Most rows that are handed over at once.
const BATCH_ROWS_MAX: usize = 500;
/// About how many bytes are handed over at once, unless a single row is larger.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Batches that wait to be taken.
const BATCHES_WAITING_MAX: usize = 2;

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
    connection.execute("VACUUM INTO ?1", [&*target]).map_err(|error| source.classify(error))?;
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
    let clear = format!("substr({column}, 1, length(?1)) <> ?1");
    match of.instead {
        Replacement::Text(text) => connection
            .execute(&format!("UPDATE {table} SET {column} = ?2 WHERE {column} <> ?2 AND {clear}"), [*sealed, text]),
        Replacement::Made(made) => {
            let mut statement = connection.prepare(&format!("SELECT DISTINCT {column} FROM {table} WHERE {clear}"))?;
            let texts = statement.query_map([sealed], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
            let mut replace = connection.prepare(&format!("UPDATE {table} SET {column} = ?2 WHERE {column} = ?1"))?;
            let mut forgotten = 0;
            for text in texts {
                if let Some(instead) = made(&text) {
                    forgotten += replace.execute([text, instead])?;
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
                 SELECT seq, events + 1, ?1, 'failed', '{{\"error\":' || replace(?2, ?3, id) || '}}' FROM jobs WHERE {which}"
            ),
            rusqlite::params![now, held.error, any],
        )?;
        let ended = transaction.execute(
            &format!(
                "UPDATE jobs SET state = 'failed', owner_id = NULL, ended_at = ?1, error = replace(?2, ?3, id),
                                 events = events + 1
                 WHERE {which}"
            ),
            rusqlite::params![now, held.error, any],
        )?;
        // The counters of tenants are the writer's own; those of flows follow the states.
        transaction.execute(
            "UPDATE job_tenants SET
                 waiting = (SELECT count(*) FROM jobs WHERE state IN ('delayed', 'queued')
                            AND (job_tenants.tenant_id = '' OR jobs.tenant_id = job_tenants.tenant_id)),
                 ready = CASE job_tenants.tenant_id WHEN '' THEN ready
                         ELSE (SELECT count(*) FROM jobs WHERE state = 'queued' AND jobs.tenant_id = job_tenants.tenant_id) END,
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
    let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
    connection.query_row(is_there, [name], |row| row.get(0))
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

/// A store that nobody else may use, to read all of it.
#[derive(Debug)]
pub struct SqliteSource {
    path: PathBuf,
    connection: Connection,
    _lock: File,
}

/// Rows of one table, in batches.
#[derive(Debug)]
pub(crate) struct RowStream(mpsc::Receiver<Result<Vec<TableRow>, MoveError>>);

impl SqliteSource {
    /// Takes the lock that a server takes.
    pub fn lock(path: &Path) -> Result<Self, MoveError> {
        let location = Location::new(path);
        location.check_for_reading()?;
        let lock = location.lock_directory()?;
        let connection = open(path).map_err(|error| location.classify(error))?;
        Ok(Self { path: path.to_owned(), connection, _lock: lock })
    }

    /// What tells this store from others.
    pub(crate) fn mark(&self) -> Result<String, MoveError> {
        let whole = std::fs::canonicalize(&self.path).map_err(|error| statement("", &error))?;
        Ok(format!("sqlite:{}", whole.display()))
    }

    /// Every table that is moved.
    pub fn tables(&self) -> Result<Vec<StoreTable>, MoveError> {
        let read = || -> rusqlite::Result<Vec<StoreTable>> {
            let names: Vec<String> = self
                .connection
                .prepare(
                    "SELECT name FROM pragma_table_list
                     WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
                )?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            names.into_iter().filter(|name| is_moved(name)).map(|name| table(&self.connection, name)).collect()
        };
        read().map_err(|error| statement("", &error))
    }

    /// What every table holds, as it stands in the file.
    pub async fn sums(&self) -> Result<Vec<TableSum>, MoveError> {
        let mut sums = Vec::new();
        for table in self.tables()? {
            let select = format!("SELECT {} FROM {}", table.column_list(), quoted(&table.name));
            let (mut stream, mut sum) = (self.stream(&table.name, &select, None)?, RowSum::default());
            while let Some(rows) = stream.next().await? {
                rows.iter().for_each(|row| sum.add(row));
            }
            sums.push(TableSum { table: table.name, sum });
        }
        Ok(sums)
    }

    /// How many rows a table has.
    pub(crate) fn count(&self, table: &str, filter: Option<&str>) -> Result<u64, MoveError> {
        let sql = format!("SELECT count(*) FROM {} WHERE {}", quoted(table), filter.unwrap_or("true"));
        let rows: i64 =
            self.connection.query_row(&sql, [], |row| row.get(0)).map_err(|error| statement(table, &error))?;
        Ok(u64::try_from(rows).unwrap_or_default())
    }

    /// The rows of a statement about a table. A thread of its own reads them, at most as far ahead as batches may wait.
    pub(crate) fn stream(&self, table: &str, select: &str, values: Option<TableRow>) -> Result<RowStream, MoveError> {
        let (sender, receiver) = mpsc::channel(BATCHES_WAITING_MAX);
        let (table, select) = (table.to_owned(), select.to_owned());
        let connection = open(&self.path).map_err(|error| statement(&table, &error))?;
        let read = move || {
            if let Err(error) = send_rows(&connection, &select, values.unwrap_or_default(), &sender) {
                // Whoever has gone away does not want to know.
                let _ = sender.blocking_send(Err(statement(&table, &error)));
            }
        };
        std::thread::Builder::new()
            .name("gantry-moving".to_owned())
            .spawn(read)
            .map_err(|error| statement("", &error))?;
        Ok(RowStream(receiver))
    }
}

impl RowStream {
    /// The next rows; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<TableRow>>, MoveError> {
        self.0.recv().await.transpose()
    }
}

fn send_rows(
    connection: &Connection,
    select: &str,
    values: TableRow,
    sender: &mpsc::Sender<Result<Vec<TableRow>, MoveError>>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(select)?;
    let columns = statement.column_count();
    let values = values.into_iter().map(|cell| match cell {
        RowCell::Null => rusqlite::types::Value::Null,
        RowCell::Text(text) => text.into(),
        RowCell::Integer(number) => number.into(),
        RowCell::Real(number) => number.into(),
        RowCell::Boolean(is) => i64::from(is).into(),
        RowCell::Bytes(bytes) => bytes.into(),
    });
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let cells = (0..columns).map(|index| Ok(cell(row.get_ref(index)?))).collect::<rusqlite::Result<TableRow>>()?;
        bytes += cells.iter().map(RowCell::bytes).sum::<usize>();
        batch.push(cells);
        if batch.len() >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX {
            bytes = 0;
            if sender.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        // As above: nobody may be listening any more.
        let _ = sender.blocking_send(Ok(batch));
    }
    Ok(())
}

fn cell(value: ValueRef<'_>) -> RowCell {
    match value {
        ValueRef::Null => RowCell::Null,
        ValueRef::Integer(number) => RowCell::Integer(number),
        ValueRef::Real(number) => RowCell::Real(number),
        ValueRef::Text(text) => RowCell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => RowCell::Bytes(bytes.to_vec()),
    }
}

fn table(connection: &Connection, name: String) -> rusqlite::Result<StoreTable> {
    let mut columns = Vec::new();
    let mut key: Vec<(i64, String)> = Vec::new();
    let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(?1) ORDER BY cid")?;
    let mut rows = statement.query([&name])?;
    while let Some(row) = rows.next()? {
        let (column, type_name, place): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if place > 0 {
            key.push((place, column.clone()));
        }
        let kind = match type_name.as_str() {
            "INTEGER" => ColumnKind::Integer,
            "REAL" => ColumnKind::Real,
            "BLOB" => ColumnKind::Bytes,
            "TEXT" => ColumnKind::Text,
            _ => ColumnKind::Other(type_name.clone()),
        };
        columns.push(TableColumn { name: column, kind, type_name, is_numbered: false });
    }
    key.sort();
    Ok(StoreTable { name, columns, order: key.into_iter().map(|(_, column)| column).collect(), filter: None })
}

/// A connection that does not write to the file, but may write another one.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(super::open::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}

fn statement(table: &str, error: &(dyn std::error::Error + Send + Sync)) -> MoveError {
    MoveError::Statement { table: table.to_owned(), said: error.to_string(), source: error.to_string().into() }
}
