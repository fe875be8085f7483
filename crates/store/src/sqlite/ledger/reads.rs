//! Calls as somebody asks for them.

use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::ledger::{EntryFilter, EntryState, LedgerEntry};
use rusqlite::{Connection, named_params};

use crate::records::ledger::{COLUMNS, entry};
use crate::sqlite::columns::{all, first, limit};
use crate::sqlite::faults::Fault;

pub(super) fn lapsed(connection: &Connection, most: usize, now: UnixMillis) -> Result<Vec<LedgerEntry>, Fault> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM ledger
         WHERE state = 'in_flight'
           AND NOT EXISTS (SELECT 1 FROM ledger_owners WHERE ledger_owners.owner_id = ledger.owner_id
           AND lease_until > :now)
         ORDER BY begun_at LIMIT :most"
    ))?;
    all(find.query(named_params! { ":now": now.to_string(), ":most": limit(most) })?, entry)
}

pub(super) fn find(
    connection: &Connection,
    tenant: &TenantId,
    invocation: InvocationId,
) -> Result<Option<LedgerEntry>, Fault> {
    Ok(by_id(connection, invocation)?.filter(|entry| entry.intent.tenant == *tenant))
}

pub(super) fn list(connection: &Connection, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, Fault> {
    // One shape of the question for each of the four, so that each finds its index.
    let tenant = if filter.tenant.is_some() { "tenant_id = :tenant_id" } else { ":tenant_id IS NULL" };
    let state = if filter.state.is_some() { "state = :state" } else { ":state IS NULL" };
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM ledger
         WHERE {tenant} AND {state} AND (:before IS NULL OR invocation_id < :before)
         ORDER BY invocation_id DESC LIMIT :most"
    ))?;
    let rows = find.query(named_params! {
        ":tenant_id": filter.tenant.as_ref().map(TenantId::as_str),
        ":state": filter.state.map(EntryState::as_str),
        ":before": filter.before.map(|id| id.to_string()),
        ":most": limit(most),
    })?;
    all(rows, entry)
}

pub(super) fn by_id(connection: &Connection, invocation: InvocationId) -> Result<Option<LedgerEntry>, Fault> {
    let mut find =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM ledger WHERE invocation_id = :invocation"))?;
    first(find.query(named_params! { ":invocation": invocation.to_string() })?, entry)
}
