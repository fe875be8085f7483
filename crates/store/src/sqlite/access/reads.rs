//! The statements that read access. A row that makes no sense fails the whole answer: to leave out a restriction that cannot
//! be read would be to lift it.
//!
//! Every function here runs inside a transaction the readers began, so what it answers is of one moment, epoch included.

use contract::ids::TenantId;
use ports::access_store::{AccessState, PolicyRecord};
use rusqlite::{Connection, OptionalExtension, named_params};

use crate::records::access::{activation, agent, policies, policy_owner, revocation, tenant};
use crate::sqlite::columns::{all, limit};
use crate::sqlite::faults::Fault;
use crate::stored_row::unreadable;

/// Everything that is in force, as of one moment, each list ordered by its key.
pub(super) fn load(connection: &Connection) -> Result<AccessState, Fault> {
    let epoch: Option<i64> = connection
        .prepare_cached("SELECT value FROM store_numbers WHERE name = 'access_epoch'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let epoch = epoch.and_then(|epoch| u64::try_from(epoch).ok());
    let mut tenants = connection
        .prepare_cached("SELECT tenant_id, name, visibility, tools, enabled FROM access_tenants ORDER BY tenant_id")?;
    let mut agents = connection.prepare_cached(
        "SELECT tenant_id, agent, document, added_at, added_by FROM access_agents ORDER BY tenant_id, agent",
    )?;
    let mut activations = connection.prepare_cached(
        "SELECT tenant_id, agent, tool, enabled, overrides, id, created_at, updated_at FROM access_activations
         ORDER BY tenant_id, agent, tool",
    )?;
    let mut newest_policies = connection.prepare_cached(
        "SELECT tenant_id, version, text, added_at, added_by FROM access_policies AS each
         WHERE version = (SELECT max(version) FROM access_policies WHERE tenant_id = each.tenant_id)
         ORDER BY tenant_id",
    )?;
    let mut revocations = connection.prepare_cached(
        "SELECT kind, tenant_id, name, revoked_at, revoked_by, needless_from, issuers FROM access_revocations
         ORDER BY kind, tenant_id, name",
    )?;
    Ok(AccessState {
        epoch: epoch.ok_or_else(|| unreadable("access_epoch", "store_numbers"))?,
        tenants: all(tenants.query([])?, tenant)?,
        agents: all(agents.query([])?, agent)?,
        activations: all(activations.query([])?, activation)?,
        policies: all(newest_policies.query([])?, policies)?,
        revocations: all(revocations.query([])?, revocation)?,
    })
}

/// Versions of one owner's policies, newest first.
pub(super) fn policy_history(
    connection: &Connection,
    tenant: Option<&TenantId>,
    most: usize,
) -> Result<Vec<PolicyRecord>, Fault> {
    let mut history = connection.prepare_cached(
        "SELECT tenant_id, version, text, added_at, added_by FROM access_policies WHERE tenant_id = :owner
         ORDER BY version DESC LIMIT :most",
    )?;
    all(history.query(named_params! { ":owner": policy_owner(tenant), ":most": limit(most) })?, policies)
}
