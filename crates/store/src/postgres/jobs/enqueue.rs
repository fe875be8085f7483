//! Putting jobs into the queue, or work that runs already among the jobs: once for each id and each dedupe key (JOB-3).
//!
//! One statement looks, gives an outlived dedupe key up, and writes. What it sees is from before it began: if somebody else
//! entered the same job meanwhile, the unique indexes keep it from being there twice, and the statement is tried again, which
//! then finds it.
//!
//! The bounds of a tenant and of a flow of it are exact, because their counters are locked, the tenant's first. The bound in total is a sum over all tenants, which may be
//! overshot by as many jobs as different tenants enter at the same moment; locking all of them would make one queue of all.

use base::SaturatingFrom as _;
use contract::ids::InvocationId;
use ports::clock::UnixMillis;
use ports::job_store::{AdoptOutcome, EnqueueOutcome, FencingToken, JobState, NewJob, OwnerId, rank};
use ports::registry_store::StoreError;
use serde_json::json;

use crate::postgres::PostgresStore;
use crate::postgres::columns::{millis, with_clock};
use crate::postgres::faults::{Busy, Fault};
use crate::postgres::statement::{boolean, bytes, column, int, text};
use crate::postgres::transaction::Scope;
use crate::stored_row::StoredRow as _;

/// So often an entry is tried because somebody else was quicker with the same job.
const ENTRY_TRIES: u32 = 4;

/// What became of a job on its way in.
#[derive(Debug)]
enum Entry {
    New,
    Known {
        id: InvocationId,
        same: bool,
    },
    /// A call has its key in the ledger.
    Claimed {
        id: InvocationId,
        same: bool,
    },
    Full,
}

pub(super) async fn enqueue(store: &PostgresStore, job: NewJob) -> Result<EnqueueOutcome, StoreError> {
    Ok(match enter(store, &job, None).await? {
        Entry::New => EnqueueOutcome::New,
        Entry::Known { id, same } => EnqueueOutcome::Existing { id, same },
        Entry::Claimed { id, same } => EnqueueOutcome::Claimed { id, same },
        Entry::Full => EnqueueOutcome::Full,
    })
}

pub(super) async fn adopt(store: &PostgresStore, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
    match enter(store, &job, Some(owner)).await? {
        Entry::New => Ok(AdoptOutcome::Running(FencingToken(1))),
        Entry::Known { id, same } => Ok(AdoptOutcome::Existing { id, same }),
        Entry::Claimed { id, same } => Ok(AdoptOutcome::Claimed { id, same }),
        // What does not wait is not bounded.
        Entry::Full => Err(Fault::from(Busy::Contended).into()),
    }
}

/// Enters a job that waits or, with an owner, one that runs.
async fn enter(store: &PostgresStore, job: &NewJob, owner: Option<OwnerId>) -> Result<Entry, Fault> {
    for _ in 0..ENTRY_TRIES {
        if let Some(entry) = try_to_enter(store, job, owner).await? {
            return Ok(entry);
        }
    }
    Err(Busy::Contended.into())
}

async fn try_to_enter(store: &PostgresStore, job: &NewJob, owner: Option<OwnerId>) -> Result<Option<Entry>, Fault> {
    let tenant = job.key.tenant.as_str();
    let (state, kind, data) = match owner {
        Some(_) => (JobState::Running, "started", json!({ "attempt": 1 })),
        None if job.delay.is_zero() => (JobState::Queued, "queued", json!({})),
        None => (JobState::Delayed, "queued", json!({})),
    };
    let (id, digest, payload, data) =
        (job.key.id.to_string(), job.digest.to_string(), job.payload.to_string(), data.to_string());
    let (dedupe, window) = job.dedupe.as_ref().map(|it| (it.key.as_bytes(), millis(it.window))).unzip();
    let bound = |bound: u64| i64::saturating_from(bound);
    let rows = store
        .pool
        .query(
            Scope::Tenant(tenant),
            &entering(),
            &[
                int(&store.now()),
                text(&tenant),
                text(&id),
                text(&job.kind),
                text(&job.label),
                text(&job.owner.subject().as_str()),
                text(&digest),
                int(&i64::from(job.priority.level())),
                text(&state.as_str()),
                // What the priority is worth, as a negative number.
                int(&rank(UnixMillis(0), job.priority)),
                int(&i64::from(job.attempts_max.max(1))),
                bytes(&dedupe),
                int(&window),
                text(&owner.map(|owner| owner.to_string())),
                int(&millis(job.delay)),
                text(&payload),
                text(&kind),
                text(&data),
                int(&bound(job.bounds.per_tenant)),
                int(&bound(job.bounds.total)),
                boolean(&owner.is_some()),
                text(&job.flow),
                text(&job.owner.delegators()),
                int(&bound(job.bounds.per_flow)),
                text(&job.act.as_ref().map(|act| act.tool.as_str())),
                bytes(&job.act.as_ref().map(|act| act.key.scope.as_bytes())),
                bytes(&job.act.as_ref().map(|act| act.key.key.as_bytes())),
            ],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if column(row, "is_new")? {
        return Ok(Some(Entry::New));
    }
    if column::<Option<&str>>(row, "id")?.is_some() {
        let same = column::<&str>(row, "digest")? == digest;
        return Ok(Some(Entry::Known { id: row.word("id", &id)?, same }));
    }
    if let (Some(digest), Some(act)) = (column::<Option<&str>>(row, "line_digest")?, &job.act) {
        let same = digest == act.parameters.to_string();
        return Ok(Some(Entry::Claimed { id: row.word("line_id", &id)?, same }));
    }
    Ok((!column::<bool>(row, "has_room")?).then_some(Entry::Full))
}

fn entering() -> String {
    format!(
        "{clock},
         by_id AS MATERIALIZED (SELECT id, digest FROM jobs WHERE tenant_id = $2 AND id = $3),
         known AS MATERIALIZED (
             SELECT id, digest FROM by_id
             UNION ALL
             SELECT id, digest FROM jobs, clock
             WHERE tenant_id = $2 AND kind = $4 AND dedupe_key IS NOT NULL AND sha256(dedupe_key) = sha256($12)
               AND NOT (dedupe_until <= clock.now AND ended_at IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM by_id)
         ),
         line AS MATERIALIZED (
             SELECT invocation_id, parameters_digest FROM ledger, clock
             WHERE holds_key AND tenant_id = $2 AND tool_id = $25 AND sha256(scope) = sha256($26)
               AND sha256(key) = sha256($27) AND invocation_id <> $3
               AND (state IN ('in_flight', 'unknown') OR (state = 'done' AND keep_until > clock.now))
               AND NOT EXISTS (SELECT 1 FROM known) LIMIT 1
         ),
         outlived AS (
             UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL FROM clock
             WHERE tenant_id = $2 AND kind = $4 AND dedupe_key IS NOT NULL AND sha256(dedupe_key) = sha256($12)
               AND dedupe_until <= clock.now AND ended_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM by_id) RETURNING 1
         ),
         own AS MATERIALIZED (
             SELECT waiting FROM job_tenants WHERE tenant_id = $2 AND NOT $21 AND NOT EXISTS (SELECT 1 FROM known) FOR UPDATE
         ),
         own_flow AS MATERIALIZED (
             SELECT waiting FROM job_flows
             WHERE tenant_id = $2 AND flow = $22 AND (SELECT count(*) FROM own) > 0 FOR UPDATE
         ),
         room AS MATERIALIZED (
             SELECT $21 OR (coalesce((SELECT waiting FROM own), 0) < $19
                            AND coalesce((SELECT waiting FROM own_flow), 0) < $24
                            AND (SELECT coalesce(sum(waiting), 0) FROM job_tenants) < $20) AS is_there
         ),
         new AS (
             INSERT INTO jobs (tenant_id, id, kind, label, subject, digest, priority, state, rank, attempts, attempts_max,
                               dedupe_key, dedupe_until, owner_id, fence, events, created_at, due_at, started_at, flow, delegators)
             SELECT $2, $3, $4, $5, $6, $7, $8, $9, clock.now + $15 + $10, $21::int, $11,
                    $12, clock.now + $13, $14, $21::int, 1, clock.now, clock.now + $15, CASE WHEN $21 THEN clock.now END, $22, $23
             FROM clock, room
             WHERE room.is_there AND NOT EXISTS (SELECT 1 FROM known) AND NOT EXISTS (SELECT 1 FROM line) AND (SELECT count(*) FROM outlived) >= 0
             ON CONFLICT DO NOTHING RETURNING seq
         ),
         body AS (INSERT INTO job_bodies (seq, tenant_id, payload) SELECT seq, $2, $16 FROM new),
         told AS (
             INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
             SELECT seq, 1, $2, clock.now, $17, $18 FROM new, clock
         )
         SELECT EXISTS (SELECT 1 FROM new) AS is_new, room.is_there AS has_room, known.id, known.digest,
                (SELECT invocation_id FROM line) AS line_id, (SELECT parameters_digest FROM line) AS line_digest
         FROM room LEFT JOIN known ON true LIMIT 1",
        clock = with_clock()
    )
}
