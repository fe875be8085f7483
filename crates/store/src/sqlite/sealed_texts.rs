//! `SealedTexts` on SQLite: what stands in clear where a seal belongs.

use async_trait::async_trait;
use ports::registry_store::StoreError;
use ports::sealed_texts::{SealedTexts, StoredText, TEXTS_PAGE_MAX, TextPlace};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::columns::{all, limit};
use super::faults::Fault;
use crate::records::sealed_texts::stored_text;

#[async_trait]
impl SealedTexts for SqliteStore {
    async fn clear_texts(&self, place: TextPlace, sealed: &str) -> Result<Vec<StoredText>, StoreError> {
        let sealed = sealed.to_owned();
        self.readers.run(move |connection| clear(connection, place, &sealed)).await
    }

    async fn replace_text(&self, place: TextPlace, was: &StoredText, text: &str) -> Result<bool, StoreError> {
        let (was, text) = (was.clone(), text.to_owned());
        self.writer()?.run(move |connection| replace(connection, place, &was, &text)).await
    }
}

fn clear(connection: &Connection, place: TextPlace, sealed: &str) -> Result<Vec<StoredText>, Fault> {
    let (table, column, row) = place.columns();
    let mut statement = connection.prepare_cached(&format!(
        "SELECT tenant_id, {row} AS row, {column} AS text FROM {table}
         WHERE {column} <> ?2 AND substr({column}, 1, length(?1)) <> ?1 LIMIT ?3"
    ))?;
    all(statement.query(params![sealed, place.nothing(), limit(TEXTS_PAGE_MAX)])?, stored_text)
}

fn replace(connection: &Connection, place: TextPlace, was: &StoredText, text: &str) -> Result<bool, Fault> {
    let (table, column, row) = place.columns();
    let replaced = connection
        .prepare_cached(&format!(
            "UPDATE {table} SET {column} = ?4 WHERE tenant_id = ?1 AND {row} = ?2 AND {column} = ?3"
        ))?
        .execute(params![was.tenant.as_str(), was.row, was.text, text])?;
    Ok(replaced > 0)
}
