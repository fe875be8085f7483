//! Filling an empty database, table by table, so that it can be broken off and gone on with.
//!
//! How far each table has come is a row of `gantry_copy`, written in the transaction of the rows. While that table is there
//! the database is not opened as a store (MOVE-3).

use base::SaturatingFrom as _;
use tokio_postgres::types::{ToSql, Type};

use super::{Snapshot, catalogue, statement};
use crate::postgres::faults::Fault;
use crate::postgres::open;
use crate::postgres::pool::Pool;
use crate::postgres::statement::{Value, column, int, text};
use crate::postgres::transaction::{Scope, Transaction, in_transaction};
use crate::postgres::{PostgresOptions, migrations, rights};
use crate::transfer::{
    ColumnKind, HeldJobs, MoveError, NUMBERS, RowCell, RowSum, StoreTable, TableColumn, TableRow, list, quoted,
    read_line, write_line,
};

/// The table that says how far a copy has come. The row with no name has the mark of the source.
const COPY: &str = "gantry_copy";
/// Like the steps of migration, beginning is done by one at a time.
const LOCK: i64 = 0x474e_5453;

/// A database that is being filled.
#[derive(Debug)]
pub struct PostgresLoad {
    pool: Pool,
    tables: Vec<StoreTable>,
    resumed: bool,
}

/// A column of values for `unnest`.
enum Values {
    Texts(Vec<Option<String>>),
    Integers(Vec<Option<i64>>),
    Reals(Vec<Option<f64>>),
    Booleans(Vec<Option<bool>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl PostgresLoad {
    /// Begins in an empty database, or goes on with what was begun from the same source, whose mark is given. `steps`: how
    /// far the database is migrated; `None` is as far as this program knows.
    pub async fn begin(
        url: &str,
        options: &PostgresOptions,
        steps: Option<i32>,
        mark: &str,
    ) -> Result<Self, MoveError> {
        if let Some(found) = steps.filter(|steps| *steps > migrations::known()) {
            return Err(MoveError::Newer { found, known: migrations::known() });
        }
        let pool = open::connect(url, options).await?;
        rights::refuse_if_steps_cannot_be_taken(&pool).await?;
        let begun = in_transaction!(pool, Scope::System, |tx| begin(tx, mark).await);
        let resumed = begun.map_err(|fault| statement(COPY, fault))?.is_resumed()?;
        migrations::migrate_to(&pool, steps).await?;
        let read = in_transaction!(pool, Scope::System, |tx| catalogue::tables(tx).await);
        let tables = read.map_err(|fault| statement("", fault))?;
        Ok(Self { pool, tables, resumed })
    }

    /// Could it begin, or go on? Looks only, so that whoever asks can say everything that is in the way at once.
    pub async fn check(url: &str, options: &PostgresOptions, mark: &str) -> Result<(), MoveError> {
        let pool = open::reach(url, options).await?;
        let found = in_transaction!(pool, Scope::System, |tx| look(tx, mark).await);
        pool.close().await;
        found.map_err(|fault| statement(COPY, fault))?.is_resumed().map(drop)
    }

    /// Does it go on with something?
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Every table that is moved, those that others refer to first.
    pub fn tables(&self) -> &[StoreTable] {
        &self.tables
    }

    /// One of them.
    pub fn table(&self, name: &str) -> Option<&StoreTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// A table with these columns in this order.
    pub fn with_columns(&self, name: &str, columns: &[String]) -> Result<StoreTable, MoveError> {
        let table = self.table(name).ok_or_else(|| MoveError::NoTable { table: name.to_owned() })?;
        let columns = columns.iter().map(|column| {
            table
                .column(column)
                .cloned()
                .ok_or_else(|| MoveError::NoColumn { table: name.to_owned(), column: column.clone() })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(StoreTable { columns, filter: crate::transfer::in_backup(name), ..table.clone() })
    }

    /// How many rows of a table are written already, and where the last of them stands in its order.
    pub async fn progress(&self, table: &str) -> Result<(u64, Option<TableRow>), MoveError> {
        let sql = format!("SELECT rows, after FROM {COPY} WHERE name = $1");
        let read = async || -> Result<(i64, Option<String>), Fault> {
            let rows = self.pool.query(Scope::System, &sql, &[text(&table)]).await?;
            let Some(row) = rows.first() else { return Ok((0, None)) };
            Ok((column(row, "rows")?, column(row, "after")?))
        };
        let (rows, after) = read().await.map_err(|fault| statement(COPY, fault))?;
        Ok((u64::try_from(rows).unwrap_or_default(), after.and_then(|line| read_line(&line))))
    }

    /// Writes rows. From then on so many in all are written, the last of which stands there in the table's order.
    pub async fn write(
        &mut self,
        table: &StoreTable,
        rows: Vec<TableRow>,
        done: u64,
        last: &[RowCell],
    ) -> Result<(), MoveError> {
        let columns = columns(table, rows)?;
        let (done, last) = (i64::saturating_from(done), write_line(last));
        let written = in_transaction!(self.pool, Scope::System, |tx| write(tx, table, &columns, done, &last).await);
        written.map_err(|fault| statement(&table.name, fault))
    }

    /// What the database holds of a table's columns.
    pub async fn sum(&self, table: &StoreTable) -> Result<RowSum, MoveError> {
        let mut snapshot = Snapshot::begin(&self.pool).await.map_err(|fault| statement(&table.name, fault))?;
        let sum = snapshot.sum(table).await?;
        snapshot.transaction.commit().await.map_err(|fault| statement(&table.name, fault))?;
        Ok(sum)
    }

    /// It is whole: from now on it can be opened as a store.
    pub async fn finish(self) -> Result<(), MoveError> {
        self.finish_holding(None).await.map(drop)
    }

    /// The same; in the same act the jobs end that must not be begun by whoever opens it. Says how many.
    pub async fn finish_holding(self, held: Option<&HeldJobs>) -> Result<u64, MoveError> {
        let finished = in_transaction!(self.pool, Scope::System, |tx| finish(tx, &self.tables, held).await);
        let ended = finished.map_err(|fault| statement(COPY, fault))?;
        self.pool.close().await;
        Ok(ended)
    }
}

// ------------------------------------------------------------------------------------------------------- statements

enum Begun {
    New,
    Resumed,
    NotEmpty,
    Other,
}

impl Begun {
    /// Does it go on with something? Refuses where it cannot begin.
    fn is_resumed(&self) -> Result<bool, MoveError> {
        match self {
            Self::New => Ok(false),
            Self::Resumed => Ok(true),
            Self::NotEmpty => Err(MoveError::NotEmpty),
            Self::Other => Err(MoveError::OtherCopy),
        }
    }
}

async fn begin(tx: &Transaction, mark: &str) -> Result<Begun, Fault> {
    tx.query("SELECT pg_advisory_xact_lock($1)", &[int(&LOCK)]).await?;
    let found = look(tx, mark).await?;
    if let Begun::New = found {
        tx.batch(&format!("CREATE TABLE {COPY} (name text PRIMARY KEY, rows bigint NOT NULL, after text)")).await?;
        let sql = format!("INSERT INTO {COPY} (name, rows, after) VALUES ('', 0, $1)");
        tx.execute(&sql, &[text(&mark)]).await?;
    }
    Ok(found)
}

/// What is there for a copy from the source of this mark.
async fn look(tx: &Transaction, mark: &str) -> Result<Begun, Fault> {
    let there = tx.query(&format!("SELECT to_regclass('{COPY}') IS NOT NULL AS there"), &[]).await?;
    if there.first().is_some_and(|row| column(row, "there").unwrap_or(false)) {
        let marks = tx.query(&format!("SELECT after FROM {COPY} WHERE name = ''"), &[]).await?;
        let kept = marks.first().and_then(|row| column::<Option<&str>>(row, "after").ok().flatten());
        return Ok(if kept == Some(mark) { Begun::Resumed } else { Begun::Other });
    }
    Ok(if catalogue::is_empty(tx).await? { Begun::New } else { Begun::NotEmpty })
}

async fn write(
    tx: &Transaction,
    table: &StoreTable,
    columns: &[(TableColumn, Values)],
    done: i64,
    last: &str,
) -> Result<(), Fault> {
    let values: Vec<Value<'_>> = columns.iter().map(|(_, values)| values.value()).collect();
    let arrays = list((1..=values.len()).map(|number| format!("${number}")));
    let given = list((1..=values.len()).map(|number| format!("c{number}")));
    let cast = list((1_usize..).zip(columns).map(|(number, (column, _))| match column.kind {
        ColumnKind::Moment => format!("timestamptz 'epoch' + c{number} * interval '1 microsecond'"),
        _ => format!("c{number}::{}", column.type_name),
    }));
    // The single numbers are there from the start.
    let conflict = if table.name == NUMBERS { "ON CONFLICT (name) DO UPDATE SET value = excluded.value" } else { "" };
    let sql = format!(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {cast} FROM unnest({arrays}) AS given ({given}) {conflict}",
        quoted(&table.name),
        table.column_list(),
    );
    tx.execute(&sql, &values).await?;
    let sql = format!(
        "INSERT INTO {COPY} (name, rows, after) VALUES ($1, $2, $3)
         ON CONFLICT (name) DO UPDATE SET rows = excluded.rows, after = excluded.after"
    );
    tx.execute(&sql, &[text(&table.name), int(&done), text(&last)]).await?;
    Ok(())
}

async fn hold_jobs(tx: &Transaction, held: &HeldJobs) -> Result<u64, Fault> {
    let there = tx.query("SELECT to_regclass('jobs') IS NOT NULL AS there", &[]).await?;
    if !there.first().is_some_and(|row| column(row, "there").unwrap_or(false)) {
        return Ok(0);
    }
    let which = HeldJobs::WHICH;
    let sql = format!(
        "WITH held AS (
             UPDATE jobs SET state = 'failed', owner_id = NULL, ended_at = $1, error = replace($2, $3, id), events = events + 1
             WHERE {which} RETURNING seq, events, tenant_id, error
         )
         INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
         SELECT seq, events, tenant_id, $1, 'failed', '{{\"error\":' || error || '}}' FROM held"
    );
    tx.execute(&sql, &[int(&held.now.0), text(&held.error), text(&HeldJobs::ANY_ID)]).await
}

async fn finish(tx: &Transaction, tables: &[StoreTable], held: Option<&HeldJobs>) -> Result<u64, Fault> {
    let ended = match held {
        Some(held) => hold_jobs(tx, held).await?,
        None => 0,
    };
    for table in tables {
        for column in table.columns.iter().filter(|column| column.is_numbered) {
            let (name, number) = (quoted(&table.name), quoted(&column.name));
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence($1, $2), coalesce(max({number}), 1), max({number}) IS NOT NULL)
                 FROM {name}"
            );
            tx.query(&sql, &[text(&name), text(&column.name)]).await?;
        }
    }
    tx.batch(&format!("DROP TABLE {COPY}")).await.map(|()| ended)
}

// ----------------------------------------------------------------------------------------------------------- values

/// Rows as columns.
fn columns(table: &StoreTable, rows: Vec<TableRow>) -> Result<Vec<(TableColumn, Values)>, MoveError> {
    let mut columns: Vec<(TableColumn, Values)> =
        table.columns.iter().map(|column| (column.clone(), Values::of(&column.kind))).collect();
    for row in rows {
        if row.len() != columns.len() {
            return Err(MoveError::Damaged { table: table.name.clone() });
        }
        for ((column, values), cell) in columns.iter_mut().zip(row) {
            if !values.push(cell) {
                let (table, column) = (table.name.clone(), column.name.clone());
                return Err(MoveError::Value { table, column, problem: "it is of another type" });
            }
        }
    }
    Ok(columns)
}

impl Values {
    fn of(kind: &ColumnKind) -> Self {
        match kind {
            ColumnKind::Text | ColumnKind::Json | ColumnKind::Other(_) => Self::Texts(Vec::new()),
            ColumnKind::Integer | ColumnKind::Moment => Self::Integers(Vec::new()),
            ColumnKind::Real => Self::Reals(Vec::new()),
            ColumnKind::Boolean => Self::Booleans(Vec::new()),
            ColumnKind::Bytes => Self::Bytes(Vec::new()),
        }
    }

    /// False if the cell is of another type.
    fn push(&mut self, cell: RowCell) -> bool {
        match (self, cell) {
            (Self::Texts(all), RowCell::Text(text)) => all.push(Some(text)),
            (Self::Integers(all), RowCell::Integer(number)) => all.push(Some(number)),
            (Self::Reals(all), RowCell::Real(number)) => all.push(Some(number)),
            (Self::Booleans(all), RowCell::Boolean(is)) => all.push(Some(is)),
            (Self::Bytes(all), RowCell::Bytes(bytes)) => all.push(Some(bytes)),
            (Self::Texts(all), RowCell::Null) => all.push(None),
            (Self::Integers(all), RowCell::Null) => all.push(None),
            (Self::Reals(all), RowCell::Null) => all.push(None),
            (Self::Booleans(all), RowCell::Null) => all.push(None),
            (Self::Bytes(all), RowCell::Null) => all.push(None),
            _ => return false,
        }
        true
    }

    fn value(&self) -> Value<'_> {
        let (values, kind): (&(dyn ToSql + Sync), Type) = match self {
            Self::Texts(all) => (all, Type::TEXT_ARRAY),
            Self::Integers(all) => (all, Type::INT8_ARRAY),
            Self::Reals(all) => (all, Type::FLOAT8_ARRAY),
            Self::Booleans(all) => (all, Type::BOOL_ARRAY),
            Self::Bytes(all) => (all, Type::BYTEA_ARRAY),
        };
        (values, kind)
    }
}
