//! Questions to the archive.
//!
//! The order is that of the index, so the server reads from the newest month backwards and stops when it has enough. What
//! has no index of its own (subject, action) is looked for among a bounded number of rows only.

use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use contract::money::Amount;
use ports::clock::UnixMillis;
use ports::record_archive::{
    ARCHIVE_PAGE_MAX, ARCHIVE_SCAN_MAX, ArchivePage, ArchivePlace, ArchiveQuery, ArchivedRecord, EndedCall,
    InvocationPage, InvocationQuery, InvocationRecord,
};
use tokio_postgres::Row;

use crate::postgres::PostgresStore;
use crate::postgres::columns::limit;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{Value, column, int, text};
use crate::postgres::stored_text::kept;
use crate::postgres::transaction::Scope;
use crate::stored_row::StoredRow as _;

/// The rows that are looked at.
const LOOKED_AT: &str = "SELECT log, seq, at, subject, action, line FROM audit_records
     WHERE ($1 IS NULL OR tenant_id = $1) AND ($2 IS NULL OR tool_id = $2) AND ($3 IS NULL OR trace_id = $3)
         AND ($4 IS NULL OR at >= $4) AND ($5 IS NULL OR at < $5)
         AND ($6 IS NULL OR (at <= $6 AND (at, log, seq) < ($6, $7, $8)))
     ORDER BY at DESC, log DESC, seq DESC LIMIT $9";

const CALLS: &str =
    "invocation_id::text AS invocation_id, log, seq, completed_at AS at, tool_id, tool_version, agent_did,
     status, error_code, invoked_at, duration_ms, parameters_digest, currency, cost_micros, cost_picos";

pub(super) async fn search(store: &PostgresStore, query: &ArchiveQuery) -> Result<ArchivePage, Fault> {
    let stored = |text: &Option<String>| text.as_deref().map(|text| kept(text).into_owned());
    let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str());
    let scope = tenant.map_or(Scope::System, Scope::Tenant);
    let (tool, trace) = (stored(&query.tool), stored(&query.trace_id));
    let (subject, action) = (stored(&query.subject), stored(&query.action));
    let (from, to) = (query.from.map(|from| from.0), query.to.map(|to| to.0));
    let before = Before::of(query.before.as_ref());
    let page_max = query.limit.clamp(1, ARCHIVE_PAGE_MAX);
    let (scan, most) = (limit(ARCHIVE_SCAN_MAX), limit(page_max));
    let looked_at: Vec<Value<'_>> = [
        vec![text(&tenant), text(&tool), text(&trace), int(&from), int(&to)],
        before.values().to_vec(),
        vec![int(&scan)],
    ]
    .concat();
    let sql = format!(
        "SELECT log, seq, at, line FROM ({LOOKED_AT}) AS looked
         WHERE ($10 IS NULL OR subject = $10) AND ($11 IS NULL OR action = $11)
         ORDER BY at DESC, log DESC, seq DESC LIMIT $12"
    );
    let values = [looked_at.clone(), vec![text(&subject), text(&action), int(&most)]].concat();
    let rows = store.pool.query(scope, &sql, &values).await?;
    let records = rows
        .iter()
        .map(|row| Ok(ArchivedRecord { place: place(row)?, line: row.free_text("line")? }))
        .collect::<Result<Vec<_>, Fault>>()?;
    if records.len() == page_max {
        return Ok(ArchivePage { next: records.last().map(|last| last.place.clone()), records });
    }
    if subject.is_none() && action.is_none() {
        return Ok(ArchivePage { records, next: None });
    }
    // Not enough found: either that was all, or only as far as one question looks.
    let sql = format!(
        "SELECT log, seq, at FROM ({LOOKED_AT}) AS looked ORDER BY at DESC, log DESC, seq DESC OFFSET $9 - 1 LIMIT 1"
    );
    let rows = store.pool.query(scope, &sql, &looked_at).await?;
    Ok(ArchivePage { records, next: rows.first().map(place).transpose()? })
}

pub(super) async fn invocation(
    store: &PostgresStore,
    tenant: &TenantId,
    id: InvocationId,
) -> Result<Option<InvocationRecord>, Fault> {
    let sql = format!(
        "SELECT {CALLS} FROM tool_invocations WHERE tenant_id = $1 AND invocation_id = $2::text::uuid
         ORDER BY completed_at DESC, log DESC, seq DESC LIMIT 1"
    );
    let (tenant, id) = (tenant.as_str(), id.to_string());
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &[text(&tenant), text(&id)]).await?;
    rows.first().map(call).transpose()
}

pub(super) async fn invocations(store: &PostgresStore, query: &InvocationQuery) -> Result<InvocationPage, Fault> {
    let stored = |text: &Option<String>| text.as_deref().map(|text| kept(text).into_owned());
    let tenant = query.tenant.as_str();
    let (tool, agent, status) = (stored(&query.tool), stored(&query.agent), stored(&query.status));
    let (from, to) = (query.from.map(|from| from.0), query.to.map(|to| to.0));
    let before = Before::of(query.before.as_ref());
    let page_max = query.limit.clamp(1, ARCHIVE_PAGE_MAX);
    let most = limit(page_max);
    let sql = format!(
        "SELECT {CALLS} FROM tool_invocations
         WHERE tenant_id = $1 AND ($2 IS NULL OR tool_id = $2) AND ($3 IS NULL OR agent_did = $3)
             AND ($4 IS NULL OR completed_at >= $4) AND ($5 IS NULL OR completed_at < $5)
             AND ($6 IS NULL OR (completed_at <= $6 AND (completed_at, log, seq) < ($6, $7, $8)))
             AND ($9 IS NULL OR status = $9)
         ORDER BY completed_at DESC, log DESC, seq DESC LIMIT $10"
    );
    let values = [
        vec![text(&tenant), text(&tool), text(&agent), int(&from), int(&to)],
        before.values().to_vec(),
        vec![text(&status), int(&most)],
    ]
    .concat();
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    let calls = rows.iter().map(call).collect::<Result<Vec<_>, Fault>>()?;
    let next = calls.last().filter(|_| calls.len() == page_max).map(|last| last.place.clone());
    Ok(InvocationPage { calls, next })
}

// ------------------------------------------------------------------------------------------------------------- rows

/// A place as three values that may all be nothing.
struct Before<'a> {
    at: Option<i64>,
    log: Option<&'a str>,
    seq: Option<i64>,
}

impl<'a> Before<'a> {
    fn of(place: Option<&'a ArchivePlace>) -> Self {
        Self {
            at: place.map(|place| place.at.0),
            log: place.map(|place| place.log.as_str()),
            seq: place.map(|place| i64::saturating_from(place.seq)),
        }
    }

    fn values(&self) -> [Value<'_>; 3] {
        [int(&self.at), text(&self.log), int(&self.seq)]
    }
}

fn place(row: &Row) -> Result<ArchivePlace, Fault> {
    let log: String = column(row, "log")?;
    Ok(ArchivePlace { at: UnixMillis(column(row, "at")?), seq: row.number("seq", &log)?, log })
}

fn call(row: &Row) -> Result<InvocationRecord, Fault> {
    let place = place(row)?;
    let (micros, picos): (Option<i64>, Option<i64>) = (column(row, "cost_micros")?, column(row, "cost_picos")?);
    let cost = match micros.zip(picos) {
        Some((micros, picos)) => Some((Amount::joined(micros, picos), row.word("currency", &place.log)?)),
        None => None,
    };
    Ok(InvocationRecord {
        invocation_id: row.word("invocation_id", &place.log)?,
        tool: row.opt_free_text("tool_id")?,
        agent: row.opt_free_text("agent_did")?,
        invoked_at: UnixMillis(column(row, "invoked_at")?),
        ended: EndedCall {
            version: row.opt_free_text("tool_version")?,
            status: row.free_text("status")?,
            code: row.opt_free_text("error_code")?,
            duration_ms: row.number("duration_ms", &place.log)?,
            parameters_digest: row.opt_free_text("parameters_digest")?,
            cost,
        },
        place,
    })
}
