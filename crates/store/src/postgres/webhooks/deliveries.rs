//! What was sent: deliveries and their attempts, each change one statement.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::webhook_store::{
    ATTEMPTS_KEPT_MAX, DELIVERIES_PAGE_MAX, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryPage,
    DeliveryRecord, DeliveryState, DeliveryTarget, NewDelivery, NoteOutcome, WebhookId,
};

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{NOW, column, int, text};
use crate::postgres::transaction::Scope;
use crate::records::webhooks::{DELIVERY_COLUMNS, attempt, delivery, delivery_detail};
use crate::time::milliseconds;

pub(super) async fn add(store: &PostgresStore, delivery: &NewDelivery) -> Result<bool, Fault> {
    let sql = format!(
        "INSERT INTO webhook_deliveries (tenant_id, id, webhook_id, callback_url, callback_secret, event, invocation_id,
                                         body, state, round, attempts, created_at)
         VALUES ($2, $3, $4, $5, $6, $7, $8, $9, 'pending', 1, 0, {NOW})
         ON CONFLICT (tenant_id, id) DO NOTHING"
    );
    let (webhook, url, secret) = match &delivery.target {
        DeliveryTarget::Webhook(WebhookId(id)) => (Some(id.to_string()), None, None),
        DeliveryTarget::Callback { url, secret } => (None, Some(url), Some(secret)),
    };
    let (now, tenant, id) = (store.now(), delivery.tenant.as_str(), delivery.id.0.to_string());
    let event = delivery.event.as_str();
    let invocation = delivery.invocation.map(|id| id.to_string());
    let values = [
        int(&now),
        text(&tenant),
        text(&id),
        text(&webhook),
        text(&url),
        text(&secret),
        text(&event),
        text(&invocation),
        text(&delivery.body),
    ];
    Ok(store.pool.execute(Scope::Tenant(tenant), &sql, &values).await? > 0)
}

pub(super) async fn note(
    store: &PostgresStore,
    (tenant, id): (&TenantId, DeliveryId),
    attempt: &DeliveryAttempt,
    state: DeliveryState,
) -> Result<NoteOutcome, Fault> {
    let tenant = tenant.as_str();
    // The row is locked first, so of instances that note at once each sees what the one before has left.
    let sql = format!(
        "WITH pending AS (
             SELECT seq FROM webhook_deliveries
             WHERE tenant_id = $2 AND id = $3 AND state = 'pending' AND round = $4 FOR UPDATE),
         added AS (
             INSERT INTO webhook_attempts (delivery, round, number, at, status, took_ms, error)
             SELECT seq, $4, $5, $6, $7, $8, $9 FROM pending ON CONFLICT DO NOTHING RETURNING delivery),
         forgotten AS (
             DELETE FROM webhook_attempts USING added
             WHERE webhook_attempts.delivery = added.delivery AND (round, number) NOT IN
                 (SELECT kept.round, kept.number FROM webhook_attempts kept WHERE kept.delivery = added.delivery
                  ORDER BY kept.round DESC, kept.number DESC LIMIT $11))
         UPDATE webhook_deliveries
         SET attempts = $5, state = $10, ended_at = CASE WHEN $10 = 'pending' THEN NULL ELSE {NOW} END,
             body = CASE WHEN $10 = 'delivered' THEN NULL ELSE body END
         FROM added WHERE seq = added.delivery"
    );
    let (now, id) = (store.now(), id.0.to_string());
    let (round, number) = (i64::from(attempt.round), i64::from(attempt.number));
    let (status, state) = (attempt.status.map(i64::from), state.as_str());
    let took = i64::saturating_from(attempt.took_ms);
    // With the new one, which the statement does not see, as many as are kept.
    let kept = i64::from(ATTEMPTS_KEPT_MAX) - 1;
    let values = [
        int(&now),
        text(&tenant),
        text(&id),
        int(&round),
        int(&number),
        int(&attempt.at.0),
        int(&status),
        int(&took),
        text(&attempt.error),
        text(&state),
        int(&kept),
    ];
    let noted = store.pool.execute(Scope::Tenant(tenant), &sql, &values).await?;
    Ok(if noted > 0 { NoteOutcome::Kept } else { NoteOutcome::Stale })
}

pub(super) async fn reopen(
    store: &PostgresStore,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Fault> {
    let tenant = tenant.as_str();
    let sql = format!(
        "UPDATE webhook_deliveries SET state = 'pending', round = round + 1, attempts = 0, ended_at = NULL
         WHERE tenant_id = $1 AND id = $2 AND state = 'dead' RETURNING {DELIVERY_COLUMNS}"
    );
    let id = id.0.to_string();
    let values = [text(&tenant), text(&id)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    rows.first().map(delivery).transpose()
}

pub(super) async fn prune(store: &PostgresStore, retention: Duration, most: usize) -> Result<u64, Fault> {
    // Attempts go with their delivery. Rows that another instance is at are left to it.
    let sql = format!(
        "WITH claims_over AS (
             DELETE FROM claims WHERE key IN
                 (SELECT key FROM claims WHERE until <= {NOW} LIMIT $3 FOR UPDATE SKIP LOCKED))
         DELETE FROM webhook_deliveries WHERE seq IN
             (SELECT seq FROM webhook_deliveries WHERE ended_at < {NOW} - $2
              ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED)"
    );
    let (now, retention) = (store.now(), milliseconds(retention));
    let most = i64::saturating_from(most);
    store.pool.execute(Scope::System, &sql, &[int(&now), int(&retention), int(&most)]).await
}

pub(super) async fn one(
    store: &PostgresStore,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Option<DeliveryDetail>, Fault> {
    let tenant = tenant.as_str();
    let sql = format!("SELECT {DELIVERY_COLUMNS} FROM webhook_deliveries WHERE tenant_id = $1 AND id = $2");
    let id = id.0.to_string();
    let values = [text(&tenant), text(&id)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    rows.first().map(delivery_detail).transpose()
}

pub(super) async fn page(
    store: &PostgresStore,
    filter: &DeliveryFilter,
    before: Option<u64>,
    most: usize,
) -> Result<DeliveryPage, Fault> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM webhook_deliveries
         WHERE tenant_id = $1 AND ($2 IS NULL OR webhook_id = $2) AND ($3 IS NULL OR state = $3) AND seq < $4
         ORDER BY seq DESC LIMIT $5"
    );
    let most = most.clamp(1, DELIVERIES_PAGE_MAX);
    let webhook = filter.webhook.map(|webhook| webhook.0.to_string());
    let state = filter.state.map(DeliveryState::as_str);
    let before = before.map_or(i64::MAX, i64::saturating_from);
    // One more, to know whether there are more.
    let limit = i64::saturating_from(most).saturating_add(1);
    let tenant = filter.tenant.as_str();
    let values = [text(&tenant), text(&webhook), text(&state), int(&before), int(&limit)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    let deliveries = rows.iter().take(most).map(delivery).collect::<Result<Vec<_>, Fault>>()?;
    let next = match rows.get(most.saturating_sub(1)) {
        Some(last) if rows.len() > most => u64::try_from(column::<i64>(last, "seq")?).ok(),
        _ => None,
    };
    Ok(DeliveryPage { deliveries, next })
}

pub(super) async fn attempts(
    store: &PostgresStore,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Vec<DeliveryAttempt>, Fault> {
    let tenant = tenant.as_str();
    let sql = "SELECT a.round, a.number, a.at, a.status, a.took_ms, a.error
               FROM webhook_attempts a JOIN webhook_deliveries d ON d.seq = a.delivery
               WHERE d.tenant_id = $1 AND d.id = $2 ORDER BY a.round, a.number";
    let id = id.0.to_string();
    let values = [text(&tenant), text(&id)];
    let rows = store.pool.query(Scope::Tenant(tenant), sql, &values).await?;
    rows.iter().map(|row| attempt(row, &id)).collect()
}
