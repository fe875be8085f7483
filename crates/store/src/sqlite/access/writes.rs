//! The statements that change access. Each runs in a savepoint of the writer, so it is done whole or not at all.

use std::collections::BTreeMap;

use base::SaturatingFrom as _;
use contract::ids::{Subject, TenantId};
use ports::access_store::{
    Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, RevokedTokens, TenantRecord,
};
use rusqlite::{Connection, OptionalExtension, named_params};

use crate::records::access::policy_owner;
use crate::sqlite::faults::Fault;
use crate::stored_row::{tag, unreadable};

pub(super) fn put_tenants(connection: &Connection, tenants: &[TenantRecord]) -> Result<u64, Fault> {
    let mut put = connection.prepare_cached(
        "INSERT INTO access_tenants (tenant_id, name, visibility, tools, enabled)
         VALUES (:tenant_id, :name, :visibility, :tools, :enabled)
         ON CONFLICT (tenant_id) DO UPDATE
         SET name = excluded.name, visibility = excluded.visibility, tools = excluded.tools, enabled = excluded.enabled",
    )?;
    for record in tenants {
        let visibility = record.visibility.map(tag);
        put.execute(named_params! {
            ":tenant_id": record.tenant.as_str(),
            ":name": record.name,
            ":visibility": visibility,
            ":tools": json(&record.tools)?,
            ":enabled": record.enabled,
        })?;
    }
    raise_epoch(connection)
}

pub(super) fn put_agents(connection: &Connection, agents: &[AgentRecord]) -> Result<u64, Fault> {
    let mut put = connection.prepare_cached(
        "INSERT INTO access_agents (tenant_id, agent, document, added_at, added_by)
         VALUES (:tenant_id, :agent, :document, :added_at, :added_by)
         ON CONFLICT (tenant_id, agent) DO UPDATE
         SET document = excluded.document, added_at = excluded.added_at, added_by = excluded.added_by
         WHERE excluded.document IS NOT NULL",
    )?;
    for record in agents {
        put.execute(named_params! {
            ":tenant_id": record.tenant.as_str(),
            ":agent": record.agent.as_str(),
            ":document": record.document,
            ":added_at": record.added_at.to_string(),
            ":added_by": record.added_by.as_str(),
        })?;
    }
    raise_epoch(connection)
}

pub(super) fn remove_agent(connection: &Connection, tenant: &TenantId, agent: &Subject) -> Result<Option<u64>, Fault> {
    let removed = connection
        .prepare_cached("DELETE FROM access_agents WHERE tenant_id = :tenant_id AND agent = :agent")?
        .execute(named_params! { ":tenant_id": tenant.as_str(), ":agent": agent.as_str() })?;
    if removed == 0 { Ok(None) } else { raise_epoch(connection).map(Some) }
}

pub(super) fn put_activations(connection: &Connection, activations: &[Activation]) -> Result<u64, Fault> {
    let mut put = connection.prepare_cached(
        "INSERT INTO access_activations (tenant_id, agent, tool, enabled, overrides, id, created_at, updated_at)
         VALUES (:tenant_id, :agent, :tool_id, :enabled, :overrides, :id, :created_at, :updated_at)
         ON CONFLICT (tenant_id, agent, tool) DO UPDATE
         SET enabled = excluded.enabled, overrides = excluded.overrides, updated_at = excluded.updated_at",
    )?;
    for record in activations {
        put.execute(named_params! {
            ":tenant_id": record.tenant.as_str(),
            ":agent": record.agent.as_str(),
            ":tool_id": record.tool.to_string(),
            ":enabled": record.enabled,
            ":overrides": json(&record.overrides)?,
            ":id": record.id.to_string(),
            ":created_at": record.created_at.0,
            ":updated_at": record.updated_at.0,
        })?;
    }
    raise_epoch(connection)
}

pub(super) fn add_policies(connection: &Connection, record: &PolicyRecord) -> Result<Option<u64>, Fault> {
    let owner = policy_owner(record.tenant.as_ref());
    let next: i64 = connection
        .prepare_cached("SELECT 1 + coalesce(max(version), 0) FROM access_policies WHERE tenant_id = :owner")?
        .query_row(named_params! { ":owner": owner }, |row| row.get(0))?;
    if u64::try_from(next) != Ok(record.version) {
        return Ok(None);
    }
    connection
        .prepare_cached(
            "INSERT INTO access_policies (tenant_id, version, text, added_at, added_by)
             VALUES (:owner, :next, :text, :added_at, :added_by)",
        )?
        .execute(named_params! {
            ":owner": owner,
            ":next": next,
            ":text": record.text,
            ":added_at": record.added_at.to_string(),
            ":added_by": record.added_by.as_str(),
        })?;
    raise_epoch(connection).map(Some)
}

pub(super) fn revoke(connection: &Connection, revocation: &Revocation) -> Result<u64, Fault> {
    let (kind, tenant, name) = match &revocation.what {
        RevokedTokens::Token(tenant, token) => ("token", tenant.as_str(), token.as_str()),
        RevokedTokens::Subject(tenant, subject) => ("subject", tenant.as_str(), subject.as_str()),
    };
    let end = revocation.needless_from.map(|end| end.to_string());
    let issuers = revocation.issuers.to_lines();
    // Text in this form has the order of time. The greater of anything and NULL is NULL: then it stays for good.
    connection
        .prepare_cached(
            "INSERT INTO access_revocations (kind, tenant_id, name, revoked_at, revoked_by, needless_from, issuers)
             VALUES (:kind, :tenant_id, :name, :at, :by, :end, :issuers)
             ON CONFLICT (kind, tenant_id, name) DO UPDATE
             SET needless_from = max(needless_from, excluded.needless_from),
                 issuers = CASE WHEN issuers IS NULL OR excluded.issuers IS NULL THEN NULL
                                WHEN instr(char(10) || issuers || char(10), char(10) || excluded.issuers || char(10)) > 0
                                THEN issuers ELSE issuers || char(10) || excluded.issuers END,
                 revoked_by = iif(excluded.revoked_at > revoked_at, excluded.revoked_by, revoked_by),
                 revoked_at = max(excluded.revoked_at, revoked_at)",
        )?
        .execute(named_params! {
            ":kind": kind,
            ":tenant_id": tenant,
            ":name": name,
            ":at": revocation.at.to_string(),
            ":by": revocation.by.as_str(),
            ":end": end,
            ":issuers": issuers,
        })?;
    connection
        .prepare_cached("DELETE FROM access_revocations WHERE needless_from <= :at")?
        .execute(named_params! { ":at": revocation.at.to_string() })?;
    raise_epoch(connection)
}

/// ACCESS-2: nothing is written before every budget has been asked. A token that is named twice is counted twice.
pub(super) fn spend(connection: &Connection, spendings: &[BudgetSpending]) -> Result<Result<(), String>, Fault> {
    let counts = match counted(connection, spendings)? {
        Ok(counts) => counts,
        Err(token) => return Ok(Err(token)),
    };
    let mut write = connection.prepare_cached(
        "INSERT INTO access_spending (token, calls) VALUES (:token, :calls)
         ON CONFLICT (token) DO UPDATE SET calls = excluded.calls",
    )?;
    for (token, calls) in counts {
        write.execute(named_params! { ":token": token, ":calls": i64::saturating_from(calls) })?;
    }
    Ok(Ok(()))
}

/// What is counted after one call more, or the first token whose budget is used up. Writes nothing.
pub(super) fn counted<'s>(
    connection: &Connection,
    spendings: &'s [BudgetSpending],
) -> Result<Result<BTreeMap<&'s str, u64>, String>, Fault> {
    let mut read = connection.prepare_cached("SELECT calls FROM access_spending WHERE token = :token")?;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for spending in spendings {
        let token = spending.token.as_str();
        let calls = match counts.get(token) {
            Some(calls) => *calls,
            None => {
                let stored: Option<i64> =
                    read.query_row(named_params! { ":token": token }, |row| row.get(0)).optional()?;
                stored.and_then(|calls| u64::try_from(calls).ok()).unwrap_or(0)
            }
        };
        if calls >= spending.calls_max {
            return Ok(Err(spending.token.clone()));
        }
        counts.insert(token, calls.saturating_add(1));
    }
    Ok(Ok(counts))
}

// --------------------------------------------------------------------------------------------------- private parts

/// ACCESS-1: part of every change.
fn raise_epoch(connection: &Connection) -> Result<u64, Fault> {
    let epoch: Option<i64> = connection
        .prepare_cached("UPDATE store_numbers SET value = value + 1 WHERE name = 'access_epoch' RETURNING value")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let epoch = epoch.and_then(|epoch| u64::try_from(epoch).ok());
    epoch.ok_or_else(|| unreadable("access_epoch", "store_numbers").into())
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)).into())
}
