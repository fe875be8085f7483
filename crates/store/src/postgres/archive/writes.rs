//! A batch as columns of values, and the one statement that takes it in.

use std::borrow::Cow;

use base::SaturatingFrom as _;
use ports::record_archive::{AppendOutcome, ArchiveRecord};

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{column, int, ints, text, texts};
use crate::postgres::stored_text::kept;
use crate::postgres::transaction::Scope;

/// The log's row is locked first, so batches of one log go in one after the other; `began_seq` is then what was reached
/// before this batch. Without that row (a gap) nothing is written.
const APPEND: &str = "WITH reached AS (
     INSERT INTO archive_logs AS kept (log, began_seq, next_seq)
     SELECT $1, 0, $3 WHERE $2 = 0 OR EXISTS (SELECT 1 FROM archive_logs WHERE log = $1)
     ON CONFLICT (log) DO UPDATE
         SET began_seq = kept.next_seq, next_seq = greatest(kept.next_seq, excluded.next_seq)
         WHERE kept.next_seq >= $2
     RETURNING began_seq),
 given AS (
     SELECT given.* FROM reached, unnest($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
         AS given (seq, at, tenant, tool, subject, trace, action, invocation, line,
                   version, status, code, duration_ms, digest, currency, micros, picos)
     WHERE given.seq >= reached.began_seq),
 records AS (
     INSERT INTO audit_records (log, seq, at, tenant_id, tool_id, subject, trace_id, action, invocation_id, line)
     SELECT $1, seq, at, tenant, tool, subject, trace, action, invocation::uuid, line FROM given
     ON CONFLICT DO NOTHING RETURNING 1),
 calls AS (
     INSERT INTO tool_invocations (invocation_id, log, seq, tenant_id, tool_id, tool_version, agent_did, status,
         error_code, invoked_at, completed_at, duration_ms, parameters_digest, currency, cost_micros, cost_picos)
     SELECT invocation::uuid, $1, seq, tenant, tool, version, subject, status,
         code, at - duration_ms, at, duration_ms, digest, currency, micros, picos
     FROM given WHERE status IS NOT NULL AND invocation IS NOT NULL
     ON CONFLICT DO NOTHING)
 SELECT (SELECT count(*) FROM records) AS written FROM reached";

#[derive(Default)]
struct Columns<'a> {
    numbers: Vec<i64>,
    times: Vec<i64>,
    tenants: Vec<Option<Cow<'a, str>>>,
    tools: Vec<Option<Cow<'a, str>>>,
    subjects: Vec<Option<Cow<'a, str>>>,
    traces: Vec<Option<Cow<'a, str>>>,
    actions: Vec<Cow<'a, str>>,
    invocations: Vec<Option<String>>,
    lines: Vec<Cow<'a, str>>,
    versions: Vec<Option<Cow<'a, str>>>,
    statuses: Vec<Option<Cow<'a, str>>>,
    codes: Vec<Option<Cow<'a, str>>>,
    durations: Vec<Option<i64>>,
    digests: Vec<Option<Cow<'a, str>>>,
    currencies: Vec<Option<String>>,
    micros: Vec<Option<i64>>,
    picos: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn of(records: &'a [ArchiveRecord]) -> Self {
        let mut columns = Self::default();
        for record in records {
            columns.numbers.push(whole(record.seq));
            columns.times.push(record.at.0);
            columns.tenants.push(record.tenant.as_deref().map(kept));
            columns.tools.push(record.tool.as_deref().map(kept));
            columns.subjects.push(record.subject.as_deref().map(kept));
            columns.traces.push(record.trace_id.as_deref().map(kept));
            columns.actions.push(kept(&record.action));
            columns.invocations.push(record.invocation_id.map(|id| id.to_string()));
            columns.lines.push(kept(&record.line));
            let ended = record.ended.as_ref();
            columns.versions.push(ended.and_then(|ended| ended.version.as_deref()).map(kept));
            columns.statuses.push(ended.map(|ended| kept(&ended.status)));
            columns.codes.push(ended.and_then(|ended| ended.code.as_deref()).map(kept));
            columns.durations.push(ended.map(|ended| whole(ended.duration_ms)));
            columns.digests.push(ended.and_then(|ended| ended.parameters_digest.as_deref()).map(kept));
            let cost = ended.and_then(|ended| ended.cost);
            columns.currencies.push(cost.map(|(_, currency)| currency.to_string()));
            let parts = cost.map(|(amount, _)| amount.split());
            columns.micros.push(parts.map(|(micros, _)| micros));
            columns.picos.push(parts.map(|(_, picos)| picos));
        }
        columns
    }
}

pub(super) async fn append(
    store: &PostgresStore,
    log: &str,
    records: &[ArchiveRecord],
) -> Result<AppendOutcome, Fault> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(AppendOutcome::Written(0)) };
    let (first, end) = (whole(first.seq), whole(last.seq).saturating_add(1));
    let of = Columns::of(records);
    let values = [
        text(&log),
        int(&first),
        int(&end),
        ints(&of.numbers),
        ints(&of.times),
        texts(&of.tenants),
        texts(&of.tools),
        texts(&of.subjects),
        texts(&of.traces),
        texts(&of.actions),
        texts(&of.invocations),
        texts(&of.lines),
        texts(&of.versions),
        texts(&of.statuses),
        texts(&of.codes),
        ints(&of.durations),
        texts(&of.digests),
        texts(&of.currencies),
        ints(&of.micros),
        ints(&of.picos),
    ];
    let rows = store.pool.query(Scope::System, APPEND, &values).await?;
    match rows.first() {
        Some(row) => Ok(AppendOutcome::Written(u64::saturating_from(column::<i64>(row, "written")?))),
        None => Ok(AppendOutcome::Gap { expected: reached(store, log).await? }),
    }
}

pub(super) async fn reached(store: &PostgresStore, log: &str) -> Result<u64, Fault> {
    let sql = "SELECT next_seq FROM archive_logs WHERE log = $1";
    let rows = store.pool.query(Scope::System, sql, &[text(&log)]).await?;
    let next: i64 = rows.first().map_or(Ok(0), |row| column(row, "next_seq"))?;
    Ok(u64::saturating_from(next))
}

fn whole(number: u64) -> i64 {
    i64::saturating_from(number)
}
