//! The statements that change checkpoints. Each function runs in one savepoint of the writer.

use base::SaturatingFrom as _;
use ports::checkpoint_store::{
    CHAIN_MAX, CheckpointEnding, CheckpointId, PromoteOutcome, SaveOutcome, SealedCheckpoint,
};
use ports::clock::UnixMillis;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::faults::Fault;
use super::Of;

pub(super) fn save(
    connection: &Connection,
    checkpoint: &SealedCheckpoint,
    fence: Option<u64>,
    until: Option<UnixMillis>,
) -> Result<SaveOutcome, Fault> {
    let head = &checkpoint.head;
    let (id, invocation) = (head.id.to_string(), head.invocation.to_string());
    let there: Option<Vec<u8>> = connection
        .prepare_cached("SELECT seal FROM checkpoints WHERE checkpoint_id = ?1")?
        .query_row([&id], |row| row.get(0))
        .optional()?;
    if let Some(seal) = there {
        return Ok(if seal == checkpoint.seal.as_bytes() { SaveOutcome::Kept } else { SaveOutcome::Foreign });
    }
    let newest: Option<(String, String, i64, i64)> = connection
        .prepare_cached(
            "SELECT owner, tool_id, rank, (SELECT max(fence) FROM checkpoints WHERE tenant_id = ?1 AND invocation_id = ?2)
             FROM checkpoints WHERE tenant_id = ?1 AND invocation_id = ?2 ORDER BY rank DESC LIMIT 1",
        )?
        .query_row([head.tenant.as_str(), &invocation], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    let given = fence.map(number);
    let is_fenced = is_fenced(connection, head.tenant.as_str(), &invocation, given)?;
    let (rank, fence) = match newest {
        None if is_fenced => return Ok(SaveOutcome::Fenced),
        None => (1, given.unwrap_or(0)),
        Some((owner, tool, ..)) if owner != head.owner.as_str() || tool != head.tool.as_str() => {
            return Ok(SaveOutcome::Foreign);
        }
        _ if is_fenced => return Ok(SaveOutcome::Fenced),
        Some((.., highest)) if given.is_some_and(|given| given < highest) => return Ok(SaveOutcome::Fenced),
        Some((.., rank, highest)) => (rank + 1, given.unwrap_or(highest)),
    };
    if let Some(base) = checkpoint.base {
        let there: Option<i64> = connection
            .prepare_cached(
                "SELECT 1 FROM checkpoints WHERE checkpoint_id = ?1 AND tenant_id = ?2 AND invocation_id = ?3",
            )?
            .query_row([&base.to_string(), head.tenant.as_str(), &invocation], |row| row.get(0))
            .optional()?;
        if there.is_none() {
            return Ok(SaveOutcome::BaseGone);
        }
    }
    connection
        .prepare_cached(
            "INSERT INTO checkpoints
                 (checkpoint_id, tenant_id, invocation_id, owner, tool_id, tool_version, checkpoint_type, label, parent_id,
                  saved_at, base_id, chain, schema_version, is_gzip, content_bytes, stored_bytes, checksum, seal, fence,
                  rank, expires_at, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
        )?
        .execute(params![
            id,
            head.tenant.as_str(),
            invocation,
            head.owner.as_str(),
            head.tool.as_str(),
            head.version.to_string(),
            head.kind.as_str(),
            head.label,
            head.parent.as_ref().map(CheckpointId::to_string),
            head.saved_at.0,
            checkpoint.base.as_ref().map(CheckpointId::to_string),
            checkpoint.chain,
            checkpoint.schema_version,
            checkpoint.is_gzip,
            i64::saturating_from(checkpoint.content_bytes),
            i64::saturating_from(checkpoint.payload.len()),
            checkpoint.checksum.as_bytes(),
            checkpoint.seal.as_bytes(),
            fence,
            rank,
            until.map(|until| until.0),
            &*checkpoint.payload,
        ])?;
    Ok(SaveOutcome::Kept)
}

/// How long a row outlives its attempt if there is nothing left to protect.
const ATTEMPT_KEPT_MS: i64 = 7 * 86_400_000;

fn number(fence: u64) -> i64 {
    i64::saturating_from(fence)
}

/// Has the attempt with this fence lost the invocation (CKPT-C)?
fn is_fenced(connection: &Connection, tenant: &str, invocation: &str, fence: Option<i64>) -> Result<bool, Fault> {
    let taken_over: Option<i64> = connection
        .prepare_cached("SELECT fence FROM checkpoint_attempts WHERE tenant_id = ?1 AND invocation_id = ?2")?
        .query_row([tenant, invocation], |row| row.get(0))
        .optional()?;
    Ok(fence.zip(taken_over).is_some_and(|(fence, by)| fence < by))
}

pub(super) fn claim(
    connection: &Connection,
    (tenant, invocation): Of<'_>,
    fence: Option<u64>,
    now: UnixMillis,
    until: UnixMillis,
) -> Result<Option<u64>, Fault> {
    let held: Option<i64> = connection
        .prepare_cached(
            "INSERT INTO checkpoint_attempts (tenant_id, invocation_id, fence, held_until)
             VALUES (?1, ?2, coalesce(?3,
                 (SELECT max(fence) + 1 FROM checkpoints WHERE tenant_id = ?1 AND invocation_id = ?2), 0), ?5)
             ON CONFLICT (tenant_id, invocation_id) DO UPDATE
             SET fence = coalesce(?3, max(fence + 1, excluded.fence)), held_until = ?5
             WHERE CASE WHEN ?3 IS NULL THEN held_until <= ?4 ELSE fence <= ?3 END
             RETURNING fence",
        )?
        .query_row(params![tenant, invocation.to_string(), fence.map(number), now.0, until.0], |row| row.get(0))
        .optional()?;
    Ok(held.map(u64::saturating_from))
}

pub(super) fn promote(
    connection: &Connection,
    (tenant, invocation): Of<'_>,
    id: CheckpointId,
    (now, until): (UnixMillis, UnixMillis),
    if_idle: bool,
) -> Result<PromoteOutcome, Fault> {
    let (invocation, id) = (invocation.to_string(), id.to_string());
    if !is_there(connection, tenant, &invocation, &id, now)? {
        return Ok(PromoteOutcome::NotThere);
    }
    let raised = connection
        .prepare_cached(
            "INSERT INTO checkpoint_attempts (tenant_id, invocation_id, fence, held_until)
             VALUES (?1, ?2, (SELECT max(fence) + 1 FROM checkpoints WHERE tenant_id = ?1 AND invocation_id = ?2), ?3)
             ON CONFLICT (tenant_id, invocation_id) DO UPDATE
             SET fence = max(fence + 1, excluded.fence), held_until = min(held_until, ?3)
             WHERE NOT ?4 OR held_until <= ?3",
        )?
        .execute(params![tenant, invocation, now.0, if_idle])?;
    if raised == 0 {
        return Ok(PromoteOutcome::Running);
    }
    // What was the newest is what somebody may want back.
    connection
        .prepare_cached(
            "UPDATE checkpoints SET expires_at = max(expires_at, ?5)
             WHERE expires_at IS NOT NULL AND (checkpoint_id = ?3 OR checkpoint_id =
                 (SELECT checkpoint_id FROM checkpoints
                  WHERE tenant_id = ?1 AND invocation_id = ?2 AND (expires_at IS NULL OR expires_at > ?4)
                  ORDER BY rank DESC LIMIT 1))",
        )?
        .execute(params![tenant, invocation, id, now.0, until.0])?;
    connection
        .prepare_cached(
            "UPDATE checkpoints SET rank =
                 (SELECT max(rank) + 1 FROM checkpoints WHERE tenant_id = ?1 AND invocation_id = ?2)
             WHERE checkpoint_id = ?3",
        )?
        .execute(params![tenant, invocation, id])?;
    Ok(PromoteOutcome::Newest)
}

pub(super) fn settle(
    connection: &Connection,
    (tenant, invocation): Of<'_>,
    owner: &str,
    fence: Option<u64>,
    ending: CheckpointEnding,
    now: UnixMillis,
) -> Result<(), Fault> {
    let invocation = invocation.to_string();
    if is_fenced(connection, tenant, &invocation, fence.map(number))? {
        return Ok(());
    }
    match ending {
        CheckpointEnding::Completed => {
            connection
                .prepare_cached(
                    "UPDATE checkpoints SET expires_at = min(expires_at, ?4)
                     WHERE tenant_id = ?1 AND invocation_id = ?2 AND owner = ?3 AND checkpoint_type = 'micro'",
                )?
                .execute(params![tenant, invocation, owner, now.0])?;
            sweep(connection, tenant, &invocation, now)
        }
        CheckpointEnding::Failed { keep } => {
            connection
                .prepare_cached(
                    "UPDATE checkpoints SET expires_at = ?5
                     WHERE tenant_id = ?1 AND invocation_id = ?2 AND owner = ?3 AND (checkpoint_type = 'macro' OR checkpoint_id =
                         (SELECT checkpoint_id FROM checkpoints
                          WHERE tenant_id = ?1 AND invocation_id = ?2 AND owner = ?3 AND checkpoint_type = 'micro'
                                AND expires_at > ?4
                          ORDER BY rank DESC LIMIT 1))",
                )?
                .execute(params![tenant, invocation, owner, now.0, now.plus(keep).0])?;
            Ok(())
        }
    }
}

pub(super) fn delete(
    connection: &Connection,
    (tenant, invocation): Of<'_>,
    id: CheckpointId,
    now: UnixMillis,
) -> Result<bool, Fault> {
    let (invocation, id) = (invocation.to_string(), id.to_string());
    if !is_there(connection, tenant, &invocation, &id, now)? {
        return Ok(false);
    }
    connection
        .prepare_cached("UPDATE checkpoints SET expires_at = ?2 WHERE checkpoint_id = ?1")?
        .execute(params![id, now.0])?;
    sweep(connection, tenant, &invocation, now)?;
    Ok(true)
}

pub(super) fn prune(connection: &Connection, batch: usize, now: UnixMillis) -> Result<usize, Fault> {
    let batch = i64::saturating_from(batch);
    let freed = connection
        .prepare_cached(
            "DELETE FROM checkpoints WHERE checkpoint_id IN
                 (SELECT checkpoint_id FROM checkpoints AS over
                  WHERE expires_at <= ?1 AND NOT EXISTS
                      (SELECT 1 FROM checkpoints AS above WHERE above.base_id = over.checkpoint_id)
                  LIMIT ?2)",
        )?
        .execute(params![now.0, batch])?;
    connection
        .prepare_cached(
            "DELETE FROM checkpoint_attempts WHERE (tenant_id, invocation_id) IN
                 (SELECT tenant_id, invocation_id FROM checkpoint_attempts AS over
                  WHERE held_until < ?1 AND NOT EXISTS
                      (SELECT 1 FROM checkpoints AS kept
                       WHERE kept.tenant_id = over.tenant_id AND kept.invocation_id = over.invocation_id)
                  LIMIT ?2)",
        )?
        .execute(params![now.0.saturating_sub(ATTEMPT_KEPT_MS), batch])?;
    Ok(freed)
}

/// Frees what is over in one invocation, from the tops of its chains downwards.
fn sweep(connection: &Connection, tenant: &str, invocation: &str, now: UnixMillis) -> Result<(), Fault> {
    let mut free = connection.prepare_cached(
        "DELETE FROM checkpoints
         WHERE tenant_id = ?1 AND invocation_id = ?2 AND expires_at <= ?3 AND NOT EXISTS
             (SELECT 1 FROM checkpoints AS above WHERE above.base_id = checkpoints.checkpoint_id)",
    )?;
    for _ in 0..=CHAIN_MAX {
        if free.execute(params![tenant, invocation, now.0])? == 0 {
            break;
        }
    }
    Ok(())
}

fn is_there(connection: &Connection, tenant: &str, invocation: &str, id: &str, now: UnixMillis) -> Result<bool, Fault> {
    let there: Option<i64> = connection
        .prepare_cached(
            "SELECT 1 FROM checkpoints WHERE checkpoint_id = ?3 AND tenant_id = ?1 AND invocation_id = ?2
                 AND (expires_at IS NULL OR expires_at > ?4)",
        )?
        .query_row(params![tenant, invocation, id, now.0], |row| row.get(0))
        .optional()?;
    Ok(there.is_some())
}
