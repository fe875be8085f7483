//! `AccessStore` without durability: the records in maps, under one lock. Passes the same suite as the real ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use base::MutexExt as _;
use contract::ids::{Subject, TenantId};
use ports::access_store::{
    AccessState, AccessStore, Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, RevokedTokens,
    TenantRecord,
};
use ports::registry_store::StoreError;

use super::MemoryStore;

/// All of it, by what names each record.
#[derive(Debug, Default)]
pub(super) struct Access {
    epoch: u64,
    tenants: BTreeMap<TenantId, TenantRecord>,
    agents: BTreeMap<(TenantId, Subject), AgentRecord>,
    activations: BTreeMap<(TenantId, Subject, String), Activation>,
    /// Each in ascending order of versions, which begin with 1 and have no gaps.
    policies: BTreeMap<Option<TenantId>, Vec<PolicyRecord>>,
    /// By kind, tenant and name, which is the order they are told in.
    revocations: BTreeMap<(&'static str, TenantId, String), Revocation>,
    spending: BTreeMap<String, u64>,
}

impl Access {
    fn raised(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }
}

impl MemoryStore {
    fn access(&self) -> MutexGuard<'_, Access> {
        let lock: &Mutex<Access> = &self.access;
        lock.lock_unpoisoned()
    }
}

#[async_trait]
impl AccessStore for MemoryStore {
    async fn load(&self) -> Result<AccessState, StoreError> {
        let access = self.access();
        Ok(AccessState {
            epoch: access.epoch,
            tenants: access.tenants.values().cloned().collect(),
            agents: access.agents.values().cloned().collect(),
            activations: access.activations.values().cloned().collect(),
            policies: access.policies.values().filter_map(|versions| versions.last().cloned()).collect(),
            revocations: access.revocations.values().cloned().collect(),
        })
    }

    async fn put_tenants(&self, tenants: &[TenantRecord]) -> Result<u64, StoreError> {
        let mut access = self.access();
        access.tenants.extend(tenants.iter().map(|record| (record.tenant.clone(), record.clone())));
        Ok(access.raised())
    }

    async fn put_agents(&self, agents: &[AgentRecord]) -> Result<u64, StoreError> {
        let mut access = self.access();
        for record in agents {
            let key = (record.tenant.clone(), record.agent.clone());
            if record.document.is_some() || !access.agents.contains_key(&key) {
                access.agents.insert(key, record.clone());
            }
        }
        Ok(access.raised())
    }

    async fn remove_agent(&self, tenant: &TenantId, agent: &Subject) -> Result<Option<u64>, StoreError> {
        let mut access = self.access();
        let removed = access.agents.remove(&(tenant.clone(), agent.clone()));
        Ok(removed.map(|_| access.raised()))
    }

    async fn put_activations(&self, activations: &[Activation]) -> Result<u64, StoreError> {
        let mut access = self.access();
        for record in activations {
            let key = (record.tenant.clone(), record.agent.clone(), record.tool.to_string());
            let mut record = record.clone();
            if let Some(former) = access.activations.get(&key) {
                (record.id, record.created_at) = (former.id, former.created_at);
            }
            access.activations.insert(key, record);
        }
        Ok(access.raised())
    }

    async fn add_policies(&self, record: &PolicyRecord) -> Result<Option<u64>, StoreError> {
        let mut access = self.access();
        let versions = access.policies.entry(record.tenant.clone()).or_default();
        if versions.last().map_or(0, |last| last.version).checked_add(1) != Some(record.version) {
            return Ok(None);
        }
        versions.push(record.clone());
        Ok(Some(access.raised()))
    }

    async fn policy_history(&self, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<PolicyRecord>, StoreError> {
        let access = self.access();
        let versions = access.policies.get(&tenant.cloned()).into_iter().flatten();
        Ok(versions.rev().take(limit).cloned().collect())
    }

    async fn revoke(&self, revocation: &Revocation) -> Result<u64, StoreError> {
        let key = match &revocation.what {
            RevokedTokens::Token(tenant, token) => ("token", tenant.clone(), token.clone()),
            RevokedTokens::Subject(tenant, subject) => ("subject", tenant.clone(), subject.to_string()),
        };
        let mut access = self.access();
        let mut kept = revocation.clone();
        if let Some(there) = access.revocations.get(&key) {
            let needless_from = there.needless_from.zip(revocation.needless_from).map(|(one, other)| one.max(other));
            let later = if there.at < revocation.at { revocation } else { there };
            let issuers = there.issuers.clone().joined(&revocation.issuers);
            kept = Revocation { needless_from, issuers, ..later.clone() };
        }
        access.revocations.insert(key, kept);
        access.revocations.retain(|_, kept| kept.needless_from.is_none_or(|end| end > revocation.at));
        Ok(access.raised())
    }

    async fn would_spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        Ok(counted(&self.access().spending, spendings).map(drop))
    }

    async fn spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        let mut access = self.access();
        let counts = match counted(&access.spending, spendings) {
            Ok(counts) => counts,
            Err(token) => return Ok(Err(token)),
        };
        access.spending.extend(counts.into_iter().map(|(token, calls)| (token.to_owned(), calls)));
        Ok(Ok(()))
    }
}

/// What is counted after one call more, or the first token whose budget is used up.
fn counted<'s>(
    spending: &BTreeMap<String, u64>,
    spendings: &'s [BudgetSpending],
) -> Result<BTreeMap<&'s str, u64>, String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for BudgetSpending { token, calls_max } in spendings {
        let calls = counts.get(token.as_str()).or_else(|| spending.get(token)).copied().unwrap_or(0);
        if calls >= *calls_max {
            return Err(token.clone());
        }
        counts.insert(token, calls + 1);
    }
    Ok(counts)
}
