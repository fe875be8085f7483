//! What becomes of jobs: progress, the ends of attempts, wishes to cancel, and what a person finds out.
//!
//! Each is one `UPDATE` that names what it expects (fence, state), with what follows from it in the same statement; only
//! `resolve` reads first, because errors are compared as JSON and not as text.

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::job_store::{
    AttemptEnd, CancelAsked, DedupeKey, FencingToken, FoundResult, JobKey, JobState, PROGRESS_KEPT_MAX, WriteOutcome,
};
use serde_json::{Value, json};

use crate::postgres::PostgresStore;
use crate::postgres::columns::{millis, with_clock};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{boolean, column, int, real, text};
use crate::postgres::transaction::{Scope, Transaction, in_transaction};
use crate::records::jobs::state;
use crate::stored_row::StoredRow as _;

/// How an attempt ends, in the words of the table.
struct Ending<'a> {
    state: JobState,
    /// Is a job that was asked to end cancelled instead?
    or_cancelled: bool,
    error: Option<&'a Value>,
    result: Option<&'a Value>,
    /// What is kept of what went in, if that changes.
    payload: Option<&'a Value>,
    after: Duration,
    /// How many attempts do not count.
    uncounted: i64,
    /// How many attempts cost no try.
    interrupted: i64,
    /// Of a job that ends so, or that is cancelled instead (JOB-8: then only if this was its first attempt).
    dedupe: DedupeKey,
    event: &'static str,
    data: Value,
}

impl<'a> Ending<'a> {
    fn of(end: &'a AttemptEnd) -> Self {
        let last = |state: JobState, error: Option<&'a Value>, result| Self {
            state,
            or_cancelled: false,
            error,
            result,
            payload: None,
            after: Duration::ZERO,
            uncounted: 0,
            interrupted: 0,
            dedupe: DedupeKey::Kept,
            event: state.as_str(),
            data: error.map_or_else(|| json!({}), |error| json!({ "error": error })),
        };
        let again = |error: &'a Value, after: Duration| Self {
            state: if after.is_zero() { JobState::Queued } else { JobState::Delayed },
            or_cancelled: true,
            after,
            event: "retry",
            data: json!({ "error": error, "after_ms": u64::saturating_from(after.as_millis()) }),
            ..last(JobState::Queued, Some(error), None)
        };
        match end {
            AttemptEnd::Done(result) => last(JobState::Done, None, Some(result)),
            AttemptEnd::DoneKeeping { result, payload } => {
                Self { payload: Some(payload), ..last(JobState::Done, None, Some(result)) }
            }
            AttemptEnd::Failed { error, key } => Self { dedupe: *key, ..last(JobState::Failed, Some(error), None) },
            AttemptEnd::Dead { error, key } => Self { dedupe: *key, ..last(JobState::Dead, Some(error), None) },
            AttemptEnd::Cancelled { error, key } => {
                Self { dedupe: *key, ..last(JobState::Cancelled, Some(error), None) }
            }
            AttemptEnd::Retry { error, after } => again(error, *after),
            AttemptEnd::Interrupted { error } => {
                Self { interrupted: 1, event: "interrupted", ..again(error, Duration::ZERO) }
            }
            AttemptEnd::PutBack { error, after } => {
                Self { uncounted: 1, dedupe: DedupeKey::Freed, event: "put_back", ..again(error, *after) }
            }
            AttemptEnd::HandBack => Self {
                or_cancelled: true,
                uncounted: 1,
                dedupe: DedupeKey::Freed,
                event: "handed_back",
                ..last(JobState::Queued, None, None)
            },
        }
    }
}

pub(super) async fn report(
    store: &PostgresStore,
    key: &JobKey,
    fence: FencingToken,
    percent: Option<f64>,
    phase: Option<String>,
) -> Result<WriteOutcome, Fault> {
    let statement = format!(
        "{}, held AS (
             UPDATE jobs SET progress = coalesce($5, progress), phase = coalesce($6, phase), events = events + 1
             WHERE tenant_id = $2 AND id = $3 AND fence = $4 AND state = 'running'
             RETURNING seq, events, progress, phase
         ), told AS (
             INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
             SELECT seq, events, $2, clock.now, 'progress',
                    '{{\"progress_percent\":' || coalesce(progress::text, 'null')
                        || ',\"current_phase\":' || coalesce(phase, 'null') || '}}'
             FROM held, clock
         ), forgotten AS (
             DELETE FROM job_events USING held
             WHERE job_events.seq = held.seq AND number <= held.events - $7 AND kind = 'progress'
         )
         SELECT 1 FROM held",
        with_clock()
    );
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    // JSON has no word for what is no number.
    let percent = percent.filter(|percent| percent.is_finite());
    let phase = phase.map(|phase| Value::String(phase).to_string());
    let kept = i64::saturating_from(PROGRESS_KEPT_MAX);
    let held = store
        .pool
        .query(
            Scope::Tenant(tenant),
            &statement,
            &[
                int(&store.now()),
                text(&tenant),
                text(&id),
                int(&as_int(fence)),
                real(&percent),
                text(&phase),
                int(&kept),
            ],
        )
        .await?;
    Ok(if held.is_empty() { WriteOutcome::Fenced } else { WriteOutcome::Kept(JobState::Running) })
}

pub(super) async fn finish(
    store: &PostgresStore,
    key: &JobKey,
    fence: FencingToken,
    end: &AttemptEnd,
) -> Result<WriteOutcome, Fault> {
    let ending = Ending::of(end);
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let cancelled = ending.error.map_or_else(|| json!({}), |error| json!({ "error": error }));
    let rows = store
        .pool
        .query(
            Scope::Tenant(tenant),
            &finishing(),
            &[
                int(&store.now()),
                text(&tenant),
                text(&id),
                int(&as_int(fence)),
                text(&ending.state.as_str()),
                boolean(&ending.or_cancelled),
                text(&ending.error.map(Value::to_string)),
                text(&ending.result.map(Value::to_string)),
                int(&millis(ending.after)),
                int(&ending.uncounted),
                text(&ending.event),
                text(&ending.data.to_string()),
                text(&cancelled.to_string()),
                text(&ending.payload.map(Value::to_string)),
                boolean(&(ending.dedupe == DedupeKey::Freed)),
                int(&ending.interrupted),
            ],
        )
        .await?;
    rows.first().map_or(Ok(WriteOutcome::Fenced), |row| Ok(WriteOutcome::Kept(state(row, &id)?)))
}

pub(super) async fn resolve(
    store: &PostgresStore,
    key: &JobKey,
    was: &Value,
    found: &Result<FoundResult, Value>,
) -> Result<WriteOutcome, Fault> {
    let now = store.now();
    in_transaction!(store.pool, Scope::Tenant(key.tenant.as_str()), |tx| resolve_locked(tx, now, key, was, found).await)
}

pub(super) async fn ask_cancel(
    store: &PostgresStore,
    key: &JobKey,
    reason: &str,
    error: &Value,
) -> Result<CancelAsked, Fault> {
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let asked = json!({ "reason": reason }).to_string();
    let cancelled = json!({ "error": error }).to_string();
    let rows = store
        .pool
        .query(
            Scope::Tenant(tenant),
            &cancelling(),
            &[
                int(&store.now()),
                text(&tenant),
                text(&id),
                text(&Value::from(reason).to_string()),
                text(&error.to_string()),
                text(&asked),
                text(&cancelled),
            ],
        )
        .await?;
    rows.first().map_or(Ok(CancelAsked::Unknown), |row| Ok(CancelAsked::Now(state(row, &id)?)))
}

/// Ends an attempt under its fence. Whether the job was asked to end is read from the row that is written.
fn finishing() -> String {
    const STATE: &str = "(CASE WHEN $6 AND cancel_asked IS NOT NULL THEN 'cancelled' ELSE $5 END)";
    const WAITS: &str = "($6 AND cancel_asked IS NULL)";
    const FREES: &str = "($15 AND NOT ($6 AND (cancel_asked IS NULL OR attempts > 1)))";
    format!(
        "{}, ended AS (
             UPDATE jobs SET state = {STATE}, owner_id = NULL, events = events + 1,
                 error = CASE WHEN {WAITS} THEN coalesce($7, error) ELSE $7 END,
                 progress = CASE WHEN $5 = 'done' THEN 100 ELSE progress END,
                 attempts = CASE WHEN {WAITS} THEN greatest(attempts - $10, 0) ELSE attempts END,
                 interruptions = CASE WHEN {WAITS} THEN interruptions + $16 ELSE interruptions END,
                 rank = CASE WHEN {WAITS} THEN rank - due_at + clock.now + $9 ELSE rank END,
                 due_at = CASE WHEN {WAITS} THEN clock.now + $9 ELSE due_at END,
                 ended_at = CASE WHEN {WAITS} THEN NULL ELSE clock.now END,
                 dedupe_key = CASE WHEN {FREES} THEN NULL ELSE dedupe_key END,
                 dedupe_until = CASE WHEN {FREES} THEN NULL ELSE dedupe_until END
             FROM clock
             WHERE tenant_id = $2 AND id = $3 AND fence = $4 AND state = 'running'
             RETURNING seq, events, state
         ), body AS (
             UPDATE job_bodies SET result = $8, payload = coalesce($14, payload) FROM ended
             WHERE job_bodies.seq = ended.seq AND $8 IS NOT NULL
         ), told AS (
             INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
             SELECT seq, events, $2, clock.now, CASE WHEN state = $5 THEN $11 ELSE state END,
                    CASE WHEN state = $5 THEN $12 ELSE $13 END
             FROM ended, clock
         )
         SELECT state FROM ended",
        with_clock()
    )
}

/// Cancels a job that waits, asks one that runs, and answers with the state after it. The row is locked before it is judged.
fn cancelling() -> String {
    format!(
        "{}, found AS MATERIALIZED (
             SELECT seq, state, events, cancel_asked IS NULL AND ended_at IS NULL AS is_news,
                    state <> 'running' AND attempts = 0 AS is_unbegun
             FROM jobs WHERE tenant_id = $2 AND id = $3 FOR UPDATE
         ), changed AS (
             UPDATE jobs SET cancel_asked = $4,
                 events = found.events + CASE WHEN found.state = 'running' THEN 1 ELSE 2 END,
                 state = CASE WHEN found.state = 'running' THEN found.state ELSE 'cancelled' END,
                 ended_at = CASE WHEN found.state = 'running' THEN NULL ELSE clock.now END,
                 error = CASE WHEN found.state = 'running' THEN error ELSE $5 END,
                 dedupe_key = CASE WHEN found.is_unbegun THEN NULL ELSE dedupe_key END,
                 dedupe_until = CASE WHEN found.is_unbegun THEN NULL ELSE dedupe_until END
             FROM clock, found WHERE jobs.seq = found.seq AND found.is_news
             RETURNING jobs.seq, jobs.state
         ), asked AS (
             INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
             SELECT seq, events + 1, $2, clock.now, 'cancel_asked', $6 FROM found, clock WHERE is_news
             UNION ALL
             SELECT seq, events + 2, $2, clock.now, 'cancelled', $7 FROM found, clock WHERE is_news AND state <> 'running'
         )
         SELECT coalesce(changed.state, found.state) AS state FROM found LEFT JOIN changed ON changed.seq = found.seq",
        with_clock()
    )
}

async fn resolve_locked(
    tx: &Transaction,
    now: Option<i64>,
    key: &JobKey,
    was: &Value,
    found: &Result<FoundResult, Value>,
) -> Result<WriteOutcome, Fault> {
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let failed = "SELECT seq, error FROM jobs WHERE tenant_id = $1 AND id = $2 AND state = 'failed' FOR UPDATE";
    let Some(row) = tx.query_opt(failed, &[text(&tenant), text(&id)]).await? else { return Ok(WriteOutcome::Fenced) };
    if row.opt_json::<Value>("error", &id)?.as_ref() != Some(was) {
        return Ok(WriteOutcome::Fenced);
    }
    let seq: i64 = column(&row, "seq")?;
    let (state, result, error) = match found {
        Ok(found) => (JobState::Done, Some(found), None),
        Err(error) => (JobState::Failed, None, Some(error)),
    };
    let data = error
        .map_or_else(|| json!({ "state": state.as_str() }), |error| json!({ "state": state.as_str(), "error": error }));
    let statement = format!(
        "{}, resolved AS (
             UPDATE jobs SET state = $3, error = $4, events = events + 1,
                 progress = CASE WHEN $4 IS NULL THEN 100 ELSE progress END,
                 dedupe_key = CASE WHEN $4 IS NULL THEN dedupe_key END,
                 dedupe_until = CASE WHEN $4 IS NULL THEN dedupe_until END
             WHERE seq = $2 RETURNING seq, events
         ), body AS (
             UPDATE job_bodies SET result = $5, payload = $8 FROM resolved
             WHERE job_bodies.seq = resolved.seq AND $5 IS NOT NULL
         )
         INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
         SELECT seq, events, $6, clock.now, 'resolved', $7 FROM resolved, clock",
        with_clock()
    );
    tx.execute(
        &statement,
        &[
            int(&now),
            int(&seq),
            text(&state.as_str()),
            text(&error.map(Value::to_string)),
            text(&result.map(|found| found.result.to_string())),
            text(&tenant),
            text(&data.to_string()),
            text(&result.map(|found| found.payload.to_string())),
        ],
    )
    .await?;
    Ok(WriteOutcome::Kept(state))
}

fn as_int(fence: FencingToken) -> i64 {
    i64::saturating_from(fence.0)
}
