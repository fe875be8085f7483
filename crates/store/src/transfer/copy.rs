//! Going from SQLite to PostgreSQL: every table, in batches, each with how far it has come in one transaction.
//!
//! A copy that was broken off goes on where it was: the source is locked while it runs, and its digests are compared at
//! the end whatever happened in between.

use std::path::Path;

use base::SaturatingFrom as _;

use super::shapes::{is_numbered_anew, made, order, shaped};
use super::{
    MoveError, PostgresLoad, RowSum, SqliteSource, StoreTable, TableColumn, TableRow, TableSum, TransferProgress,
    from_sqlite, list, quoted,
};
use crate::postgres::PostgresOptions;

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    pub tables: Vec<TableSum>,
    /// Did it go on with a copy that was broken off?
    pub resumed: bool,
}

/// One table on its way.
struct Way {
    /// As the target has it, but only the columns that are written.
    table: StoreTable,
    /// What SQLite is asked for; gives the cells of these columns in the target's order, then those of its order.
    select: String,
    /// How many columns say where the copy goes on.
    order: usize,
}

/// Copies the SQLite file, which nobody may use meanwhile, into an empty database, and compares the two.
pub async fn copy_to_postgres(
    from: &Path,
    to: &str,
    options: &PostgresOptions,
    progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
) -> Result<CopyReport, MoveError> {
    let source = SqliteSource::lock(from)?;
    let mut target = PostgresLoad::begin(to, options, None, &source.mark()?).await?;
    let ways = ways(&source, &target)?;
    let mut rows_total = 0;
    for way in &ways {
        rows_total += source.count(&way.table.name, way.table.filter)?;
    }
    let mut rows = 0;
    for way in &ways {
        let (mut done, mut after) = target.progress(&way.table.name).await?;
        rows += done;
        let mut stream = source.stream(&way.table.name, &way.select_after(after.as_ref()), after.take())?;
        while let Some(batch) = stream.next().await? {
            let (batch, last) = way.shaped(batch)?;
            done += count(batch.len());
            rows += count(batch.len());
            target.write(&way.table, batch, done, &last).await?;
            progress(TransferProgress { doing: &way.table.name, rows, rows_total });
        }
    }
    let mut tables = Vec::new();
    let mut seen = 0;
    for way in &ways {
        let mut from = RowSum::default();
        let mut stream = source.stream(&way.table.name, &way.select_after(None), None)?;
        while let Some(batch) = stream.next().await? {
            seen += count(batch.len());
            let (batch, _) = way.shaped(batch)?;
            batch.iter().for_each(|row| from.add(row));
            progress(TransferProgress { doing: "comparing", rows: seen, rows_total });
        }
        let to = target.sum(&way.table).await?;
        if from != to {
            return Err(MoveError::Differs { table: way.table.name.clone(), from, to });
        }
        tables.push(TableSum { table: way.table.name.clone(), sum: to });
    }
    let resumed = target.is_resumed();
    target.finish().await?;
    Ok(CopyReport { tables, resumed })
}

/// Every table of the source with its counterpart, in the order of the target.
fn ways(source: &SqliteSource, target: &PostgresLoad) -> Result<Vec<Way>, MoveError> {
    let there = source.tables()?;
    if let Some(lost) = there.iter().find(|table| target.table(&table.name).is_none()) {
        return Err(MoveError::NoTable { table: lost.name.clone() });
    }
    let mut ways = Vec::new();
    for table in target.tables() {
        let Some(from) = there.iter().find(|from| from.name == table.name) else { continue };
        ways.push(Way::between(from, table)?);
    }
    Ok(ways)
}

impl Way {
    fn between(from: &StoreTable, to: &StoreTable) -> Result<Self, MoveError> {
        let name = &from.name;
        let lost = |column: &&TableColumn| to.column(&column.name).is_none() && !is_numbered_anew(name, &column.name);
        if let Some(column) = from.columns.iter().find(lost) {
            return Err(MoveError::NoColumn { table: name.clone(), column: column.name.clone() });
        }
        let (mut columns, mut expressions) = (Vec::new(), Vec::new());
        for column in &to.columns {
            if is_numbered_anew(name, &column.name) {
                continue;
            }
            // A column that only the target has is what its default says.
            if let Some(expression) = made(name, &column.name) {
                expressions.push(expression.to_owned());
            } else if from.column(&column.name).is_some() {
                expressions.push(quoted(&column.name));
            } else {
                continue;
            }
            columns.push(column.clone());
        }
        let order = order(name).unwrap_or_else(|| from.order.clone());
        expressions.extend(order.iter().map(|column| quoted(column)));
        let filter = from_sqlite(name);
        let select = format!("SELECT {} FROM {} WHERE ({})", list(expressions), quoted(name), filter.unwrap_or("true"));
        let table = StoreTable { name: name.clone(), columns, order: order.clone(), filter };
        Ok(Self { table, select, order: order.len() })
    }

    /// The statement that goes on after a row, whose order is given as values.
    fn select_after(&self, after: Option<&TableRow>) -> String {
        let order = list(self.table.order.iter().map(|column| quoted(column)));
        let after = match after {
            Some(values) => {
                format!(" AND ({order}) > ({})", list((1..=values.len()).map(|number| format!("?{number}"))))
            }
            None => String::new(),
        };
        format!("{}{after} ORDER BY {order}", self.select)
    }

    /// The rows as the target keeps them, and where the last one stands.
    fn shaped(&self, batch: Vec<TableRow>) -> Result<(Vec<TableRow>, TableRow), MoveError> {
        let mut last = TableRow::new();
        let mut rows = Vec::with_capacity(batch.len());
        for mut row in batch {
            last = row.split_off(row.len().saturating_sub(self.order));
            let cells = row.into_iter().zip(&self.table.columns);
            let cells = cells.map(|(cell, column)| shaped(&self.table.name, &column.name, &column.kind, cell));
            rows.push(cells.collect::<Result<TableRow, MoveError>>()?);
        }
        Ok((rows, last))
    }
}

fn count(rows: usize) -> u64 {
    u64::saturating_from(rows)
}
