//! `SealedTexts` on PostgreSQL: what stands in clear where a seal belongs.

use async_trait::async_trait;
use ports::registry_store::StoreError;
use ports::sealed_texts::{SealedTexts, StoredText, TEXTS_PAGE_MAX, TextPlace};

use super::PostgresStore;
use super::columns::limit;
use super::faults::Fault;
use super::statement::{int, text};
use super::stored_text::kept;
use super::transaction::Scope;
use crate::records::sealed_texts::stored_text;

#[async_trait]
impl SealedTexts for PostgresStore {
    async fn clear_texts(&self, place: TextPlace, sealed: &str) -> Result<Vec<StoredText>, StoreError> {
        clear(self, place, sealed).await
    }

    async fn replace_text(&self, place: TextPlace, was: &StoredText, new: &str) -> Result<bool, StoreError> {
        replace(self, place, was, new).await
    }
}

async fn clear(store: &PostgresStore, place: TextPlace, sealed: &str) -> Result<Vec<StoredText>, StoreError> {
    let (table, column, row) = place.columns();
    let statement = format!(
        "SELECT tenant_id, {row} AS row, {column} AS text FROM {table}
         WHERE {column} <> $2 AND NOT starts_with({column}, $1) LIMIT $3"
    );
    let (nothing, most) = (place.nothing(), limit(TEXTS_PAGE_MAX));
    let values = [text(&sealed), text(&nothing), int(&most)];
    let rows = store.pool.query(Scope::System, &statement, &values).await?;
    Ok(rows.iter().map(stored_text).collect::<Result<Vec<_>, Fault>>()?)
}

async fn replace(store: &PostgresStore, place: TextPlace, was: &StoredText, new: &str) -> Result<bool, StoreError> {
    let (table, column, row) = place.columns();
    let statement = format!("UPDATE {table} SET {column} = $4 WHERE tenant_id = $1 AND {row} = $2 AND {column} = $3");
    let (tenant, row) = (was.tenant.as_str(), kept(&was.row));
    let values = [text(&tenant), text(&row), text(&was.text), text(&new)];
    Ok(store.pool.execute(Scope::Tenant(tenant), &statement, &values).await? > 0)
}
