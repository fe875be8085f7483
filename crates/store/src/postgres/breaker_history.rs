//! `BreakerHistory` on PostgreSQL: one row per transition, written once though every instance writes it. (RES-011)

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::breaker_history::{BreakerHistory, HISTORY_PAGE_MAX, HistoryQuery};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::shared_state::{BreakerKey, BreakerTransition};

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{int, ints, text, texts};
use super::transaction::Scope;
use crate::records::breaker_history::transition;
use crate::stored_row::unreadable;

#[async_trait]
impl BreakerHistory for PostgresStore {
    async fn keep_transitions(&self, transitions: &[BreakerTransition]) -> Result<(), StoreError> {
        Ok(keep(self, transitions).await?)
    }

    async fn kept_transitions(&self, query: &HistoryQuery) -> Result<Vec<BreakerTransition>, StoreError> {
        Ok(kept(self, query).await?)
    }

    async fn forget_transitions(&self, before: UnixMillis, most: usize) -> Result<u64, StoreError> {
        forget(self, before, most).await
    }
}

async fn keep(store: &PostgresStore, transitions: &[BreakerTransition]) -> Result<(), Fault> {
    // In the order of keys, so that instances that write the same ones do not block each other.
    let sql = "INSERT INTO breaker_history (tenant_id, breaker, at, epoch, from_state, to_state, reason)
               SELECT tenant, breaker, at, epoch, old, new, reason
               FROM unnest($1, $2, $3, $4, $5, $6, $7) AS given (tenant, breaker, at, epoch, old, new, reason)
               ORDER BY breaker, at, epoch
               ON CONFLICT DO NOTHING";
    let number = |number: u64| i64::saturating_from(number);
    let tenants: Vec<&str> = transitions.iter().map(|transition| transition.key.tenant().as_str()).collect();
    let breakers: Vec<String> = transitions.iter().map(|transition| transition.key.to_string()).collect();
    let times: Vec<i64> = transitions.iter().map(|transition| number(transition.change.at_ms)).collect();
    let epochs: Vec<i64> = transitions.iter().map(|transition| number(transition.change.epoch)).collect();
    let old: Vec<&str> = transitions.iter().map(|transition| transition.change.from.as_str()).collect();
    let new: Vec<&str> = transitions.iter().map(|transition| transition.change.to.as_str()).collect();
    let reasons: Vec<String> = transitions
        .iter()
        .map(|transition| serde_json::to_string(&transition.change.reason))
        .collect::<Result<_, _>>()
        .map_err(|_| unreadable("reason", "a transition"))?;
    let values =
        [texts(&tenants), texts(&breakers), ints(&times), ints(&epochs), texts(&old), texts(&new), texts(&reasons)];
    store.pool.execute(Scope::System, sql, &values).await?;
    Ok(())
}

async fn kept(store: &PostgresStore, query: &HistoryQuery) -> Result<Vec<BreakerTransition>, Fault> {
    let number = |number: u64| i64::saturating_from(number);
    let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str().to_owned());
    let of = query.of.as_ref().map(BreakerKey::to_string);
    let at = query.before.as_ref().map(|place| number(place.at_ms));
    let epoch = query.before.as_ref().map(|place| number(place.epoch));
    let breaker = query.before.as_ref().map(|place| place.breaker.clone());
    let limit = i64::try_from(query.limit.min(HISTORY_PAGE_MAX)).unwrap_or(0);
    // Endpoints of a service are what comes after its name and an `@`; the next sign after that is `A`.
    let sql = r#"SELECT breaker, at, epoch, from_state, to_state, reason FROM breaker_history
               WHERE ($1::text IS NULL OR tenant_id = $1)
                 AND ($2::text IS NULL OR breaker = $2
                      OR (breaker >= ($2 || '@') COLLATE "C" AND breaker < ($2 || 'A') COLLATE "C"))
                 AND ($3::bigint IS NULL OR (at, epoch, breaker) < ($3, $4, $5 COLLATE "C"))
               ORDER BY at DESC, epoch DESC, breaker DESC LIMIT $6"#;
    let values = [text(&tenant), text(&of), int(&at), int(&epoch), text(&breaker), int(&limit)];
    let rows = store.pool.query(Scope::System, sql, &values).await?;
    rows.iter().map(transition).collect()
}

async fn forget(store: &PostgresStore, before: UnixMillis, most: usize) -> Result<u64, StoreError> {
    let most = i64::saturating_from(most);
    let sql = "DELETE FROM breaker_history WHERE ctid = ANY (ARRAY
                   (SELECT ctid FROM breaker_history WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))";
    Ok(store.pool.execute(Scope::System, sql, &[int(&before.0), int(&most)]).await?)
}
