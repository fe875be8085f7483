//! `Ledger` on SQLite. Every method is one savepoint of the one writer, so what it reads cannot change before it writes.
//!
//! SQL-2 (one process writes a file) makes this process the only owner that can be alive: with its first lease all others
//! end.
//!
//! Not here: which end of a call is which state (`kernel::ledger`).

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::job_store::LedgerAct;
use ports::ledger::{
    BeginOutcome, EntryFilter, EntryState, FencingToken, IdempotencyKey, Intent, Ledger, LedgerEntry, OwnerId,
    ResolveOutcome, SettleOutcome, Settlement,
};
use ports::registry_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;

use super::SqliteStore;
use super::columns::{call_owner, opt_json, opt_time, time_of, unreadable, word};
use super::faults::Fault;
use crate::transfer::ENDED_WITHOUT_LINE;

const COLUMNS: &str = "invocation_id, trace_id, tenant_id, subject, delegators, tool_id, tool_version, side_effect_policy, scope, key, \
                       parameters_digest, window_seconds, owner_id, fence, state, begun_at, settled_at, outcome";

#[async_trait]
impl Ledger for SqliteStore {
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError> {
        let until = self.time.now().plus(lease);
        self.writer()?.run(move |connection| renew(connection, owner, until)).await
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError> {
        let end = move |connection: &Connection| {
            connection.execute("DELETE FROM ledger_owners WHERE owner_id = ?1", [owner.to_string()])?;
            Ok(())
        };
        self.writer()?.run(end).await
    }

    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError> {
        let now = self.time.now();
        self.writer()?.run(move |connection| begin(connection, &intent, now)).await
    }

    async fn settle(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        settlement: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        let now = self.time.now();
        self.writer()?.run(move |connection| settle(connection, invocation, fence, &settlement, now)).await
    }

    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let now = self.time.now();
        self.readers.run(move |connection| lapsed(connection, most, now)).await
    }

    async fn find(&self, tenant: &TenantId, invocation: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        let tenant = tenant.clone();
        let find = move |connection: &Connection| {
            Ok(by_id(connection, invocation)?.filter(|entry| entry.intent.tenant == tenant))
        };
        self.readers.run(find).await
    }

    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let filter = filter.clone();
        self.readers.run(move |connection| list(connection, &filter, most)).await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        settlement: Settlement,
    ) -> Result<ResolveOutcome, StoreError> {
        let (tenant, now) = (tenant.clone(), self.time.now());
        self.writer()?.run(move |connection| resolve(connection, &tenant, invocation, &settlement, now)).await
    }

    async fn release(&self, tenant: &TenantId, invocation: InvocationId) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        let free = move |connection: &Connection| {
            connection
                .prepare_cached(
                    "UPDATE ledger SET holds_key = 0 WHERE invocation_id = ?1 AND tenant_id = ?2 AND state = 'done'",
                )?
                .execute(params![invocation.to_string(), tenant.as_str()])?;
            Ok(())
        };
        self.writer()?.run(free).await
    }

    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        let now = self.time.now();
        let forget = move |connection: &Connection| {
            let forgotten = connection
                .prepare_cached(
                    "DELETE FROM ledger WHERE invocation_id IN (
                         SELECT invocation_id FROM ledger
                         WHERE state IN ('done', 'failed_clean') AND keep_until <= ?1 ORDER BY keep_until LIMIT ?2)",
                )?
                .execute(params![now.to_string(), limit(most)])?;
            Ok(forgotten)
        };
        self.writer()?.run(forget).await
    }
}

// ---------------------------------------------------------------------------------------------------------- writing

fn renew(connection: &Connection, owner: OwnerId, until: UnixMillis) -> Result<(), Fault> {
    let owner = owner.to_string();
    let renewed = connection
        .prepare_cached("UPDATE ledger_owners SET lease_until = ?2 WHERE owner_id = ?1")?
        .execute([&owner, &until.to_string()])?;
    if renewed == 0 {
        connection.execute("DELETE FROM ledger_owners", [])?;
        connection.execute(
            "INSERT INTO ledger_owners (owner_id, lease_until) VALUES (?1, ?2)",
            [&owner, &until.to_string()],
        )?;
    }
    Ok(())
}

fn begin(connection: &Connection, intent: &Intent, now: UnixMillis) -> Result<BeginOutcome, Fault> {
    if !is_alive(connection, intent.owner, now)? {
        return Ok(BeginOutcome::OwnerLapsed);
    }
    if let Some(key) = &intent.key
        && let Some(holder) = holder(connection, intent, key, now)?
    {
        let id = holder.intent.invocation;
        if holder.state != EntryState::FailedClean {
            let same = holder.intent.parameters == intent.parameters;
            return Ok(if same {
                BeginOutcome::Held(Box::new(holder))
            } else {
                BeginOutcome::OtherParameters { invocation: id }
            });
        }
        if id != intent.invocation {
            release(connection, id)?;
        }
    }
    if let Some((job, same, ended)) = queued(connection, intent, now)? {
        return Ok(BeginOutcome::Queued { job, same, ended });
    }
    // Almost every call is a new one, so that is tried before anything is looked for.
    if insert(connection, intent, now)? {
        return Ok(BeginOutcome::Fresh(FencingToken(1)));
    }
    match by_id(connection, intent.invocation)? {
        // The key is free and the id is not known, and yet there was a conflict: no place for this call.
        None => Ok(BeginOutcome::IdTaken),
        Some(former) if !former.intent.is_same_call(intent) => Ok(BeginOutcome::IdTaken),
        Some(former) if former.state == EntryState::FailedClean => {
            let fence = FencingToken(former.fence.0.saturating_add(1));
            begin_again(connection, intent, fence, now)?;
            Ok(BeginOutcome::Fresh(fence))
        }
        Some(former) => Ok(BeginOutcome::Held(Box::new(former))),
    }
}

/// The job that is to do the act of this call, or may have done it without a line here, if it is another one (LEDGER-5); and
/// whether it has ended.
fn queued(
    connection: &Connection,
    intent: &Intent,
    now: UnixMillis,
) -> Result<Option<(InvocationId, bool, bool)>, Fault> {
    let Some(act) = &intent.queued_act else { return Ok(None) };
    let found: Option<(String, String, bool)> = connection
        .prepare_cached(&format!(
            "SELECT id, digest, ended_at IS NOT NULL FROM jobs
             WHERE tenant_id = ?1 AND kind = ?2 AND dedupe_key = ?3 AND id <> ?4
               AND (ended_at IS NULL OR (dedupe_until > ?5 AND {ENDED_WITHOUT_LINE}))"
        ))?
        .query_row(
            params![intent.tenant.as_str(), act.kind, act.dedupe_key, intent.invocation.to_string(), now.0],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    found
        .map(|(id, digest, ended)| {
            Ok((id.parse().map_err(|_| unreadable("id", &id))?, digest == act.digest.to_string(), ended))
        })
        .transpose()
}

/// The call other than this one that has the key of a job's act, and whether its parameters are the same (JOB-10).
pub(super) fn claimed(
    connection: &Connection,
    now: UnixMillis,
    (tenant, id): (&TenantId, InvocationId),
    act: &LedgerAct,
) -> Result<Option<(InvocationId, bool)>, Fault> {
    let found: Option<(String, String)> = connection
        .prepare_cached(
            "SELECT invocation_id, parameters_digest FROM ledger
             WHERE tenant_id = ?1 AND tool_id = ?2 AND scope = ?3 AND key = ?4 AND holds_key = 1 AND invocation_id <> ?5
               AND (state IN ('in_flight', 'unknown') OR (state = 'done' AND keep_until > ?6))",
        )?
        .query_row(
            params![tenant.as_str(), act.tool.as_str(), act.key.scope, act.key.key, id.to_string(), now.to_string()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    found
        .map(|(id, digest)| {
            Ok((id.parse().map_err(|_| unreadable("invocation_id", &id))?, digest == act.parameters.to_string()))
        })
        .transpose()
}

/// The call that has the key and still counts.
fn holder(
    connection: &Connection,
    intent: &Intent,
    key: &IdempotencyKey,
    now: UnixMillis,
) -> Result<Option<LedgerEntry>, Fault> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, keep_until FROM ledger
         WHERE tenant_id = ?1 AND tool_id = ?2 AND scope = ?3 AND key = ?4 AND holds_key = 1"
    ))?;
    let mut rows = find.query(params![intent.tenant.as_str(), intent.tool.as_str(), key.scope, key.key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let entry = entry(row)?;
    let id = entry.intent.invocation;
    let keep_until = opt_time(row, "keep_until", &id.to_string())?;
    let is_over = match entry.state {
        EntryState::InFlight | EntryState::Unknown => false,
        EntryState::Done | EntryState::FailedClean => keep_until.is_none_or(|until| until <= now),
    };
    if is_over && id != intent.invocation {
        release(connection, id)?;
    }
    Ok((!is_over).then_some(entry))
}

fn release(connection: &Connection, invocation: InvocationId) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE ledger SET holds_key = 0 WHERE invocation_id = ?1")?
        .execute([invocation.to_string()])?;
    Ok(())
}

/// Writes the line of a new call; false, and nothing, if there is one with its id or its key.
pub(super) fn insert(connection: &Connection, intent: &Intent, now: UnixMillis) -> Result<bool, Fault> {
    let (scope, key) = intent.key.as_ref().map(|key| (&key.scope, &key.key)).unzip();
    let inserted = connection
        .prepare_cached(
            "INSERT INTO ledger (invocation_id, trace_id, tenant_id, subject, tool_id, tool_version, side_effect_policy,
                                 scope, key, holds_key, parameters_digest, window_seconds, owner_id, fence, state, begun_at, delegators)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9 IS NOT NULL, ?10, ?11, ?12, 1, 'in_flight', ?13, ?14)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            intent.invocation.to_string(),
            intent.trace.to_string(),
            intent.tenant.as_str(),
            intent.caller.subject().as_str(),
            intent.tool.as_str(),
            intent.version.to_string(),
            intent.effects.as_str(),
            scope,
            key,
            intent.parameters.to_string(),
            seconds(intent.window),
            intent.owner.to_string(),
            now.to_string(),
            intent.caller.delegators(),
        ])?;
    Ok(inserted > 0)
}

fn begin_again(connection: &Connection, intent: &Intent, fence: FencingToken, now: UnixMillis) -> Result<(), Fault> {
    let (scope, key) = intent.key.as_ref().map(|key| (&key.scope, &key.key)).unzip();
    connection
        .prepare_cached(
            "UPDATE ledger SET state = 'in_flight', settled_at = NULL, keep_until = NULL, outcome = NULL, trace_id = ?2,
                 tool_version = ?3, side_effect_policy = ?4, scope = ?5, key = ?6, holds_key = ?6 IS NOT NULL,
                 window_seconds = ?7, owner_id = ?8, fence = ?9, begun_at = ?10
             WHERE invocation_id = ?1",
        )?
        .execute(params![
            intent.invocation.to_string(),
            intent.trace.to_string(),
            intent.version.to_string(),
            intent.effects.as_str(),
            scope,
            key,
            seconds(intent.window),
            intent.owner.to_string(),
            number(fence),
            now.to_string(),
        ])?;
    Ok(())
}

fn settle(
    connection: &Connection,
    invocation: InvocationId,
    fence: FencingToken,
    settlement: &Settlement,
    now: UnixMillis,
) -> Result<SettleOutcome, Fault> {
    let id = invocation.to_string();
    let window: Option<i64> = connection
        .prepare_cached(
            "SELECT window_seconds FROM ledger WHERE invocation_id = ?1 AND state = 'in_flight' AND fence = ?2",
        )?
        .query_row(params![id, number(fence)], |row| row.get(0))
        .optional()?;
    let Some(window) = window else { return said_before(connection, &id, fence, settlement) };
    write_end(connection, &id, settlement, window, now)?;
    Ok(SettleOutcome::Kept)
}

/// Is the end that is there the one that is said? Then it was said twice.
fn said_before(
    connection: &Connection,
    id: &str,
    fence: FencingToken,
    settlement: &Settlement,
) -> Result<SettleOutcome, Fault> {
    let same = connection
        .prepare_cached("SELECT 1 FROM ledger WHERE invocation_id = ?1 AND fence = ?2 AND state = ?3 AND outcome = ?4")?
        .exists(params![id, number(fence), settlement.state.as_str(), settlement.outcome.to_string()])?;
    Ok(if same { SettleOutcome::Kept } else { SettleOutcome::Fenced })
}

fn resolve(
    connection: &Connection,
    tenant: &TenantId,
    invocation: InvocationId,
    settlement: &Settlement,
    now: UnixMillis,
) -> Result<ResolveOutcome, Fault> {
    let Some(entry) = by_id(connection, invocation)?.filter(|entry| entry.intent.tenant == *tenant) else {
        return Ok(ResolveOutcome::NotFound);
    };
    if entry.state != EntryState::Unknown {
        return Ok(ResolveOutcome::NotUnknown(entry.state));
    }
    write_end(connection, &invocation.to_string(), settlement, seconds(entry.intent.window), now)?;
    Ok(ResolveOutcome::Done)
}

pub(super) fn write_end(
    connection: &Connection,
    id: &str,
    settlement: &Settlement,
    window: i64,
    now: UnixMillis,
) -> Result<(), Fault> {
    let window = Duration::from_secs(u64::try_from(window).unwrap_or_default());
    connection
        .prepare_cached(
            "UPDATE ledger SET state = ?2, settled_at = ?3, keep_until = ?4, outcome = ?5
             WHERE invocation_id = ?1",
        )?
        .execute(params![
            id,
            settlement.state.as_str(),
            now.to_string(),
            now.plus(window).to_string(),
            settlement.outcome.to_string()
        ])?;
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------- reading

fn is_alive(connection: &Connection, owner: OwnerId, now: UnixMillis) -> Result<bool, Fault> {
    let until: Option<String> = connection
        .prepare_cached("SELECT lease_until FROM ledger_owners WHERE owner_id = ?1")?
        .query_row([owner.to_string()], |row| row.get(0))
        .optional()?;
    Ok(until.is_some_and(|until| until > now.to_string()))
}

fn by_id(connection: &Connection, invocation: InvocationId) -> Result<Option<LedgerEntry>, Fault> {
    let mut find = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM ledger WHERE invocation_id = ?1"))?;
    let mut rows = find.query([invocation.to_string()])?;
    rows.next()?.map(entry).transpose()
}

fn lapsed(connection: &Connection, most: usize, now: UnixMillis) -> Result<Vec<LedgerEntry>, Fault> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM ledger
         WHERE state = 'in_flight'
           AND NOT EXISTS (SELECT 1 FROM ledger_owners WHERE ledger_owners.owner_id = ledger.owner_id AND lease_until > ?1)
         ORDER BY begun_at LIMIT ?2"
    ))?;
    collect(find.query(params![now.to_string(), limit(most)])?)
}

fn list(connection: &Connection, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, Fault> {
    // One shape of the question for each of the four, so that each finds its index.
    let tenant = if filter.tenant.is_some() { "tenant_id = ?1" } else { "?1 IS NULL" };
    let state = if filter.state.is_some() { "state = ?2" } else { "?2 IS NULL" };
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM ledger
         WHERE {tenant} AND {state} AND (?3 IS NULL OR invocation_id < ?3)
         ORDER BY invocation_id DESC LIMIT ?4"
    ))?;
    collect(find.query(params![
        filter.tenant.as_ref().map(TenantId::as_str),
        filter.state.map(EntryState::as_str),
        filter.before.map(|id| id.to_string()),
        limit(most)
    ])?)
}

fn collect(mut rows: rusqlite::Rows<'_>) -> Result<Vec<LedgerEntry>, Fault> {
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?);
    }
    Ok(entries)
}

fn entry(row: &Row<'_>) -> Result<LedgerEntry, Fault> {
    let of: String = row.get("invocation_id")?;
    let effects: String = row.get("side_effect_policy")?;
    let state: String = row.get("state")?;
    let version: String = row.get("tool_version")?;
    let owner: String = row.get("owner_id")?;
    let (scope, key): (Option<String>, Option<String>) = (row.get("scope")?, row.get("key")?);
    Ok(LedgerEntry {
        intent: Intent {
            invocation: of.parse().map_err(|_| unreadable("invocation_id", &of))?,
            trace: word(row, "trace_id", &of)?,
            tenant: word(row, "tenant_id", &of)?,
            caller: call_owner(row, &of)?,
            tool: word(row, "tool_id", &of)?,
            version: Version::parse(&version).map_err(|_| unreadable("tool_version", &of))?,
            effects: serde_json::from_value::<SideEffectPolicy>(Value::String(effects))
                .map_err(|_| unreadable("side_effect_policy", &of))?,
            key: scope.zip(key).map(|(scope, key)| IdempotencyKey { scope, key }),
            parameters: word(row, "parameters_digest", &of)?,
            window: Duration::from_secs(row.get::<_, u32>("window_seconds")?.into()),
            owner: OwnerId(owner.parse().map_err(|_| unreadable("owner_id", &of))?),
            queued_act: None,
        },
        state: EntryState::of_word(&state).ok_or_else(|| unreadable("state", &of))?,
        fence: FencingToken(row.get::<_, u32>("fence")?.into()),
        begun_at: time_of(row, "begun_at", &of)?,
        settled_at: opt_time(row, "settled_at", &of)?,
        outcome: opt_json(row, "outcome", &of)?,
    })
}

fn limit(most: usize) -> i64 {
    i64::saturating_from(most)
}

pub(super) fn seconds(span: Duration) -> i64 {
    u32::saturating_from(span.as_secs()).into()
}

fn number(fence: FencingToken) -> i64 {
    i64::saturating_from(fence.0)
}
