//! `BreakerHistory` on SQLite: one row per transition, written once. (RES-011)

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::breaker_history::{BreakerHistory, HISTORY_PAGE_MAX, HistoryQuery};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::shared_state::{BreakerKey, BreakerTransition};
use rusqlite::{Connection, named_params};

use super::SqliteStore;
use super::columns::all;
use super::faults::Fault;
use crate::records::breaker_history::transition;
use crate::stored_row::unreadable;

#[async_trait]
impl BreakerHistory for SqliteStore {
    async fn keep_transitions(&self, transitions: &[BreakerTransition]) -> Result<(), StoreError> {
        let transitions = transitions.to_vec();
        self.writer()?.run(move |connection| keep(connection, &transitions)).await
    }

    async fn kept_transitions(&self, query: &HistoryQuery) -> Result<Vec<BreakerTransition>, StoreError> {
        let query = query.clone();
        self.readers.run(move |connection| kept(connection, &query)).await
    }

    async fn forget_transitions(&self, before: UnixMillis, most: usize) -> Result<u64, StoreError> {
        let most = i64::saturating_from(most);
        self.writer()?.run(move |connection| forget(connection, before, most)).await
    }
}

fn keep(connection: &Connection, transitions: &[BreakerTransition]) -> Result<(), Fault> {
    let mut put = connection.prepare_cached(
        "INSERT INTO breaker_history (tenant_id, breaker, at, epoch, from_state, to_state, reason)
         VALUES (:tenant_id, :key, :at_ms, :epoch, :from, :to, :reason) ON CONFLICT DO NOTHING",
    )?;
    for BreakerTransition { key, change } in transitions {
        let reason = serde_json::to_string(&change.reason).map_err(|_| unreadable("reason", key.service()))?;
        put.execute(named_params! {
            ":tenant_id": key.tenant().as_str(),
            ":key": key.to_string(),
            ":at_ms": i64::saturating_from(change.at_ms),
            ":epoch": i64::saturating_from(change.epoch),
            ":from": change.from.as_str(),
            ":to": change.to.as_str(),
            ":reason": reason,
        })?;
    }
    Ok(())
}

fn kept(connection: &Connection, query: &HistoryQuery) -> Result<Vec<BreakerTransition>, Fault> {
    let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str().to_owned());
    let of = query.of.as_ref().map(BreakerKey::to_string);
    let before = query.before.as_ref();
    let number = |number: u64| i64::saturating_from(number);
    let limit = i64::try_from(query.limit.min(HISTORY_PAGE_MAX)).unwrap_or(0);
    // Endpoints of a service are what comes after its name and an `@`; the next sign after that is `A`.
    let mut statement = connection.prepare_cached(
        "SELECT breaker, at, epoch, from_state, to_state, reason FROM breaker_history
         WHERE (:tenant_id IS NULL OR tenant_id = :tenant_id)
           AND (:of IS NULL OR breaker = :of OR (breaker >= :of || '@' AND breaker < :of || 'A'))
           AND (:at IS NULL OR (at, epoch, breaker) < (:at, :epoch, :breaker))
         ORDER BY at DESC, epoch DESC, breaker DESC LIMIT :most",
    )?;
    let rows = statement.query(named_params! {
        ":tenant_id": tenant,
        ":of": of,
        ":at": before.map(|place| number(place.at_ms)),
        ":epoch": before.map(|place| number(place.epoch)),
        ":breaker": before.map(|place| place.breaker.as_str()),
        ":most": limit,
    })?;
    all(rows, transition)
}

fn forget(connection: &Connection, before: UnixMillis, most: i64) -> Result<u64, Fault> {
    let gone = connection.execute(
        "DELETE FROM breaker_history WHERE (breaker, at, epoch) IN
             (SELECT breaker, at, epoch FROM breaker_history WHERE at < :before ORDER BY at LIMIT :most)",
        named_params! { ":before": before.0, ":most": most },
    )?;
    Ok(u64::saturating_from(gone))
}
