//! The statements that change access. The count of budgets is a function of the database (`access_spend`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::SaturatingFrom as _;
use contract::ids::{Subject, TenantId};
use ports::access_store::{
    Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, RevokedTokens, TenantRecord,
};
use ports::registry_store::StoreError;
use tokio_postgres::Row;

use crate::postgres::PostgresStore;
use crate::postgres::bus::{ACCESS_WORD, CHANNEL};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{Value, booleans, column, int, ints, text, texts};
use crate::postgres::stored_text::{given, kept};
use crate::postgres::transaction::{Scope, Transaction};
use crate::records::access::policy_owner;
use crate::stored_row::{StoredRow as _, tag, unreadable};

pub(super) async fn put_tenants(store: &PostgresStore, tenants: &[TenantRecord]) -> Result<u64, StoreError> {
    let last: BTreeMap<&str, &TenantRecord> = tenants.iter().map(|record| (record.tenant.as_str(), record)).collect();
    let records = || last.values();
    let ids: Vec<&str> = last.keys().copied().collect();
    let names: Vec<_> = records().map(|record| kept(&record.name)).collect();
    let visibilities: Vec<Option<String>> = records().map(|record| record.visibility.map(tag)).collect();
    let tools = records().map(|record| written(&record.tools)).collect::<Result<Vec<_>, _>>()?;
    let enabled: Vec<bool> = records().map(|record| record.enabled).collect();
    let put = "INSERT INTO access_tenants (tenant_id, name, visibility, tools, enabled)
               SELECT * FROM unnest($1, $2, $3, $4, $5)
               ON CONFLICT (tenant_id) DO UPDATE
               SET name = excluded.name, visibility = excluded.visibility, tools = excluded.tools,
                   enabled = excluded.enabled";
    let values = [texts(&ids), texts(&names), texts(&visibilities), texts(&tools), booleans(&enabled)];
    change(store, Scope::System, put, &values).await
}

pub(super) async fn put_agents(store: &PostgresStore, agents: &[AgentRecord]) -> Result<u64, StoreError> {
    // One statement may write a row once only, so what several records of one agent come to is found here.
    let mut last: BTreeMap<(&str, &str), &AgentRecord> = BTreeMap::new();
    for record in agents {
        let key = (record.tenant.as_str(), record.agent.as_str());
        if record.document.is_some() || !last.contains_key(&key) {
            last.insert(key, record);
        }
    }
    let records = || last.values();
    let tenants: Vec<&str> = last.keys().map(|key| key.0).collect();
    let names: Vec<&str> = last.keys().map(|key| key.1).collect();
    let documents: Vec<_> = records().map(|record| record.document.as_deref().map(kept)).collect();
    let added_at: Vec<i64> = records().map(|record| record.added_at.0).collect();
    let added_by: Vec<&str> = records().map(|record| record.added_by.as_str()).collect();
    let put = "INSERT INTO access_agents (tenant_id, agent, document, added_at, added_by)
               SELECT * FROM unnest($1, $2, $3, $4, $5)
               ON CONFLICT (tenant_id, agent) DO UPDATE
               SET document = excluded.document, added_at = excluded.added_at, added_by = excluded.added_by
               WHERE excluded.document IS NOT NULL";
    let values = [texts(&tenants), texts(&names), texts(&documents), ints(&added_at), texts(&added_by)];
    change(store, Scope::System, put, &values).await
}

pub(super) async fn remove_agent(
    store: &PostgresStore,
    tenant: &TenantId,
    agent: &Subject,
) -> Result<Option<u64>, StoreError> {
    let remove = "DELETE FROM access_agents WHERE tenant_id = $1 AND agent = $2";
    let (tenant, agent) = (tenant.as_str(), agent.as_str());
    let values = [text(&tenant), text(&agent)];
    let rows = store.pool.query(Scope::Tenant(tenant), &raising(remove, &Raise::IfChanged), &values).await?;
    Ok(rows.first().map(epoch).transpose()?)
}

pub(super) async fn put_activations(store: &PostgresStore, activations: &[Activation]) -> Result<u64, StoreError> {
    let patterns: Vec<String> = activations.iter().map(|record| record.tool.to_string()).collect();
    let last: BTreeMap<(&str, &str, &str), &Activation> = activations
        .iter()
        .zip(&patterns)
        .map(|(record, tool)| ((record.tenant.as_str(), record.agent.as_str(), tool.as_str()), record))
        .collect();
    let tenants: Vec<&str> = last.keys().map(|key| key.0).collect();
    let agents: Vec<&str> = last.keys().map(|key| key.1).collect();
    let tools: Vec<&str> = last.keys().map(|key| key.2).collect();
    let enabled: Vec<bool> = last.values().map(|record| record.enabled).collect();
    let overrides = last.values().map(|record| written(&record.overrides)).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<String> = last.values().map(|record| record.id.to_string()).collect();
    let created: Vec<i64> = last.values().map(|record| record.created_at.0).collect();
    let updated: Vec<i64> = last.values().map(|record| record.updated_at.0).collect();
    let put = "INSERT INTO access_activations
                   (tenant_id, agent, tool, enabled, overrides, id, created_at, updated_at)
               SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
               ON CONFLICT (tenant_id, agent, tool) DO UPDATE
               SET enabled = excluded.enabled, overrides = excluded.overrides, updated_at = excluded.updated_at";
    let values = [
        texts(&tenants),
        texts(&agents),
        texts(&tools),
        booleans(&enabled),
        texts(&overrides),
        texts(&ids),
        ints(&created),
        ints(&updated),
    ];
    change(store, Scope::System, put, &values).await
}

pub(super) async fn add_policies(store: &PostgresStore, record: &PolicyRecord) -> Result<Option<u64>, StoreError> {
    let Ok(version) = i64::try_from(record.version) else { return Ok(None) };
    // Of two that come at once, the later waits for the earlier and then finds the version there.
    let add = "INSERT INTO access_policies (tenant_id, version, text, added_at, added_by)
               SELECT $1, $2, $3, $4, $5
               WHERE $2 = 1 + (SELECT coalesce(max(version), 0) FROM access_policies WHERE tenant_id = $1)
               ON CONFLICT (tenant_id, version) DO NOTHING";
    let (owner, policies, added_by) =
        (policy_owner(record.tenant.as_ref()), kept(&record.text), record.added_by.as_str());
    let values = [text(&owner), int(&version), text(&policies), int(&record.added_at.0), text(&added_by)];
    let scope = super::owner_scope(record.tenant.as_ref());
    let rows = store.pool.query(scope, &raising(add, &Raise::IfChanged), &values).await?;
    Ok(rows.first().map(epoch).transpose()?)
}

pub(super) async fn revoke(tx: &Transaction, revocation: &Revocation) -> Result<u64, Fault> {
    let (kind, tenant, name) = match &revocation.what {
        RevokedTokens::Token(tenant, token) => ("token", tenant.as_str(), token.as_str()),
        RevokedTokens::Subject(tenant, subject) => ("subject", tenant.as_str(), subject.as_str()),
    };
    tx.execute(
        "INSERT INTO access_revocations AS there (kind, tenant_id, name, revoked_at, revoked_by, needless_from,
                                                  issuers)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (kind, tenant_id, name) DO UPDATE
         SET needless_from = CASE WHEN there.needless_from IS NOT NULL AND excluded.needless_from IS NOT NULL
                                  THEN greatest(there.needless_from, excluded.needless_from) END,
             issuers = CASE WHEN there.issuers IS NULL OR excluded.issuers IS NULL THEN NULL
                            WHEN position(chr(10) || excluded.issuers || chr(10)
                                          IN chr(10) || there.issuers || chr(10)) > 0 THEN there.issuers
                            ELSE there.issuers || chr(10) || excluded.issuers END,
             revoked_by = CASE WHEN excluded.revoked_at > there.revoked_at THEN excluded.revoked_by
                               ELSE there.revoked_by END,
             revoked_at = greatest(excluded.revoked_at, there.revoked_at)",
        &[
            text(&kind),
            text(&tenant),
            text(&kept(name)),
            int(&revocation.at.0),
            text(&revocation.by.as_str()),
            int(&revocation.needless_from.map(|end| end.0)),
            text(&revocation.issuers.to_lines()),
        ],
    )
    .await?;
    // What another instance is forgetting at the same moment needs no second hand.
    let forget = "DELETE FROM access_revocations AS there
                  USING (SELECT kind, tenant_id, name FROM access_revocations WHERE needless_from <= $1
                         FOR UPDATE SKIP LOCKED) AS needless
                  WHERE (there.kind, there.tenant_id, there.name)
                        = (needless.kind, needless.tenant_id, needless.name)";
    let rows = tx.query(&raising(forget, &Raise::Always), &[int(&revocation.at.0)]).await?;
    epoch(rows.first().ok_or_else(|| unreadable("access_epoch", "store_numbers"))?)
}

pub(super) async fn spend(
    store: &PostgresStore,
    spendings: &[BudgetSpending],
) -> Result<Result<(), String>, StoreError> {
    if spendings.is_empty() {
        return Ok(Ok(()));
    }
    let (tokens, maxima) = budget_columns(spendings);
    let statement = "SELECT access_spend($1, $2) AS refused";
    let rows = store.pool.query(Scope::System, statement, &[texts(&tokens), ints(&maxima)]).await?;
    let refused: Option<&str> = match rows.first() {
        Some(row) => column(row, "refused")?,
        None => return Err(Fault::from(unreadable("refused", "access_spend")).into()),
    };
    Ok(refused.map_or(Ok(()), |token| Err(given(token))))
}

pub(super) async fn would_spend(
    store: &PostgresStore,
    spendings: &[BudgetSpending],
) -> Result<Result<(), String>, StoreError> {
    if spendings.is_empty() {
        return Ok(Ok(()));
    }
    let (tokens, maxima) = budget_columns(spendings);
    // As `access_spend` asks, without its locks and rows.
    let statement = "SELECT asked.token AS refused \
        FROM (SELECT named.token, named.calls_max, named.place, \
                     row_number() OVER (PARTITION BY named.token ORDER BY named.place) AS time \
              FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS named (token, calls_max, place)) AS asked \
        LEFT JOIN access_spending AS kept ON kept.token = asked.token \
        WHERE coalesce(kept.calls, 0) + asked.time > asked.calls_max ORDER BY asked.place LIMIT 1";
    let rows = store.pool.query(Scope::System, statement, &[texts(&tokens), ints(&maxima)]).await?;
    match rows.first() {
        Some(row) => Ok(Err(given(column(row, "refused")?))),
        None => Ok(Ok(())),
    }
}

// --------------------------------------------------------------------------------------------------- private parts

/// Tokens and how many calls each may make.
fn budget_columns(spendings: &[BudgetSpending]) -> (Vec<Cow<'_, str>>, Vec<i64>) {
    spendings.iter().map(|it| (kept(&it.token), i64::saturating_from(it.calls_max))).unzip()
}

/// A change that raises the epoch whatever it comes to.
async fn change(store: &PostgresStore, scope: Scope<'_>, put: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
    let rows = store.pool.query(scope, &raising(put, &Raise::Always), values).await?;
    let row = rows.first().ok_or_else(|| Fault::from(unreadable("access_epoch", "store_numbers")))?;
    Ok(epoch(row)?)
}

/// When the epoch rises.
enum Raise {
    Always,
    IfChanged,
}

/// The statement, followed by the raise of the epoch and a word to whoever listens, all in one. The count makes the server
/// finish the change before it takes the lock on the epoch.
fn raising(change: &str, raise: &Raise) -> String {
    let least = match raise {
        Raise::Always => 0,
        Raise::IfChanged => 1,
    };
    format!(
        "WITH changed AS ({change} RETURNING 1),
              raised AS (UPDATE store_numbers SET value = value + 1
                         WHERE name = 'access_epoch' AND (SELECT count(*) FROM changed) >= {least} RETURNING value)
         SELECT value AS epoch, pg_notify('{CHANNEL}', '{ACCESS_WORD} ' || value) FROM raised"
    )
}

fn epoch(row: &Row) -> Result<u64, Fault> {
    row.number("epoch", "store_numbers")
}

fn written<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(Box::new(error)))
}
