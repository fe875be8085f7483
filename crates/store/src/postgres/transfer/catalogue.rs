//! Which tables a database has, as the server itself knows it.
//!
//! Others may have tables in the same schema: those that steps make are ours, and only they are moved.

use std::collections::BTreeSet;

use crate::postgres::faults::Fault;
use crate::postgres::migrations;
use crate::postgres::statement::column;
use crate::postgres::transaction::Transaction;
use crate::transfer::{ColumnKind, StoreTable, TableColumn, is_moved, order};

const COLUMNS: &str =
    "SELECT c.relname::text AS of, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
        a.attidentity <> '' AS is_numbered
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
     WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT c.relispartition
     ORDER BY c.relname COLLATE \"C\", a.attnum";

const KEYS: &str = "SELECT c.relname::text AS of, a.attname::text AS name
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
         CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
     WHERE n.nspname = current_schema() ORDER BY c.relname COLLATE \"C\", k.place";

const REFERENCES: &str = "SELECT c.relname::text AS of, r.relname::text AS to
     FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_class r ON r.oid = f.confrelid
         JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE f.contype = 'f' AND f.conrelid <> f.confrelid AND n.nspname = current_schema()";

/// Every table of ours that is moved, those that others refer to first.
pub(super) async fn tables(transaction: &Transaction) -> Result<Vec<StoreTable>, Fault> {
    let ours: BTreeSet<&str> = migrations::tables().filter(|name| is_moved(name)).collect();
    let mut tables: Vec<StoreTable> = Vec::new();
    for row in transaction.query(COLUMNS, &[]).await? {
        let of: &str = column(&row, "of")?;
        if !ours.contains(of) {
            continue;
        }
        let type_name: String = column(&row, "type")?;
        let next = TableColumn {
            name: column(&row, "name")?,
            kind: kind(&type_name),
            type_name,
            is_numbered: column(&row, "is_numbered")?,
        };
        match tables.last_mut() {
            Some(last) if last.name == of => last.columns.push(next),
            _ => tables.push(StoreTable {
                name: of.to_owned(),
                columns: vec![next],
                order: order(of).unwrap_or_default(),
                filter: None,
            }),
        }
    }
    for row in transaction.query(KEYS, &[]).await? {
        let of: &str = column(&row, "of")?;
        if let Some(table) = tables.iter_mut().find(|table| table.name == of && order(of).is_none()) {
            table.order.push(column(&row, "name")?);
        }
    }
    let mut references = Vec::new();
    for row in transaction.query(REFERENCES, &[]).await? {
        references.push((column(&row, "of")?, column(&row, "to")?));
    }
    Ok(in_order(tables, &references))
}

/// Is there any table at all, whosever it is?
pub(super) async fn is_empty(transaction: &Transaction) -> Result<bool, Fault> {
    Ok(transaction.query(COLUMNS, &[]).await?.is_empty())
}

fn kind(type_name: &str) -> ColumnKind {
    match type_name {
        "text" => ColumnKind::Text,
        "bigint" | "integer" | "smallint" => ColumnKind::Integer,
        "double precision" | "real" => ColumnKind::Real,
        "boolean" => ColumnKind::Boolean,
        "bytea" => ColumnKind::Bytes,
        "json" | "jsonb" => ColumnKind::Json,
        "timestamp with time zone" => ColumnKind::Moment,
        other => ColumnKind::Other(other.to_owned()),
    }
}

/// Those that others refer to first; otherwise as they were.
fn in_order(mut waiting: Vec<StoreTable>, references: &[(String, String)]) -> Vec<StoreTable> {
    let mut placed: Vec<StoreTable> = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let is_ready = |table: &StoreTable| {
            let mut to = references.iter().filter(|(of, _)| *of == table.name).map(|(_, to)| to);
            to.all(|to| !waiting.iter().any(|other| other.name == *to))
        };
        // Tables that refer to each other in a circle come as they are.
        let next = waiting.iter().position(is_ready).unwrap_or(0);
        placed.push(waiting.remove(next));
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_refer_to_comes_first() {
        let table = |name: &str| StoreTable { name: name.into(), columns: vec![], order: vec![], filter: None };
        let names = |tables: &[StoreTable]| tables.iter().map(|table| table.name.clone()).collect::<Vec<_>>();
        let reference = |of: &str, to: &str| (of.to_owned(), to.to_owned());
        let tables = ["a", "b", "c", "d"].map(table).to_vec();
        let ordered = in_order(tables.clone(), &[reference("a", "c"), reference("c", "d"), reference("b", "gone")]);
        assert_eq!(names(&ordered), ["b", "d", "c", "a"]);
        let circle = in_order(tables, &[reference("a", "b"), reference("b", "a")]);
        assert_eq!(circle.len(), 4);
    }
}
