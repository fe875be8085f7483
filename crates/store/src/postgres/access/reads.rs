//! The statements that read access. A row that makes no sense fails the whole answer: to leave out a restriction that cannot
//! be read would be to lift it.

use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::access_store::{AccessState, PolicyRecord};
use ports::registry_store::StoreError;
use tokio_postgres::Row;

use super::owner_scope;
use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{int, text};
use crate::postgres::transaction::Transaction;
use crate::records::access::{activation, agent, policies, policy_owner, revocation, tenant};
use crate::stored_row::{StoredRow as _, unreadable};

/// Everything that is in force, as of one moment, each list ordered by its key.
pub(super) async fn load(tx: &Transaction) -> Result<AccessState, Fault> {
    tx.as_of_one_moment().await?;
    let number = tx.query_opt("SELECT value AS epoch FROM store_numbers WHERE name = 'access_epoch'", &[]).await?;
    Ok(AccessState {
        epoch: number.ok_or_else(|| unreadable("access_epoch", "store_numbers"))?.number("epoch", "store_numbers")?,
        tenants: all(tx, "SELECT * FROM access_tenants ORDER BY tenant_id", tenant).await?,
        agents: all(tx, "SELECT * FROM access_agents ORDER BY tenant_id, agent", agent).await?,
        activations: all(tx, "SELECT * FROM access_activations ORDER BY tenant_id, agent, tool", activation).await?,
        policies: all(
            tx,
            "SELECT DISTINCT ON (tenant_id) * FROM access_policies ORDER BY tenant_id, version DESC",
            policies,
        )
        .await?,
        revocations: all(tx, "SELECT * FROM access_revocations ORDER BY kind, tenant_id, name", revocation).await?,
    })
}

pub(super) async fn policy_history(
    store: &PostgresStore,
    of: Option<&TenantId>,
    limit: usize,
) -> Result<Vec<PolicyRecord>, StoreError> {
    let select = "SELECT tenant_id, version, text, added_at, added_by FROM access_policies WHERE tenant_id = $1
                  ORDER BY version DESC LIMIT $2";
    let limit = i64::saturating_from(limit);
    let rows = store.pool.query(owner_scope(of), select, &[text(&policy_owner(of)), int(&limit)]).await?;
    Ok(rows.iter().map(policies).collect::<Result<_, Fault>>()?)
}

async fn all<T>(tx: &Transaction, select: &str, read: fn(&Row) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    tx.query(select, &[]).await?.iter().map(read).collect()
}
