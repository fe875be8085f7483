//! `WebhookStore` on SQLite: subscriptions here, what was sent in `deliveries`. Durable before it is answered. (ASYNC-007)
//!
//! Not here: what a delivery means (`jobs::webhooks`).

mod deliveries;

use std::time::Duration;

use async_trait::async_trait;
use contract::ids::TenantId;
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::webhook_store::{
    AddOutcome, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryPage, DeliveryRecord,
    DeliveryState, NewDelivery, NoteOutcome, SigningSecret, WebhookId, WebhookRecord, WebhookStore,
};
use rusqlite::{Connection, named_params};

use super::SqliteStore;
use super::columns::{self, first};
use super::faults::Fault;
use crate::records::webhooks::{COLUMNS, secret_columns, webhook};

#[async_trait]
impl WebhookStore for SqliteStore {
    async fn add_webhook(&self, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, StoreError> {
        let webhook = webhook.clone();
        self.writer()?.run(move |connection| add(connection, &webhook, most)).await
    }

    async fn webhooks(&self, tenant: &TenantId) -> Result<Vec<WebhookRecord>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| all(connection, &tenant)).await
    }

    async fn webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| one(connection, &tenant, id)).await
    }

    async fn remove_webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        let remove = move |connection: &Connection| {
            let mut delete =
                connection.prepare_cached("DELETE FROM webhooks WHERE tenant_id = :tenant_id AND id = :id")?;
            Ok(delete.execute(named_params! { ":tenant_id": tenant.as_str(), ":id": id.0.to_string() })? > 0)
        };
        self.writer()?.run(remove).await
    }

    async fn rotate_secret(
        &self,
        tenant: &TenantId,
        id: WebhookId,
        from: &SigningSecret,
        to: &SigningSecret,
        overlap: Duration,
    ) -> Result<Option<WebhookRecord>, StoreError> {
        let (tenant, from, to) = (tenant.clone(), from.clone(), to.clone());
        let until = self.now().plus(overlap);
        self.writer()?.run(move |connection| rotate(connection, &tenant, id, &from, &to, until)).await
    }

    async fn add_delivery(&self, delivery: &NewDelivery) -> Result<bool, StoreError> {
        let (delivery, now) = (delivery.clone(), self.now());
        self.writer()?.run(move |connection| deliveries::add(connection, &delivery, now)).await
    }

    async fn delivery(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| deliveries::one(connection, &tenant, id)).await
    }

    async fn note_attempt(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
        attempt: &DeliveryAttempt,
        state: DeliveryState,
    ) -> Result<NoteOutcome, StoreError> {
        let (tenant, attempt, now) = (tenant.clone(), attempt.clone(), self.now());
        self.writer()?.run(move |connection| deliveries::note(connection, (&tenant, id), &attempt, state, now)).await
    }

    async fn reopen(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryRecord>, StoreError> {
        let tenant = tenant.clone();
        self.writer()?.run(move |connection| deliveries::reopen(connection, &tenant, id)).await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<DeliveryPage, StoreError> {
        let filter = filter.clone();
        self.readers.run(move |connection| deliveries::page(connection, &filter, before, most)).await
    }

    async fn attempts(&self, tenant: &TenantId, id: DeliveryId) -> Result<Vec<DeliveryAttempt>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| deliveries::attempts(connection, &tenant, id)).await
    }

    async fn claim(&self, key: &str, holder: &str, window: Duration) -> Result<bool, StoreError> {
        let (key, holder, now) = (key.to_owned(), holder.to_owned(), self.now());
        let claim = move |connection: &Connection| {
            // A claim whose window is over is as if it had never been.
            let mut insert = connection.prepare_cached(
                "INSERT INTO claims (key, holder, until) VALUES (:key, :holder, :until)
                 ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, until = excluded.until
                 WHERE until <= :now OR holder = excluded.holder",
            )?;
            Ok(insert.execute(
                named_params! { ":key": key, ":holder": holder, ":until": now.plus(window).0, ":now": now.0 },
            )? > 0)
        };
        self.writer()?.run(claim).await
    }

    async fn prune_webhooks(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| deliveries::prune(connection, now, retention, most)).await
    }
}

// ---------------------------------------------------------------------------------------------------------- writing

fn add(connection: &Connection, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, Fault> {
    let there: i64 = connection
        .prepare_cached("SELECT count(*) FROM webhooks WHERE tenant_id = :tenant_id")?
        .query_row(named_params! { ":tenant_id": webhook.tenant.as_str() }, |row| row.get(0))?;
    if usize::try_from(there).unwrap_or(usize::MAX) >= most {
        return Ok(AddOutcome::TooMany);
    }
    let events: Vec<&str> = webhook.events.iter().map(|event| event.as_str()).collect();
    let (generation, name) = secret_columns(&webhook.secret);
    let former = webhook.former.as_ref();
    let (former_generation, former_name) = former.map_or((None, None), |former| secret_columns(&former.secret));
    connection
        .prepare_cached(
            "INSERT INTO webhooks (tenant_id, id, url, events, generation, secret_name, former_generation, former_name,
                                   former_until, added_at, added_by)
             VALUES (:tenant_id, :id, :url, :events, :generation, :name, :former_generation, :former_name, :former,
             :added_at, :added_by)",
        )?
        .execute(named_params! {
            ":tenant_id": webhook.tenant.as_str(),
            ":id": webhook.id.0.to_string(),
            ":url": webhook.url,
            ":events": serde_json::Value::from(events).to_string(),
            ":generation": generation,
            ":name": name,
            ":former_generation": former_generation,
            ":former_name": former_name,
            ":former": former.map(|former| former.until.0),
            ":added_at": webhook.added_at.0,
            ":added_by": webhook.added_by.as_str(),
        })?;
    Ok(AddOutcome::Kept)
}

fn rotate(
    connection: &Connection,
    tenant: &TenantId,
    id: WebhookId,
    from: &SigningSecret,
    to: &SigningSecret,
    until: UnixMillis,
) -> Result<Option<WebhookRecord>, Fault> {
    let ((generation, name), (former_generation, former_name)) = (secret_columns(to), secret_columns(from));
    let changed = connection
        .prepare_cached(
            "UPDATE webhooks
             SET generation = :generation, secret_name = :name, former_generation = :former_generation,
             former_name = :former_name, former_until = :until
             WHERE tenant_id = :tenant_id AND id = :id AND generation IS :former_generation
             AND secret_name IS :former_name",
        )?
        .execute(named_params! {
            ":tenant_id": tenant.as_str(),
            ":id": id.0.to_string(),
            ":generation": generation,
            ":name": name,
            ":former_generation": former_generation,
            ":former_name": former_name,
            ":until": until.0,
        })?;
    if changed == 0 { Ok(None) } else { one(connection, tenant, id) }
}

// ---------------------------------------------------------------------------------------------------------- reading

fn all(connection: &Connection, tenant: &TenantId) -> Result<Vec<WebhookRecord>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM webhooks WHERE tenant_id = :tenant_id ORDER BY added_at, id");
    let mut statement = connection.prepare_cached(&sql)?;
    columns::all(statement.query(named_params! { ":tenant_id": tenant.as_str() })?, webhook)
}

fn one(connection: &Connection, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM webhooks WHERE tenant_id = :tenant_id AND id = :id");
    let mut statement = connection.prepare_cached(&sql)?;
    first(statement.query(named_params! { ":tenant_id": tenant.as_str(), ":id": id.0.to_string() })?, webhook)
}
