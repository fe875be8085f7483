//! Which tables a file has, as SQLite itself knows it.

use rusqlite::{Connection, named_params};

use crate::transfer::{ColumnKind, StoreTable, TableColumn, is_moved};

/// Every table that is moved.
pub(super) fn tables(connection: &Connection) -> rusqlite::Result<Vec<StoreTable>> {
    let names: Vec<String> = connection
        .prepare(
            "SELECT name FROM pragma_table_list
             WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    names.into_iter().filter(|name| is_moved(name)).map(|name| table(connection, name)).collect()
}

fn table(connection: &Connection, name: String) -> rusqlite::Result<StoreTable> {
    let mut columns = Vec::new();
    let mut key: Vec<(i64, String)> = Vec::new();
    let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(:name) ORDER BY cid")?;
    let mut rows = statement.query(named_params! { ":name": &name })?;
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
