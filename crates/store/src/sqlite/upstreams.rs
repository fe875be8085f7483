//! `UpstreamStore` on SQLite: MCP servers and the pins of their tools, durable before it is answered. (REG-023)
//!
//! A server is written in one step with the question whether the other servers of its tenant are what was read.
//! Pins of one server are written in one savepoint of the writer, together with the questions whether the server is still
//! there and whether the pins are what was read, so a look at its tools is kept whole or not at all.
//!
//! Not here: what a pin means (`upstreams::pins`).

use async_trait::async_trait;
use contract::ids::TenantId;
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use ports::registry_store::StoreError;
use ports::upstream_store::{
    PinChange, PinsPut, ServerPut, ServerRead, ServerRecord, ToolDefinition, UpstreamState, UpstreamStore,
};
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde_json::Value;

use super::SqliteStore;
use super::columns::{all, first};
use super::faults::Fault;
use crate::records::upstreams::{PIN_COLUMNS, pin, server, server_read};

#[async_trait]
impl UpstreamStore for SqliteStore {
    async fn load(&self) -> Result<UpstreamState, StoreError> {
        self.readers.run(load).await
    }

    async fn put_server(&self, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, StoreError> {
        let (server, others) = (server.clone(), others.to_vec());
        self.writer()?.run(move |connection| put_server(connection, &server, &others)).await
    }

    async fn remove_server(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.writer()?.run(move |connection| remove_server(connection, &tenant, &name)).await
    }

    async fn put_pins(&self, tenant: &TenantId, server: &str, changes: &[PinChange]) -> Result<PinsPut, StoreError> {
        let (tenant, server, changes) = (tenant.clone(), server.to_owned(), changes.to_vec());
        self.writer()?.run(move |connection| put_pins(connection, &tenant, &server, &changes)).await
    }
}

// ---------------------------------------------------------------------------------------------------------- writing

fn put_server(connection: &Connection, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, Fault> {
    let mut find = connection
        .prepare_cached("SELECT name, added_at FROM upstream_servers WHERE tenant_id = :tenant_id AND name <> :name")?;
    let there = all(
        find.query(named_params! { ":tenant_id": server.tenant.as_str(), ":name": server.name.as_str() })?,
        server_read,
    )?;
    if !ServerRead::are_all_of(others, &there) {
        return Ok(ServerPut::Outdated);
    }
    connection
        .prepare_cached(
            "INSERT INTO upstream_servers (tenant_id, name, spec, added_at, added_by)
             VALUES (:tenant_id, :name, :spec, :added_at, :added_by)
             ON CONFLICT (tenant_id, name) DO UPDATE
             SET spec = excluded.spec, added_at = excluded.added_at, added_by = excluded.added_by",
        )?
        .execute(named_params! {
            ":tenant_id": server.tenant.as_str(),
            ":name": server.name,
            ":spec": server.spec.to_string(),
            ":added_at": server.added_at.to_string(),
            ":added_by": server.added_by.as_str(),
        })?;
    Ok(ServerPut::Kept)
}

fn remove_server(connection: &Connection, tenant: &TenantId, name: &str) -> Result<bool, Fault> {
    connection
        .prepare_cached("DELETE FROM upstream_pins WHERE tenant_id = :tenant_id AND server = :name")?
        .execute(named_params! { ":tenant_id": tenant.as_str(), ":name": name })?;
    let removed = connection
        .prepare_cached("DELETE FROM upstream_servers WHERE tenant_id = :tenant_id AND name = :name")?
        .execute(named_params! { ":tenant_id": tenant.as_str(), ":name": name })?;
    Ok(removed > 0)
}

fn put_pins(connection: &Connection, tenant: &TenantId, server: &str, changes: &[PinChange]) -> Result<PinsPut, Fault> {
    let there: Option<i64> = connection
        .prepare_cached("SELECT 1 FROM upstream_servers WHERE tenant_id = :tenant_id AND name = :server")?
        .query_row(named_params! { ":tenant_id": tenant.as_str(), ":server": server }, |row| row.get(0))
        .optional()?;
    if there.is_none() {
        return Ok(PinsPut::ServerGone);
    }
    let mut find = connection.prepare_cached(&format!(
        "SELECT {PIN_COLUMNS} FROM upstream_pins WHERE tenant_id = :tenant_id AND server = :server
         AND upstream_tool = :upstream_tool"
    ))?;
    for change in changes {
        let there = first(
            find.query(named_params! {
                ":tenant_id": tenant.as_str(),
                ":server": server,
                ":upstream_tool": change.pin.upstream_tool,
            })?,
            pin,
        )?;
        if !change.holds_for(there.as_ref()) {
            return Ok(PinsPut::Outdated);
        }
    }
    let mut put = connection.prepare_cached(
        "INSERT INTO upstream_pins (tenant_id, server, upstream_tool, tool_id, version, accepted, accepted_digest,
                                    proposed, proposed_digest, state, findings, classification, seen_at)
         VALUES (:tenant_id, :server, :upstream_tool, :tool_id, :version, :accepted, :accepted_digest, :proposed,
         :proposed_digest, :state, :findings, :classification, :seen_at)
         ON CONFLICT (tenant_id, server, upstream_tool) DO UPDATE
         SET tool_id = excluded.tool_id, version = excluded.version, accepted = excluded.accepted,
             accepted_digest = excluded.accepted_digest, proposed = excluded.proposed,
             proposed_digest = excluded.proposed_digest, state = excluded.state, findings = excluded.findings,
             classification = excluded.classification, seen_at = excluded.seen_at",
    )?;
    for PinChange { pin, .. } in changes {
        let text = |definition: &Option<ToolDefinition>| definition.as_ref().map(|it| it.value.to_string());
        let digest = |definition: &Option<ToolDefinition>| definition.as_ref().map(|it| it.digest.to_string());
        put.execute(named_params! {
            ":tenant_id": tenant.as_str(),
            ":server": server,
            ":upstream_tool": pin.upstream_tool,
            ":tool_id": pin.tool.as_str(),
            ":version": pin.version.as_ref().map(Version::to_string),
            ":accepted": text(&pin.accepted),
            ":accepted_digest": digest(&pin.accepted),
            ":proposed": text(&pin.proposed),
            ":proposed_digest": digest(&pin.proposed),
            ":state": pin.state.as_str(),
            ":findings": Value::Array(pin.findings.clone()).to_string(),
            ":classification": pin.classification.map(SideEffectPolicy::as_str),
            ":seen_at": pin.seen_at.to_string(),
        })?;
    }
    Ok(PinsPut::Kept)
}

// ---------------------------------------------------------------------------------------------------------- reading

fn load(connection: &Connection) -> Result<UpstreamState, Fault> {
    let mut servers = connection.prepare_cached(
        "SELECT tenant_id, name, spec, added_at, added_by FROM upstream_servers ORDER BY tenant_id, name",
    )?;
    let mut pins = connection.prepare_cached(&format!(
        "SELECT {PIN_COLUMNS} FROM upstream_pins ORDER BY tenant_id, server, upstream_tool"
    ))?;
    Ok(UpstreamState { servers: all(servers.query([])?, server)?, pins: all(pins.query([])?, pin)? })
}
