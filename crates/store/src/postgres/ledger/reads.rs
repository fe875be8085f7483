//! Calls as somebody asks for them.

use contract::ids::{InvocationId, TenantId};
use ports::ledger::{EntryFilter, EntryState, LedgerEntry};
use ports::registry_store::StoreError;

use crate::postgres::PostgresStore;
use crate::postgres::columns::{limit, with_clock};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{int, text};
use crate::postgres::transaction::Scope;
use crate::records::ledger::{COLUMNS, entry};

pub(super) async fn lapsed(store: &PostgresStore, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
    let statement = format!(
        "{} SELECT {COLUMNS} FROM ledger, clock
         WHERE state = 'in_flight'
           AND NOT EXISTS (SELECT 1 FROM instances
                           WHERE instances.owner_id = ledger.owner_id AND ledger_until > clock.now)
         ORDER BY begun_at, invocation_id LIMIT $2",
        with_clock()
    );
    let rows = store.pool.query(Scope::System, &statement, &[int(&store.now()), int(&limit(most))]).await?;
    Ok(rows.iter().map(entry).collect::<Result<_, Fault>>()?)
}

pub(super) async fn find(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
) -> Result<Option<LedgerEntry>, StoreError> {
    let statement = format!("SELECT {COLUMNS} FROM ledger WHERE invocation_id = $1 AND tenant_id = $2");
    let rows = store
        .pool
        .query(Scope::Tenant(tenant.as_str()), &statement, &[text(&invocation.to_string()), text(&tenant.as_str())])
        .await?;
    Ok(rows.first().map(entry).transpose()?)
}

pub(super) async fn list(
    store: &PostgresStore,
    filter: &EntryFilter,
    most: usize,
) -> Result<Vec<LedgerEntry>, StoreError> {
    let tenant = filter.tenant.as_ref().map(TenantId::as_str);
    // One shape of the question for each of the four, so that each finds its index.
    let of = if tenant.is_some() { "tenant_id = $1" } else { "$1 IS NULL" };
    let in_state = if filter.state.is_some() { "state = $2" } else { "$2 IS NULL" };
    let before = if filter.before.is_some() { "invocation_id < $3" } else { "$3 IS NULL" };
    let statement = format!(
        "SELECT {COLUMNS} FROM ledger WHERE {of} AND {in_state} AND {before} ORDER BY invocation_id DESC LIMIT $4"
    );
    let rows = store
        .pool
        .query(
            tenant.map_or(Scope::System, Scope::Tenant),
            &statement,
            &[
                text(&tenant),
                text(&filter.state.map(EntryState::as_str)),
                text(&filter.before.map(|id| id.to_string())),
                int(&limit(most)),
            ],
        )
        .await?;
    Ok(rows.iter().map(entry).collect::<Result<_, Fault>>()?)
}
