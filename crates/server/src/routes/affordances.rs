//! `POST /v1/affordances`: an objective and a budget of tokens in, what a model should be shown out (LAZY-001…008, API-016).
//!
//! What is useful is what search finds; what the caller may not know is in neither index nor schemas, and pinning it is
//! "not found". Versions are those that `LATEST` means to this token unless a pin says otherwise. The choice is that of the crate
//! `affordances`; it may read megabytes and the first one makes the tables of the tokenizer, so it has a thread of its own.
//!
//! Not here: counting and packing, the meta-tools of the MCP door.

use std::sync::Arc;

use ::affordances::{
    Affordance, AffordanceBlock, CounterName, DetailLevel, IndexForm, IndexRequest, IndexSource, LINE_TOKENS_MIN,
    NavigationHints, compile,
};
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::manifest::MutationClass;
use contract::version::{Version, VersionSpec};
use kernel::registry::{ListFilter, ListingEntry, PAGE_SIZE_MAX, RegisteredTool, SEARCH_LIMIT_MAX};
use kernel::{Kernel, Principal};
use ports::tool_version::ToolVersion;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};

/// Greatest budget; more than any model reads at once.
const TOKEN_BUDGET_MAX: usize = 1_000_000;
/// Tools that are ranked when no limit is asked for.
const LIMIT_DEFAULT: usize = 20;
/// Tools that may be pinned.
const PINS_MAX: usize = 64;
/// Longest objective in characters.
const OBJECTIVE_CHARS_MAX: usize = 1000;
/// Tools that an index is made of; with more there is none.
const INDEX_TOOLS_MAX: usize = 20_000;
/// A pinned tool is this much more useful than the best that was found.
const PIN_FACTOR: f64 = 2.0;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: "/v1/affordances",
    id: "compileAffordances",
    tag: "discovery",
    summary: "Choose what to show a model: an index of the tools, and the schemas that help most within a token budget",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Json(SchemaGenerator::subschema_for::<AffordancesBody>),
    good: &[(200, "what fits into the budget")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<AffordancesAnswer>),
    codes: &[ErrorCode::E3101, ErrorCode::E3102, ErrorCode::E3103, ErrorCode::E3104],
    mount: |filter| to(filter, affordances),
}];

/// What a model is about to do, and how much it may be shown.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AffordancesBody {
    /// What should be done, in plain words.
    #[schemars(length(min = 1, max = 1000))]
    objective: String,
    /// Tokens of `index` and `schemas` together, as compact JSON.
    #[schemars(range(min = 1, max = 1_000_000))]
    token_budget: usize,
    /// How many tools are ranked for the objective; default 20.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
    /// The greatest detail in which a tool is shown; default `standard`.
    #[serde(default)]
    detail: Highest,
    /// Tools that matter most, whatever search says, and in which version.
    #[serde(default)]
    #[schemars(length(max = 64))]
    tools: Vec<Pin>,
    /// Who counts; default `o200k_base`.
    #[serde(default)]
    counter: CounterWord,
}

/// A tool by its name, or in a version.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a tool id, or an object with `tool_id` and `version`")]
enum Pin {
    Latest(String),
    Version(PinnedVersion),
}

/// A tool in a version.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PinnedVersion {
    tool_id: String,
    /// Absent means `LATEST`.
    #[serde(default)]
    version: VersionSpec,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Highest {
    #[default]
    Standard,
    Minimal,
}

/// Whose tokens are counted: those of the vocabulary `o200k_base`, or four characters each.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
enum CounterWord {
    #[default]
    #[serde(rename = "o200k_base")]
    O200kBase,
    #[serde(rename = "estimate")]
    Estimate,
}

/// What to show the model.
#[derive(Debug, Serialize, JsonSchema)]
struct AffordancesAnswer {
    /// What to do without an index; counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// One line a tool; empty if it does not fit.
    index: Vec<String>,
    /// `sentences`: with one about each tool; `names`: without; `none`: there was no room.
    #[schemars(with = "IndexWord")]
    index_form: IndexForm,
    /// Most useful first.
    #[schemars(with = "Vec<SchemaEntry>")]
    schemas: Vec<affordances::ToolEntry>,
    /// Tools that were ranked and did not fit.
    omitted: usize,
    /// Tokens of the compact JSON object of `note` if there is one, `index` and `schemas`, in this order.
    tokens_used: usize,
    tokens_left: usize,
    counter: CounterWord,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "exists only for its schema")]
enum IndexWord {
    Sentences,
    Names,
    None,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "exists only for its schema")]
enum DetailWord {
    Minimal,
    TopLevel,
    Standard,
}

/// A tool as it is shown to a model.
#[derive(JsonSchema)]
#[schemars(rename = "Affordance")]
#[expect(dead_code, reason = "exists only for its schema")]
struct SchemaEntry {
    tool_id: ToolId,
    /// The name to call it by, if that is not the id.
    #[schemars(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    version: Version,
    /// The first sentence only, unless `detail` is `standard`.
    description: String,
    mutation_class: MutationClass,
    /// `top_level`: of what is marked `x-nested` the inside was left out; `minimal`: there are no parameters.
    detail: DetailWord,
    /// JSON Schema.
    #[schemars(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    /// Where the rest is.
    #[schemars(skip_serializing_if = "Option::is_none")]
    more: Option<String>,
}

async fn affordances(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let body: AffordancesBody = incoming.json(&door, &who).await?.typed()?;
    body.check()?;
    let (kernel, counters) = (door.shared_kernel(), door.counters());
    door.carry_to_end(async move {
        let shown = Shown::collect(&kernel, &who, &body).await?;
        let counter = body.counter;
        let work = move || {
            let counting = counters.counting(counter.name());
            let tools = shown.catalogue();
            let catalogue = IndexSource { tools: &tools, total: shown.total };
            compile(catalogue, &shown.ranked(), body.wish(), counting)
        };
        let block = tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "affordances could not be compiled");
            Refusal::new(ErrorCode::E3000, "the affordances could not be compiled").caused_by(error)
        })?;
        HttpAnswer::json(&AffordancesAnswer::of(block, counter))
    })
    .await
}

// ----------------------------------------------------------------------------------------------------------- asking

impl AffordancesBody {
    fn check(&self) -> Result<(), Refusal> {
        let within = |name: &str, given: usize, max: usize| {
            let refused = || Refusal::new(ErrorCode::E3004, format!("`{name}` must be 1 to {max}"));
            if (1..=max).contains(&given) { Ok(()) } else { Err(refused()) }
        };
        if self.objective.trim().is_empty() {
            return Err(Refusal::new(ErrorCode::E3004, "`objective` is empty")
                .hint("say what should be done: \"send the report to everyone\""));
        }
        if self.objective.chars().count() > OBJECTIVE_CHARS_MAX {
            return Err(Refusal::new(ErrorCode::E3004, "`objective` is too long")
                .hint(format!("use at most {OBJECTIVE_CHARS_MAX} characters")));
        }
        within("token_budget", self.token_budget, TOKEN_BUDGET_MAX)?;
        within("limit", self.limit(), SEARCH_LIMIT_MAX)?;
        if self.tools.len() > PINS_MAX {
            return Err(Refusal::new(ErrorCode::E3004, "`tools` is too long")
                .hint(format!("pin at most {PINS_MAX} tools; search finds the others")));
        }
        Ok(())
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT_DEFAULT)
    }

    fn wish(&self) -> IndexRequest {
        let highest = match self.detail {
            Highest::Standard => DetailLevel::Standard,
            Highest::Minimal => DetailLevel::Minimal,
        };
        IndexRequest { budget: self.token_budget, highest, wayfinding: NavigationHints::Rest }
    }
}

impl CounterWord {
    fn name(self) -> CounterName {
        match self {
            Self::O200kBase => CounterName::O200kBase,
            Self::Estimate => CounterName::Estimate,
        }
    }
}

impl Pin {
    fn parts(&self) -> (&str, VersionSpec) {
        match self {
            Self::Latest(name) => (name, VersionSpec::Latest),
            Self::Version(pinned) => (&pinned.tool_id, pinned.version.clone()),
        }
    }
}

// ------------------------------------------------------------------------------------------------------- collecting

/// What the caller may be shown.
#[derive(Debug)]
struct Shown {
    /// Empty if an index of them cannot fit.
    catalogue: Vec<Arc<ToolVersion>>,
    total: usize,
    ranked: Vec<(Arc<ToolVersion>, f64)>,
}

impl Shown {
    async fn collect(kernel: &Kernel, who: &CallerCredential, body: &AffordancesBody) -> Result<Self, Refusal> {
        let caller = kernel.recognise(who.actor()).await?;
        let mut pinned = Vec::with_capacity(body.tools.len());
        for pin in &body.tools {
            let (name, spec) = pin.parts();
            // As for a call: what has been removed is no use to a model.
            let tool = kernel.tool(who.actor(), name).await?;
            let resolved = tool.resolve(&spec, kernel.clock().now())?;
            let latest = Some(&tool).filter(|_| spec == VersionSpec::Latest);
            let named = latest.and_then(|tool| called_version(kernel, &caller, tool));
            pinned.push(named.unwrap_or_else(|| Arc::clone(resolved)));
        }
        let found = kernel.search_tools(who.actor(), &body.objective, body.limit()).await?;
        let best = found.iter().filter_map(|hit| hit.score).fold(0.0, f64::max);
        let hits = found.into_iter().filter_map(|hit| {
            let worth = hit.score.unwrap_or_default();
            shown_version(kernel, &caller, hit).map(|version| (version, worth))
        });
        // A pin decides about the version also of what search finds.
        let hits = hits.filter(|(hit, _)| !pinned.iter().any(|pin| pin.id == hit.id));
        let mut ranked: Vec<(Arc<ToolVersion>, f64)> = hits.collect();
        let worth = if best > 0.0 { best * PIN_FACTOR } else { 1.0 };
        ranked.extend(pinned.into_iter().map(|pin| (pin, worth)));
        let (catalogue, total) = every_tool(kernel, who, &caller, body.token_budget).await?;
        Ok(Self { catalogue, total, ranked })
    }

    fn catalogue(&self) -> Vec<Affordance<'_>> {
        self.catalogue.iter().map(|tool| Affordance::of(&tool.id, &tool.manifest, 0.0)).collect()
    }

    fn ranked(&self) -> Vec<Affordance<'_>> {
        self.ranked.iter().map(|(tool, worth)| Affordance::of(&tool.id, &tool.manifest, *worth)).collect()
    }
}

/// The version that a call without one reaches with this token, if there is one.
fn called_version(kernel: &Kernel, caller: &Principal, tool: &RegisteredTool) -> Option<Arc<ToolVersion>> {
    tool.latest_of(kernel.clock().now(), |version| caller.may_call(&tool.id, version)).cloned()
}

/// The version that the caller is shown: the one it would call. One that it cannot call is for those only who look at what they
/// do not call themselves.
fn shown_version(kernel: &Kernel, caller: &Principal, listed: ListingEntry) -> Option<Arc<ToolVersion>> {
    called_version(kernel, caller, &listed.tool)
        .or_else(|| Some(listed.current).filter(|current| !caller.names(&current.id)))
}

/// All that the caller may know, in the versions that stand for them, and their number.
///
/// When the number alone says that no index of them fits, none is listed.
async fn every_tool(
    kernel: &Kernel,
    who: &CallerCredential,
    caller: &Principal,
    budget: usize,
) -> Result<(Vec<Arc<ToolVersion>>, usize), Refusal> {
    let mut tools = Vec::new();
    let mut filter = ListFilter { page: 1, page_size: PAGE_SIZE_MAX, ..ListFilter::default() };
    loop {
        let page = kernel.list_tools(who.actor(), &filter, None).await?;
        let total = page.total_count;
        if total > INDEX_TOOLS_MAX || total.saturating_mul(LINE_TOKENS_MIN) > budget {
            return Ok((Vec::new(), total));
        }
        let last = page.tools.len() < PAGE_SIZE_MAX;
        tools.extend(page.tools.into_iter().filter_map(|listed| shown_version(kernel, caller, listed)));
        if last {
            let total = tools.len();
            return Ok((tools, total));
        }
        filter.page = filter.page.saturating_add(1);
    }
}

impl AffordancesAnswer {
    fn of(block: AffordanceBlock, counter: CounterWord) -> Self {
        let AffordanceBlock { index, index_form, schemas, note, omitted, tokens_used, tokens_left } = block;
        Self { note, index, index_form, schemas, omitted, tokens_used, tokens_left, counter }
    }
}
