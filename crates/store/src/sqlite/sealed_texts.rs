//! `SealedTexts` on SQLite: what stands in clear where a seal belongs.

use async_trait::async_trait;
use ports::registry_store::StoreError;
use ports::sealed_texts::{SealedTexts, StoredText, TEXTS_PAGE_MAX, TextPlace};
use rusqlite::{Connection, named_params};

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
         WHERE {column} <> :nothing AND substr({column}, 1, length(:sealed)) <> :sealed LIMIT :most"
    ))?;
    all(
        statement
            .query(named_params! { ":sealed": sealed, ":nothing": place.nothing(), ":most": limit(TEXTS_PAGE_MAX) })?,
        stored_text,
    )
}

fn replace(connection: &Connection, place: TextPlace, was: &StoredText, text: &str) -> Result<bool, Fault> {
    let (table, column, row) = place.columns();
    let replaced = connection
        .prepare_cached(&format!(
            "UPDATE {table} SET {column} = :text WHERE tenant_id = :tenant_id AND {row} = :row AND {column} = :was"
        ))?
        .execute(named_params! {
            ":tenant_id": was.tenant.as_str(),
            ":row": was.row,
            ":was": was.text,
            ":text": text,
        })?;
    Ok(replaced > 0)
}
