//! What one caller is offered, as MCP has it: built once per moment of the catalogue and class of credential, and
//! remembered.
//!
//! `tools/list` is a function of credential and path. Never of what was called or listed before: what is remembered here
//! is remembered under everything it depends on, and forgotten after [`FRESH_MS`], because time alone retires tools.
//!
//! Invariants
//! - LIST-1: the order is that of tool ids; a cursor names the last id seen, so pages stay right when tools come and go.
//! - LIST-2: a list holds nothing that its caller could not call at the moment it was built.
//!
//! Not here: who may use what (`kernel`), the three tools of lazy exposure (`lazy`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use affordances::{EstimatingCounter, TokenCounter as _};
use base::MutexExt as _;
use contract::canonical::Digest;
use contract::ids::ToolId;
use contract::manifest::{Execution, Manifest, McpDisplay, SideEffectPolicy, TaskSupport};
use kernel::{CatalogueMark, Kernel};
use policy::{Caller, ToolPattern};
use ports::tool_version::ToolVersion;
use rmcp::model::{Icon, JsonObject, MetaObject, Tool, ToolAnnotations};
use serde::Deserialize as _;
use serde_json::Value;

use super::config::{McpConfig, ToolExposure};
use super::{lazy, names, pages};

/// For how long a list is taken for true. Longer than a burst of requests, shorter than anybody notices a retirement.
const FRESH_MS: i64 = 10_000;
/// Lists remembered. At the limit those of a former moment go, then all.
const LISTS_MAX: usize = 256;
/// Tools remembered as MCP has them. At the limit all go.
const WIRES_MAX: usize = 50_000;

/// One tool that is offered.
#[derive(Debug)]
pub(crate) struct ListedTool {
    pub(crate) version: Arc<ToolVersion>,
    pub(crate) wire: Tool,
}

/// Everything one caller is offered at one path.
#[derive(Debug)]
pub(crate) struct ToolListing {
    mark: CatalogueMark,
    built_at_ms: i64,
    /// Ordered by id.
    pub(crate) offered: Vec<Arc<ListedTool>>,
    by_name: HashMap<Box<str>, usize>,
    /// The three tools of lazy exposure, if this list is shown that way.
    pub(crate) meta: Option<Vec<Tool>>,
    /// Of everything that is offered: changes when a client should look again.
    pub(crate) fingerprint: Digest,
}

/// One page of a listing.
#[derive(Debug)]
pub(crate) struct ListingPage {
    pub(crate) tools: Vec<Tool>,
    pub(crate) next: Option<String>,
}

/// Lists that have been built.
#[derive(Debug, Default)]
pub(crate) struct ListingCache {
    lists: Mutex<HashMap<Key, Arc<ToolListing>>>,
    /// A tool looks the same in every list: by the digest of its manifest.
    wires: Mutex<HashMap<Digest, Tool>>,
    /// Has the operator been told that a catalogue is too large to be listed?
    is_told: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    /// Of the caller's rights.
    rights: [u8; 32],
    toolset: Option<Arc<str>>,
}

impl ListingCache {
    /// What `caller` is offered behind `toolset`.
    pub(crate) fn get(
        &self,
        kernel: &Kernel,
        config: &McpConfig,
        caller: &Caller,
        toolset: Option<&Arc<str>>,
    ) -> Arc<ToolListing> {
        let key = Key { rights: *caller.digest(), toolset: toolset.cloned() };
        let mark = kernel.catalogue_mark();
        let now_ms = kernel.clock().now().0;
        let known = self.lists.lock_unpoisoned().get(&key).cloned();
        if let Some(known) = known
            && known.mark == mark
            && (0..FRESH_MS).contains(&now_ms.saturating_sub(known.built_at_ms))
        {
            return known;
        }
        let built = Arc::new(self.build(kernel, config, caller, toolset, mark, now_ms));
        let mut lists = self.lists.lock_unpoisoned();
        if lists.len() >= LISTS_MAX {
            lists.retain(|_, list| list.mark == built.mark);
        }
        if lists.len() >= LISTS_MAX {
            lists.clear();
        }
        lists.insert(key, Arc::clone(&built));
        built
    }

    /// How many lists and tools are remembered.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        let lists = self.lists.lock_unpoisoned().len();
        (lists, self.wires.lock_unpoisoned().len())
    }

    fn build(
        &self,
        kernel: &Kernel,
        config: &McpConfig,
        caller: &Caller,
        toolset: Option<&Arc<str>>,
        mark: CatalogueMark,
        now_ms: i64,
    ) -> ToolListing {
        let patterns = toolset.map(|name| config.toolsets.get(&**name).map_or(&[][..], Vec::as_slice));
        let versions = kernel.offered_tools(caller, &mark).into_iter().filter(|version| is_in(patterns, &version.id));
        let mut wires = self.wires.lock_unpoisoned();
        if wires.len() >= WIRES_MAX {
            wires.clear();
        }
        let offered: Vec<Arc<ListedTool>> = versions
            .map(|version| {
                let wire = wires.entry(version.digest).or_insert_with(|| wire(&version.id, &version.manifest)).clone();
                Arc::new(ListedTool { version, wire })
            })
            .collect();
        drop(wires);
        let by_name = offered.iter().enumerate().map(|(at, one)| (Box::from(&*one.wire.name), at)).collect();
        let fingerprint = fingerprint(&offered);
        let meta = is_lazy(config, &offered).then(|| lazy::meta_tools(config.mode, &offered));
        if meta.is_some() && config.exposure == ToolExposure::Auto && !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                tools = offered.len(),
                auto_tools_max = config.auto_tools_max,
                auto_tokens_max = config.auto_tokens_max,
                "a client is offered more tools than a model reads well: MCP lists search_tools, describe_tool and \
                 call_tool in their place; set tools.exposure = \"all\" to list each of them, or raise \
                 mcp.auto_tools_max or mcp.auto_tokens_max"
            );
        }
        ToolListing { mark, built_at_ms: now_ms, offered, by_name, meta, fingerprint }
    }
}

impl ToolListing {
    /// The tool of an exported name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<ListedTool>> {
        self.by_name.get(name).and_then(|at| self.offered.get(*at))
    }

    /// The tool of an exported name, or of an id as it is written everywhere else.
    pub(crate) fn named_in_any_way(&self, name: &str) -> Option<&Arc<ListedTool>> {
        self.named(name).or_else(|| {
            let at = self.offered.binary_search_by(|one| one.version.id.as_str().cmp(name)).ok()?;
            self.offered.get(at)
        })
    }

    /// The nearest of the exported names.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        contract::nearest::nearest(name, self.offered.iter().map(|one| &*one.wire.name))
    }

    /// What `tools/list` gives. `None`: the cursor is not one of ours.
    pub(crate) fn page(&self, cursor: Option<&str>, page_size: usize) -> Option<ListingPage> {
        if let Some(meta) = &self.meta {
            return cursor.is_none().then(|| ListingPage { tools: meta.clone(), next: None });
        }
        let from = match cursor {
            None => 0,
            Some(cursor) => {
                let last: ToolId = pages::key_of(cursor)?.parse().ok()?;
                self.offered.partition_point(|one| one.version.id <= last)
            }
        };
        let rest = self.offered.get(from..).unwrap_or_default();
        let tools: Vec<Tool> = rest.iter().take(page_size).map(|one| one.wire.clone()).collect();
        let last = rest.get(..tools.len()).and_then(<[_]>::last).filter(|_| rest.len() > tools.len());
        Some(ListingPage { next: last.map(|one| pages::cursor_of(one.version.id.as_str())), tools })
    }
}

/// Is this tool within a toolset? Everything is within none.
pub(crate) fn is_in(patterns: Option<&[ToolPattern]>, id: &ToolId) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(id)))
}

impl ListedTool {
    /// Is it a tool of an MCP server, whose results are MCP's already?
    pub(crate) fn is_relayed(&self) -> bool {
        is_relayed(&self.version.manifest)
    }

    /// The server it lives on, if it lives on one.
    pub(crate) fn server(&self) -> Option<&str> {
        match &self.version.manifest.execution {
            Some(Execution::Mcp { server, .. }) => Some(server),
            _ => None,
        }
    }
}

fn is_relayed(manifest: &Manifest) -> bool {
    matches!(manifest.execution, Some(Execution::Mcp { .. }))
}

fn is_lazy(config: &McpConfig, offered: &[Arc<ListedTool>]) -> bool {
    match config.exposure {
        ToolExposure::All => false,
        ToolExposure::Lazy => true,
        ToolExposure::Auto if offered.len() > config.auto_tools_max => true,
        ToolExposure::Auto => {
            // Only whether it is large: the tables of the real tokenizer would make the first list wait.
            let tokens = |one: &Arc<ListedTool>| {
                serde_json::to_string(&one.wire).map_or(0, |text| EstimatingCounter.count(&text))
            };
            offered.iter().map(tokens).sum::<usize>() > config.auto_tokens_max
        }
    }
}

fn fingerprint(offered: &[Arc<ListedTool>]) -> Digest {
    let mut all = Vec::with_capacity(offered.len() * 48);
    for one in offered {
        all.extend_from_slice(one.version.id.as_str().as_bytes());
        all.extend_from_slice(one.version.digest.as_bytes());
    }
    Digest::of_bytes(&all)
}

// ------------------------------------------------------------------------------------------------------- as MCP has it

fn wire(id: &ToolId, manifest: &Manifest) -> Tool {
    let mut tool = Tool::new(names::exported(id), manifest.description.clone(), Arc::new(object(&manifest.parameters)));
    tool.title = Some(manifest.name.clone());
    tool.output_schema = output_schema(manifest).map(Arc::new);
    let display = display(manifest);
    tool.annotations = Some(annotations(manifest, display));
    if let Some(display) = display {
        // An icon of a form that is not known is left out; the others are shown.
        let icons: Vec<Icon> = display.icons.iter().filter_map(|icon| Icon::deserialize(icon).ok()).collect();
        tool.icons = (!icons.is_empty()).then_some(icons);
        tool.meta = (!display.meta.is_empty()).then(|| MetaObject(display.meta.clone()));
    }
    tool
}

/// What the MCP server behind a tool shows of it.
fn display(manifest: &Manifest) -> Option<&McpDisplay> {
    match &manifest.execution {
        Some(Execution::Mcp { display, .. }) => display.as_deref(),
        _ => None,
    }
}

/// What the MCP server behind a tool says of its calls as tasks.
pub(super) fn task_support(manifest: &Manifest) -> Option<TaskSupport> {
    display(manifest)?.task_support
}

fn object(schema: &Value) -> JsonObject {
    let mut object = schema.as_object().cloned().unwrap_or_default();
    // A schema of parameters is one of objects; MCP wants to see it said.
    object.entry("type").or_insert_with(|| "object".into());
    object
}

/// What `structuredContent` will be like. MCP knows objects only.
fn output_schema(manifest: &Manifest) -> Option<JsonObject> {
    let schema = &manifest.result_schema;
    let schema = if is_relayed(manifest) {
        // Around it is the envelope in which results of MCP servers travel inside.
        let required = schema.get("required").and_then(Value::as_array)?;
        required.iter().find(|name| *name == "structuredContent")?;
        schema.get("properties")?.get("structuredContent")?
    } else {
        schema
    };
    (schema.get("type")? == "object").then(|| schema.as_object().cloned())?
}

/// What the manifest's own words mean in MCP's. About a tool nobody has classified nothing is claimed but what the server
/// behind it says; where somebody has classified it, that counts.
fn annotations(manifest: &Manifest, display: Option<&McpDisplay>) -> ToolAnnotations {
    let said =
        display.and_then(|display| ToolAnnotations::deserialize(&Value::Object(display.annotations.clone())).ok());
    let mut hints = said.unwrap_or_default();
    (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) = match manifest.side_effect_policy {
        SideEffectPolicy::Pure => (Some(true), Some(false), Some(true)),
        SideEffectPolicy::Idempotent => (Some(false), hints.destructive_hint, Some(true)),
        SideEffectPolicy::Compensatable => (Some(false), Some(false), Some(false)),
        SideEffectPolicy::Irreversible => (Some(false), Some(true), Some(false)),
        SideEffectPolicy::Unclassified => (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint),
    };
    if manifest.side_effect_policy != SideEffectPolicy::Unclassified {
        let reaches_out = manifest.required_permissions.iter().any(|scope| scope.starts_with("network"));
        hints.open_world_hint = Some(reaches_out || is_relayed(manifest));
    }
    hints
}
