//! Whole stores: reading every table of a file that nobody else uses.
//!
//! Not here: what is moved and how it is compared (`crate::transfer`), which tables there are (`catalogue`), copies of whole
//! files (`backup`).

mod catalogue;

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use tokio::sync::mpsc;

use super::open::Location;
use crate::transfer::{MoveError, RowCell, RowSum, StoreTable, TableRow, TableSum, quoted};

/// Most rows that are handed over at once.
const BATCH_ROWS_MAX: usize = 500;
/// About how many bytes are handed over at once, unless a single row is larger.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Batches that wait to be taken.
const BATCHES_WAITING_MAX: usize = 2;

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
        catalogue::tables(&self.connection).map_err(|error| statement("", &error))
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

/// A connection that does not write to the file, but may write another one.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(super::open::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

fn statement(table: &str, error: &(dyn std::error::Error + Send + Sync)) -> MoveError {
    MoveError::Statement { table: table.to_owned(), said: error.to_string(), source: error.to_string().into() }
}
