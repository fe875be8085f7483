//! `RegistryStore` on PostgreSQL: what was published, durable before it is answered. (REG-003, REG-009, STORE-001, STORE-003)
//!
//! A change of a tool has the row of the tool locked from its first statement on, so changes of one tool come one after
//! the other, from whichever instance; changes of different tools meet only at the index of their tenant and at the
//! generation, both at the very end.
//!
//! Invariants
//! - REGISTRY-1: the search index and the generation follow each change in its own transaction, and whoever listens is
//!   told of it by the server when it commits.
//!
//! Not here: the search index (`index`), who listens (`bus`).

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use contract::ids::{TenantId, ToolId};
use contract::manifest::{LifecycleState, Manifest};
use contract::version::Version;
use ports::lifecycle::Lifecycle;
use ports::registry_store::{
    LifecycleChange, PublishOutcome, QuarantineChange, RegistryStore, StoreError, StoredVersion, ToolQuarantine,
};
use tokio_postgres::Row;

use super::PostgresStore;
use super::bus::REGISTRY_WORD;
use super::faults::Fault;
use super::statement::{column, int, text};
use super::stored_text::kept;
use super::transaction::{Scope, Transaction, in_transaction};
use super::{index, quarantine};
use crate::records::registry::{LIFECYCLE_COLUMNS, lifecycle, stored_version};
use crate::stored_row::{StoredRow as _, tag, unreadable};

#[async_trait]
impl RegistryStore for PostgresStore {
    async fn load(&self) -> Result<Vec<StoredVersion>, StoreError> {
        load(self).await
    }

    async fn publish(&self, version: StoredVersion) -> Result<PublishOutcome, StoreError> {
        let scope = Scope::Tenant(version.tenant.as_str());
        // Most publications are of what is there: every start publishes the built-in tools.
        let key = version.version.without_build().to_string();
        let (tenant, tool) = (version.tenant.as_str(), version.tool.as_str());
        let there = self.pool.query(scope, DIGEST, &[text(&tenant), text(&tool), text(&key)]).await?;
        if let Some(row) = there.first() {
            return Ok(published_before(row, &version)?);
        }
        let manifest =
            serde_json::to_string(&version.manifest).map_err(|error| StoreError::Corrupt(Box::new(error)))?;
        let done = in_transaction!(self.pool, scope, |tx| publish(tx, &version, &manifest, self.instance()).await);
        Ok(done?)
    }

    async fn change_lifecycle(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        version: &Version,
        from: &Lifecycle,
        to: &Lifecycle,
    ) -> Result<LifecycleChange, StoreError> {
        let (tenant, tool) = (tenant.as_str(), tool.as_str());
        let scope = Scope::Tenant(tenant);
        let done = in_transaction!(self.pool, scope, |tx| change_lifecycle(
            tx,
            (tenant, tool),
            version,
            (from, to),
            self.instance()
        )
        .await);
        Ok(done?)
    }

    async fn quarantines(&self) -> Result<Vec<ToolQuarantine>, StoreError> {
        quarantine::all(self).await
    }

    async fn put_quarantine(&self, quarantine: &ToolQuarantine) -> Result<QuarantineChange, StoreError> {
        let scope = Scope::Tenant(quarantine.tenant.as_str());
        let done = in_transaction!(self.pool, scope, |tx| quarantine::put(tx, quarantine, self.instance()).await);
        Ok(done?)
    }

    async fn remove_quarantine(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        by: &TenantId,
    ) -> Result<QuarantineChange, StoreError> {
        let key = (tenant.as_str(), tool.as_str());
        let scope = Scope::Tenant(tenant.as_str());
        let done = in_transaction!(self.pool, scope, |tx| quarantine::remove(tx, key, by, self.instance()).await);
        Ok(done?)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        // A real write: a full disk or a primary that has become a standby shows only then.
        let write = "UPDATE store_numbers SET value = value + 1 WHERE name = 'probes'";
        self.pool.execute(Scope::System, write, &[]).await?;
        Ok(())
    }
}

const DIGEST: &str = "SELECT digest FROM tool_versions WHERE tenant_id = $1 AND tool_id = $2 AND version = $3";

impl PostgresStore {
    /// Who tells of a change.
    fn instance(&self) -> i64 {
        self.instance.load(Ordering::Acquire)
    }
}

async fn load(store: &PostgresStore) -> Result<Vec<StoredVersion>, StoreError> {
    let statement = format!(
        "SELECT {LIFECYCLE_COLUMNS}, tenant_id, tool_id, version_text, manifest, digest, published_at, published_by
         FROM tool_versions"
    );
    let rows = store.pool.query(Scope::System, &statement, &[]).await?;
    let mut versions = rows.iter().map(stored_version).collect::<Result<Vec<_>, Fault>>()?;
    versions.sort_by(|left, right| {
        (&left.tenant, &left.tool, &left.version).cmp(&(&right.tenant, &right.tool, &right.version))
    });
    Ok(versions)
}

async fn publish(tx: &Transaction, new: &StoredVersion, manifest: &str, by: i64) -> Result<PublishOutcome, Fault> {
    let (tenant, tool) = (new.tenant.as_str(), new.tool.as_str());
    // VER-1: build metadata takes no part in what a version is.
    let version = new.version.without_build().to_string();
    let key = lock_or_make_tool(tx, new).await?;
    let notice = NoticeColumns::of(&new.lifecycle);
    let made = tx
        .execute(
            "INSERT INTO tool_versions
                 (tenant_id, tool_id, version, version_text, manifest, digest, published_at, published_by,
                  lifecycle_state, deprecated_at, sunset_at, removal_at, successor, migration_guide)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
             ON CONFLICT (tenant_id, tool_id, version) DO NOTHING",
            &[
                text(&tenant),
                text(&tool),
                text(&version),
                text(&new.version.to_string()),
                text(&manifest),
                text(&new.digest.to_string()),
                int(&new.published_at.0),
                text(&new.published_by.as_str()),
                text(&new.lifecycle.recorded.as_str()),
                int(&notice.deprecated_at),
                int(&notice.sunset_at),
                int(&notice.removal_at),
                text(&notice.successor),
                text(&notice.migration_guide),
            ],
        )
        .await?;
    if made == 0 {
        let row = tx.query_opt(DIGEST, &[text(&tenant), text(&tool), text(&version)]).await?;
        return published_before(&row.ok_or_else(|| unreadable("digest", tool))?, new);
    }
    follow(tx, key, (tenant, tool), Some(new), by).await?;
    Ok(PublishOutcome::New)
}

async fn change_lifecycle(
    tx: &Transaction,
    (tenant, tool): (&str, &str),
    version: &Version,
    (from, to): (&Lifecycle, &Lifecycle),
    by: i64,
) -> Result<LifecycleChange, Fault> {
    let lock = "SELECT tool_key FROM tool_definitions WHERE tenant_id = $1 AND tool_id = $2 FOR UPDATE";
    let Some(row) = tx.query_opt(lock, &[text(&tenant), text(&tool)]).await? else {
        return Ok(LifecycleChange::Unknown);
    };
    let key: i64 = column(&row, "tool_key")?;
    let version = version.without_build().to_string();
    let select =
        format!("SELECT {LIFECYCLE_COLUMNS} FROM tool_versions WHERE tenant_id = $1 AND tool_id = $2 AND version = $3");
    let Some(row) = tx.query_opt(&select, &[text(&tenant), text(&tool), text(&version)]).await? else {
        return Ok(LifecycleChange::Unknown);
    };
    let current = lifecycle(&row, tool)?;
    if current != *from {
        return Ok(LifecycleChange::Stale(current));
    }
    let notice = NoticeColumns::of(to);
    tx.execute(
        "UPDATE tool_versions
         SET lifecycle_state = $4, deprecated_at = $5, sunset_at = $6, removal_at = $7, successor = $8,
             migration_guide = $9
         WHERE tenant_id = $1 AND tool_id = $2 AND version = $3",
        &[
            text(&tenant),
            text(&tool),
            text(&version),
            text(&to.recorded.as_str()),
            int(&notice.deprecated_at),
            int(&notice.sunset_at),
            int(&notice.removal_at),
            text(&notice.successor),
            text(&notice.migration_guide),
        ],
    )
    .await?;
    follow(tx, key, (tenant, tool), None, by).await?;
    Ok(LifecycleChange::Done)
}

// --------------------------------------------------------------------------------------------------- private parts

/// The tool's number, its row being locked from here on.
async fn lock_or_make_tool(tx: &Transaction, new: &StoredVersion) -> Result<i64, Fault> {
    let row = tx
        .query_opt(
            "INSERT INTO tool_definitions AS there
                 (tenant_id, tool_id, namespace, name, description, provider, protocol, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
             ON CONFLICT (tenant_id, tool_id) DO UPDATE SET updated_at = there.updated_at
             RETURNING tool_key",
            &[
                text(&new.tenant.as_str()),
                text(&new.tool.as_str()),
                text(&new.manifest.namespace),
                text(&kept(&new.manifest.name)),
                text(&kept(&new.manifest.description)),
                text(&kept(&new.manifest.provider)),
                text(&tag(new.manifest.protocol)),
                int(&new.published_at.0),
            ],
        )
        .await?;
    column(&row.ok_or_else(|| unreadable("tool_key", new.tool.as_str()))?, "tool_key")
}

/// REGISTRY-1: what follows every change.
async fn follow(
    tx: &Transaction,
    key: i64,
    (tenant, tool): (&str, &str),
    new: Option<&StoredVersion>,
    by: i64,
) -> Result<(), Fault> {
    index::refresh(tx, key, (tenant, tool), new).await?;
    tell(tx, by).await
}

/// Raises the generation, and has the server tell of it when the change is committed.
pub(super) async fn tell(tx: &Transaction, by: i64) -> Result<(), Fault> {
    let raise = format!(
        "WITH raised AS (
             UPDATE store_numbers SET value = value + 1 WHERE name = 'registry_generation' RETURNING value)
         SELECT pg_notify('{}', '{REGISTRY_WORD} ' || value || ' ' || $1) FROM raised",
        super::bus::CHANNEL
    );
    tx.query(&raise, &[int(&by)]).await?;
    Ok(())
}

/// Every version of a tool with its recorded state.
pub(super) async fn states(
    tx: &Transaction,
    tenant: &str,
    tool: &str,
) -> Result<Vec<(Version, LifecycleState)>, Fault> {
    let select = "SELECT version, lifecycle_state FROM tool_versions WHERE tenant_id = $1 AND tool_id = $2";
    let rows = tx.query(select, &[text(&tenant), text(&tool)]).await?;
    rows.iter().map(|row| Ok((row.word("version", tool)?, row.tagged("lifecycle_state", tool)?))).collect()
}

/// The manifest of one version.
pub(super) async fn manifest(tx: &Transaction, tenant: &str, tool: &str, version: &Version) -> Result<Manifest, Fault> {
    let version = version.without_build().to_string();
    let select = "SELECT manifest FROM tool_versions WHERE tenant_id = $1 AND tool_id = $2 AND version = $3";
    let row = tx.query_opt(select, &[text(&tenant), text(&tool), text(&version)]).await?;
    row.ok_or_else(|| unreadable("manifest", tool))?.json("manifest", tool)
}

fn published_before(row: &Row, new: &StoredVersion) -> Result<PublishOutcome, Fault> {
    let published = row.word("digest", new.tool.as_str())?;
    Ok(if published == new.digest { PublishOutcome::Same } else { PublishOutcome::Different { published } })
}

/// A notice as columns.
#[derive(Debug, Default)]
struct NoticeColumns {
    deprecated_at: Option<i64>,
    sunset_at: Option<i64>,
    removal_at: Option<i64>,
    successor: Option<String>,
    migration_guide: Option<String>,
}

impl NoticeColumns {
    fn of(lifecycle: &Lifecycle) -> Self {
        let free = |text: &Option<String>| text.as_deref().map(|text| kept(text).into_owned());
        lifecycle.notice.as_ref().map_or_else(Self::default, |notice| Self {
            deprecated_at: Some(notice.deprecated_at.0),
            sunset_at: Some(notice.sunset_at.0),
            removal_at: Some(notice.removal_at.0),
            successor: free(&notice.successor),
            migration_guide: free(&notice.migration_guide),
        })
    }
}
