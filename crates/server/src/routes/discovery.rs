//! What a tenant has, what an agent may use, and what it could use if somebody enabled it (VIS-007, VIS-008, VIS-010…013).
//!
//! What a token may not know of is "not found", whether it exists or not.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::agents::{AGENT_ID, agent_asked};
use super::{ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::visibility_view::{AvailableTool, EnabledTool, TenantToolView, UnavailableTool};

const TENANT_ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "tenant_id",
    about: "the tenant",
    schema: SchemaGenerator::subschema_for::<TenantId>,
};

const TOOL_ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "tool_id",
    about: "`namespace.tool_id`, `tool_id`, or an alias",
    schema: SchemaGenerator::subschema_for::<String>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        parameters: &[TENANT_ID],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<TenantTools>),
        mount: |filter| to(filter, of_tenant),
        ..look("/v1/tenants/{tenant_id}/tools", "listTenantTools", "What a tenant has")
    },
    RouteOperation {
        parameters: &[TENANT_ID, TOOL_ID],
        good: &[(200, "the tool, whether the caller may use it or not")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<TenantToolView>),
        codes: &[ErrorCode::E3004, ErrorCode::E3101],
        mount: |filter| to(filter, one_of_tenant),
        ..look("/v1/tenants/{tenant_id}/tools/{tool_id}", "getTenantTool", "One tool that a tenant has, by its name")
    },
    RouteOperation {
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<AgentTools>),
        mount: |filter| to(filter, of_agent),
        ..look("/v1/agents/{agent_id}/tools", "listAgentTools", "What an agent may use, as far as activations decide")
    },
    RouteOperation {
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<UnavailableTools>),
        mount: |filter| to(filter, unavailable),
        ..look(
            "/v1/agents/{agent_id}/tools/unavailable",
            "listUnavailableTools",
            "What an agent could use if somebody enabled it, and why it cannot now",
        )
    },
];

const fn look(path: &'static str, id: &'static str, summary: &'static str) -> RouteOperation {
    RouteOperation {
        verb: RouteMethod::Get,
        path,
        id,
        tag: "discovery",
        summary,
        access: RouteAccess::Token,
        parameters: &[AGENT_ID],
        asks: RequestBody::Nothing,
        good: &[(200, "the tools, in the order of their ids")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<AgentTools>),
        codes: &[ErrorCode::E3004],
        mount: |filter| to(filter, of_agent),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct TenantTools {
    tenant_id: TenantId,
    tools: Vec<AvailableTool>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AgentTools {
    agent_id: Subject,
    tools: Vec<EnabledTool>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UnavailableTools {
    agent_id: Subject,
    tools: Vec<UnavailableTool>,
}

async fn of_tenant(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [text] = incoming.path_values().await?;
    incoming.query(&[])?;
    let tenant_id = tenant(&text)?;
    let tools = door.kernel().tenant_tools(who.actor(), &tenant_id).await?;
    HttpAnswer::json(&TenantTools { tenant_id, tools: tools.iter().map(AvailableTool::of).collect() })
}

async fn one_of_tenant(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [tenant_id, tool_id] = incoming.path_values().await?;
    incoming.query(&[])?;
    let tool = door.kernel().tenant_tool(who.actor(), &tenant(&tenant_id)?, &tool_id).await?;
    HttpAnswer::json(&TenantToolView::of(&tool))
}

fn tenant(text: &str) -> Result<TenantId, Refusal> {
    text.parse().map_err(|error: contract::ids::NameError| Refusal::new(ErrorCode::E3004, error.to_string()))
}

async fn of_agent(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let agent_id = agent_asked(&mut incoming).await?;
    incoming.query(&[])?;
    let tools = door.kernel().agent_tools(who.actor(), &agent_id).await?;
    HttpAnswer::json(&AgentTools { agent_id, tools: tools.iter().map(EnabledTool::of).collect() })
}

async fn unavailable(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let agent_id = agent_asked(&mut incoming).await?;
    incoming.query(&[])?;
    let tools = door.kernel().unavailable_tools(who.actor(), &agent_id).await?;
    HttpAnswer::json(&UnavailableTools { agent_id, tools: tools.iter().map(UnavailableTool::of).collect() })
}
