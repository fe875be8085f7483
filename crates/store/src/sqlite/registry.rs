//! `RegistryStore` on SQLite: what was published, durable before it is answered. (REG-003, REG-009, STORE-001, STORE-003)
//!
//! Every function below the port runs inside a transaction somebody else began: a savepoint of the writer, or a read.
//!
//! Not here: the search index, which follows each change in the same transaction (`index`).

use async_trait::async_trait;
use contract::ids::{TenantId, ToolId};
use contract::manifest::{LifecycleState, Manifest};
use contract::version::Version;
use ports::lifecycle::Lifecycle;
use ports::registry_store::{
    LifecycleChange, PublishOutcome, QuarantineChange, RegistryStore, StoreError, StoredVersion, ToolQuarantine,
};
use rusqlite::{Connection, OptionalExtension, named_params};

use super::columns::{all, first};
use super::faults::Fault;
use super::{SqliteStore, index, quarantine};
use crate::records::registry::{LIFECYCLE_COLUMNS, lifecycle, stored_version};
use crate::stored_row::{StoredRow as _, tag, unreadable};

/// The upper half of a tool's number is that of its tenant.
pub(super) const TENANT_SHIFT: u32 = 32;

#[async_trait]
impl RegistryStore for SqliteStore {
    async fn load(&self) -> Result<Vec<StoredVersion>, StoreError> {
        self.readers.run(load).await
    }

    async fn publish(&self, version: StoredVersion) -> Result<PublishOutcome, StoreError> {
        // Before the queue, so that the writer thread only writes.
        let manifest =
            serde_json::to_string(&version.manifest).map_err(|error| StoreError::Corrupt(Box::new(error)))?;
        self.writer()?.run(move |connection| publish(connection, &version, &manifest)).await
    }

    async fn change_lifecycle(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        version: &Version,
        from: &Lifecycle,
        to: &Lifecycle,
    ) -> Result<LifecycleChange, StoreError> {
        let (tenant, tool, version) = (tenant.clone(), tool.clone(), version.clone());
        let (from, to) = (from.clone(), to.clone());
        let change = move |connection: &Connection| {
            change_lifecycle(connection, (tenant.as_str(), tool.as_str()), &version, &from, &to)
        };
        self.writer()?.run(change).await
    }

    async fn quarantines(&self) -> Result<Vec<ToolQuarantine>, StoreError> {
        self.readers.run(quarantine::all).await
    }

    async fn put_quarantine(&self, quarantine: &ToolQuarantine) -> Result<QuarantineChange, StoreError> {
        let quarantine = quarantine.clone();
        self.writer()?.run(move |connection| quarantine::put(connection, &quarantine)).await
    }

    async fn remove_quarantine(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        by: &TenantId,
    ) -> Result<QuarantineChange, StoreError> {
        let (tenant, tool, by) = (tenant.clone(), tool.clone(), by.clone());
        let lift = move |connection: &Connection| {
            quarantine::remove(connection, (tenant.as_str(), tool.as_str()), by.as_str())
        };
        self.writer()?.run(lift).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let read = |connection: &Connection| {
            connection.query_row("SELECT count(*) FROM store_numbers", [], |row| row.get::<_, i64>(0))?;
            Ok(())
        };
        self.readers.run(read).await?;
        let Some(writer) = &self.writer else { return Ok(()) };
        // A real write: a full disk or a lost file system shows only then.
        let write = |connection: &Connection| {
            connection.execute("UPDATE store_numbers SET value = value + 1 WHERE name = 'probes'", [])?;
            Ok(())
        };
        writer.run(write).await
    }
}

/// Everything that was ever published, ordered by tenant, tool and version precedence.
pub(super) fn load(connection: &Connection) -> Result<Vec<StoredVersion>, Fault> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {LIFECYCLE_COLUMNS}, tenant_id, tool_id, version_text, manifest, digest, published_at, published_by
         FROM tool_versions"
    ))?;
    let mut versions = all(statement.query([])?, stored_version)?;
    versions.sort_by(|left, right| {
        (&left.tenant, &left.tool, &left.version).cmp(&(&right.tenant, &right.tool, &right.version))
    });
    Ok(versions)
}

/// Publishes a version, unless there is one.
pub(super) fn publish(connection: &Connection, new: &StoredVersion, manifest: &str) -> Result<PublishOutcome, Fault> {
    let (tenant, tool) = (new.tenant.as_str(), new.tool.as_str());
    // VER-1: build metadata takes no part in what a version is.
    let version = new.version.without_build().to_string();
    let digest = new.digest.to_string();
    let there: Option<String> = connection
        .prepare_cached(
            "SELECT digest FROM tool_versions WHERE tenant_id = :tenant_id AND tool_id = :tool_id
                         AND version = :version",
        )?
        .query_row(named_params! { ":tenant_id": tenant, ":tool_id": tool, ":version": &version }, |row| row.get(0))
        .optional()?;
    if let Some(published) = there {
        return match published.parse() {
            Ok(published) if published == new.digest => Ok(PublishOutcome::Same),
            Ok(published) => Ok(PublishOutcome::Different { published }),
            Err(_) => Err(unreadable("digest", tool).into()),
        };
    }
    let published_at = new.published_at.to_string();
    let key = match tool_key(connection, tenant, tool)? {
        Some(key) => key,
        None => next_tool_key(connection, tenant)?,
    };
    connection
        .prepare_cached(
            "INSERT INTO tool_definitions
                 (tool_key, tenant_id, tool_id, namespace, name, description, provider, protocol, created_at, updated_at)
             VALUES (:key, :tenant_id, :tool_id, :namespace, :name, :description, :provider, :protocol, :now, :now)
             ON CONFLICT (tenant_id, tool_id) DO UPDATE SET updated_at = :now",
        )?
        .execute(named_params! {
            ":key": key,
            ":tenant_id": tenant,
            ":tool_id": tool,
            ":namespace": new.manifest.namespace,
            ":name": new.manifest.name,
            ":description": new.manifest.description,
            ":provider": new.manifest.provider,
            ":protocol": tag(new.manifest.protocol),
            ":now": published_at,
        })?;
    let notice = NoticeText::of(&new.lifecycle);
    connection
        .prepare_cached(
            "INSERT INTO tool_versions
                 (tenant_id, tool_id, version, version_text, manifest, digest, published_at, published_by,
                  lifecycle_state, deprecated_at, sunset_at, removal_at, successor, migration_guide)
             VALUES (:tenant_id, :tool_id, :version, :version_text, :manifest, :digest, :published_at, :published_by,
                  :state, :deprecated_at, :sunset_at, :removal_at, :successor, :migration_guide)",
        )?
        .execute(named_params! {
            ":tenant_id": tenant,
            ":tool_id": tool,
            ":version": version,
            ":version_text": new.version.to_string(),
            ":manifest": manifest,
            ":digest": digest,
            ":published_at": published_at,
            ":published_by": new.published_by.as_str(),
            ":state": new.lifecycle.recorded.as_str(),
            ":deprecated_at": notice.deprecated_at,
            ":sunset_at": notice.sunset_at,
            ":removal_at": notice.removal_at,
            ":successor": notice.successor,
            ":migration_guide": notice.migration_guide,
        })?;
    index::refresh(connection, tenant, tool)?;
    Ok(PublishOutcome::New)
}

/// Moves a version from one lifecycle record to another, if it still has the first.
pub(super) fn change_lifecycle(
    connection: &Connection,
    (tenant, tool): (&str, &str),
    version: &Version,
    from: &Lifecycle,
    to: &Lifecycle,
) -> Result<LifecycleChange, Fault> {
    let version = version.without_build().to_string();
    let mut select = connection.prepare_cached(&format!(
        "SELECT {LIFECYCLE_COLUMNS} FROM tool_versions WHERE tenant_id = :tenant_id AND tool_id = :tool_id
         AND version = :version"
    ))?;
    let current =
        first(select.query(named_params! { ":tenant_id": tenant, ":tool_id": tool, ":version": &version })?, |row| {
            lifecycle(row, tool)
        })?;
    let Some(current) = current else { return Ok(LifecycleChange::Unknown) };
    if current != *from {
        return Ok(LifecycleChange::Stale(current));
    }
    let notice = NoticeText::of(to);
    connection
        .prepare_cached(
            "UPDATE tool_versions
             SET lifecycle_state = :state, deprecated_at = :deprecated_at, sunset_at = :sunset_at,
                 removal_at = :removal_at, successor = :successor, migration_guide = :migration_guide
             WHERE tenant_id = :tenant_id AND tool_id = :tool_id AND version = :version",
        )?
        .execute(named_params! {
            ":state": to.recorded.as_str(),
            ":deprecated_at": notice.deprecated_at,
            ":sunset_at": notice.sunset_at,
            ":removal_at": notice.removal_at,
            ":successor": notice.successor,
            ":migration_guide": notice.migration_guide,
            ":tenant_id": tenant,
            ":tool_id": tool,
            ":version": version,
        })?;
    index::refresh(connection, tenant, tool)?;
    Ok(LifecycleChange::Done)
}

/// Every version of a tool with its recorded state.
pub(super) fn states(
    connection: &Connection,
    tenant: &str,
    tool: &str,
) -> Result<Vec<(Version, LifecycleState)>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT version, lifecycle_state FROM tool_versions WHERE tenant_id = :tenant_id AND tool_id = :tool_id",
    )?;
    let state = |row: &rusqlite::Row<'_>| Ok((row.word("version", tool)?, row.tagged("lifecycle_state", tool)?));
    all(statement.query(named_params! { ":tenant_id": tenant, ":tool_id": tool })?, state)
}

/// The manifest of one version.
pub(super) fn manifest(
    connection: &Connection,
    tenant: &str,
    tool: &str,
    version: &Version,
) -> Result<Manifest, Fault> {
    let text: String = connection
        .prepare_cached(
            "SELECT manifest FROM tool_versions WHERE tenant_id = :tenant_id AND tool_id = :tool_id
                         AND version = :version",
        )?
        .query_row(
            named_params! {
                ":tenant_id": tenant,
                ":tool_id": tool,
                ":version": &version.without_build().to_string(),
            },
            |row| row.get(0),
        )?;
    Ok(serde_json::from_str(&text).map_err(|_| unreadable("manifest", tool))?)
}

/// The number of a tenant, if it has published anything.
pub(super) fn tenant_key(connection: &Connection, tenant: &str) -> Result<Option<i64>, Fault> {
    let key = connection
        .prepare_cached("SELECT tenant_key FROM registry_tenants WHERE tenant_id = :tenant_id")?
        .query_row(named_params! { ":tenant_id": tenant }, |row| row.get(0))
        .optional()?;
    Ok(key)
}

/// The number of a tool.
pub(super) fn tool_key(connection: &Connection, tenant: &str, tool: &str) -> Result<Option<i64>, Fault> {
    let key = connection
        .prepare_cached("SELECT tool_key FROM tool_definitions WHERE tenant_id = :tenant_id AND tool_id = :tool_id")?
        .query_row(named_params! { ":tenant_id": tenant, ":tool_id": tool }, |row| row.get(0))
        .optional()?;
    Ok(key)
}

/// The number for a new tool. Rows are never deleted, so the greatest number in use is the last one given.
fn next_tool_key(connection: &Connection, tenant: &str) -> Result<i64, Fault> {
    connection
        .prepare_cached(
            "INSERT INTO registry_tenants (tenant_id) VALUES (:tenant_id) ON CONFLICT (tenant_id) DO NOTHING",
        )?
        .execute(named_params! { ":tenant_id": tenant })?;
    let none: i64 = tenant_key(connection, tenant)?.unwrap_or_default() << TENANT_SHIFT;
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT tool_key FROM tool_definitions WHERE tool_key BETWEEN :none AND :none + 0xffffffff
             ORDER BY tool_key DESC LIMIT 1",
        )?
        .query_row(named_params! { ":none": none }, |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(none) + 1)
}

// --------------------------------------------------------------------------------------------------- private parts

/// A notice as columns.
#[derive(Debug, Default)]
struct NoticeText<'a> {
    deprecated_at: Option<String>,
    sunset_at: Option<String>,
    removal_at: Option<String>,
    successor: Option<&'a str>,
    migration_guide: Option<&'a str>,
}

impl<'a> NoticeText<'a> {
    fn of(lifecycle: &'a Lifecycle) -> Self {
        lifecycle.notice.as_ref().map_or_else(Self::default, |notice| Self {
            deprecated_at: Some(notice.deprecated_at.to_string()),
            sunset_at: Some(notice.sunset_at.to_string()),
            removal_at: Some(notice.removal_at.to_string()),
            successor: notice.successor.as_deref(),
            migration_guide: notice.migration_guide.as_deref(),
        })
    }
}
