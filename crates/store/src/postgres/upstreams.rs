//! `UpstreamStore` on PostgreSQL: MCP servers and the pins of their tools, durable before it is answered. (REG-023)
//!
//! Pins are written in a transaction that has the row of their server locked before it looks at them, so a look at its tools
//! is kept whole or not at all, two instances never write over each other's pins unseen, and a server that is being removed
//! gets no more pins. Servers of one tenant are put one after the other, whichever instances put them, and each of them sees
//! those before it.
//!
//! Not here: what a pin means (`upstreams::pins`).

use std::collections::BTreeMap;

use async_trait::async_trait;
use contract::ids::TenantId;
use contract::version::Version;
use ports::registry_store::StoreError;
use ports::upstream_store::{
    PinChange, PinRecord, PinsPut, ServerPut, ServerRead, ServerRecord, ToolDefinition, UpstreamState, UpstreamStore,
};
use serde_json::Value;

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{int, ints, text, texts};
use super::stored_text::kept;
use super::transaction::{Scope, Transaction, in_transaction};
use crate::records::upstreams::{pin, server, server_read};

#[async_trait]
impl UpstreamStore for PostgresStore {
    async fn load(&self) -> Result<UpstreamState, StoreError> {
        let loaded = in_transaction!(self.pool, Scope::System, |tx| load(tx).await);
        Ok(loaded?)
    }

    async fn put_server(&self, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, StoreError> {
        let scope = Scope::Tenant(server.tenant.as_str());
        let put = in_transaction!(self.pool, scope, |tx| put_server(tx, server, others).await);
        Ok(put?)
    }

    async fn remove_server(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        remove_server(self, tenant, name).await
    }

    async fn put_pins(&self, tenant: &TenantId, server: &str, changes: &[PinChange]) -> Result<PinsPut, StoreError> {
        let scope = Scope::Tenant(tenant.as_str());
        let put = in_transaction!(self.pool, scope, |tx| put_pins(tx, tenant.as_str(), server, changes).await);
        Ok(put?)
    }
}

async fn put_server(tx: &Transaction, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, Fault> {
    let (tenant, name, spec) = (server.tenant.as_str(), kept(&server.name), server.spec.to_string());
    let added_by = server.added_by.as_str();
    tx.query("SELECT pg_advisory_xact_lock(hashtextextended('servers ' || $1, 0))", &[text(&tenant)]).await?;
    // A statement of its own: it sees what was written by whoever had the lock before.
    let find = "SELECT name, added_at FROM upstream_servers WHERE tenant_id = $1 AND name <> $2";
    let found = tx.query(find, &[text(&tenant), text(&name)]).await?;
    let there = found.iter().map(server_read).collect::<Result<Vec<ServerRead>, Fault>>()?;
    if !ServerRead::are_all_of(others, &there) {
        return Ok(ServerPut::Outdated);
    }
    let put = "
        INSERT INTO upstream_servers (tenant_id, name, spec, added_at, added_by) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (tenant_id, name) DO UPDATE
        SET spec = excluded.spec, added_at = excluded.added_at, added_by = excluded.added_by";
    let values = [text(&tenant), text(&name), text(&spec), int(&server.added_at.0), text(&added_by)];
    tx.execute(put, &values).await?;
    Ok(ServerPut::Kept)
}

async fn remove_server(store: &PostgresStore, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
    let statement = "DELETE FROM upstream_servers WHERE tenant_id = $1 AND name = $2";
    let (tenant, name) = (tenant.as_str(), kept(name));
    Ok(store.pool.execute(Scope::Tenant(tenant), statement, &[text(&tenant), text(&name)]).await? > 0)
}

async fn put_pins(tx: &Transaction, tenant: &str, server: &str, changes: &[PinChange]) -> Result<PinsPut, Fault> {
    let columns = PinColumns::of(changes.iter().map(|change| &change.pin));
    let server = kept(server);
    let lock = "SELECT 1 FROM upstream_servers WHERE tenant_id = $1 AND name = $2 FOR UPDATE";
    if tx.query_opt(lock, &[text(&tenant), text(&server)]).await?.is_none() {
        return Ok(PinsPut::ServerGone);
    }
    // A statement of its own: it sees what was written by whoever had the lock before.
    let find = "SELECT * FROM upstream_pins WHERE tenant_id = $1 AND server = $2 AND upstream_tool = ANY($3)";
    let found = tx.query(find, &[text(&tenant), text(&server), texts(&columns.upstream_tools)]).await?;
    let found = found.iter().map(pin).collect::<Result<Vec<PinRecord>, Fault>>()?;
    let there: BTreeMap<&str, &PinRecord> = found.iter().map(|pin| (pin.upstream_tool.as_str(), pin)).collect();
    if !changes.iter().all(|change| change.holds_for(there.get(change.pin.upstream_tool.as_str()).copied())) {
        return Ok(PinsPut::Outdated);
    }
    let put = "
        INSERT INTO upstream_pins (tenant_id, server, upstream_tool, tool_id, version, accepted, accepted_digest,
                                   proposed, proposed_digest, state, findings, classification, seen_at)
        SELECT $1, $2, given.*
        FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) AS given
        ON CONFLICT (tenant_id, server, upstream_tool) DO UPDATE
        SET tool_id = excluded.tool_id, version = excluded.version, accepted = excluded.accepted,
            accepted_digest = excluded.accepted_digest, proposed = excluded.proposed,
            proposed_digest = excluded.proposed_digest, state = excluded.state, findings = excluded.findings,
            classification = excluded.classification, seen_at = excluded.seen_at";
    let values = [
        text(&tenant),
        text(&server),
        texts(&columns.upstream_tools),
        texts(&columns.tools),
        texts(&columns.versions),
        texts(&columns.accepted),
        texts(&columns.accepted_digests),
        texts(&columns.proposed),
        texts(&columns.proposed_digests),
        texts(&columns.states),
        texts(&columns.findings),
        texts(&columns.classifications),
        ints(&columns.seen_at),
    ];
    tx.execute(put, &values).await?;
    Ok(PinsPut::Kept)
}

/// Pins, column by column. Of two for one tool the later holds.
#[derive(Debug, Default)]
struct PinColumns {
    upstream_tools: Vec<String>,
    tools: Vec<String>,
    versions: Vec<Option<String>>,
    accepted: Vec<Option<String>>,
    accepted_digests: Vec<Option<String>>,
    proposed: Vec<Option<String>>,
    proposed_digests: Vec<Option<String>>,
    states: Vec<&'static str>,
    findings: Vec<String>,
    classifications: Vec<Option<&'static str>>,
    seen_at: Vec<i64>,
}

impl PinColumns {
    fn of<'a>(pins: impl Iterator<Item = &'a PinRecord>) -> Self {
        let last: BTreeMap<&str, &PinRecord> = pins.map(|pin| (pin.upstream_tool.as_str(), pin)).collect();
        let value = |definition: &Option<ToolDefinition>| definition.as_ref().map(|it| it.value.to_string());
        let digest = |definition: &Option<ToolDefinition>| definition.as_ref().map(|it| it.digest.to_string());
        let mut columns = Self::default();
        for pin in last.into_values() {
            columns.upstream_tools.push(kept(&pin.upstream_tool).into_owned());
            columns.tools.push(pin.tool.to_string());
            columns.versions.push(pin.version.as_ref().map(Version::to_string));
            columns.accepted.push(value(&pin.accepted));
            columns.accepted_digests.push(digest(&pin.accepted));
            columns.proposed.push(value(&pin.proposed));
            columns.proposed_digests.push(digest(&pin.proposed));
            columns.states.push(pin.state.as_str());
            columns.findings.push(Value::Array(pin.findings.clone()).to_string());
            columns.classifications.push(pin.classification.map(contract::manifest::SideEffectPolicy::as_str));
            columns.seen_at.push(pin.seen_at.0);
        }
        columns
    }
}

// ---------------------------------------------------------------------------------------------------------- reading

async fn load(tx: &Transaction) -> Result<UpstreamState, Fault> {
    tx.as_of_one_moment().await?;
    let servers = tx.query("SELECT * FROM upstream_servers ORDER BY tenant_id, name", &[]).await?;
    let pins = tx.query("SELECT * FROM upstream_pins ORDER BY tenant_id, server, upstream_tool", &[]).await?;
    Ok(UpstreamState {
        servers: servers.iter().map(server).collect::<Result<_, Fault>>()?,
        pins: pins.iter().map(pin).collect::<Result<_, Fault>>()?,
    })
}
