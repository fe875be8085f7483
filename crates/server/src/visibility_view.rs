//! Tools by their tiers, as every door tells of them: what a tenant has, what an agent may use, and what it could use if
//! somebody enabled it (VIS-006, VIS-010…012). REST answers and MCP resources have the same members.

use contract::ids::ToolId;
use contract::manifest::{Execution, SideEffectPolicy};
use contract::version::Version;
use kernel::{ReachableTool, TenantTool, UnreachableTool};
use policy::WhyUnavailable;
use ports::tool_version::ToolVersion;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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

/// What a call changes, and what can be done about it (VIS-006).
#[derive(Debug, Serialize, JsonSchema)]
struct EffectFlags {
    side_effect_policy: SideEffectPolicy,
    /// The tool that undoes a call, if there is one.
    compensation_tool: Option<String>,
    /// Nothing undoes a call, or nobody has said that something does.
    is_irreversible: bool,
    /// A call may be repeated: it is pure or idempotent.
    is_safe_to_retry: bool,
}

/// A tool that a tenant has (VIS-010).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AvailableTool {
    #[serde(flatten)]
    about: About,
    /// How it is run: `builtin`, `process`, `http`, … Null: it can be found but not called.
    gateway: Option<&'static str>,
    requires_confirmation: bool,
    requires_approval: bool,
    #[serde(flatten)]
    effects: EffectFlags,
    /// JSON Schema.
    parameter_schema: Value,
}

/// A tool that an agent may use (VIS-011).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EnabledTool {
    #[serde(flatten)]
    about: About,
    /// After the overrides of its activation.
    requires_confirmation: bool,
    requires_approval: bool,
    #[serde(flatten)]
    effects: EffectFlags,
    /// JSON Schema.
    parameter_schema: Value,
}

/// A tool that somebody would have to enable first (VIS-012).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UnavailableTool {
    #[serde(flatten)]
    about: About,
    why_unavailable: WhyUnavailable,
}

/// One tool of a tenant by its name, whether the caller may use it or not (VIS-007).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantToolView {
    #[serde(flatten)]
    tool: AvailableTool,
    /// JSON Schema.
    result_schema: Value,
    /// May the caller use it, as far as activations decide?
    is_enabled: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_unavailable: Option<WhyUnavailable>,
}

impl About {
    fn of(version: &ToolVersion) -> Self {
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

impl EffectFlags {
    fn of(version: &ToolVersion) -> Self {
        let manifest = &version.manifest;
        Self {
            side_effect_policy: manifest.side_effect_policy,
            compensation_tool: manifest.compensation_tool_id.clone(),
            is_irreversible: manifest.side_effect_policy.is_irreversible(),
            is_safe_to_retry: manifest.side_effect_policy.is_safe_to_retry(),
        }
    }
}

impl AvailableTool {
    pub(crate) fn of(tool: &ReachableTool) -> Self {
        let manifest = &tool.current.manifest;
        Self {
            about: About::of(&tool.current),
            gateway: manifest.execution.as_ref().map(Execution::kind),
            requires_confirmation: tool.requires_confirmation,
            requires_approval: tool.requires_approval,
            effects: EffectFlags::of(&tool.current),
            parameter_schema: manifest.parameters.clone(),
        }
    }
}

impl EnabledTool {
    pub(crate) fn of(tool: &ReachableTool) -> Self {
        Self {
            about: About::of(&tool.current),
            requires_confirmation: tool.requires_confirmation,
            requires_approval: tool.requires_approval,
            effects: EffectFlags::of(&tool.current),
            parameter_schema: tool.current.manifest.parameters.clone(),
        }
    }
}

impl UnavailableTool {
    pub(crate) fn of(tool: &UnreachableTool) -> Self {
        Self { about: About::of(&tool.current), why_unavailable: tool.why }
    }
}

impl TenantToolView {
    pub(crate) fn of(tool: &TenantTool) -> Self {
        Self {
            tool: AvailableTool::of(&tool.tool),
            result_schema: tool.tool.current.manifest.result_schema.clone(),
            is_enabled: tool.why_unavailable.is_none(),
            why_unavailable: tool.why_unavailable,
        }
    }
}
