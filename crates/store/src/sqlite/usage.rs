//! `UsageStore` on SQLite: sums that are only added to, in one transaction with the name of their batch. (COST-004)
//!
//! Not here: what adds a batch (`batch`), the questions (`reads`), the health of tools (`tool_health`).

mod batch;
mod reads;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::usage_store::{Day, Days, ToolPair, ToolUsage, UnmetNeed, UsageBatch, UsagePage, UsageQuery, UsageStore};
use rusqlite::{Connection, named_params};

use super::SqliteStore;
use super::faults::Fault;

#[async_trait]
impl UsageStore for SqliteStore {
    async fn add_usage(&self, batch: &UsageBatch) -> Result<bool, StoreError> {
        let (batch, now) = (batch.clone(), self.now());
        self.writer()?.run(move |connection| batch::add(connection, &batch, now)).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let query = query.clone();
        self.readers.run(move |connection| reads::page(connection, &query)).await
    }

    async fn tool_usage(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolUsage>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| reads::tools(connection, &tenant, days, most)).await
    }

    async fn pairs(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolPair>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| reads::pairs(connection, &tenant, days, most)).await
    }

    async fn wishes(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<UnmetNeed>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| reads::wishes(connection, &tenant, days, most)).await
    }

    async fn prune_usage(&self, before: Day, most: usize) -> Result<u64, StoreError> {
        let most = i64::saturating_from(most);
        self.writer()?.run(move |connection| prune(connection, before, most)).await
    }
}

fn prune(connection: &Connection, before: Day, most: i64) -> Result<u64, Fault> {
    let statements = [
        "DELETE FROM usage WHERE (tenant_id, day, tool_id, agent, user) IN
             (SELECT tenant_id, day, tool_id, agent, user FROM usage WHERE day < :before LIMIT :most)",
        "DELETE FROM usage_costs WHERE (tenant_id, day, tool_id, agent, user, currency, component) IN
             (SELECT tenant_id, day, tool_id, agent, user, currency, component FROM usage_costs
             WHERE day < :before LIMIT :most)",
        "DELETE FROM usage_latencies WHERE (tenant_id, day, tool_id, bucket) IN
             (SELECT tenant_id, day, tool_id, bucket FROM usage_latencies WHERE day < :before LIMIT :most)",
        "DELETE FROM usage_pairs WHERE (tenant_id, day, first, second) IN
             (SELECT tenant_id, day, first, second FROM usage_pairs WHERE day < :before LIMIT :most)",
        "DELETE FROM usage_wishes WHERE (tenant_id, day, agent, tool_id) IN
             (SELECT tenant_id, day, agent, tool_id FROM usage_wishes WHERE day < :before LIMIT :most)",
    ];
    let mut forgotten = 0;
    for statement in statements {
        forgotten += connection.prepare_cached(statement)?.execute(named_params! {
            ":before": before.0,
            ":most": most,
        })?;
    }
    Ok(u64::saturating_from(forgotten))
}
