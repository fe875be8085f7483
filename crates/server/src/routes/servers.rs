//! `/v1/servers`: the MCP servers behind Gantry, what they offer, and what is decided about that. Administrators only;
//! every act is recorded. (MCP-005, REG-023)
//!
//! ```text
//! GET    /v1/servers                                  PUT /v1/servers/{name}?start=, DELETE /v1/servers/{name}
//! POST   /v1/servers/{name}/restart                   GET  /v1/servers/{name}/logs?lines=
//! GET    /v1/servers/{name}/tools                     POST /v1/servers/{name}/tools/{tool}/accept | reject | classify
//! ```

use std::sync::Arc;

use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::SideEffectPolicy;
use ports::server_administration::{ServerAdministration, ServerDecision};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_in, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::problem::RefusalResponse;
use crate::query::QueryParameters;

mod view;

use view::{PinView, ServerView};

/// Lines of a log that are given unless more are asked for, and at most.
const LINES_DEFAULT: usize = 100;
const LINES_MAX: usize = 10_000;

const NAME: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "name",
    about: "what the server is called",
    schema: SchemaGenerator::subschema_for::<String>,
};
const TOOL: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "tool",
    about: "the tool, as its server or as Gantry calls it",
    schema: SchemaGenerator::subschema_for::<String>,
};
const LINES: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "lines",
    about: "how many lines, at most 10000; default 100",
    schema: SchemaGenerator::subschema_for::<usize>,
};
const START: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "start",
    about: "`false` keeps the server without starting it; its tools are known once it was started",
    schema: SchemaGenerator::subschema_for::<bool>,
};
/// What any of them can answer.
const CODES: &[ErrorCode] = &[
    ErrorCode::E3001,
    ErrorCode::E3004,
    ErrorCode::E3010,
    ErrorCode::E3101,
    ErrorCode::E3405,
    ErrorCode::E3406,
    ErrorCode::E3407,
    ErrorCode::E3408,
    ErrorCode::E3502,
    ErrorCode::E3503,
    ErrorCode::E3801,
    ErrorCode::E3803,
];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        parameters: &[TENANT],
        good: &[(200, "the servers")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Servers>),
        ..about(RouteMethod::Get, "/v1/servers", "listServers", "List the MCP servers of a tenant", |filter| {
            to(filter, list)
        })
    },
    RouteOperation {
        parameters: &[NAME, TENANT, START],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<Map<String, Value>>),
        good: &[(200, "the server, started and with its tools taken in, or with the reason why not")],
        ..about(
            RouteMethod::Put,
            "/v1/servers/{name}",
            "putServer",
            "Put an MCP server behind Gantry, or change one: `reach` and, if wanted, `namespace`, `relay`, `upkeep` …",
            |filter| to(filter, put),
        )
    },
    RouteOperation {
        good: &[(200, "it is gone, and none of its tools can be called")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<RemovedServer>),
        ..about(RouteMethod::Delete, "/v1/servers/{name}", "removeServer", "Take a server away", |filter| {
            to(filter, remove)
        })
    },
    about(
        RouteMethod::Post,
        "/v1/servers/{name}/restart",
        "restartServer",
        "Start a server anew and look at its tools again; calls under way finish on the old one",
        |filter| to(filter, restart),
    ),
    RouteOperation {
        parameters: &[NAME, TENANT, LINES],
        good: &[(200, "the last lines, oldest first")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Log>),
        ..about(
            RouteMethod::Get,
            "/v1/servers/{name}/logs",
            "serverLogs",
            "The last lines a server has written to its log",
            |filter| to(filter, logs),
        )
    },
    RouteOperation {
        good: &[(200, "its tools")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Pins>),
        ..about(
            RouteMethod::Get,
            "/v1/servers/{name}/tools",
            "serverTools",
            "What is known of a server's tools: what was accepted, what it says now, and the difference",
            |filter| to(filter, tools),
        )
    },
    RouteOperation {
        asks: RequestBody::JsonIfAny(SchemaGenerator::subschema_for::<AcceptBody>),
        ..decision(
            "/v1/servers/{name}/tools/{tool}/accept",
            "acceptServerTool",
            "Accept what the server says about a tool now: a new version is published",
            |filter| to(filter, accept),
        )
    },
    decision(
        "/v1/servers/{name}/tools/{tool}/reject",
        "rejectServerTool",
        "Refuse it: the tool stays away until the server says again what was accepted",
        |filter| to(filter, reject),
    ),
    RouteOperation {
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<ClassifyBody>),
        ..decision(
            "/v1/servers/{name}/tools/{tool}/classify",
            "classifyServerTool",
            "Say what a tool does to the world: a new version is published",
            |filter| to(filter, classify),
        )
    },
];

const fn about(
    verb: RouteMethod,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    mount: fn(axum::routing::MethodFilter) -> axum::routing::MethodRouter<Arc<Door>>,
) -> RouteOperation {
    RouteOperation {
        verb,
        path,
        id,
        tag: "servers",
        summary,
        access: RouteAccess::Token,
        parameters: &[NAME, TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "the server as it is now")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ServerView>),
        codes: CODES,
        mount,
    }
}

const fn decision(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    mount: fn(axum::routing::MethodFilter) -> axum::routing::MethodRouter<Arc<Door>>,
) -> RouteOperation {
    RouteOperation {
        parameters: &[NAME, TOOL, TENANT],
        good: &[(200, "the tool as it is now")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<PinView>),
        ..about(RouteMethod::Post, path, id, summary, mount)
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Servers {
    servers: Vec<ServerView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RemovedServer {
    /// Always true: a server that is not known is a refusal.
    removed: bool,
}

/// What a server has written.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerLog")]
struct Log {
    lines: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerTools")]
struct Pins {
    tools: Vec<PinView>,
}

/// What was looked at.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct AcceptBody {
    /// The digest of what was looked at: nothing else is accepted then. Absent: whatever the server says now.
    digest: Option<Digest>,
}

/// What the tool does to the world.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClassifyBody {
    /// `pure`, `idempotent`, `irreversible`, or `unclassified` to take it back.
    side_effect_policy: SideEffectPolicy,
    /// Of the definition that was looked at; if the server says something else by now, nothing is classified.
    #[serde(default)]
    digest: Option<Digest>,
}

async fn list(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let Asked { who, tenant, desk, path: [], .. } = asked(&door, &mut incoming, &["tenant"]).await?;
    let reports = desk.servers(who.actor(), tenant.as_ref()).await?;
    HttpAnswer::json(&Servers { servers: reports.into_iter().map(ServerView::of).collect() })
}

async fn put(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let spec = incoming.json(&door, &who).await?.value;
    let Asked { who, tenant, desk, path: [name], query } = asked(&door, &mut incoming, &["tenant", "start"]).await?;
    let start = query.word("start", &[("true", true), ("false", false)])?.unwrap_or(true);
    door.carry_to_end(async move {
        let report = desk.put_server(who.actor(), tenant.as_ref(), &name, spec, start).await?;
        HttpAnswer::json(&ServerView::of(report))
    })
    .await
}

async fn remove(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let Asked { who, tenant, desk, path: [name], .. } = asked(&door, &mut incoming, &["tenant"]).await?;
    door.carry_to_end(async move {
        desk.remove_server(who.actor(), tenant.as_ref(), &name).await?;
        HttpAnswer::json(&RemovedServer { removed: true })
    })
    .await
}

async fn restart(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let Asked { who, tenant, desk, path: [name], .. } = asked(&door, &mut incoming, &["tenant"]).await?;
    door.carry_to_end(async move {
        let report = desk.restart_server(who.actor(), tenant.as_ref(), &name).await?;
        HttpAnswer::json(&ServerView::of(report))
    })
    .await
}

async fn logs(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let Asked { who, tenant, desk, path: [name], query } = asked(&door, &mut incoming, &["tenant", "lines"]).await?;
    let lines = query.number("lines", 1..=LINES_MAX, LINES_DEFAULT)?;
    let lines = desk.server_log(who.actor(), tenant.as_ref(), &name, lines).await?;
    HttpAnswer::json(&Log { lines })
}

async fn tools(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let Asked { who, tenant, desk, path: [name], .. } = asked(&door, &mut incoming, &["tenant"]).await?;
    let reports = desk.server_tools(who.actor(), tenant.as_ref(), &name).await?;
    HttpAnswer::json(&Pins { tools: reports.into_iter().map(PinView::of).collect() })
}

async fn accept(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let digest = match incoming.json_if_any(&door, &who).await? {
        None => None,
        Some(body) => body.typed::<AcceptBody>()?.digest,
    };
    decide(door, incoming, ServerDecision::Accept { digest }).await
}

async fn reject(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    decide(door, incoming, ServerDecision::Reject).await
}

async fn classify(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let ClassifyBody { side_effect_policy: class, digest } = incoming.json(&door, &who).await?.typed()?;
    decide(door, incoming, ServerDecision::Classify { class, digest }).await
}

async fn decide(door: Arc<Door>, mut incoming: IncomingRequest, decision: ServerDecision) -> Handled {
    let Asked { who, tenant, desk, path: [name, tool], .. } = asked(&door, &mut incoming, &["tenant"]).await?;
    door.carry_to_end(async move {
        let report = desk.decide(who.actor(), tenant.as_ref(), &name, &tool, decision).await?;
        HttpAnswer::json(&PinView::of(report))
    })
    .await
}

/// What a request here has besides its body, and who answers it.
struct Asked<const N: usize> {
    who: CallerCredential,
    tenant: Option<TenantId>,
    /// What stands in the path's places.
    path: [String; N],
    query: QueryParameters,
    desk: Arc<dyn ServerAdministration>,
}

/// Recognises the caller, then reads what is asked. The rest is none of a stranger's business, not even what is wrong with it.
async fn asked<const N: usize>(
    door: &Door,
    incoming: &mut IncomingRequest,
    known: &'static [&'static str],
) -> Result<Asked<N>, RefusalResponse> {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(known)?;
    let tenant = tenant_in(&query)?;
    let path = incoming.path_values().await?;
    let none = || Refusal::new(ErrorCode::E3010, "this server has no MCP servers behind it").hint("use another one");
    let desk = door.servers().ok_or_else(none)?;
    Ok(Asked { who, tenant, path, query, desk })
}
