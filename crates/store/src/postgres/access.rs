//! `AccessStore` on PostgreSQL: who may use what, durable before it is answered. (DESIGN §8.6, §8.7, AUTH-012, VIS-003)
//!
//! Nearly every change is one statement: it writes its rows in the order of their keys, then raises the epoch and tells
//! whoever listens. All changes take their locks in that order, so none waits for another in a circle.
//!
//! Invariants
//! - ACCESS-1: the epoch is raised in the transaction of the change, so no state is ever seen under two epochs and no
//!   epoch is given twice, whatever ends the process. It is the last thing a change does, so epochs are in the order of
//!   commits.
//! - ACCESS-2: a call is counted against all of its budgets or none, and never beyond a maximum.
//!
//! Not here: what the records mean (the kernel and `policy`), the statements (`reads`, `writes`).

mod reads;
mod writes;

use async_trait::async_trait;
use contract::ids::{Subject, TenantId};
use ports::access_store::{
    AccessState, AccessStore, Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, TenantRecord,
};
use ports::registry_store::StoreError;

use super::PostgresStore;
use super::transaction::{Scope, in_transaction};

#[async_trait]
impl AccessStore for PostgresStore {
    async fn load(&self) -> Result<AccessState, StoreError> {
        let loaded = in_transaction!(self.pool, Scope::System, |tx| reads::load(tx).await);
        Ok(loaded?)
    }

    async fn put_tenants(&self, tenants: &[TenantRecord]) -> Result<u64, StoreError> {
        writes::put_tenants(self, tenants).await
    }

    async fn put_agents(&self, agents: &[AgentRecord]) -> Result<u64, StoreError> {
        writes::put_agents(self, agents).await
    }

    async fn remove_agent(&self, tenant: &TenantId, agent: &Subject) -> Result<Option<u64>, StoreError> {
        writes::remove_agent(self, tenant, agent).await
    }

    async fn put_activations(&self, activations: &[Activation]) -> Result<u64, StoreError> {
        writes::put_activations(self, activations).await
    }

    async fn add_policies(&self, record: &PolicyRecord) -> Result<Option<u64>, StoreError> {
        writes::add_policies(self, record).await
    }

    async fn policy_history(&self, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<PolicyRecord>, StoreError> {
        reads::policy_history(self, tenant, limit).await
    }

    async fn revoke(&self, revocation: &Revocation) -> Result<u64, StoreError> {
        // Others' revocations are forgotten on the way.
        let done = in_transaction!(self.pool, Scope::System, |tx| writes::revoke(tx, revocation).await);
        Ok(done?)
    }

    async fn would_spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        writes::would_spend(self, spendings).await
    }

    async fn spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        writes::spend(self, spendings).await
    }
}

/// Whose policies, as what row level security knows.
fn owner_scope(tenant: Option<&TenantId>) -> Scope<'_> {
    tenant.map_or(Scope::System, |tenant| Scope::Tenant(tenant.as_str()))
}
