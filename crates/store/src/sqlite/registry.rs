//! The statements behind `RegistryStore`. (REG-003, REG-009, STORE-001, STORE-003)
//!
//! Every function here runs inside a transaction somebody else began: a savepoint of the writer, or a read.
//!
//! Not here: the search index, which follows each change in the same transaction (`index`).

use contract::manifest::{LifecycleState, Manifest};
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::lifecycle::{Lifecycle, LifecycleNotice};
use ports::registry_store::{LifecycleChange, PublishOutcome, StoredVersion};
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::faults::{Fault, Unreadable};
use super::index;

/// The upper half of a tool's number is that of its tenant.
pub(super) const TENANT_SHIFT: u32 = 32;

const LIFECYCLE_COLUMNS: &str = "lifecycle_state, deprecated_at, sunset_at, removal_at, successor, migration_guide";

/// Everything that was ever published, ordered by tenant, tool and version precedence.
pub(super) fn load(connection: &Connection) -> Result<Vec<StoredVersion>, Fault> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {LIFECYCLE_COLUMNS}, tenant_id, tool_id, version_text, manifest, digest, published_at, published_by
         FROM tool_versions"
    ))?;
    let mut rows = statement.query([])?;
    let mut versions = Vec::new();
    while let Some(row) = rows.next()? {
        versions.push(stored_version(row)?);
    }
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
        .prepare_cached("SELECT digest FROM tool_versions WHERE tenant_id = ?1 AND tool_id = ?2 AND version = ?3")?
        .query_row([tenant, tool, &version], |row| row.get(0))
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
            ":protocol": protocol(&new.manifest),
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
        "SELECT {LIFECYCLE_COLUMNS} FROM tool_versions WHERE tenant_id = ?1 AND tool_id = ?2 AND version = ?3"
    ))?;
    let mut rows = select.query([tenant, tool, &version])?;
    let current = match rows.next()? {
        Some(row) => lifecycle(row, tool)?,
        None => return Ok(LifecycleChange::Unknown),
    };
    drop(rows);
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
    let mut statement = connection
        .prepare_cached("SELECT version, lifecycle_state FROM tool_versions WHERE tenant_id = ?1 AND tool_id = ?2")?;
    let mut rows = statement.query([tenant, tool])?;
    let mut states = Vec::new();
    while let Some(row) = rows.next()? {
        let version = row.get::<_, String>(0)?.parse().map_err(|_| unreadable("version", tool))?;
        states.push((version, state(&row.get::<_, String>(1)?, tool)?));
    }
    Ok(states)
}

/// The manifest of one version.
pub(super) fn manifest(
    connection: &Connection,
    tenant: &str,
    tool: &str,
    version: &Version,
) -> Result<Manifest, Fault> {
    let text: String = connection
        .prepare_cached("SELECT manifest FROM tool_versions WHERE tenant_id = ?1 AND tool_id = ?2 AND version = ?3")?
        .query_row([tenant, tool, &version.without_build().to_string()], |row| row.get(0))?;
    Ok(parse_manifest(&text, tool)?)
}

/// The number of a tenant, if it has published anything.
pub(super) fn tenant_key(connection: &Connection, tenant: &str) -> Result<Option<i64>, Fault> {
    let key = connection
        .prepare_cached("SELECT tenant_key FROM registry_tenants WHERE tenant_id = ?1")?
        .query_row([tenant], |row| row.get(0))
        .optional()?;
    Ok(key)
}

/// The number of a tool.
pub(super) fn tool_key(connection: &Connection, tenant: &str, tool: &str) -> Result<Option<i64>, Fault> {
    let key = connection
        .prepare_cached("SELECT tool_key FROM tool_definitions WHERE tenant_id = ?1 AND tool_id = ?2")?
        .query_row([tenant, tool], |row| row.get(0))
        .optional()?;
    Ok(key)
}

/// The number for a new tool. Rows are never deleted, so the greatest number in use is the last one given.
fn next_tool_key(connection: &Connection, tenant: &str) -> Result<i64, Fault> {
    connection
        .prepare_cached("INSERT INTO registry_tenants (tenant_id) VALUES (?1) ON CONFLICT (tenant_id) DO NOTHING")?
        .execute([tenant])?;
    let none: i64 = tenant_key(connection, tenant)?.unwrap_or_default() << TENANT_SHIFT;
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT tool_key FROM tool_definitions WHERE tool_key BETWEEN ?1 AND ?1 + 0xffffffff
             ORDER BY tool_key DESC LIMIT 1",
        )?
        .query_row([none], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(none) + 1)
}

/// The word for where a tool comes from, as it is on the wire.
pub(super) fn protocol(manifest: &Manifest) -> String {
    let word = serde_json::to_value(manifest.protocol).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

// ------------------------------------------------------------------------------------------------- rows and values

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

fn stored_version(row: &Row<'_>) -> Result<StoredVersion, Fault> {
    let tool: String = row.get("tool_id")?;
    let text = |column| row.get::<_, String>(column);
    Ok(StoredVersion {
        version: text("version_text")?.parse().map_err(|_| unreadable("version_text", &tool))?,
        manifest: parse_manifest(&text("manifest")?, &tool)?,
        digest: text("digest")?.parse().map_err(|_| unreadable("digest", &tool))?,
        lifecycle: lifecycle(row, &tool)?,
        published_at: time(&text("published_at")?, "published_at", &tool)?,
        tenant: text("tenant_id")?.parse().map_err(|_| unreadable("tenant_id", &tool))?,
        published_by: text("published_by")?.parse().map_err(|_| unreadable("published_by", &tool))?,
        tool: tool.parse().map_err(|_| unreadable("tool_id", &tool))?,
    })
}

fn lifecycle(row: &Row<'_>, tool: &str) -> Result<Lifecycle, Fault> {
    let moment = |column: &'static str| -> Result<Option<UnixMillis>, Fault> {
        row.get::<_, Option<String>>(column)?.map(|text| time(&text, column, tool)).transpose().map_err(Fault::from)
    };
    let notice = match (moment("deprecated_at")?, moment("sunset_at")?, moment("removal_at")?) {
        (Some(deprecated_at), Some(sunset_at), Some(removal_at)) => Some(LifecycleNotice {
            deprecated_at,
            sunset_at,
            removal_at,
            successor: row.get("successor")?,
            migration_guide: row.get("migration_guide")?,
        }),
        _ => None,
    };
    Ok(Lifecycle { recorded: state(&row.get::<_, String>("lifecycle_state")?, tool)?, notice })
}

fn state(text: &str, tool: &str) -> Result<LifecycleState, Unreadable> {
    use LifecycleState::{Active, Deprecated, Removed, Sunset};
    [Active, Deprecated, Sunset, Removed]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| unreadable("lifecycle_state", tool))
}

/// A moment as it stands in a column.
pub(super) fn time(text: &str, column: &'static str, of: &str) -> Result<UnixMillis, Unreadable> {
    let stamp: jiff::Timestamp = text.parse().map_err(|_| unreadable(column, of))?;
    Ok(UnixMillis(stamp.as_millisecond()))
}

fn parse_manifest(text: &str, tool: &str) -> Result<Manifest, Unreadable> {
    serde_json::from_str(text).map_err(|_| unreadable("manifest", tool))
}

fn unreadable(column: &'static str, tool: &str) -> Unreadable {
    Unreadable { column, of: tool.to_owned() }
}
