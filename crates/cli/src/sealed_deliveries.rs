//! Webhooks with seals on what receivers are told: results of calls, which wait in the store until they are delivered.
//!
//! Invariants
//! - BODY-1: with a seal, no body is written but sealed, bound to its delivery. What is there in clear, from before, is read, and
//!   sealed by `former_texts`.
//! - BODY-2: a body that cannot be opened is none, and its delivery is given up; it holds up no other.
//!
//! Not here: where the keys come from (`store_keys`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::webhook_store::{
    AddOutcome, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryPage, DeliveryRecord,
    DeliveryState, NewDelivery, NoteOutcome, SigningSecret, WebhookId, WebhookRecord, WebhookStore,
};

use crate::store_seal::StoreSeals;

/// A store of webhooks whose deliveries are sealed.
#[derive(Debug)]
pub(crate) struct SealedDeliveries {
    inner: Arc<dyn WebhookStore>,
    seals: StoreSeals,
}

impl SealedDeliveries {
    pub(crate) fn new(inner: Arc<dyn WebhookStore>, seals: StoreSeals) -> Self {
        Self { inner, seals }
    }
}

/// What belongs to one delivery is no other's. `row` is its id.
pub(crate) fn what(tenant: &TenantId, row: &str) -> String {
    format!("gantry delivery {row} {tenant}")
}

#[async_trait]
impl WebhookStore for SealedDeliveries {
    async fn add_webhook(&self, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, StoreError> {
        self.inner.add_webhook(webhook, most).await
    }

    async fn webhooks(&self, tenant: &TenantId) -> Result<Vec<WebhookRecord>, StoreError> {
        self.inner.webhooks(tenant).await
    }

    async fn webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, StoreError> {
        self.inner.webhook(tenant, id).await
    }

    async fn remove_webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<bool, StoreError> {
        self.inner.remove_webhook(tenant, id).await
    }

    async fn rotate_secret(
        &self,
        tenant: &TenantId,
        id: WebhookId,
        from: &SigningSecret,
        to: &SigningSecret,
        overlap: Duration,
    ) -> Result<Option<WebhookRecord>, StoreError> {
        self.inner.rotate_secret(tenant, id, from, to, overlap).await
    }

    async fn add_delivery(&self, delivery: &NewDelivery) -> Result<bool, StoreError> {
        let what = what(&delivery.tenant, &delivery.id.0.to_string());
        match self.seals.sealed(&what, &delivery.body)? {
            Some(body) => self.inner.add_delivery(&NewDelivery { body, ..delivery.clone() }).await,
            None => self.inner.add_delivery(delivery).await,
        }
    }

    async fn delivery(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        let Some(DeliveryDetail { record, body }) = self.inner.delivery(tenant, id).await? else { return Ok(None) };
        let body = body.and_then(|body| {
            // What a backup without keys has left of it is nothing.
            let opened = self.seals.opened(&what(tenant, &id.0.to_string()), &body).filter(|body| !body.is_empty());
            if opened.is_none() {
                tracing::error!(delivery = %id.0, %tenant, "what a webhook is to be told is sealed with another key, or was changed");
            }
            opened.map(std::borrow::Cow::into_owned)
        });
        Ok(Some(DeliveryDetail { record, body }))
    }

    async fn note_attempt(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
        attempt: &DeliveryAttempt,
        state: DeliveryState,
    ) -> Result<NoteOutcome, StoreError> {
        self.inner.note_attempt(tenant, id, attempt, state).await
    }

    async fn reopen(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryRecord>, StoreError> {
        self.inner.reopen(tenant, id).await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<DeliveryPage, StoreError> {
        self.inner.deliveries(filter, before, most).await
    }

    async fn attempts(&self, tenant: &TenantId, id: DeliveryId) -> Result<Vec<DeliveryAttempt>, StoreError> {
        self.inner.attempts(tenant, id).await
    }

    async fn claim(&self, key: &str, holder: &str, window: Duration) -> Result<bool, StoreError> {
        self.inner.claim(key, holder, window).await
    }

    async fn prune_webhooks(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        self.inner.prune_webhooks(retention, most).await
    }
}
