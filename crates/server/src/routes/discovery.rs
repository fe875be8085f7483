//! What a tenant has, what an agent may use, and what it could use if somebody enabled it (VIS-008, VIS-010…013).
//!
//! What a token may not know of is "not found", whether it exists or not.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use kernel::{Reachable, Unreachable};
use policy::WhyUnavailable;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::agents::{AGENT_ID, agent_asked};
use super::{Access, Asks, Gives, Operation, Parameter, Place, Verb, to};
use crate::answer::{Answer, Handled};
use crate::door::Door;
use crate::incoming::Incoming;

pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        parameters: &[Parameter {
            place: Place::Path,
            name: "tenant_id",
            about: "the tenant",
            schema: SchemaGenerator::subschema_for::<TenantId>,
        }],
        gives: Gives::Json(SchemaGenerator::subschema_for::<TenantTools>),
        mount: |filter| to(filter, of_tenant),
        ..look("/v1/tenants/{tenant_id}/tools", "listTenantTools", "What a tenant has")
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

/// What is said of every tool.
#[derive(Debug, Serialize, JsonSchema)]
struct About {
    tool_id: ToolId,
    /// The newest in use.
    version: Version,
    name: String,
    description: String,
    categories: Vec<String>,
}

/// A tool that a tenant has (VIS-010).
#[derive(Debug, Serialize, JsonSchema)]
struct AvailableTool {
    #[serde(flatten)]
    about: About,
    /// How it is run: `builtin`, `process`, `http`, … Null: it can be found but not called.
    gateway: Option<&'static str>,
    requires_confirmation: bool,
    requires_approval: bool,
    side_effect_policy: SideEffectPolicy,
    /// JSON Schema.
    parameter_schema: Value,
}

/// A tool that an agent may use (VIS-011).
#[derive(Debug, Serialize, JsonSchema)]
struct EnabledTool {
    #[serde(flatten)]
    about: About,
    /// After the overrides of its activation.
    requires_confirmation: bool,
    requires_approval: bool,
    side_effect_policy: SideEffectPolicy,
    /// JSON Schema.
    parameter_schema: Value,
}

/// A tool that somebody would have to enable first (VIS-012).
#[derive(Debug, Serialize, JsonSchema)]
struct UnavailableTool {
    #[serde(flatten)]
    about: About,
    why_unavailable: WhyUnavailable,
}

async fn of_tenant(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [text] = incoming.path_values().await?;
    incoming.query(&[])?;
    let tenant_id: TenantId =
        text.parse().map_err(|error: contract::ids::NameError| Refusal::new(ErrorCode::E3004, error.to_string()))?;
    let tools = door.kernel().tenant_tools(who.actor(), &tenant_id).await?;
    Answer::json(&TenantTools { tenant_id, tools: tools.iter().map(AvailableTool::of).collect() })
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

impl About {
    fn of(version: &kernel::registry::ToolVersion) -> Self {
        let manifest = &version.manifest;
        Self {
            tool_id: version.id.clone(),
            version: version.version.clone(),
            name: manifest.name.clone(),
            description: manifest.description.clone(),
            categories: manifest.categories.clone(),
        }
    }
}

impl AvailableTool {
    fn of(tool: &Reachable) -> Self {
        let manifest = &tool.current.manifest;
        Self {
            about: About::of(&tool.current),
            gateway: manifest.execution.as_ref().map(contract::manifest::Execution::kind),
            requires_confirmation: tool.requires_confirmation,
            requires_approval: tool.requires_approval,
            side_effect_policy: manifest.side_effect_policy,
            parameter_schema: manifest.parameters.clone(),
        }
    }
}

impl EnabledTool {
    fn of(tool: &Reachable) -> Self {
        let manifest = &tool.current.manifest;
        Self {
            about: About::of(&tool.current),
            requires_confirmation: tool.requires_confirmation,
            requires_approval: tool.requires_approval,
            side_effect_policy: manifest.side_effect_policy,
            parameter_schema: manifest.parameters.clone(),
        }
    }
}

impl UnavailableTool {
    fn of(tool: &Unreachable) -> Self {
        Self { about: About::of(&tool.current), why_unavailable: tool.why }
    }
}
