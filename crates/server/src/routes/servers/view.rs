//! A server and its tools as the REST door shows them.

use contract::canonical::Digest;
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use ports::server_administration::{DifferenceKind, DifferenceLine, PinReport, ServerReport, ToolProblem};
use ports::upstream_store::{PinRecord, ServerRecord, ToolDefinition};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// An MCP server behind Gantry.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Server")]
pub(super) struct ServerView {
    name: String,
    tenant: TenantId,
    /// How it is reached and what it may touch. Secrets are named, not told.
    spec: Value,
    /// How it fares: `state`, and what else is known.
    status: Value,
    tools: ToolCounts,
    /// What of its tool list was left out, and why; or why there is none.
    problems: Vec<ProblemView>,
    /// RFC 3339, UTC.
    added_at: String,
    added_by: Subject,
}

/// How many tools a server has.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerToolCounts")]
struct ToolCounts {
    /// That can be called.
    available: usize,
    /// That wait for somebody to decide.
    quarantined: usize,
    /// That are known at all.
    known: usize,
}

/// Something a server offers that was left out.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerToolProblem")]
struct ProblemView {
    /// The server's own name of it; empty if it is about the server.
    tool: String,
    /// `INVALID_TOOL_SCHEMA`, `DUPLICATE_TOOL_NAME`, `TOO_MANY_TOOLS`, `NOT_ADMITTED` or `NO_ANSWER`.
    code: &'static str,
    message: String,
}

/// What is known of one tool of a server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerTool")]
pub(super) struct PinView {
    tool_id: ToolId,
    /// The server's own name of it.
    upstream_tool: String,
    server: String,
    /// `accepted`, `quarantined`, `rejected` or `withdrawn`.
    state: &'static str,
    /// The version that callers get; absent while nothing was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    /// Why it cannot be called at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<&'static str>,
    /// What somebody said about its effects; absent: nobody has.
    #[serde(skip_serializing_if = "Option::is_none")]
    side_effect_policy: Option<SideEffectPolicy>,
    /// What the server says about its effects, unchecked: `read_only`, `destructive`, `idempotent`, `open_world`.
    hints: Vec<&'static str>,
    /// The class that would agree with the hints; nothing follows from it until somebody says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggested_policy: Option<SideEffectPolicy>,
    /// What a scan found in the newest word of the server.
    findings: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<DefinitionView>,
    /// What the server says instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed: Option<DefinitionView>,
    /// The difference between the two, line by line, if there is something to decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    difference: Vec<LineView>,
    /// What accepting would mean for callers: `patch`, `minor` or `major`.
    #[serde(skip_serializing_if = "Option::is_none")]
    compatibility: Option<&'static str>,
    /// RFC 3339, UTC: when the server's word about it, or the word about that, changed last.
    seen_at: String,
}

/// What a server says about a tool.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerToolDefinition")]
struct DefinitionView {
    digest: Digest,
    definition: Value,
}

/// One line of a difference.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DifferenceLine")]
struct LineView {
    /// ` ` as before, `-` gone, `+` new.
    mark: &'static str,
    text: String,
}

impl ServerView {
    pub(super) fn of(report: ServerReport) -> Self {
        let ServerReport { record, status, tools_available, tools_quarantined, tools_known, problems } = report;
        let ServerRecord { tenant, name, spec, added_at, added_by } = record;
        let problem = |ToolProblem { tool, code, message }| ProblemView { tool, code, message };
        Self {
            name,
            tenant,
            spec,
            status,
            tools: ToolCounts { available: tools_available, quarantined: tools_quarantined, known: tools_known },
            problems: problems.into_iter().map(problem).collect(),
            added_at: added_at.to_string(),
            added_by,
        }
    }
}

impl PinView {
    pub(super) fn of(report: PinReport) -> Self {
        let PinReport { pin, unavailable, difference, compatibility, hints, suggested } = report;
        let PinRecord { server, upstream_tool, tool, version, accepted, proposed, state, findings, .. } = pin;
        let definition = |ToolDefinition { value, digest }| DefinitionView { digest, definition: value };
        Self {
            tool_id: tool,
            upstream_tool,
            server,
            state: state.as_str(),
            version,
            unavailable,
            side_effect_policy: pin.classification,
            hints,
            suggested_policy: suggested,
            findings,
            accepted: accepted.map(definition),
            proposed: proposed.map(definition),
            difference: difference.into_iter().map(LineView::of).collect(),
            compatibility,
            seen_at: pin.seen_at.to_string(),
        }
    }
}

impl LineView {
    fn of(DifferenceLine { kind, text }: DifferenceLine) -> Self {
        let mark = match kind {
            DifferenceKind::Same => " ",
            DifferenceKind::Removed => "-",
            DifferenceKind::Added => "+",
        };
        Self { mark, text }
    }
}
