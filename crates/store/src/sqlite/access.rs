//! `AccessStore` on SQLite: who may use what, durable before it is answered. (DESIGN §8.6, §8.7, AUTH-012, VIS-003)
//!
//! Changes go through the one writer and share its commits; reading sees one moment, not the middle of a change.
//!
//! Invariants
//! - ACCESS-1: the epoch is raised in the transaction of the change, so no state is ever seen under two epochs and no
//!   epoch is given twice, whatever ends the process.
//! - ACCESS-2: a call is counted against all of its budgets or none, and never beyond a maximum.
//!
//! Not here: what the records mean (the kernel and `policy`). Revocations and counts of tokens that have expired are kept,
//! because the port does not say when a token ends.

mod reads;
mod writes;

use async_trait::async_trait;
use contract::ids::{Subject, TenantId};
use ports::access_store::{
    AccessState, AccessStore, Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, TenantRecord,
};
use ports::registry_store::StoreError;
use rusqlite::Connection;

use super::SqliteStore;

#[async_trait]
impl AccessStore for SqliteStore {
    async fn load(&self) -> Result<AccessState, StoreError> {
        self.readers.run(reads::load).await
    }

    async fn put_tenants(&self, tenants: &[TenantRecord]) -> Result<u64, StoreError> {
        let tenants = tenants.to_vec();
        self.writer()?.run(move |connection| writes::put_tenants(connection, &tenants)).await
    }

    async fn put_agents(&self, agents: &[AgentRecord]) -> Result<u64, StoreError> {
        let agents = agents.to_vec();
        self.writer()?.run(move |connection| writes::put_agents(connection, &agents)).await
    }

    async fn remove_agent(&self, tenant: &TenantId, agent: &Subject) -> Result<Option<u64>, StoreError> {
        let (tenant, agent) = (tenant.clone(), agent.clone());
        self.writer()?.run(move |connection| writes::remove_agent(connection, &tenant, &agent)).await
    }

    async fn put_activations(&self, activations: &[Activation]) -> Result<u64, StoreError> {
        let activations = activations.to_vec();
        self.writer()?.run(move |connection| writes::put_activations(connection, &activations)).await
    }

    async fn add_policies(&self, record: &PolicyRecord) -> Result<Option<u64>, StoreError> {
        let record = record.clone();
        self.writer()?.run(move |connection| writes::add_policies(connection, &record)).await
    }

    async fn policy_history(&self, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<PolicyRecord>, StoreError> {
        let tenant = tenant.cloned();
        let read = move |connection: &Connection| reads::policy_history(connection, tenant.as_ref(), limit);
        self.readers.run(read).await
    }

    async fn revoke(&self, revocation: &Revocation) -> Result<u64, StoreError> {
        let revocation = revocation.clone();
        self.writer()?.run(move |connection| writes::revoke(connection, &revocation)).await
    }

    async fn would_spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        let spendings = spendings.to_vec();
        self.writer()?.run(move |connection| Ok(writes::counted(connection, &spendings)?.map(drop))).await
    }

    async fn spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        if spendings.is_empty() {
            return Ok(Ok(()));
        }
        let spendings = spendings.to_vec();
        self.writer()?.run(move |connection| writes::spend(connection, &spendings)).await
    }
}
