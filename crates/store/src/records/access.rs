//! Tenants, agents, activations, policies and revocations out of rows.

use contract::ids::TenantId;
use ports::access_store::{
    Activation, AgentRecord, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens, TenantRecord,
};

use crate::stored_row::{StoredRow, unreadable};

/// What stands in the place of a tenant where there is none. No tenant is called so.
pub(crate) const NO_TENANT: &str = "";

/// Whose policies, as a column.
pub(crate) fn policy_owner(tenant: Option<&TenantId>) -> &str {
    tenant.map_or(NO_TENANT, TenantId::as_str)
}

pub(crate) fn tenant<R: StoredRow>(row: &R) -> Result<TenantRecord, R::Fault> {
    let of = row.text("tenant_id")?;
    Ok(TenantRecord {
        tenant: row.word("tenant_id", of)?,
        name: row.free_text("name")?,
        visibility: row.opt_tagged("visibility", of)?,
        tools: row.json("tools", of)?,
        enabled: row.flag("enabled")?,
    })
}

pub(crate) fn agent<R: StoredRow>(row: &R) -> Result<AgentRecord, R::Fault> {
    let of = row.text("agent")?;
    Ok(AgentRecord {
        tenant: row.word("tenant_id", of)?,
        agent: row.word("agent", of)?,
        document: row.opt_free_text("document")?,
        added_at: row.moment("added_at", of)?,
        added_by: row.word("added_by", of)?,
    })
}

pub(crate) fn activation<R: StoredRow>(row: &R) -> Result<Activation, R::Fault> {
    let of = row.text("agent")?;
    // A list would be read as overrides that change nothing.
    if !row.text("overrides")?.starts_with('{') {
        return Err(unreadable("overrides", of).into());
    }
    Ok(Activation {
        id: row.word("id", of)?,
        tenant: row.word("tenant_id", of)?,
        agent: row.word("agent", of)?,
        tool: row.word("tool", of)?,
        enabled: row.flag("enabled")?,
        overrides: row.json("overrides", of)?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

pub(crate) fn policies<R: StoredRow>(row: &R) -> Result<PolicyRecord, R::Fault> {
    let of = row.text("tenant_id")?;
    Ok(PolicyRecord {
        tenant: if of == NO_TENANT { None } else { Some(row.word("tenant_id", of)?) },
        version: row.number("version", of)?,
        text: row.free_text("text")?,
        added_at: row.moment("added_at", of)?,
        added_by: row.word("added_by", of)?,
    })
}

pub(crate) fn revocation<R: StoredRow>(row: &R) -> Result<Revocation, R::Fault> {
    let of = row.free_text("name")?;
    let what = match row.text("kind")? {
        "token" => RevokedTokens::Token(row.word("tenant_id", &of)?, of.clone()),
        "subject" => RevokedTokens::Subject(row.word("tenant_id", &of)?, row.word("name", &of)?),
        _ => return Err(unreadable("kind", &of).into()),
    };
    Ok(Revocation {
        what,
        issuers: RevokedIssuers::of_lines(row.opt_text("issuers")?),
        at: row.moment("revoked_at", &of)?,
        by: row.word("revoked_by", &of)?,
        needless_from: row.opt_moment("needless_from", &of)?,
    })
}
