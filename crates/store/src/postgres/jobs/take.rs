//! Whose turn it is: taking jobs, taking over those of owners that are gone, and hearing which are to be ended.
//!
//! Takers come one after the other, under a lock of the database that lasts for one statement, so each knows what all others
//! have taken and the shares of tenants hold wherever their jobs run. A look without the lock comes first: an idle queue costs
//! one read.
//!
//! One statement chooses what taking one by one would (JOB-6). Taken one by one, a tenant's `n`-th job is taken when the
//! tenant runs `running + n`; among tenants that run equally many, those that were served before this take come first, by
//! their tickets, and those served in it later, those with fewer turns in it earlier. So jobs are taken in the order of
//! `(running + n, n, served)`. The same holds within a tenant for its flows (JOB-7), which makes the order of its jobs.

use std::time::Duration;

use ports::clock::UnixMillis;
use ports::job_store::{OwnerId, RenewOutcome, TakeOutcome, TakeRules, TakenJob};

use crate::postgres::PostgresStore;
use crate::postgres::columns::{limit, millis, with_clock};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{column, int, text};
use crate::postgres::transaction::Scope;
use crate::records::jobs::{COLUMNS, key, taken};
use crate::stored_row::StoredRow as _;

/// Delayed jobs that one take makes ready at most; the next take goes on.
const DUE_MAX: i64 = 256;
/// Most jobs of one take, so that tickets of one take stay below those of the next.
const TAKEN_MAX: usize = 1_000;
/// "GNTQ": the server's lock under which jobs are taken.
const LOCK: i64 = 0x474e_5451;

pub(super) async fn renew(store: &PostgresStore, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, Fault> {
    let statement = format!(
        "{}, renewed AS (
             UPDATE instances SET jobs_until = clock.now + $3 FROM clock
             WHERE owner_id = $2 AND jobs_until > clock.now RETURNING owner_id
         )
         SELECT jobs.tenant_id, jobs.id
         FROM renewed LEFT JOIN jobs
           ON jobs.state = 'running' AND jobs.owner_id = renewed.owner_id AND jobs.cancel_asked IS NOT NULL",
        with_clock()
    );
    let rows = store
        .pool
        .query(Scope::System, &statement, &[int(&store.now()), text(&owner.to_string()), int(&millis(lease))])
        .await?;
    if rows.is_empty() {
        return Ok(RenewOutcome::Lapsed);
    }
    let mut cancel = Vec::new();
    for row in rows {
        if column::<Option<&str>>(&row, "id")?.is_some() {
            cancel.push(key(&row)?);
        }
    }
    Ok(RenewOutcome::Alive { cancel })
}

pub(super) async fn take(store: &PostgresStore, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, Fault> {
    let owner = owner.to_string();
    let rows = store.pool.query(Scope::System, &looking(), &[int(&store.now()), text(&owner), int(&DUE_MAX)]).await?;
    let Some(row) = rows.first() else { return Ok(TakeOutcome::default()) };
    let mut result =
        TakeOutcome { next_due_in: until(row.time("now")?, row.opt_time("next_due")?), ..TakeOutcome::default() };
    if !column::<bool>(row, "is_ready")? || rules.most == 0 {
        return Ok(result);
    }
    let most = limit(rules.most.min(TAKEN_MAX));
    let rows = store
        .pool
        .query_alone(
            Scope::System,
            LOCK,
            &taking(),
            &[
                int(&store.now()),
                text(&owner),
                int(&most),
                int(&i64::from(rules.running_per_tenant)),
                int(&i64::from(rules.running_per_flow)),
            ],
        )
        .await?;
    result.jobs = rows.iter().map(taken).collect::<Result<_, Fault>>()?;
    Ok(result)
}

/// The fence is compared on the locked row: whoever was quicker has raised it, and is not looked at as lapsed again.
pub(super) async fn take_over(store: &PostgresStore, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, Fault> {
    let statement = format!(
        "{clock}, lapsed AS MATERIALIZED (
             SELECT seq, fence FROM jobs, clock
             WHERE state = 'running'
               AND NOT EXISTS (SELECT 1 FROM instances
                               WHERE instances.owner_id = jobs.owner_id AND jobs_until > clock.now)
               AND EXISTS (SELECT 1 FROM instances WHERE owner_id = $2 AND jobs_until > clock.now)
             ORDER BY seq LIMIT $3
         ), locked AS MATERIALIZED (
             SELECT jobs.seq FROM jobs JOIN lapsed ON jobs.seq = lapsed.seq AND jobs.fence = lapsed.fence
             WHERE jobs.state = 'running' ORDER BY jobs.seq FOR UPDATE OF jobs SKIP LOCKED
         ), held AS (
             UPDATE jobs SET owner_id = $2, fence = jobs.fence + 1, started_at = clock.now, progress = NULL, phase = NULL,
                             events = jobs.events + 1
             FROM clock, locked WHERE jobs.seq = locked.seq
             RETURNING {COLUMNS}, jobs.fence, jobs.events
         ), told AS (
             INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
             SELECT seq, events, tenant_id, clock.now, 'taken_over', '{{\"attempt\":' || attempts || '}}' FROM held, clock
         )
         SELECT held.*, payload FROM held JOIN job_bodies USING (seq) ORDER BY seq",
        clock = with_clock()
    );
    let rows = store
        .pool
        .query(Scope::System, &statement, &[int(&store.now()), text(&owner.to_string()), int(&limit(most))])
        .await?;
    rows.iter().map(taken).collect()
}

/// Lets delayed jobs whose time has come wait like all others, and says whether there is anything to take. No row for an
/// owner whose lease has lapsed.
fn looking() -> String {
    format!(
        "{}, alive AS MATERIALIZED (SELECT 1 FROM instances, clock WHERE owner_id = $2 AND jobs_until > clock.now),
         due AS MATERIALIZED (
             SELECT seq FROM jobs, clock
             WHERE state = 'delayed' AND due_at <= clock.now AND EXISTS (SELECT 1 FROM alive)
             ORDER BY due_at LIMIT $3 FOR UPDATE OF jobs SKIP LOCKED
         ),
         ready AS (
             UPDATE jobs SET state = 'queued' FROM due WHERE jobs.seq = due.seq AND jobs.state = 'delayed' RETURNING 1
         )
         SELECT clock.now,
                EXISTS (SELECT 1 FROM ready) OR EXISTS (SELECT 1 FROM jobs WHERE state = 'queued') AS is_ready,
                CASE WHEN (SELECT count(*) FROM due) >= $3 THEN clock.now
                     ELSE (SELECT min(due_at) FROM jobs WHERE state = 'delayed' AND due_at > clock.now) END AS next_due
         FROM clock WHERE EXISTS (SELECT 1 FROM alive)",
        with_clock()
    )
}

/// Takes jobs; under [`LOCK`].
fn taking() -> String {
    format!(
        "{clock}, ticket AS MATERIALIZED (SELECT nextval('job_turns') * {TAKEN_MAX} AS first),
         turns AS MATERIALIZED (
             SELECT tenant_id, running, served FROM job_tenants
             WHERE waiting > 0 AND running < $4
               AND EXISTS (SELECT 1 FROM instances, clock WHERE owner_id = $2 AND jobs_until > clock.now)
               AND EXISTS (SELECT 1 FROM job_flows
                           WHERE job_flows.tenant_id = job_tenants.tenant_id AND job_flows.waiting > 0 AND job_flows.running < $5
                             AND EXISTS (SELECT 1 FROM jobs WHERE jobs.tenant_id = job_flows.tenant_id
                                           AND jobs.flow = job_flows.flow AND jobs.state = 'queued'))
             ORDER BY running, served, tenant_id LIMIT $3
         ),
         chosen AS MATERIALIZED (
             SELECT job.seq, row_number() OVER (ORDER BY turns.running + job.n, job.n, turns.served, turns.tenant_id) AS place
             FROM turns CROSS JOIN LATERAL (
                 SELECT own.seq, row_number() OVER (ORDER BY lines.running + own.m, own.m, lines.served, lines.flow) AS n
                 FROM (
                     SELECT flow, running, served FROM job_flows
                     WHERE job_flows.tenant_id = turns.tenant_id AND waiting > 0 AND running < $5
                       AND EXISTS (SELECT 1 FROM jobs WHERE jobs.tenant_id = job_flows.tenant_id
                                     AND jobs.flow = job_flows.flow AND jobs.state = 'queued')
                     ORDER BY running, served, flow LIMIT $3
                 ) lines CROSS JOIN LATERAL (
                     SELECT seq, row_number() OVER (ORDER BY rank, seq) AS m FROM jobs
                     WHERE jobs.tenant_id = turns.tenant_id AND jobs.flow = lines.flow AND jobs.state = 'queued'
                     ORDER BY rank, seq LIMIT least($3, $5 - lines.running)
                 ) own
                 ORDER BY n LIMIT least($3, $4 - turns.running)
             ) job
             ORDER BY place LIMIT $3
         ),
         locked AS MATERIALIZED (
             SELECT jobs.seq, chosen.place FROM jobs JOIN chosen ON jobs.seq = chosen.seq
             WHERE jobs.state = 'queued' FOR UPDATE OF jobs SKIP LOCKED
         ),
         held AS (
             UPDATE jobs SET state = 'running', owner_id = $2, fence = jobs.fence + 1, attempts = jobs.attempts + 1,
                             started_at = clock.now, progress = NULL, phase = NULL, events = jobs.events + 1
             FROM clock, locked WHERE jobs.seq = locked.seq AND jobs.state = 'queued'
             RETURNING {COLUMNS}, jobs.flow, jobs.fence, jobs.events, locked.place
         ),
         served AS (
             UPDATE job_tenants SET served = ticket.first + last.place
             FROM ticket, (SELECT tenant_id, max(place) AS place FROM held GROUP BY tenant_id) last
             WHERE job_tenants.tenant_id = last.tenant_id
             RETURNING 1
         ),
         served_flows AS (
             -- After the rows of tenants, as everywhere.
             UPDATE job_flows SET served = (ticket.first + last.place) * 2
             FROM ticket, (SELECT tenant_id, flow, max(place) AS place FROM held GROUP BY tenant_id, flow) last,
                  (SELECT count(*) AS tenants FROM served) before
             WHERE job_flows.tenant_id = last.tenant_id AND job_flows.flow = last.flow AND before.tenants >= 0
         ),
         told AS (
             INSERT INTO job_events (seq, number, tenant_id, at, kind, data)
             SELECT seq, events, tenant_id, clock.now, 'started', '{{\"attempt\":' || attempts || '}}' FROM held, clock
         )
         SELECT held.*, payload FROM held JOIN job_bodies USING (seq) ORDER BY place",
        clock = with_clock()
    )
}

/// The span from a moment to a later one.
fn until(now: UnixMillis, then: Option<UnixMillis>) -> Option<Duration> {
    then.map(|then| then.since(now))
}
