//! Whole databases: reading every table from one snapshot, and filling an empty one.
//!
//! Not here: what is moved and how it is compared (`crate::moving`), which tables there are (`catalogue`), filling
//! (`load`).

mod catalogue;
mod load;

use std::fmt;

use tokio_postgres::Row as Answer;

pub use load::PostgresLoad;

use super::faults::Fault;
use super::pool::Pool;
use super::rights::Use;
use super::statement::{column, text};
use super::transaction::{Scope, Transaction};
use super::{PostgresOpenError, PostgresOptions, migrations, open, rights};
use crate::transfer::{ColumnKind, MoveError, RowCell, RowSum, StoreTable, TableRow, in_backup, list, quoted};

/// The table that says which steps were taken.
const STEPS: &str = "gantry_steps";
/// Most rows that are fetched at once.
const FETCH_ROWS_MAX: usize = 500;
/// So many rows are fetched first, when nobody knows how large they are.
const FETCH_ROWS_FIRST: usize = 16;
/// About how many bytes are fetched at once, judged by the rows before.
const FETCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// All tables of a database as they were at one moment, while others go on writing.
#[derive(Debug)]
pub struct PostgresDump {
    pool: Pool,
    snapshot: Snapshot,
    tables: Vec<StoreTable>,
    steps: i32,
}

/// A transaction that sees one moment, and a cursor in it.
struct Snapshot {
    transaction: Transaction,
    fetch: usize,
}

impl PostgresDump {
    /// From now on everything that is read is of this moment.
    pub async fn begin(url: &str, options: &PostgresOptions) -> Result<Self, MoveError> {
        let pool = open::connect(url, options).await?;
        // Before the moment: one that is finished by then is whole, and none begins where there is a store.
        open::refuse_unfinished(&pool).await?;
        rights::refuse_too_few(&pool, Use::Reading).await?;
        let snapshot = Snapshot::begin(&pool).await.map_err(|fault| statement(STEPS, fault))?;
        let steps = snapshot.steps().await.map_err(|fault| statement(STEPS, fault))?;
        let steps = steps.ok_or(PostgresOpenError::NoStore)?;
        if steps > migrations::known() {
            return Err(PostgresOpenError::Newer { found: steps, known: migrations::known() }.into());
        }
        let mut tables = catalogue::tables(&snapshot.transaction).await.map_err(|fault| statement("", fault))?;
        for table in &mut tables {
            table.filter = in_backup(&table.name);
        }
        Ok(Self { pool, snapshot, tables, steps })
    }

    /// How many steps of migration the database has taken.
    pub fn steps(&self) -> i32 {
        self.steps
    }

    /// Every table that is moved, those that others refer to first.
    pub fn tables(&self) -> &[StoreTable] {
        &self.tables
    }

    /// How many rows all tables have together.
    pub async fn count(&self) -> Result<u64, MoveError> {
        let mut all = 0;
        for table in &self.tables {
            let sql = format!("SELECT count(*) FROM {} WHERE {}", quoted(&table.name), table.filter.unwrap_or("true"));
            let rows =
                self.snapshot.transaction.query(&sql, &[]).await.map_err(|fault| statement(&table.name, fault))?;
            let rows: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
            all += u64::try_from(rows).unwrap_or_default();
        }
        Ok(all)
    }

    /// Begins to read a table.
    pub async fn open(&mut self, table: &StoreTable) -> Result<(), MoveError> {
        self.snapshot.open(table).await.map_err(|fault| statement(&table.name, fault))
    }

    /// The next rows of the table that was opened last; none at its end.
    pub async fn fetch(&mut self, table: &StoreTable) -> Result<Vec<TableRow>, MoveError> {
        self.snapshot.fetch(table).await
    }

    /// Lets the moment go.
    pub async fn end(self) {
        // Nothing was written: if the connection is gone, so is what there was to end.
        let _ = self.snapshot.transaction.commit().await;
        self.pool.close().await;
    }
}

impl Snapshot {
    async fn begin(pool: &Pool) -> Result<Self, Fault> {
        let transaction = pool.begin(Scope::System).await?;
        transaction.batch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
        Ok(Self { transaction, fetch: FETCH_ROWS_FIRST })
    }

    /// How many steps of migration were taken; `None` if there is no store.
    async fn steps(&self) -> Result<Option<i32>, Fault> {
        let there = self.transaction.query("SELECT to_regclass($1) IS NOT NULL AS there", &[text(&STEPS)]).await?;
        if !there.first().is_some_and(|row| column(row, "there").unwrap_or(false)) {
            return Ok(None);
        }
        let sql = format!("SELECT coalesce(max(step), 0) AS taken FROM {STEPS}");
        let taken = self.transaction.query(&sql, &[]).await?;
        taken.first().map(|row| column(row, "taken")).transpose()
    }

    async fn open(&mut self, table: &StoreTable) -> Result<(), Fault> {
        let columns = list(table.columns.iter().map(|column| {
            let name = quoted(&column.name);
            match column.kind {
                ColumnKind::Text | ColumnKind::Boolean | ColumnKind::Bytes => name,
                ColumnKind::Integer => format!("{name}::bigint"),
                ColumnKind::Real => format!("{name}::double precision"),
                ColumnKind::Moment => format!("(extract(epoch FROM {name}) * 1000000)::bigint"),
                ColumnKind::Json | ColumnKind::Other(_) => format!("{name}::text"),
            }
        }));
        let order = list(table.order.iter().map(|column| quoted(column)));
        let order = if order.is_empty() { order } else { format!("ORDER BY {order}") };
        self.fetch = FETCH_ROWS_FIRST;
        let (name, filter) = (quoted(&table.name), table.filter.unwrap_or("true"));
        let cursor = format!("DECLARE moved NO SCROLL CURSOR FOR SELECT {columns} FROM {name} WHERE {filter} {order}");
        self.transaction.batch(&cursor).await
    }

    /// Closes the cursor when there are no more.
    async fn fetch(&mut self, table: &StoreTable) -> Result<Vec<TableRow>, MoveError> {
        let sql = format!("FETCH {} FROM moved", self.fetch);
        let rows = self.transaction.query(&sql, &[]).await.map_err(|fault| statement(&table.name, fault))?;
        if rows.is_empty() {
            self.transaction.batch("CLOSE moved").await.map_err(|fault| statement(&table.name, fault))?;
            return Ok(Vec::new());
        }
        let rows: Vec<TableRow> = rows.iter().map(|row| cells(table, row)).collect::<Result<_, _>>()?;
        let bytes: usize = rows.iter().flatten().map(RowCell::bytes).sum();
        let each = (bytes / rows.len().max(1)).max(1);
        self.fetch = (FETCH_BYTES_MAX / each).clamp(1, FETCH_ROWS_MAX);
        Ok(rows)
    }

    async fn sum(&mut self, table: &StoreTable) -> Result<RowSum, MoveError> {
        let mut sum = RowSum::default();
        self.open(table).await.map_err(|fault| statement(&table.name, fault))?;
        loop {
            let rows = self.fetch(table).await?;
            if rows.is_empty() {
                return Ok(sum);
            }
            rows.iter().for_each(|row| sum.add(row));
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("fetch", &self.fetch).finish_non_exhaustive()
    }
}

fn cells(table: &StoreTable, row: &Answer) -> Result<TableRow, MoveError> {
    let cells = table.columns.iter().enumerate().map(|(index, column)| {
        let cell = match column.kind {
            ColumnKind::Integer | ColumnKind::Moment => row.try_get::<_, Option<i64>>(index)?.map(RowCell::Integer),
            ColumnKind::Real => row.try_get::<_, Option<f64>>(index)?.map(RowCell::Real),
            ColumnKind::Boolean => row.try_get::<_, Option<bool>>(index)?.map(RowCell::Boolean),
            ColumnKind::Bytes => row.try_get::<_, Option<Vec<u8>>>(index)?.map(RowCell::Bytes),
            ColumnKind::Text | ColumnKind::Other(_) => row.try_get::<_, Option<String>>(index)?.map(RowCell::Text),
            ColumnKind::Json => row.try_get::<_, Option<String>>(index)?.map(|text| RowCell::Text(canonical(text))),
        };
        Ok(cell.unwrap_or(RowCell::Null))
    });
    cells.collect::<Result<_, tokio_postgres::Error>>().map_err(|error| statement(&table.name, error.into()))
}

/// JSON whose text the server has written anew.
fn canonical(text: String) -> String {
    match serde_json::from_str(&text) {
        Ok(value) => contract::canonical::to_canonical_string(&value),
        Err(_) => text,
    }
}

/// What a fault of the server means to whoever moves. The server's own words have no values in them.
fn statement(table: &str, fault: Fault) -> MoveError {
    let said = match &fault {
        Fault::Postgres(error) => match error.as_db_error() {
            Some(said) => said.message().to_owned(),
            None => error.to_string(),
        },
        Fault::Unreadable(_) | Fault::Busy(_) | Fault::Shared(_) => fault.to_string(),
    };
    MoveError::Statement { table: table.to_owned(), said, source: Box::new(fault) }
}
