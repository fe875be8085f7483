//! `InstallationStore` on PostgreSQL: the first instance to bring a secret wins, and a replacement names what it replaces.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ports::installation_store::InstallationStore;
use ports::registry_store::StoreError;

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{column, text};
use super::transaction::{Scope, in_transaction};

#[async_trait]
impl InstallationStore for PostgresStore {
    async fn secrets(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let rows = self.pool.query(Scope::System, "SELECT name, value FROM installation_secrets", &[]).await?;
        let pairs = rows.iter().map(|row| Ok((column(row, "name")?, column(row, "value")?)));
        Ok(pairs.collect::<Result<_, Fault>>()?)
    }

    async fn keep(&self, name: &str, value: &str) -> Result<String, StoreError> {
        // Two statements: one alone does not see the row of an instance that was quicker by a moment.
        let kept = in_transaction!(self.pool, Scope::System, |tx| async {
            let insert = "INSERT INTO installation_secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            tx.execute(insert, &[text(&name), text(&value)]).await?;
            let kept = tx.query_opt("SELECT value FROM installation_secrets WHERE name = $1", &[text(&name)]).await?;
            match kept {
                Some(row) => column(&row, "value"),
                None => Ok(value.to_owned()),
            }
        }
        .await)?;
        Ok(kept)
    }

    async fn replace(&self, name: &str, former: &str, value: &str) -> Result<bool, StoreError> {
        let update = "UPDATE installation_secrets SET value = $3, since = now() WHERE name = $1 AND value = $2";
        let changed = self.pool.execute(Scope::System, update, &[text(&name), text(&former), text(&value)]).await?;
        Ok(changed == 1)
    }
}
