//! What a tenant has, what an agent may use, and what it could use if somebody enabled it (VIS-007, VIS-008, VIS-010…013).
//!
//! What a token may not know of is "not found", whether it exists or not.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::agents::{AGENT_ID, agent_asked};
use super::{Access, Asks, Gives, Operation, Parameter, Place, Verb, to};
use crate::answer::{Answer, Handled};
use crate::door::Door;
use crate::incoming::Incoming;
use crate::visibility_view::{AvailableTool, EnabledTool, TenantToolView, UnavailableTool};

const TENANT_ID: Parameter = Parameter {
    place: Place::Path,
    name: "tenant_id",
    about: "the tenant",
    schema: SchemaGenerator::subschema_for::<TenantId>,
};

const TOOL_ID: Parameter = Parameter {
    place: Place::Path,
    name: "tool_id",
    about: "`namespace.tool_id`, `tool_id`, or an alias",
    schema: SchemaGenerator::subschema_for::<String>,
};

pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        parameters: &[TENANT_ID],
        gives: Gives::Json(SchemaGenerator::subschema_for::<TenantTools>),
        mount: |filter| to(filter, of_tenant),
        ..look("/v1/tenants/{tenant_id}/tools", "listTenantTools", "What a tenant has")
    },
    Operation {
        parameters: &[TENANT_ID, TOOL_ID],
        good: &[(200, "the tool, whether the caller may use it or not")],
        gives: Gives::Json(SchemaGenerator::subschema_for::<TenantToolView>),
        codes: &[ErrorCode::E3004, ErrorCode::E3101],
        mount: |filter| to(filter, one_of_tenant),
        ..look("/v1/tenants/{tenant_id}/tools/{tool_id}", "getTenantTool", "One tool that a tenant has, by its name")
    },
    Operation {
        gives: Gives::Json(SchemaGenerator::subschema_for::<AgentTools>),
        mount: |filter| to(filter, of_agent),
        ..look("/v1/agents/{agent_id}/tools", "listAgentTools", "What an agent may use, as far as activations decide")
    },
    Operation {
        gives: Gives::Json(SchemaGenerator::subschema_for::<UnavailableTools>),
        mount: |filter| to(filter, unavailable),
        ..look(
            "/v1/agents/{agent_id}/tools/unavailable",
            "listUnavailableTools",
            "What an agent could use if somebody enabled it, and why it cannot now",
        )
    },
];

const fn look(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        verb: Verb::Get,
        path,
        id,
        tag: "discovery",
        summary,
        access: Access::Token,
        parameters: &[AGENT_ID],
        asks: Asks::Nothing,
        good: &[(200, "the tools, in the order of their ids")],
        gives: Gives::Json(SchemaGenerator::subschema_for::<AgentTools>),
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

async fn of_tenant(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [text] = incoming.path_values().await?;
    incoming.query(&[])?;
    let tenant_id = tenant(&text)?;
    let tools = door.kernel().tenant_tools(who.actor(), &tenant_id).await?;
    Answer::json(&TenantTools { tenant_id, tools: tools.iter().map(AvailableTool::of).collect() })
}

async fn one_of_tenant(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [tenant_id, tool_id] = incoming.path_values().await?;
    incoming.query(&[])?;
    let tool = door.kernel().tenant_tool(who.actor(), &tenant(&tenant_id)?, &tool_id).await?;
    Answer::json(&TenantToolView::of(&tool))
}

fn tenant(text: &str) -> Result<TenantId, Refusal> {
    text.parse().map_err(|error: contract::ids::NameError| Refusal::new(ErrorCode::E3004, error.to_string()))
}

async fn of_agent(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let agent_id = agent_asked(&mut incoming).await?;
    incoming.query(&[])?;
    let tools = door.kernel().agent_tools(who.actor(), &agent_id).await?;
    Answer::json(&AgentTools { agent_id, tools: tools.iter().map(EnabledTool::of).collect() })
}

async fn unavailable(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let agent_id = agent_asked(&mut incoming).await?;
    incoming.query(&[])?;
    let tools = door.kernel().unavailable_tools(who.actor(), &agent_id).await?;
    Answer::json(&UnavailableTools { agent_id, tools: tools.iter().map(UnavailableTool::of).collect() })
}
