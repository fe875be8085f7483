//! The statements that read access, and what their rows mean. A row that makes no sense fails the whole answer: to leave
//! out a restriction that cannot be read would be to lift it.

use ports::access_store::{
    AccessState, Activation, AgentRecord, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens, TenantRecord,
};
use tokio_postgres::Row;

use super::super::faults::Fault;
use super::super::statement::{column, unreadable, word};
use super::super::stored_text::{free_text, json, moment, opt_free_text, opt_moment, opt_tagged};
use super::super::transaction::Transaction;
use super::{NO_TENANT, epoch};

/// Everything that is in force, as of one moment, each list ordered by its key.
pub(super) async fn load(tx: &Transaction) -> Result<AccessState, Fault> {
    tx.as_of_one_moment().await?;
    let number = tx.query_opt("SELECT value AS epoch FROM store_numbers WHERE name = 'access_epoch'", &[]).await?;
    Ok(AccessState {
        epoch: epoch(&number.ok_or_else(|| unreadable("access_epoch", "store_numbers"))?)?,
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

async fn all<T>(tx: &Transaction, select: &str, read: fn(&Row) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    tx.query(select, &[]).await?.iter().map(read).collect()
}

fn tenant(row: &Row) -> Result<TenantRecord, Fault> {
    let of: &str = column(row, "tenant_id")?;
    Ok(TenantRecord {
        tenant: word(row, "tenant_id", of)?,
        name: free_text(row, "name")?,
        visibility: opt_tagged(row, "visibility", of)?,
        tools: json(row, "tools", of)?,
        enabled: column(row, "enabled")?,
    })
}

fn agent(row: &Row) -> Result<AgentRecord, Fault> {
    let of: &str = column(row, "agent")?;
    Ok(AgentRecord {
        tenant: word(row, "tenant_id", of)?,
        agent: word(row, "agent", of)?,
        document: opt_free_text(row, "document")?,
        added_at: moment(row, "added_at")?,
        added_by: word(row, "added_by", of)?,
    })
}

fn activation(row: &Row) -> Result<Activation, Fault> {
    let of: &str = column(row, "agent")?;
    Ok(Activation {
        id: word(row, "id", of)?,
        tenant: word(row, "tenant_id", of)?,
        agent: word(row, "agent", of)?,
        tool: word(row, "tool", of)?,
        enabled: column(row, "enabled")?,
        overrides: json(row, "overrides", of)?,
        created_at: moment(row, "created_at")?,
        updated_at: moment(row, "updated_at")?,
    })
}

pub(super) fn policies(row: &Row) -> Result<PolicyRecord, Fault> {
    let of: &str = column(row, "tenant_id")?;
    Ok(PolicyRecord {
        tenant: if of == NO_TENANT { None } else { Some(word(row, "tenant_id", of)?) },
        version: u64::try_from(column::<i64>(row, "version")?).map_err(|_| unreadable("version", of))?,
        text: free_text(row, "text")?,
        added_at: moment(row, "added_at")?,
        added_by: word(row, "added_by", of)?,
    })
}

fn revocation(row: &Row) -> Result<Revocation, Fault> {
    let of = free_text(row, "name")?;
    let what = match column(row, "kind")? {
        "token" => RevokedTokens::Token(word(row, "tenant_id", &of)?, of.clone()),
        "subject" => RevokedTokens::Subject(word(row, "tenant_id", &of)?, word(row, "name", &of)?),
        _ => return Err(unreadable("kind", &of).into()),
    };
    Ok(Revocation {
        what,
        issuers: RevokedIssuers::of_lines(column(row, "issuers")?),
        at: moment(row, "revoked_at")?,
        by: word(row, "revoked_by", &of)?,
        needless_from: opt_moment(row, "needless_from")?,
    })
}
