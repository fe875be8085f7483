//! The statements that read access, and what their rows mean. A row that makes no sense fails the whole answer: to leave
//! out a restriction that cannot be read would be to lift it.
//!
//! Every function here runs inside a transaction the readers began, so what it answers is of one moment, epoch included.

use base::SaturatingFrom as _;
use contract::ids::TenantId;
use policy::VisibilityDefault;
use ports::access_store::{
    AccessState, Activation, AgentRecord, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens, TenantRecord,
};
use ports::clock::UnixMillis;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::super::faults::{Fault, Unreadable};
use super::super::registry::time;
use super::{NO_TENANT, policy_owner, visibility_word};

/// Everything that is in force, as of one moment, each list ordered by its key.
pub(super) fn load(connection: &Connection) -> Result<AccessState, Fault> {
    let epoch: Option<i64> = connection
        .prepare_cached("SELECT value FROM store_numbers WHERE name = 'access_epoch'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let epoch = epoch.and_then(|epoch| u64::try_from(epoch).ok());
    Ok(AccessState {
        epoch: epoch.ok_or_else(|| unreadable("access_epoch", "store_numbers"))?,
        tenants: all(
            connection,
            "SELECT tenant_id, name, visibility, tools, enabled FROM access_tenants ORDER BY tenant_id",
            [],
            tenant,
        )?,
        agents: all(
            connection,
            "SELECT tenant_id, agent, document, added_at, added_by FROM access_agents ORDER BY tenant_id, agent",
            [],
            agent,
        )?,
        activations: all(
            connection,
            "SELECT tenant_id, agent, tool, enabled, overrides, id, created_at, updated_at FROM access_activations
             ORDER BY tenant_id, agent, tool",
            [],
            activation,
        )?,
        policies: all(
            connection,
            "SELECT tenant_id, version, text, added_at, added_by FROM access_policies AS each
             WHERE version = (SELECT max(version) FROM access_policies WHERE tenant_id = each.tenant_id)
             ORDER BY tenant_id",
            [],
            policies,
        )?,
        revocations: all(
            connection,
            "SELECT kind, tenant_id, name, revoked_at, revoked_by, needless_from, issuers FROM access_revocations
             ORDER BY kind, tenant_id, name",
            [],
            revocation,
        )?,
    })
}

/// Versions of one owner's policies, newest first.
pub(super) fn policy_history(
    connection: &Connection,
    tenant: Option<&TenantId>,
    limit: usize,
) -> Result<Vec<PolicyRecord>, Fault> {
    all(
        connection,
        "SELECT tenant_id, version, text, added_at, added_by FROM access_policies WHERE tenant_id = ?1
         ORDER BY version DESC LIMIT ?2",
        params![policy_owner(tenant), i64::saturating_from(limit)],
        policies,
    )
}

// ------------------------------------------------------------------------------------------------- rows and values

fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: fn(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(read(row)?);
    }
    Ok(records)
}

fn tenant(row: &Row<'_>) -> Result<TenantRecord, Fault> {
    let of = text(row, "tenant_id")?;
    let visibility = row.get::<_, Option<String>>("visibility")?;
    Ok(TenantRecord {
        tenant: name(row, "tenant_id", &of)?,
        name: text(row, "name")?,
        visibility: visibility.map(|word| parse_visibility(&word, &of)).transpose()?,
        tools: json(row, "tools", &of)?,
        enabled: row.get("enabled")?,
    })
}

fn agent(row: &Row<'_>) -> Result<AgentRecord, Fault> {
    let of = text(row, "agent")?;
    Ok(AgentRecord {
        tenant: name(row, "tenant_id", &of)?,
        agent: name(row, "agent", &of)?,
        document: row.get("document")?,
        added_at: time(&text(row, "added_at")?, "added_at", &of)?,
        added_by: name(row, "added_by", &of)?,
    })
}

fn activation(row: &Row<'_>) -> Result<Activation, Fault> {
    let of = text(row, "agent")?;
    // A list would be read as overrides that change nothing.
    if !text(row, "overrides")?.starts_with('{') {
        return Err(unreadable("overrides", &of).into());
    }
    Ok(Activation {
        id: name(row, "id", &of)?,
        tenant: name(row, "tenant_id", &of)?,
        agent: name(row, "agent", &of)?,
        tool: name(row, "tool", &of)?,
        enabled: row.get("enabled")?,
        overrides: json(row, "overrides", &of)?,
        created_at: UnixMillis(row.get("created_at")?),
        updated_at: UnixMillis(row.get("updated_at")?),
    })
}

fn policies(row: &Row<'_>) -> Result<PolicyRecord, Fault> {
    let of = text(row, "tenant_id")?;
    let version: i64 = row.get("version")?;
    Ok(PolicyRecord {
        tenant: if of == NO_TENANT { None } else { Some(name(row, "tenant_id", &of)?) },
        version: u64::try_from(version).map_err(|_| unreadable("version", &of))?,
        text: text(row, "text")?,
        added_at: time(&text(row, "added_at")?, "added_at", &of)?,
        added_by: name(row, "added_by", &of)?,
    })
}

fn revocation(row: &Row<'_>) -> Result<Revocation, Fault> {
    let of = text(row, "name")?;
    let what = match text(row, "kind")?.as_str() {
        "token" => RevokedTokens::Token(name(row, "tenant_id", &of)?, of.clone()),
        "subject" => RevokedTokens::Subject(name(row, "tenant_id", &of)?, name(row, "name", &of)?),
        _ => return Err(unreadable("kind", &of).into()),
    };
    let end = row.get::<_, Option<String>>("needless_from")?;
    let issuers = row.get::<_, Option<String>>("issuers")?;
    Ok(Revocation {
        what,
        issuers: RevokedIssuers::of_lines(issuers.as_deref()),
        at: time(&text(row, "revoked_at")?, "revoked_at", &of)?,
        by: name(row, "revoked_by", &of)?,
        needless_from: end.map(|end| time(&end, "needless_from", &of)).transpose()?,
    })
}

fn text(row: &Row<'_>, column: &str) -> rusqlite::Result<String> {
    row.get(column)
}

/// A column with a type that is written as text.
fn name<T: std::str::FromStr>(row: &Row<'_>, column: &'static str, of: &str) -> Result<T, Fault> {
    text(row, column)?.parse().map_err(|_| unreadable(column, of).into())
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: &'static str, of: &str) -> Result<T, Fault> {
    serde_json::from_str(&text(row, column)?).map_err(|_| unreadable(column, of).into())
}

fn parse_visibility(word: &str, of: &str) -> Result<VisibilityDefault, Unreadable> {
    use VisibilityDefault::{Disabled, Enabled, ReadOnly};
    [Disabled, ReadOnly, Enabled]
        .into_iter()
        .find(|visibility| visibility_word(*visibility) == word)
        .ok_or_else(|| unreadable("visibility", of))
}

pub(super) fn unreadable(column: &'static str, of: &str) -> Unreadable {
    Unreadable { column, of: of.to_owned() }
}
