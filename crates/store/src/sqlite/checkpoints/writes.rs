//! The statements that change checkpoints. Each function runs in one savepoint of the writer.

use base::SaturatingFrom as _;
use ports::checkpoint_store::{
    CHAIN_MAX, CheckpointEnding, CheckpointId, PromoteOutcome, SaveOutcome, SealedCheckpoint,
};
use ports::clock::UnixMillis;
use rusqlite::{Connection, OptionalExtension as _, named_params};

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
        .prepare_cached("SELECT seal FROM checkpoints WHERE checkpoint_id = :id")?
        .query_row(named_params! { ":id": &id }, |row| row.get(0))
        .optional()?;
    if let Some(seal) = there {
        return Ok(if seal == checkpoint.seal.as_bytes() { SaveOutcome::Kept } else { SaveOutcome::Foreign });
    }
    let newest: Option<(String, String, i64, i64)> = connection
        .prepare_cached(
            "SELECT owner, tool_id, rank, (SELECT max(fence) FROM checkpoints WHERE tenant_id = :tenant_id
             AND invocation_id = :invocation)
             FROM checkpoints WHERE tenant_id = :tenant_id AND invocation_id = :invocation ORDER BY rank DESC LIMIT 1",
        )?
        .query_row(
            named_params! {
                ":tenant_id": head.tenant.as_str(),
                ":invocation": &invocation,
            },
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
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
                "SELECT 1 FROM checkpoints WHERE checkpoint_id = :base AND tenant_id = :tenant_id
                 AND invocation_id = :invocation",
            )?
            .query_row(
                named_params! {
                    ":base": &base.to_string(),
                    ":tenant_id": head.tenant.as_str(),
                    ":invocation": &invocation,
                },
                |row| row.get(0),
            )
            .optional()?;
        if there.is_none() {
            return Ok(SaveOutcome::BaseGone);
        }
    }
    connection
        .prepare_cached(
            "INSERT INTO checkpoints
                 (checkpoint_id, tenant_id, invocation_id, owner, tool_id, tool_version, checkpoint_type, label,
                 parent_id,
                  saved_at, base_id, chain, schema_version, is_gzip, content_bytes, stored_bytes, checksum, seal, fence,
                  rank, expires_at, payload)
             VALUES (:id, :tenant_id, :invocation, :owner, :tool_id, :version, :kind, :label, :parent, :saved_at,
             :base, :chain, :schema_version, :is_gzip, :content_bytes, :stored_bytes, :checksum, :seal, :fence, :rank, :until,
             :payload)",
        )?
        .execute(named_params! {
            ":id": id,
            ":tenant_id": head.tenant.as_str(),
            ":invocation": invocation,
            ":owner": head.owner.as_str(),
            ":tool_id": head.tool.as_str(),
            ":version": head.version.to_string(),
            ":kind": head.kind.as_str(),
            ":label": head.label,
            ":parent": head.parent.as_ref().map(CheckpointId::to_string),
            ":saved_at": head.saved_at.0,
            ":base": checkpoint.base.as_ref().map(CheckpointId::to_string),
            ":chain": checkpoint.chain,
            ":schema_version": checkpoint.schema_version,
            ":is_gzip": checkpoint.is_gzip,
            ":content_bytes": i64::saturating_from(checkpoint.content_bytes),
            ":stored_bytes": i64::saturating_from(checkpoint.payload.len()),
            ":checksum": checkpoint.checksum.as_bytes(),
            ":seal": checkpoint.seal.as_bytes(),
            ":fence": fence,
            ":rank": rank,
            ":until": until.map(|until| until.0),
            ":payload": &*checkpoint.payload,
        })?;
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
        .prepare_cached(
            "SELECT fence FROM checkpoint_attempts WHERE tenant_id = :tenant_id AND invocation_id = :invocation",
        )?
        .query_row(named_params! { ":tenant_id": tenant, ":invocation": invocation }, |row| row.get(0))
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
             VALUES (:tenant_id, :invocation, coalesce(:fence,
                 (SELECT max(fence) + 1 FROM checkpoints WHERE tenant_id = :tenant_id
                 AND invocation_id = :invocation), 0), :until)
             ON CONFLICT (tenant_id, invocation_id) DO UPDATE
             SET fence = coalesce(:fence, max(fence + 1, excluded.fence)), held_until = :until
             WHERE CASE WHEN :fence IS NULL THEN held_until <= :now ELSE fence <= :fence END
             RETURNING fence",
        )?
        .query_row(
            named_params! {
                ":tenant_id": tenant,
                ":invocation": invocation.to_string(),
                ":fence": fence.map(number),
                ":now": now.0,
                ":until": until.0,
            },
            |row| row.get(0),
        )
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
             VALUES (:tenant_id, :invocation, (SELECT max(fence) + 1 FROM checkpoints
             WHERE tenant_id = :tenant_id AND invocation_id = :invocation), :now)
             ON CONFLICT (tenant_id, invocation_id) DO UPDATE
             SET fence = max(fence + 1, excluded.fence), held_until = min(held_until, :now)
             WHERE NOT :if_idle OR held_until <= :now",
        )?
        .execute(named_params! {
            ":tenant_id": tenant,
            ":invocation": invocation,
            ":now": now.0,
            ":if_idle": if_idle,
        })?;
    if raised == 0 {
        return Ok(PromoteOutcome::Running);
    }
    // What was the newest is what somebody may want back.
    connection
        .prepare_cached(
            "UPDATE checkpoints SET expires_at = max(expires_at, :until)
             WHERE expires_at IS NOT NULL AND (checkpoint_id = :id OR checkpoint_id =
                 (SELECT checkpoint_id FROM checkpoints
                  WHERE tenant_id = :tenant_id AND invocation_id = :invocation
                  AND (expires_at IS NULL OR expires_at > :now)
                  ORDER BY rank DESC LIMIT 1))",
        )?
        .execute(named_params! {
            ":tenant_id": tenant,
            ":invocation": invocation,
            ":id": id,
            ":now": now.0,
            ":until": until.0,
        })?;
    connection
        .prepare_cached(
            "UPDATE checkpoints SET rank =
                 (SELECT max(rank) + 1 FROM checkpoints WHERE tenant_id = :tenant_id AND invocation_id = :invocation)
             WHERE checkpoint_id = :id",
        )?
        .execute(named_params! { ":tenant_id": tenant, ":invocation": invocation, ":id": id })?;
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
                    "UPDATE checkpoints SET expires_at = min(expires_at, :now)
                     WHERE tenant_id = :tenant_id AND invocation_id = :invocation AND owner = :owner
                     AND checkpoint_type = 'micro'",
                )?
                .execute(named_params! {
                    ":tenant_id": tenant,
                    ":invocation": invocation,
                    ":owner": owner,
                    ":now": now.0,
                })?;
            sweep(connection, tenant, &invocation, now)
        }
        CheckpointEnding::Failed { keep } => {
            connection
                .prepare_cached(
                    "UPDATE checkpoints SET expires_at = :until
                     WHERE tenant_id = :tenant_id AND invocation_id = :invocation AND owner = :owner
                     AND (checkpoint_type = 'macro' OR checkpoint_id =
                         (SELECT checkpoint_id FROM checkpoints
                          WHERE tenant_id = :tenant_id AND invocation_id = :invocation AND owner = :owner
                          AND checkpoint_type = 'micro'
                                AND expires_at > :now
                          ORDER BY rank DESC LIMIT 1))",
                )?
                .execute(named_params! {
                    ":tenant_id": tenant,
                    ":invocation": invocation,
                    ":owner": owner,
                    ":now": now.0,
                    ":until": now.plus(keep).0,
                })?;
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
        .prepare_cached("UPDATE checkpoints SET expires_at = :now WHERE checkpoint_id = :id")?
        .execute(named_params! { ":id": id, ":now": now.0 })?;
    sweep(connection, tenant, &invocation, now)?;
    Ok(true)
}

pub(super) fn prune(connection: &Connection, batch: usize, now: UnixMillis) -> Result<usize, Fault> {
    let batch = i64::saturating_from(batch);
    let freed = connection
        .prepare_cached(
            "DELETE FROM checkpoints WHERE checkpoint_id IN
                 (SELECT checkpoint_id FROM checkpoints AS over
                  WHERE expires_at <= :now AND NOT EXISTS
                      (SELECT 1 FROM checkpoints AS above WHERE above.base_id = over.checkpoint_id)
                  LIMIT :most)",
        )?
        .execute(named_params! { ":now": now.0, ":most": batch })?;
    connection
        .prepare_cached(
            "DELETE FROM checkpoint_attempts WHERE (tenant_id, invocation_id) IN
                 (SELECT tenant_id, invocation_id FROM checkpoint_attempts AS over
                  WHERE held_until < :before AND NOT EXISTS
                      (SELECT 1 FROM checkpoints AS kept
                       WHERE kept.tenant_id = over.tenant_id AND kept.invocation_id = over.invocation_id)
                  LIMIT :most)",
        )?
        .execute(named_params! { ":before": now.0.saturating_sub(ATTEMPT_KEPT_MS), ":most": batch })?;
    Ok(freed)
}

/// Frees what is over in one invocation, from the tops of its chains downwards.
fn sweep(connection: &Connection, tenant: &str, invocation: &str, now: UnixMillis) -> Result<(), Fault> {
    let mut free = connection.prepare_cached(
        "DELETE FROM checkpoints
         WHERE tenant_id = :tenant_id AND invocation_id = :invocation AND expires_at <= :now AND NOT EXISTS
             (SELECT 1 FROM checkpoints AS above WHERE above.base_id = checkpoints.checkpoint_id)",
    )?;
    for _ in 0..=CHAIN_MAX {
        if free.execute(named_params! { ":tenant_id": tenant, ":invocation": invocation, ":now": now.0 })? == 0 {
            break;
        }
    }
    Ok(())
}

fn is_there(connection: &Connection, tenant: &str, invocation: &str, id: &str, now: UnixMillis) -> Result<bool, Fault> {
    let there: Option<i64> = connection
        .prepare_cached(
            "SELECT 1 FROM checkpoints WHERE checkpoint_id = :id AND tenant_id = :tenant_id
             AND invocation_id = :invocation
                 AND (expires_at IS NULL OR expires_at > :now)",
        )?
        .query_row(
            named_params! {
                ":tenant_id": tenant,
                ":invocation": invocation,
                ":id": id,
                ":now": now.0,
            },
            |row| row.get(0),
        )
        .optional()?;
    Ok(there.is_some())
}
