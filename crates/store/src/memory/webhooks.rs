//! `WebhookStore` and `WorkflowRuns` without durability: maps under one lock. Passes the same suites as the real ones.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::Duration;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::webhook_store::{
    ATTEMPTS_KEPT_MAX, AddOutcome, DELIVERIES_PAGE_MAX, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId,
    DeliveryPage, DeliveryRecord, DeliveryState, DeliveryTarget, FormerSecret, NewDelivery, NoteOutcome, SigningSecret,
    WebhookId, WebhookRecord, WebhookStore,
};
use ports::workflow_runs::{NewRun, RunBeginOutcome, RunEnd, RunEnded, RunRecord, RunState, WorkflowRuns};

use super::MemoryStore;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Webhooks {
    subscriptions: BTreeMap<(TenantId, WebhookId), WebhookRecord>,
    /// By their mark, which is their place in time.
    deliveries: BTreeMap<u64, (DeliveryDetail, Vec<DeliveryAttempt>)>,
    marks: u64,
    claims: BTreeMap<String, (String, UnixMillis)>,
    runs: BTreeMap<(TenantId, InvocationId), (RunRecord, String)>,
}

impl Webhooks {
    fn delivery(&mut self, tenant: &TenantId, id: DeliveryId) -> Option<&mut (DeliveryDetail, Vec<DeliveryAttempt>)> {
        self.deliveries.values_mut().find(|(kept, _)| kept.record.tenant == *tenant && kept.record.id == id)
    }
}

impl MemoryStore {
    fn hooks(&self) -> MutexGuard<'_, Webhooks> {
        self.webhooks.lock_unpoisoned()
    }
}

#[async_trait]
impl WebhookStore for MemoryStore {
    async fn add_webhook(&self, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, StoreError> {
        let mut kept = self.hooks();
        if kept.subscriptions.keys().filter(|(tenant, _)| *tenant == webhook.tenant).count() >= most {
            return Ok(AddOutcome::TooMany);
        }
        kept.subscriptions.insert((webhook.tenant.clone(), webhook.id), webhook.clone());
        Ok(AddOutcome::Kept)
    }

    async fn webhooks(&self, tenant: &TenantId) -> Result<Vec<WebhookRecord>, StoreError> {
        let kept = self.hooks();
        let mut found: Vec<_> =
            kept.subscriptions.values().filter(|webhook| webhook.tenant == *tenant).cloned().collect();
        found.sort_by_key(|webhook| (webhook.added_at, webhook.id));
        Ok(found)
    }

    async fn webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, StoreError> {
        Ok(self.hooks().subscriptions.get(&(tenant.clone(), id)).cloned())
    }

    async fn remove_webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<bool, StoreError> {
        Ok(self.hooks().subscriptions.remove(&(tenant.clone(), id)).is_some())
    }

    async fn rotate_secret(
        &self,
        tenant: &TenantId,
        id: WebhookId,
        from: &SigningSecret,
        to: &SigningSecret,
        overlap: Duration,
    ) -> Result<Option<WebhookRecord>, StoreError> {
        let mut kept = self.hooks();
        let until = self.now().plus(overlap);
        let Some(webhook) = kept.subscriptions.get_mut(&(tenant.clone(), id)).filter(|webhook| webhook.secret == *from)
        else {
            return Ok(None);
        };
        let former = std::mem::replace(&mut webhook.secret, to.clone());
        webhook.former = Some(FormerSecret { secret: former, until });
        Ok(Some(webhook.clone()))
    }

    async fn add_delivery(&self, delivery: &NewDelivery) -> Result<bool, StoreError> {
        let mut kept = self.hooks();
        let NewDelivery { tenant, id, target, event, invocation, body } = delivery.clone();
        if kept.delivery(&tenant, id).is_some() {
            return Ok(false);
        }
        kept.marks += 1;
        let (mark, created_at) = (kept.marks, self.now());
        let record = DeliveryRecord {
            tenant,
            id,
            target,
            event,
            invocation,
            state: DeliveryState::Pending,
            round: 1,
            attempts: 0,
            created_at,
            ended_at: None,
        };
        kept.deliveries.insert(mark, (DeliveryDetail { record, body: Some(body) }, Vec::new()));
        Ok(true)
    }

    async fn delivery(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        Ok(self.hooks().delivery(tenant, id).map(|(detail, _)| detail.clone()))
    }

    async fn note_attempt(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
        attempt: &DeliveryAttempt,
        state: DeliveryState,
    ) -> Result<NoteOutcome, StoreError> {
        let mut kept = self.hooks();
        let now = self.now();
        let Some((detail, attempts)) = kept.delivery(tenant, id) else { return Ok(NoteOutcome::Stale) };
        let record = &mut detail.record;
        let repeated = attempts.iter().any(|known| (known.round, known.number) == (attempt.round, attempt.number));
        if record.state != DeliveryState::Pending || record.round != attempt.round || repeated {
            return Ok(NoteOutcome::Stale);
        }
        (record.state, record.attempts) = (state, attempt.number);
        record.ended_at = (state != DeliveryState::Pending).then_some(now);
        if state == DeliveryState::Delivered {
            detail.body = None;
        }
        attempts.push(attempt.clone());
        if attempts.len() > usize::saturating_from(ATTEMPTS_KEPT_MAX) {
            attempts.remove(0);
        }
        Ok(NoteOutcome::Kept)
    }

    async fn reopen(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryRecord>, StoreError> {
        let mut kept = self.hooks();
        let Some((detail, _)) = kept.delivery(tenant, id) else { return Ok(None) };
        let record = &mut detail.record;
        if record.state != DeliveryState::Dead {
            return Ok(None);
        }
        (record.state, record.round, record.attempts, record.ended_at) =
            (DeliveryState::Pending, record.round + 1, 0, None);
        Ok(Some(record.clone()))
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<DeliveryPage, StoreError> {
        let kept = self.hooks();
        let is_wanted = |record: &DeliveryRecord| {
            record.tenant == filter.tenant
                && filter.webhook.is_none_or(|webhook| record.target == DeliveryTarget::Webhook(webhook))
                && filter.state.is_none_or(|state| record.state == state)
        };
        let range = kept.deliveries.range(..before.unwrap_or(u64::MAX)).rev();
        let mut wanted = range.filter(|(_, (detail, _))| is_wanted(&detail.record)).peekable();
        let (mut page, mut last) = (DeliveryPage::default(), None);
        for (mark, (detail, _)) in wanted.by_ref().take(most.clamp(1, DELIVERIES_PAGE_MAX)) {
            page.deliveries.push(detail.record.clone());
            last = Some(*mark);
        }
        page.next = last.filter(|_| wanted.peek().is_some());
        Ok(page)
    }

    async fn attempts(&self, tenant: &TenantId, id: DeliveryId) -> Result<Vec<DeliveryAttempt>, StoreError> {
        Ok(self.hooks().delivery(tenant, id).map(|(_, attempts)| attempts.clone()).unwrap_or_default())
    }

    async fn claim(&self, key: &str, holder: &str, window: Duration) -> Result<bool, StoreError> {
        let mut kept = self.hooks();
        let now = self.now();
        if kept.claims.get(key).is_some_and(|(other, until)| now < *until && other != holder) {
            return Ok(false);
        }
        kept.claims.insert(key.to_owned(), (holder.to_owned(), now.plus(window)));
        Ok(true)
    }

    async fn prune_webhooks(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        let mut kept = self.hooks();
        let now = self.now();
        let is_old = |record: &DeliveryRecord| record.ended_at.is_some_and(|at| at.plus(retention) < now);
        let old = kept.deliveries.iter().filter(|(_, (detail, _))| is_old(&detail.record));
        let old: Vec<u64> = old.map(|(mark, _)| *mark).take(most).collect();
        for mark in &old {
            kept.deliveries.remove(mark);
        }
        kept.claims.retain(|_, (_, until)| now < *until);
        Ok(u64::saturating_from(old.len()))
    }
}

#[async_trait]
impl WorkflowRuns for MemoryStore {
    async fn begin_run(&self, run: &NewRun) -> Result<RunBeginOutcome, StoreError> {
        let mut kept = self.hooks();
        let NewRun { tenant, id, workflow, idempotency_key, input } = run.clone();
        let same = |(record, key): &&(RunRecord, String)| {
            record.tenant == tenant && record.workflow == workflow && *key == idempotency_key
        };
        if let Some((record, _)) = kept.runs.values().find(same) {
            return Ok(RunBeginOutcome::Known(record.id));
        }
        let record = RunRecord {
            tenant: tenant.clone(),
            id,
            workflow,
            input: Some(input),
            state: RunState::Pending,
            output: None,
            error: None,
            created_at: self.now(),
            completed_at: None,
        };
        kept.runs.insert((tenant, id), (record, idempotency_key));
        Ok(RunBeginOutcome::New)
    }

    async fn end_run(&self, tenant: &TenantId, id: InvocationId, end: &RunEnd) -> Result<RunEnded, StoreError> {
        let mut kept = self.hooks();
        let now = self.now();
        let Some((record, _)) = kept.runs.get_mut(&(tenant.clone(), id)) else { return Ok(RunEnded::Unknown) };
        if record.state != RunState::Pending {
            return Ok(RunEnded::Before);
        }
        match end.clone() {
            RunEnd::Success(output) => (record.state, record.output) = (RunState::Success, Some(output)),
            RunEnd::Failure(error) => (record.state, record.error) = (RunState::Failure, Some(error)),
        }
        record.completed_at = Some(now);
        Ok(RunEnded::Now { took: now.since(record.created_at) })
    }

    async fn release_run(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError> {
        let key = (tenant.clone(), id);
        let mut kept = self.hooks();
        if kept.runs.get(&key).is_some_and(|(record, _)| record.state != RunState::Success) {
            kept.runs.remove(&key);
        }
        Ok(())
    }

    async fn run(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.hooks().runs.get(&(tenant.clone(), id)).map(|(record, _)| record.clone()))
    }

    async fn prune_runs(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        let mut kept = self.hooks();
        let now = self.now();
        let is_old = |record: &RunRecord| record.completed_at.is_some_and(|at| at.plus(retention) < now);
        let old = kept.runs.iter().filter(|(_, (record, _))| is_old(record));
        let old: Vec<_> = old.map(|(key, _)| key.clone()).take(most).collect();
        for key in &old {
            kept.runs.remove(key);
        }
        Ok(u64::saturating_from(old.len()))
    }
}
