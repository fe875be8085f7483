//! The home tenant's registry straight from the data directory, for when no server runs. Reads only.
//!
//! Whoever can read the data directory can read everything in it, so nothing is hidden here. Answers have the shapes of
//! the REST door, so that commands need not care where theirs came from.

use std::collections::HashSet;
use std::sync::Arc;

use contract::ids::TenantId;
use contract::version::VersionSpec;
use kernel::registry::{ListFilter, RegisteredTool, Registry};
use policy::WhyUnavailable;
use ports::clock::Clock;
use ports::observer::NoObserver;
use ports::registry_store::RegistryStore;
use ports::tool_search::ToolSearch;
use ports::upstream_store::UpstreamStore;
use serde_json::{Value, json};
use server::tool_view::{Pagination, SearchAnswer, SearchResult, ToolDetail, ToolLine, ToolList, VersionDetail};
use store::sqlite::SqliteStore;

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::machine::SystemClock;

/// The registry of a data directory.
pub(crate) struct OfflineRegistry {
    registry: Registry,
    /// The MCP servers of the home tenant: what came from another one is history.
    servers: HashSet<String>,
    clock: Arc<dyn Clock>,
}

impl OfflineRegistry {
    /// Opens the store of the data directory.
    pub(crate) async fn open(context: &CommandContext) -> Result<Self, CommandFailure> {
        let config = context.config(Vec::new())?;
        if let Some(database) = config.store.database() {
            return Err(CommandFailure::new(format!(
                "no server answers at {}, and {} is read by servers only",
                context.server_url(),
                database.shown()
            ))
            .hint("start one with `gantry serve`, or name a server with --server"));
        }
        let file = config.store.file(context.data_dir().path());
        let store = SqliteStore::open_read_only(&file).map_err(|error| {
            CommandFailure::new(format!("no server answers at {}, and {error}", context.server_url()))
                .hint("start one with `gantry serve`, or name a server or data directory with --server or --data-dir")
        })?;
        let store = Arc::new(store);
        let upstreams = UpstreamStore::load(&*store).await.map_err(|error| CommandFailure::from(error.refusal()))?;
        let of_home = upstreams.servers.into_iter().filter(|server| server.tenant.is_home());
        let servers = of_home.map(|server| server.name).collect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let (truth, search) = (Arc::clone(&store) as Arc<dyn RegistryStore>, store as Arc<dyn ToolSearch>);
        let registry =
            Registry::open(truth, search, Arc::clone(&clock), Arc::new(NoObserver)).await.map_err(|error| {
                CommandFailure::new(error.to_string()).hint("`gantry doctor` looks at the data directory")
            })?;
        context.printer.note("no server is running: read from the data directory");
        Ok(Self { registry, servers, clock })
    }

    fn is_history(&self, tool: &RegisteredTool) -> bool {
        tool.server().is_some_and(|server| !self.servers.contains(server))
    }

    /// As `GET /v1/tools`.
    pub(crate) fn list(&self, filter: &ListFilter) -> Value {
        let now = self.clock.now();
        let page = self.registry.list(&TenantId::home(), filter, |tool| !self.is_history(tool));
        json!(ToolList {
            tools: page.tools.iter().map(|listed| ToolLine::of(listed, now)).collect(),
            pagination: Pagination { total_count: page.total_count, page: filter.page, page_size: filter.page_size },
        })
    }

    /// As `GET /v1/tools/search`.
    pub(crate) async fn search(&self, query: &str, limit: usize) -> Result<Value, CommandFailure> {
        let now = self.clock.now();
        let hits = self.registry.search(&TenantId::home(), query, limit, |tool| !self.is_history(tool)).await?;
        let results = hits.iter().map(|listed| SearchResult::of(listed, now)).collect();
        Ok(json!(SearchAnswer { query: query.to_owned(), results, mode: "lexical" }))
    }

    /// As `GET /v1/tools/{id}`.
    pub(crate) fn tool(&self, name: &str) -> Result<Value, CommandFailure> {
        let snapshot = self.registry.snapshot();
        let home = TenantId::home();
        let tool = snapshot.find(&home, name).ok_or_else(|| snapshot.not_found(&home, name, |_| true))?;
        let now = self.clock.now();
        let current = tool.current(now).ok_or_else(|| CommandFailure::new(format!("tool `{name}` has no versions")))?;
        let why_unavailable = self.is_history(tool).then_some(WhyUnavailable::ServerRemoved);
        Ok(json!(ToolDetail::of(tool, current, why_unavailable, now)))
    }

    /// As `GET /v1/tools/{id}/versions/{version}`.
    pub(crate) fn version(&self, name: &str, spec: &VersionSpec) -> Result<Value, CommandFailure> {
        let snapshot = self.registry.snapshot();
        let home = TenantId::home();
        let tool = snapshot.find(&home, name).ok_or_else(|| snapshot.not_found(&home, name, |_| true))?;
        let now = self.clock.now();
        // History stays readable: an exact version is shown whatever its state.
        let exact = match spec {
            VersionSpec::Exact(version) => tool.version(version),
            VersionSpec::Latest | VersionSpec::Range(_) => None,
        };
        let version = exact.map_or_else(|| tool.resolve(spec, now), Ok)?;
        Ok(json!(VersionDetail::of(version, now)))
    }
}
