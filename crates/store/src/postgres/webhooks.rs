//! `WebhookStore` on PostgreSQL: subscriptions here, what was sent in `deliveries`. (ASYNC-007)
//!
//! Not here: what a delivery means (`jobs::webhooks`).

mod deliveries;

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::webhook_store::{
    AddOutcome, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryPage, DeliveryRecord,
    DeliveryState, NewDelivery, NoteOutcome, SigningSecret, WebhookId, WebhookRecord, WebhookStore,
};

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{NOW, int, text};
use super::transaction::{Scope, Transaction, in_transaction};
use crate::records::webhooks::{COLUMNS, secret_columns, webhook};
use crate::time::milliseconds;

#[async_trait]
impl WebhookStore for PostgresStore {
    async fn add_webhook(&self, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, StoreError> {
        Ok(in_transaction!(self.pool, Scope::Tenant(webhook.tenant.as_str()), |tx| add(tx, webhook, most).await)?)
    }

    async fn webhooks(&self, tenant: &TenantId) -> Result<Vec<WebhookRecord>, StoreError> {
        all(self, tenant).await
    }

    async fn webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, StoreError> {
        one(self, tenant, id).await
    }

    async fn remove_webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<bool, StoreError> {
        let (tenant, id) = (tenant.as_str(), id.0.to_string());
        let sql = "DELETE FROM webhooks WHERE tenant_id = $1 AND id = $2";
        Ok(self.pool.execute(Scope::Tenant(tenant), sql, &[text(&tenant), text(&id)]).await? > 0)
    }

    async fn rotate_secret(
        &self,
        tenant: &TenantId,
        id: WebhookId,
        from: &SigningSecret,
        to: &SigningSecret,
        overlap: Duration,
    ) -> Result<Option<WebhookRecord>, StoreError> {
        rotate(self, tenant, id, from, to, overlap).await
    }

    async fn add_delivery(&self, delivery: &NewDelivery) -> Result<bool, StoreError> {
        Ok(deliveries::add(self, delivery).await?)
    }

    async fn delivery(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        Ok(deliveries::one(self, tenant, id).await?)
    }

    async fn note_attempt(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
        attempt: &DeliveryAttempt,
        state: DeliveryState,
    ) -> Result<NoteOutcome, StoreError> {
        Ok(deliveries::note(self, (tenant, id), attempt, state).await?)
    }

    async fn reopen(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryRecord>, StoreError> {
        Ok(deliveries::reopen(self, tenant, id).await?)
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<DeliveryPage, StoreError> {
        Ok(deliveries::page(self, filter, before, most).await?)
    }

    async fn attempts(&self, tenant: &TenantId, id: DeliveryId) -> Result<Vec<DeliveryAttempt>, StoreError> {
        Ok(deliveries::attempts(self, tenant, id).await?)
    }

    async fn claim(&self, key: &str, holder: &str, window: Duration) -> Result<bool, StoreError> {
        // A claim whose window is over is as if it had never been.
        let sql = format!(
            "INSERT INTO claims AS there (key, holder, until) VALUES ($2, $3, {NOW} + $4)
             ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, until = excluded.until
             WHERE there.until <= {NOW} OR there.holder = excluded.holder"
        );
        let (now, window) = (self.now(), milliseconds(window));
        let values = [int(&now), text(&key), text(&holder), int(&window)];
        Ok(self.pool.execute(Scope::System, &sql, &values).await? > 0)
    }

    async fn prune_webhooks(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        Ok(deliveries::prune(self, retention, most).await?)
    }
}

async fn add(tx: &Transaction, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, Fault> {
    let tenant = webhook.tenant.as_str();
    // Instances that add at once count one after the other.
    tx.query("SELECT pg_advisory_xact_lock(hashtextextended('webhooks ' || $1, 0))", &[text(&tenant)]).await?;
    let sql = format!(
        "INSERT INTO webhooks ({COLUMNS})
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
         WHERE (SELECT count(*) FROM webhooks WHERE tenant_id = $1) < $12"
    );
    let events: Vec<&str> = webhook.events.iter().map(|event| event.as_str()).collect();
    let (id, events) = (webhook.id.0.to_string(), serde_json::Value::from(events).to_string());
    let (generation, name) = secret_columns(&webhook.secret);
    let (former, added_by) = (webhook.former.as_ref(), webhook.added_by.as_str());
    let (former_generation, former_name) = former.map_or((None, None), |former| secret_columns(&former.secret));
    let (until, most) = (former.map(|former| former.until.0), i64::saturating_from(most));
    let values = [
        text(&tenant),
        text(&id),
        text(&webhook.url),
        text(&events),
        int(&generation),
        text(&name),
        int(&former_generation),
        text(&former_name),
        int(&until),
        int(&webhook.added_at.0),
        text(&added_by),
        int(&most),
    ];
    Ok(if tx.execute(&sql, &values).await? > 0 { AddOutcome::Kept } else { AddOutcome::TooMany })
}

async fn rotate(
    store: &PostgresStore,
    tenant: &TenantId,
    id: WebhookId,
    from: &SigningSecret,
    to: &SigningSecret,
    overlap: Duration,
) -> Result<Option<WebhookRecord>, StoreError> {
    let tenant = tenant.as_str();
    let sql = format!(
        "UPDATE webhooks
         SET generation = $4, secret_name = $5, former_generation = $6, former_name = $7, former_until = {NOW} + $8
         WHERE tenant_id = $2 AND id = $3 AND generation IS NOT DISTINCT FROM $6
             AND secret_name IS NOT DISTINCT FROM $7
         RETURNING {COLUMNS}"
    );
    let ((generation, name), (former_generation, former_name)) = (secret_columns(to), secret_columns(from));
    let (now, id, overlap) = (store.now(), id.0.to_string(), milliseconds(overlap));
    let values = [
        int(&now),
        text(&tenant),
        text(&id),
        int(&generation),
        text(&name),
        int(&former_generation),
        text(&former_name),
        int(&overlap),
    ];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    Ok(rows.first().map(webhook).transpose()?)
}

async fn all(store: &PostgresStore, tenant: &TenantId) -> Result<Vec<WebhookRecord>, StoreError> {
    let tenant = tenant.as_str();
    let sql = format!("SELECT {COLUMNS} FROM webhooks WHERE tenant_id = $1 ORDER BY added_at, id");
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &[text(&tenant)]).await?;
    Ok(rows.iter().map(webhook).collect::<Result<_, _>>()?)
}

async fn one(store: &PostgresStore, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, StoreError> {
    let tenant = tenant.as_str();
    let (sql, id) = (format!("SELECT {COLUMNS} FROM webhooks WHERE tenant_id = $1 AND id = $2"), id.0.to_string());
    let values = [text(&tenant), text(&id)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    Ok(rows.first().map(webhook).transpose()?)
}
