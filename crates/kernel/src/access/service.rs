//! What can be done with access: read it, change it, follow the changes of others.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base::SaturatingFrom as _;
use contract::ids::{Subject, TenantId};
use fair_places::{ComputationPermits, PlaceUsage};
use policy::VisibilityDefault;
use ports::access_store::{
    AccessStore, Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, TenantRecord,
};
use ports::change_bus::{BusChange, ChangeBus};
use ports::clock::Clock;
use ports::did_resolver::DidResolver;
use ports::observer::Observer;
use ports::policy_engine::PolicyEngine;
use ports::registry_store::StoreError;
use tokio::sync::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::decisions::{Decisions, PolicyDecision};
use super::snapshot::{AccessSnapshot, EVERY_AGENT};

/// The snapshot is read anew after this long even if nobody has said a word: messages can be lost.
const REFRESH: Duration = Duration::from_secs(30);
/// Tokens of unknown subjects that are remembered; then it begins anew.
const LOOKED_FOR_MAX: usize = 4_096;

/// What the configuration says about access.
#[derive(Debug, Clone)]
pub struct AccessSettings {
    /// What agents may use without an activation. `None`: everything in the home tenant, what changes nothing elsewhere.
    pub visibility: Option<VisibilityDefault>,
    /// What policies see as `context.environment`.
    pub environment: String,
    /// How long a decision is remembered at most.
    pub decision_ttl: Duration,
    /// Must the subject of every token be a known DID? Otherwise plain names will do, and only what looks like a DID is checked.
    pub require_did: bool,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            visibility: None,
            environment: "local".into(),
            decision_ttl: Duration::from_secs(300),
            require_did: false,
        }
    }
}

/// Everything access needs.
#[derive(Debug)]
pub struct AccessParts {
    pub store: Arc<dyn AccessStore>,
    pub bus: Arc<dyn ChangeBus>,
    pub engine: Option<Arc<dyn PolicyEngine>>,
    pub did_resolver: Option<Arc<dyn DidResolver>>,
    pub clock: Arc<dyn Clock>,
    pub observer: Arc<dyn Observer>,
    pub settings: AccessSettings,
}

/// The kernel's sense of who may use what.
#[derive(Debug)]
pub struct AccessControl {
    snapshot: ArcSwap<AccessSnapshot>,
    parts: AccessParts,
    decisions: Decisions,
    no_policies: Arc<PolicyDecision>,
    /// Where decisions are made that take long.
    long_decisions: ComputationPermits,
    /// Orders "store, then snapshot" of concurrent changes. Never taken by calls.
    turn: Mutex<()>,
    /// Tokens of unknown subjects for which the store has been asked.
    looked_for: Mutex<HashSet<Box<str>>>,
}

impl AccessControl {
    /// Loads what is in force.
    pub async fn open(parts: AccessParts) -> Result<Self, StoreError> {
        let state = parts.store.load().await?;
        let snapshot = AccessSnapshot::new(state, parts.settings.visibility, None);
        let ttl_ms = i64::saturating_from(parts.settings.decision_ttl.as_millis());
        Ok(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            decisions: Decisions::new(ttl_ms),
            no_policies: Arc::default(),
            long_decisions: ComputationPermits::default(),
            turn: Mutex::new(()),
            looked_for: Mutex::default(),
            parts,
        })
    }

    /// Access at this moment. Cheap; hold it for the length of one call.
    pub fn snapshot(&self) -> arc_swap::Guard<Arc<AccessSnapshot>> {
        self.snapshot.load()
    }

    /// Reloads whenever another instance has changed something, and now and then without being told; forgets decisions when
    /// told to. Never ends.
    pub async fn follow(&self) {
        let (changes, words) = (self.parts.bus.subscribe(), self.parts.bus.subscribe());
        // Side by side: a store that keeps a reload waiting must not keep decisions in use.
        tokio::join!(self.reload_when_told(changes), self.forget_when_told(words));
    }

    async fn reload_when_told(&self, mut changes: Receiver<BusChange>) {
        loop {
            let told = tokio::select! {
                told = changes.recv() => told,
                () = self.parts.clock.sleep(REFRESH) => Err(RecvError::Lagged(0)),
            };
            match told {
                Ok(BusChange::Access { epoch }) if epoch <= self.snapshot().epoch => {}
                Ok(
                    BusChange::Registry { .. }
                    | BusChange::Servers
                    | BusChange::Decisions
                    | BusChange::DecisionsOf { .. },
                ) => {}
                Ok(BusChange::Access { .. } | BusChange::Lost) | Err(RecvError::Lagged(_)) => {
                    let _turn = self.turn.lock().await;
                    if let Err(error) = self.reload().await {
                        tracing::error!(%error, "access could not be read anew; what was in force stays in force");
                    }
                }
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    async fn forget_when_told(&self, mut words: Receiver<BusChange>) {
        loop {
            match words.recv().await {
                // What a change of access voids, its epoch does.
                Ok(BusChange::Access { .. } | BusChange::Registry { .. } | BusChange::Servers) => {}
                Ok(BusChange::DecisionsOf { subjects }) => self.decisions.forget_those_of(&subjects),
                // A word from an authority outside may be among those that were lost; an epoch tells nothing of it.
                Ok(BusChange::Decisions | BusChange::Lost) | Err(RecvError::Lagged(_)) => self.decisions.forget(),
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    /// Reads the store for somebody whom the snapshot of this epoch does not know: true if there is anything new. Once for
    /// each token, so that those who are unknown to everybody cost nothing but their refusal.
    pub(crate) async fn look_again(&self, token: &str, epoch: u64) -> bool {
        let mut looked_for = self.looked_for.lock().await;
        if self.snapshot().epoch != epoch {
            return true;
        }
        if looked_for.contains(token) {
            return false;
        }
        if looked_for.len() >= LOOKED_FOR_MAX {
            looked_for.clear();
        }
        looked_for.insert(token.into());
        let _turn = self.turn.lock().await;
        if let Err(error) = self.reload().await {
            tracing::warn!(%error, "access could not be read anew; what was in force stays in force");
        }
        self.snapshot().epoch != epoch
    }

    // ------------------------------------------------------------------------------------------------------ changes

    /// Adds or replaces tenants.
    pub(crate) async fn put_tenants(&self, tenants: &[TenantRecord]) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let epoch = self.parts.store.put_tenants(tenants).await?;
        self.settle(epoch).await
    }

    /// Introduces agents, and their tenants if those are new. Nothing is written if all are known.
    pub(crate) async fn introduce(&self, agents: Vec<AgentRecord>) -> Result<(), StoreError> {
        let snapshot = self.snapshot().clone();
        let known = |agent: &AgentRecord| {
            let itself = agent.agent.as_str() == EVERY_AGENT || snapshot.knows(&agent.tenant, &agent.agent);
            agent.document.is_none() && itself && snapshot.tenant(&agent.tenant).is_some()
        };
        let mut new: Vec<AgentRecord> = agents.into_iter().filter(|agent| !known(agent)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let mut tenants: Vec<TenantRecord> = Vec::new();
        for agent in &new {
            let there = self.snapshot().tenant(&agent.tenant).is_some();
            if !there && !tenants.iter().any(|tenant| tenant.tenant == agent.tenant) {
                tenants.push(TenantRecord {
                    tenant: agent.tenant.clone(),
                    name: agent.tenant.to_string(),
                    visibility: None,
                    tools: vec![policy::ToolPattern::All],
                    enabled: true,
                });
            }
        }
        let mut epoch = 0;
        if !tenants.is_empty() {
            epoch = self.parts.store.put_tenants(&tenants).await?;
        }
        new.retain(|agent| agent.agent.as_str() != EVERY_AGENT);
        if !new.is_empty() {
            epoch = self.parts.store.put_agents(&new).await?;
        }
        self.settle(epoch).await
    }

    /// Forgets an agent; false if it was not known.
    pub(crate) async fn forget(&self, tenant: &TenantId, agent: &Subject) -> Result<bool, StoreError> {
        let _turn = self.turn.lock().await;
        match self.parts.store.remove_agent(tenant, agent).await? {
            None => Ok(false),
            Some(epoch) => self.settle(epoch).await.map(|()| true),
        }
    }

    /// Adds or replaces activations.
    pub(crate) async fn put_activations(&self, activations: &[Activation]) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let epoch = self.parts.store.put_activations(activations).await?;
        self.settle(epoch).await
    }

    /// Puts new policies in force, which have been checked. Answers their version.
    pub(crate) async fn put_policies(
        &self,
        tenant: Option<TenantId>,
        text: String,
        by: &Subject,
    ) -> Result<u64, StoreError> {
        let _turn = self.turn.lock().await;
        loop {
            let newest = self.parts.store.policy_history(tenant.as_ref(), 1).await?;
            let version = newest.first().map_or(0, |record| record.version).saturating_add(1);
            let record = PolicyRecord {
                tenant: tenant.clone(),
                version,
                text: text.clone(),
                added_at: self.parts.clock.now(),
                added_by: by.clone(),
            };
            // `None`: another instance was faster, so the next number is another one.
            if let Some(epoch) = self.parts.store.add_policies(&record).await? {
                self.settle(epoch).await?;
                return Ok(version);
            }
        }
    }

    /// Versions of policies, newest first.
    pub(crate) async fn policy_history(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<PolicyRecord>, StoreError> {
        self.parts.store.policy_history(tenant, limit).await
    }

    /// Makes tokens void.
    pub(crate) async fn revoke(&self, revocation: &Revocation) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let epoch = self.parts.store.revoke(revocation).await?;
        self.settle(epoch).await
    }

    /// Counts one call against budgets; answers the first token whose budget is used up.
    pub(crate) async fn spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        self.parts.store.spend(spendings).await
    }

    /// Whether [`AccessControl::spend`] would count one. Nothing is counted.
    pub(crate) async fn would_spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError> {
        self.parts.store.would_spend(spendings).await
    }

    /// ACC-1: in force here, then told to the others.
    async fn settle(&self, epoch: u64) -> Result<(), StoreError> {
        self.reload().await?;
        self.parts.bus.publish(BusChange::Access { epoch }).await;
        Ok(())
    }

    async fn reload(&self) -> Result<(), StoreError> {
        let state = self.parts.store.load().await?;
        let former = self.snapshot().clone();
        if state.epoch != former.epoch {
            let next = AccessSnapshot::new(state, self.parts.settings.visibility, Some(&former));
            self.snapshot.store(Arc::new(next));
        }
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- for the other files

    pub(super) fn engine(&self) -> Option<&Arc<dyn PolicyEngine>> {
        self.parts.engine.as_ref()
    }

    pub(crate) fn did_resolver(&self) -> Option<&Arc<dyn DidResolver>> {
        self.parts.did_resolver.as_ref()
    }

    pub(super) fn observer(&self) -> &dyn Observer {
        &*self.parts.observer
    }

    pub(super) fn long_decisions(&self) -> &ComputationPermits {
        &self.long_decisions
    }

    /// How many decisions that take long are made and wait, under a name.
    pub(crate) fn places(&self) -> (&'static str, PlaceUsage) {
        ("policy_decisions", self.long_decisions.usage())
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.parts.clock
    }

    pub(super) fn environment(&self) -> &str {
        &self.parts.settings.environment
    }

    pub(super) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    pub(super) fn no_policies(&self) -> &Arc<PolicyDecision> {
        &self.no_policies
    }

    pub(crate) fn requires_did(&self) -> bool {
        self.parts.settings.require_did
    }
}
