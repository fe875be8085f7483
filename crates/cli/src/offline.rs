//! The registry straight from the data directory, for when no server runs. Reads only.
//!
//! Whoever can read the data directory can read everything in it, so nothing is hidden here. Answers have the shapes of
//! the REST door, so that commands need not care where theirs came from.

use std::sync::Arc;

use contract::manifest::LifecycleState;
use contract::version::VersionSpec;
use kernel::ports::clock::{Clock, UnixMillis};
use kernel::ports::observer::{Finished, Observer};
use kernel::ports::registry_store::RegistryStore;
use kernel::ports::tool_search::ToolSearch;
use kernel::registry::{ListFilter, Listed, Notice, Registry, ToolVersion};
use serde_json::{Value, json};
use store::sqlite::SqliteStore;

use crate::context::Context;
use crate::failure::Failure;
use crate::machine::SystemClock;

/// The registry of a data directory.
pub(crate) struct OfflineRegistry {
    registry: Registry,
    clock: Arc<dyn Clock>,
}

/// Nobody watches a command that only reads.
#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn invocation_finished(&self, _: &Finished<'_>) {}
    fn registry_swapped(&self, _: usize, _: usize) {}
    fn audit_queue(&self, _: usize) {}
    fn audit_append_failed(&self) {}
}

impl OfflineRegistry {
    /// Opens the store of the data directory.
    pub(crate) async fn open(context: &Context) -> Result<Self, Failure> {
        let file = context.config(Vec::new())?.store.file(context.data_dir().path());
        let store = SqliteStore::open_read_only(&file).map_err(|error| {
            Failure::new(format!("no server answers at {}, and {error}", context.server_url()))
                .hint("start one with `gantry serve`, or name a server or data directory with --server or --data-dir")
        })?;
        let store = Arc::new(store);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let (truth, search) = (Arc::clone(&store) as Arc<dyn RegistryStore>, store as Arc<dyn ToolSearch>);
        let registry = Registry::open(truth, search, Arc::clone(&clock), Arc::new(Nobody))
            .await
            .map_err(|error| Failure::new(error.to_string()).hint("`gantry doctor` looks at the data directory"))?;
        context.printer.note("no server is running: read from the data directory");
        Ok(Self { registry, clock })
    }

    /// As `GET /v1/tools`.
    pub(crate) fn list(&self, filter: &ListFilter) -> Value {
        let now = self.clock.now();
        let page = self.registry.list(filter, |_| true);
        let tools: Vec<Value> = page.tools.iter().map(|listed| tool_line(listed, now)).collect();
        let (page_number, page_size) = (filter.page, filter.page_size);
        json!({
            "tools": tools,
            "pagination": { "total_count": page.total_count, "page": page_number, "page_size": page_size },
        })
    }

    /// As `GET /v1/tools/search`.
    pub(crate) async fn search(&self, query: &str, limit: usize) -> Result<Value, Failure> {
        let now = self.clock.now();
        let hits = self.registry.search(query, limit, |_| true).await?;
        let results: Vec<Value> = hits.iter().map(|listed| search_result(listed, now)).collect();
        Ok(json!({ "query": query, "results": results, "mode": "lexical" }))
    }

    /// As `GET /v1/tools/{id}`.
    pub(crate) fn tool(&self, name: &str) -> Result<Value, Failure> {
        let snapshot = self.registry.snapshot();
        let tool = snapshot.find(name).ok_or_else(|| snapshot.not_found(name, |_| true))?;
        let now = self.clock.now();
        let current = tool.current(now).ok_or_else(|| Failure::new(format!("tool `{name}` has no versions")))?;
        let versions: Vec<Value> = tool.versions().iter().map(|version| version_line(version, now)).collect();
        Ok(json!({
            "tool_id": tool.id, "current_version": current.version, "lifecycle_state": current.lifecycle.state(now),
            "manifest": current.manifest.as_ref(), "versions": versions,
        }))
    }

    /// As `GET /v1/tools/{id}/versions/{version}`.
    pub(crate) fn version(&self, name: &str, spec: &VersionSpec) -> Result<Value, Failure> {
        let snapshot = self.registry.snapshot();
        let tool = snapshot.find(name).ok_or_else(|| snapshot.not_found(name, |_| true))?;
        let now = self.clock.now();
        // History stays readable: an exact version is shown whatever its state.
        let exact = match spec {
            VersionSpec::Exact(version) => tool.version(version),
            VersionSpec::Latest | VersionSpec::Range(_) => None,
        };
        let version = exact.map_or_else(|| tool.resolve(spec, now), Ok)?;
        let mut line = version_line(version, now);
        if let Some(members) = line.as_object_mut() {
            members.insert("tool_id".into(), json!(version.id));
            members.insert("manifest".into(), json!(version.manifest.as_ref()));
        }
        Ok(line)
    }
}

fn tool_line(listed: &Listed, now: UnixMillis) -> Value {
    let (current, manifest) = (&listed.current, &listed.current.manifest);
    let in_use = |v: &&Arc<ToolVersion>| v.lifecycle.state(now) != LifecycleState::Removed;
    let versions: Vec<_> = listed.tool.versions().iter().filter(in_use).map(|v| &v.version).collect();
    json!({
        "tool_id": current.id, "tool_name": manifest.name, "name": manifest.name, "description": manifest.description,
        "category": manifest.categories.first(), "categories": manifest.categories, "versions": versions,
        "latest_version": current.version, "tags": manifest.tags, "requires_approval": manifest.needs_approval(),
        "side_effect_policy": manifest.side_effect_policy, "timeout_class": manifest.timeout_class,
        "lifecycle_state": current.lifecycle.state(now), "provider": manifest.provider, "protocol": manifest.protocol,
    })
}

fn search_result(listed: &Listed, now: UnixMillis) -> Value {
    let (current, manifest) = (&listed.current, &listed.current.manifest);
    json!({
        "tool_id": current.id, "name": manifest.name, "description": manifest.description,
        "current_version": current.version, "provider": manifest.provider, "protocol": manifest.protocol,
        "lifecycle_state": current.lifecycle.state(now), "score": listed.score, "similarity": null,
    })
}

fn version_line(version: &ToolVersion, now: UnixMillis) -> Value {
    let mut line = json!({
        "version": version.version, "digest": version.digest, "lifecycle_state": version.lifecycle.state(now),
        "published_at": version.published_at.to_string(),
    });
    if let (Some(members), Some(notice)) = (line.as_object_mut(), &version.lifecycle.notice) {
        members.insert("deprecation".into(), json!(Notice::on_the_wire(notice)));
    }
    line
}
