//! `UsageStore` on PostgreSQL: sums that are only added to, a whole batch and its name in one statement. (COST-004)
//!
//! Rows are added in the order of their keys, so that instances which add at once wait for each other and do not stand in
//! each other's way.
//!
//! Not here: what adds a batch (`batch`), the questions (`reads`), the health of tools (`tool_health`).

mod batch;
mod reads;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::usage_store::{Day, Days, ToolPair, ToolUsage, UnmetNeed, UsageBatch, UsagePage, UsageQuery, UsageStore};

use super::PostgresStore;
use super::statement::int;
use super::transaction::Scope;

#[async_trait]
impl UsageStore for PostgresStore {
    async fn add_usage(&self, batch: &UsageBatch) -> Result<bool, StoreError> {
        Ok(batch::add(self, batch).await?)
    }

    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        Ok(reads::page(self, query).await?)
    }

    async fn tool_usage(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolUsage>, StoreError> {
        Ok(reads::tools(self, tenant, days, most).await?)
    }

    async fn pairs(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolPair>, StoreError> {
        Ok(reads::pairs(self, tenant, days, most).await?)
    }

    async fn wishes(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<UnmetNeed>, StoreError> {
        Ok(reads::wishes(self, tenant, days, most).await?)
    }

    async fn prune_usage(&self, before: Day, most: usize) -> Result<u64, StoreError> {
        prune(self, before, most).await
    }
}

async fn prune(store: &PostgresStore, before: Day, most: usize) -> Result<u64, StoreError> {
    let most = i64::saturating_from(most);
    let mut forgotten = 0;
    for table in ["usage", "usage_costs", "usage_latencies", "usage_pairs", "usage_wishes"] {
        let sql = format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY
                 (SELECT ctid FROM {table} WHERE day < $1 ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED))"
        );
        forgotten += store.pool.execute(Scope::System, &sql, &[int(&before.0), int(&most)]).await?;
    }
    Ok(forgotten)
}
