//! What was sent: deliveries and their attempts, each change one savepoint of the writer.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::clock::UnixMillis;
use ports::webhook_store::{
    ATTEMPTS_KEPT_MAX, DELIVERIES_PAGE_MAX, DeliveryAttempt, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryPage,
    DeliveryRecord, DeliveryState, DeliveryTarget, NewDelivery, NoteOutcome, WebhookId,
};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::records::webhooks::{DELIVERY_COLUMNS, attempt, delivery, delivery_detail};
use crate::sqlite::columns::{ago, all, first};
use crate::sqlite::faults::Fault;

pub(super) fn add(connection: &Connection, delivery: &NewDelivery, now: UnixMillis) -> Result<bool, Fault> {
    let (webhook, url, secret) = match &delivery.target {
        DeliveryTarget::Webhook(WebhookId(id)) => (Some(id.to_string()), None, None),
        DeliveryTarget::Callback { url, secret } => (None, Some(url), Some(secret)),
    };
    let added = connection
        .prepare_cached(
            "INSERT INTO webhook_deliveries (tenant_id, id, webhook_id, callback_url, callback_secret, event,
                                             invocation_id, body, state, round, attempts, created_at)
             VALUES (:tenant_id, :id, :webhook, :url, :secret, :event, :invocation, :body, 'pending', 1, 0, :now)
             ON CONFLICT (tenant_id, id) DO NOTHING",
        )?
        .execute(named_params! {
            ":tenant_id": delivery.tenant.as_str(),
            ":id": delivery.id.0.to_string(),
            ":webhook": webhook,
            ":url": url,
            ":secret": secret,
            ":event": delivery.event.as_str(),
            ":invocation": delivery.invocation.map(|id| id.to_string()),
            ":body": delivery.body,
            ":now": now.0,
        })?;
    Ok(added > 0)
}

/// The row of a delivery that is pending, if it is.
fn pending(connection: &Connection, tenant: &TenantId, id: DeliveryId) -> Result<Option<(i64, u32)>, Fault> {
    let found = connection
        .prepare_cached(
            "SELECT seq, round FROM webhook_deliveries WHERE tenant_id = :tenant_id AND id = :id AND state = 'pending'",
        )?
        .query_row(named_params! { ":tenant_id": tenant.as_str(), ":id": id.0.to_string() }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(found)
}

pub(super) fn note(
    connection: &Connection,
    (tenant, id): (&TenantId, DeliveryId),
    attempt: &DeliveryAttempt,
    state: DeliveryState,
    now: UnixMillis,
) -> Result<NoteOutcome, Fault> {
    let Some((seq, _)) = pending(connection, tenant, id)?.filter(|(_, round)| *round == attempt.round) else {
        return Ok(NoteOutcome::Stale);
    };
    let added = connection
        .prepare_cached(
            "INSERT INTO webhook_attempts (delivery, round, number, at, status, took_ms, error)
             VALUES (:seq, :round, :number, :at, :status, :took_ms, :error) ON CONFLICT DO NOTHING",
        )?
        .execute(named_params! {
            ":seq": seq,
            ":round": attempt.round,
            ":number": attempt.number,
            ":at": attempt.at.0,
            ":status": attempt.status,
            ":took_ms": i64::saturating_from(attempt.took_ms),
            ":error": attempt.error,
        })?;
    if added == 0 {
        return Ok(NoteOutcome::Stale);
    }
    connection
        .prepare_cached(
            "DELETE FROM webhook_attempts WHERE delivery = :seq AND (round, number) NOT IN
                 (SELECT round, number FROM webhook_attempts WHERE delivery = :seq
                  ORDER BY round DESC, number DESC LIMIT :most)",
        )?
        .execute(named_params! { ":seq": seq, ":most": ATTEMPTS_KEPT_MAX })?;
    let ended_at = (state != DeliveryState::Pending).then_some(now);
    connection
        .prepare_cached(
            "UPDATE webhook_deliveries
             SET attempts = :number, state = :state, ended_at = :ended_at, body = iif(:state = 'delivered', NULL,
             body) WHERE seq = :seq",
        )?
        .execute(named_params! {
            ":seq": seq,
            ":number": attempt.number,
            ":state": state.as_str(),
            ":ended_at": ended_at.map(|at| at.0),
        })?;
    Ok(NoteOutcome::Kept)
}

pub(super) fn reopen(
    connection: &Connection,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Fault> {
    let changed = connection
        .prepare_cached(
            "UPDATE webhook_deliveries SET state = 'pending', round = round + 1, attempts = 0, ended_at = NULL
             WHERE tenant_id = :tenant_id AND id = :id AND state = 'dead'",
        )?
        .execute(named_params! { ":tenant_id": tenant.as_str(), ":id": id.0.to_string() })?;
    if changed == 0 {
        return Ok(None);
    }
    Ok(one(connection, tenant, id)?.map(|detail| detail.record))
}

pub(super) fn prune(connection: &Connection, now: UnixMillis, retention: Duration, most: usize) -> Result<u64, Fault> {
    let most = i64::saturating_from(most);
    let old = "SELECT seq FROM webhook_deliveries WHERE ended_at < :before ORDER BY ended_at LIMIT :most";
    let limit = named_params! { ":before": ago(now, retention), ":most": most };
    connection.prepare_cached(&format!("DELETE FROM webhook_attempts WHERE delivery IN ({old})"))?.execute(limit)?;
    let forgotten =
        connection.prepare_cached(&format!("DELETE FROM webhook_deliveries WHERE seq IN ({old})"))?.execute(limit)?;
    connection
        .prepare_cached("DELETE FROM claims WHERE key IN (SELECT key FROM claims WHERE until <= :now LIMIT :most)")?
        .execute(named_params! { ":now": now.0, ":most": most })?;
    Ok(u64::saturating_from(forgotten))
}

pub(super) fn one(connection: &Connection, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryDetail>, Fault> {
    let sql = format!("SELECT {DELIVERY_COLUMNS} FROM webhook_deliveries WHERE tenant_id = :tenant_id AND id = :id");
    let mut statement = connection.prepare_cached(&sql)?;
    first(statement.query(named_params! { ":tenant_id": tenant.as_str(), ":id": id.0.to_string() })?, delivery_detail)
}

pub(super) fn page(
    connection: &Connection,
    filter: &DeliveryFilter,
    before: Option<u64>,
    most: usize,
) -> Result<DeliveryPage, Fault> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM webhook_deliveries
         WHERE tenant_id = :tenant_id AND (:webhook IS NULL OR webhook_id = :webhook)
         AND (:state IS NULL OR state = :state) AND seq < :before
         ORDER BY seq DESC LIMIT :most"
    );
    let most = most.clamp(1, DELIVERIES_PAGE_MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! {
        ":tenant_id": filter.tenant.as_str(),
        ":webhook": filter.webhook.map(|webhook| webhook.0.to_string()),
        ":state": filter.state.map(DeliveryState::as_str),
        ":before": before.map_or(i64::MAX, i64::saturating_from),
        ":most": i64::saturating_from(most).saturating_add(1),
    })?;
    let (mut page, mut last) = (DeliveryPage::default(), None);
    while let Some(row) = rows.next()? {
        if page.deliveries.len() == most {
            page.next = last;
            break;
        }
        page.deliveries.push(delivery(row)?);
        last = u64::try_from(row.get::<_, i64>("seq")?).ok();
    }
    Ok(page)
}

pub(super) fn attempts(
    connection: &Connection,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Vec<DeliveryAttempt>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT a.round, a.number, a.at, a.status, a.took_ms, a.error
         FROM webhook_attempts a JOIN webhook_deliveries d ON d.seq = a.delivery
         WHERE d.tenant_id = :tenant_id AND d.id = :of ORDER BY a.round, a.number",
    )?;
    let of = id.0.to_string();
    all(statement.query(named_params! { ":tenant_id": tenant.as_str(), ":of": of })?, |row| attempt(row, &of))
}
