//! Looking at tools: list, search, one tool, one version (API-006, API-012, REG-013…015).

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::LifecycleState;
use contract::version::VersionSpec;
use kernel::VisibilityTier;
use kernel::registry::{ListFilter, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, SEARCH_LIMIT_MAX};
use schemars::{JsonSchema, SchemaGenerator};

use super::{ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::problem::RefusalResponse;
use crate::tool_view::{Pagination, SearchAnswer, SearchResult, ToolDetail, ToolLine, ToolList, VersionDetail};

/// Highest page that is counted to.
pub(super) const PAGE_MAX: usize = 1_000_000;
/// Search hits when no limit is asked for (REG-014).
const SEARCH_LIMIT_DEFAULT: usize = 10;
/// Longest search text in characters.
const SEARCH_CHARS_MAX: usize = 1000;
/// The visibility tiers (VIS-001), the first in both spellings.
const TIERS: &[(&str, VisibilityTier)] = &[
    ("catalog", VisibilityTier::Catalogue),
    ("catalogue", VisibilityTier::Catalogue),
    ("tenant", VisibilityTier::Tenant),
    ("agent", VisibilityTier::Agent),
];
const LIFECYCLES: &[(&str, LifecycleState)] = &[
    ("active", LifecycleState::Active),
    ("deprecated", LifecycleState::Deprecated),
    ("sunset", LifecycleState::Sunset),
    ("removed", LifecycleState::Removed),
];

/// The tiers, for the published schema.
#[derive(JsonSchema)]
#[schemars(inline, rename_all = "snake_case")]
#[expect(dead_code, reason = "exists only for its schema")]
enum TierWord {
    Catalog,
    Catalogue,
    Tenant,
    Agent,
}

const ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "`namespace.tool_id`, `tool_id`, or an alias",
    schema: SchemaGenerator::subschema_for::<String>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/tools",
        id: "listTools",
        tag: "registry",
        summary: "List the tools this token may know",
        access: RouteAccess::Token,
        parameters: &[
            query("category", "only tools of this category", SchemaGenerator::subschema_for::<String>),
            query(
                "tags",
                "only tools with all of these tags; separate by commas or repeat",
                SchemaGenerator::subschema_for::<String>,
            ),
            query(
                "q",
                "only tools with this text in id, name or description",
                SchemaGenerator::subschema_for::<String>,
            ),
            query(
                "lifecycle",
                "only tools in this state; default active and deprecated",
                SchemaGenerator::subschema_for::<LifecycleState>,
            ),
            query(
                "tier",
                "`catalog`: all there is; `tenant`: what the tenant has; `agent`: what this caller may use; default what \
                 the token may know",
                SchemaGenerator::subschema_for::<TierWord>,
            ),
            query("page", "from 1", SchemaGenerator::subschema_for::<u32>),
            query("page_size", "1 to 200, default 50", SchemaGenerator::subschema_for::<u32>),
        ],
        asks: RequestBody::Nothing,
        good: &[(200, "one page")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ToolList>),
        codes: &[ErrorCode::E3004],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/tools/search",
        id: "searchTools",
        tag: "registry",
        summary: "Search tools by what they do",
        access: RouteAccess::Token,
        parameters: &[
            RouteParameter {
                place: ParameterPlace::RequiredQuery,
                name: "q",
                about: "what the tool should do, in plain words",
                schema: SchemaGenerator::subschema_for::<String>,
            },
            query("limit", "1 to 100, default 10", SchemaGenerator::subschema_for::<u32>),
        ],
        asks: RequestBody::Nothing,
        good: &[(200, "the best hits")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<SearchAnswer>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004],
        mount: |filter| to(filter, search),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/tools/{id}",
        id: "getTool",
        tag: "registry",
        summary: "Show one tool: its current manifest and all its versions",
        access: RouteAccess::Token,
        parameters: &[ID],
        asks: RequestBody::Nothing,
        good: &[(200, "the tool")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ToolDetail<'static>>),
        codes: &[ErrorCode::E3101],
        mount: |filter| to(filter, show),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/tools/{id}/versions/{version}",
        id: "getToolVersion",
        tag: "registry",
        summary: "Show one version of a tool, by its number or by a range",
        access: RouteAccess::Token,
        parameters: &[
            ID,
            RouteParameter {
                place: ParameterPlace::Path,
                name: "version",
                about: "a version, a range such as `^1.2`, or `LATEST`",
                schema: SchemaGenerator::subschema_for::<VersionSpec>,
            },
        ],
        asks: RequestBody::Nothing,
        good: &[(200, "the version")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<VersionDetail<'static>>),
        codes: &[ErrorCode::E3004, ErrorCode::E3101, ErrorCode::E3102, ErrorCode::E3103, ErrorCode::E3104],
        mount: |filter| to(filter, show_version),
    },
];

const fn query(
    name: &'static str,
    about: &'static str,
    schema: fn(&mut SchemaGenerator) -> schemars::Schema,
) -> RouteParameter {
    RouteParameter { place: ParameterPlace::Query, name, about, schema }
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["category", "tags", "q", "lifecycle", "tier", "page", "page_size"])?;
    let tier = query.word("tier", TIERS)?;
    let filter = ListFilter {
        category: query.one("category")?.map(str::to_owned),
        tags: query.many("tags"),
        text: query.one("q")?.map(str::to_owned),
        lifecycle: query.word("lifecycle", LIFECYCLES)?,
        page: query.number("page", 1..=PAGE_MAX, 1)?,
        page_size: query.number("page_size", 1..=PAGE_SIZE_MAX, PAGE_SIZE_DEFAULT)?,
    };
    HttpAnswer::json(&listed(&door, &who, &filter, tier).await?)
}

/// One page of what the caller may know.
pub(super) async fn listed(
    door: &Door,
    who: &CallerCredential,
    filter: &ListFilter,
    tier: Option<VisibilityTier>,
) -> Result<ToolList, RefusalResponse> {
    let found = door.kernel().list_tools(who.actor(), filter, tier).await?;
    let now = door.kernel().clock().now();
    Ok(ToolList {
        tools: found.tools.iter().map(|listed| ToolLine::of(listed, now)).collect(),
        pagination: Pagination { total_count: found.total_count, page: filter.page, page_size: filter.page_size },
    })
}

/// The same for what a search finds: the best hits that fit category and tags, best first, in pages.
pub(super) async fn listed_by_capability(
    door: &Door,
    who: &CallerCredential,
    filter: ListFilter,
    query: String,
) -> Result<ToolList, RefusalResponse> {
    let query = searchable("capability_query", query)?;
    let (kernel, who) = (door.shared_kernel(), who.clone());
    door.carry_to_end(async move {
        let found = kernel.search_tools(who.actor(), &query, SEARCH_LIMIT_MAX).await?;
        let now = kernel.clock().now();
        let fits = |line: &ToolLine| {
            filter.category.as_ref().is_none_or(|wanted| line.categories.contains(wanted))
                && filter.tags.iter().all(|wanted| line.tags.contains(wanted))
        };
        let hits: Vec<ToolLine> = found.iter().map(|listed| ToolLine::of(listed, now)).filter(fits).collect();
        let pagination = Pagination { total_count: hits.len(), page: filter.page, page_size: filter.page_size };
        let before = filter.page.saturating_sub(1).saturating_mul(filter.page_size);
        Ok(ToolList { tools: hits.into_iter().skip(before).take(filter.page_size).collect(), pagination })
    })
    .await
}

/// A text that can be searched for.
fn searchable(member: &str, text: String) -> Result<String, Refusal> {
    if text.chars().count() <= SEARCH_CHARS_MAX {
        return Ok(text);
    }
    Err(Refusal::new(ErrorCode::E3004, format!("`{member}` is too long"))
        .hint(format!("use at most {SEARCH_CHARS_MAX} characters")))
}

async fn search(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["q", "limit"])?;
    let text = query.one("q")?.ok_or_else(|| {
        Refusal::new(ErrorCode::E3004, "query parameter `q` is missing")
            .hint("say what the tool should do: ?q=send+an+email")
    })?;
    let (text, limit) =
        (searchable("q", text.to_owned())?, query.number("limit", 1..=SEARCH_LIMIT_MAX, SEARCH_LIMIT_DEFAULT)?);
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let found = kernel.search_tools(who.actor(), &text, limit).await?;
        let now = kernel.clock().now();
        let results = found.iter().map(|listed| SearchResult::of(listed, now)).collect();
        HttpAnswer::json(&SearchAnswer { query: text, results, mode: "lexical" })
    })
    .await
}

async fn show(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let [id] = incoming.path_values().await?;
    incoming.query(&[])?;
    let tool = door.kernel().tool(who.actor(), &id).await?;
    let now = door.kernel().clock().now();
    let current = tool.current(now).ok_or_else(|| Refusal::new(ErrorCode::E3000, "the tool has no versions"))?;
    let why_unavailable = door.kernel().availability().why_not(&tool.tenant, &tool.id);
    HttpAnswer::json(&ToolDetail::of(&tool, current, why_unavailable, now))
}

async fn show_version(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [id, version] = incoming.path_values().await?;
    incoming.query(&[])?;
    let spec =
        VersionSpec::parse(&version).map_err(|error| Refusal::new(ErrorCode::E3004, format!("version: {error}")))?;
    let version = door.kernel().tool_version(who.actor(), &id, &spec).await?;
    HttpAnswer::json(&VersionDetail::of(&version, door.kernel().clock().now()))
}
