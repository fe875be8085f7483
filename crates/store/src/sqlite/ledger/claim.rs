//! Taking a key and writing the intent.

use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::job_store::LedgerAct;
use ports::ledger::{BeginOutcome, EntryState, FencingToken, IdempotencyKey, Intent, LedgerEntry, OwnerId};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::ends::{fence_column, seconds};
use super::reads::by_id;
use crate::records::ledger::{COLUMNS, entry};
use crate::sqlite::faults::Fault;
use crate::stored_row::{StoredRow as _, unreadable};
use crate::transfer::ENDED_WITHOUT_LINE;

pub(super) fn begin(connection: &Connection, intent: &Intent, now: UnixMillis) -> Result<BeginOutcome, Fault> {
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
            free_key(connection, id)?;
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
             WHERE tenant_id = :tenant_id AND kind = :kind AND dedupe_key = :dedupe_key AND id <> :invocation
               AND (ended_at IS NULL OR (dedupe_until > :now AND {ENDED_WITHOUT_LINE}))"
        ))?
        .query_row(
            named_params! {
                ":tenant_id": intent.tenant.as_str(),
                ":kind": act.kind,
                ":dedupe_key": act.dedupe_key,
                ":invocation": intent.invocation.to_string(),
                ":now": now.0,
            },
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
pub(in crate::sqlite) fn claimed(
    connection: &Connection,
    now: UnixMillis,
    (tenant, id): (&TenantId, InvocationId),
    act: &LedgerAct,
) -> Result<Option<(InvocationId, bool)>, Fault> {
    let found: Option<(String, String)> = connection
        .prepare_cached(
            "SELECT invocation_id, parameters_digest FROM ledger
             WHERE tenant_id = :tenant_id AND tool_id = :tool_id AND scope = :scope AND key = :key
             AND holds_key = 1 AND invocation_id <> :id
               AND (state IN ('in_flight', 'unknown') OR (state = 'done' AND keep_until > :now))",
        )?
        .query_row(
            named_params! {
                ":tenant_id": tenant.as_str(),
                ":tool_id": act.tool.as_str(),
                ":scope": act.key.scope,
                ":key": act.key.key,
                ":id": id.to_string(),
                ":now": now.to_string(),
            },
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
         WHERE tenant_id = :tenant_id AND tool_id = :tool_id AND scope = :scope AND key = :key AND holds_key = 1"
    ))?;
    let mut rows = find.query(named_params! {
        ":tenant_id": intent.tenant.as_str(),
        ":tool_id": intent.tool.as_str(),
        ":scope": key.scope,
        ":key": key.key,
    })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let entry = entry(row)?;
    let id = entry.intent.invocation;
    let keep_until = row.opt_moment("keep_until", &id.to_string())?;
    let is_over = match entry.state {
        EntryState::InFlight | EntryState::Unknown => false,
        EntryState::Done | EntryState::FailedClean => keep_until.is_none_or(|until| until <= now),
    };
    if is_over && id != intent.invocation {
        free_key(connection, id)?;
    }
    Ok((!is_over).then_some(entry))
}

fn free_key(connection: &Connection, invocation: InvocationId) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE ledger SET holds_key = 0 WHERE invocation_id = :invocation")?
        .execute(named_params! { ":invocation": invocation.to_string() })?;
    Ok(())
}

/// Writes the line of a new call; false, and nothing, if there is one with its id or its key.
pub(in crate::sqlite) fn insert(connection: &Connection, intent: &Intent, now: UnixMillis) -> Result<bool, Fault> {
    let (scope, key) = intent.key.as_ref().map(|key| (&key.scope, &key.key)).unzip();
    let inserted = connection
        .prepare_cached(
            "INSERT INTO ledger (invocation_id, trace_id, tenant_id, subject, tool_id, tool_version, side_effect_policy,
                                 scope, key, holds_key, parameters_digest, window_seconds, owner_id, fence, state,
                                 begun_at, delegators)
             VALUES (:invocation, :trace, :tenant_id, :subject, :tool_id, :version, :effects, :scope, :key,
             :key IS NOT NULL, :parameters, :window, :owner, 1, 'in_flight', :now, :delegators)
             ON CONFLICT DO NOTHING",
        )?
        .execute(named_params! {
            ":invocation": intent.invocation.to_string(),
            ":trace": intent.trace.to_string(),
            ":tenant_id": intent.tenant.as_str(),
            ":subject": intent.caller.subject().as_str(),
            ":tool_id": intent.tool.as_str(),
            ":version": intent.version.to_string(),
            ":effects": intent.effects.as_str(),
            ":scope": scope,
            ":key": key,
            ":parameters": intent.parameters.to_string(),
            ":window": seconds(intent.window),
            ":owner": intent.owner.to_string(),
            ":now": now.to_string(),
            ":delegators": intent.caller.delegators(),
        })?;
    Ok(inserted > 0)
}

fn begin_again(connection: &Connection, intent: &Intent, fence: FencingToken, now: UnixMillis) -> Result<(), Fault> {
    let (scope, key) = intent.key.as_ref().map(|key| (&key.scope, &key.key)).unzip();
    connection
        .prepare_cached(
            "UPDATE ledger SET state = 'in_flight', settled_at = NULL, keep_until = NULL, outcome = NULL,
             trace_id = :trace,
                 tool_version = :version, side_effect_policy = :effects, scope = :scope, key = :key,
                 holds_key = :key IS NOT NULL,
                 window_seconds = :window, owner_id = :owner, fence = :fence, begun_at = :now
             WHERE invocation_id = :invocation",
        )?
        .execute(named_params! {
            ":invocation": intent.invocation.to_string(),
            ":trace": intent.trace.to_string(),
            ":version": intent.version.to_string(),
            ":effects": intent.effects.as_str(),
            ":scope": scope,
            ":key": key,
            ":window": seconds(intent.window),
            ":owner": intent.owner.to_string(),
            ":fence": fence_column(fence),
            ":now": now.to_string(),
        })?;
    Ok(())
}

fn is_alive(connection: &Connection, owner: OwnerId, now: UnixMillis) -> Result<bool, Fault> {
    let until: Option<String> = connection
        .prepare_cached("SELECT lease_until FROM ledger_owners WHERE owner_id = :owner")?
        .query_row(named_params! { ":owner": owner.to_string() }, |row| row.get(0))
        .optional()?;
    Ok(until.is_some_and(|until| until > now.to_string()))
}
