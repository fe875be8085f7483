//! The envelopes of a call (BC-1 and BC-2, LIFE-009…020): what a caller sends, and what comes back.
//!
//! These types are promises to the outside: every field name is fixed by the wire contract (DESIGN §3). Requests refuse
//! members they do not know, because a misspelt limit that is silently ignored is worse than an error. Doors build and
//! render them; the kernel works with its own types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ErrorEnvelope;
use crate::ids::{InvocationId, Subject, TenantId, TraceId};
use crate::schema::CoercionNote;
use crate::version::Version;

/// `tool.invoke`: one call (BC-2).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvokeRequest {
    /// `namespace.tool_id`, `tool_id`, or a registered alias.
    pub tool_id: String,
    /// A version, a range such as `^1.0.0`, `1.x`, or `LATEST`; absent means `LATEST`.
    #[serde(default)]
    pub tool_version: Option<String>,
    #[serde(default, alias = "params", alias = "args", alias = "input")]
    pub parameters: Map<String, Value>,
    /// A UUID of the caller's own that no other call with effects, and none of its tenant, has; otherwise one is made.
    #[serde(default)]
    pub invocation_id: Option<InvocationId>,
    #[serde(default)]
    pub agent_context: Option<AgentContext>,
    #[serde(default)]
    pub execution_options: ExecutionOptions,
    #[serde(default)]
    pub resource_limits: CallLimits,
    #[serde(default)]
    pub document_context: Option<DocumentContext>,
    #[serde(default)]
    pub checkpoint_config: Option<CheckpointOptions>,
    /// The older spelling of `execution_options.async_mode`.
    #[serde(default)]
    pub execution_mode: Option<ExecutionMode>,
}

impl InvokeRequest {
    /// The option that wants the call done in the background although `execution_mode` wants it waited for, if one does.
    pub fn against_waiting(&self) -> Option<&'static str> {
        let options = &self.execution_options;
        match self.execution_mode {
            Some(ExecutionMode::Sync) if options.async_mode => Some("async_mode"),
            Some(ExecutionMode::Sync) if options.callback.is_some() => Some("callback"),
            _ => None,
        }
    }
}

/// The older spelling of sync and async.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    Sync,
    Async,
}

/// Who the caller says it is. The token is the truth: what contradicts it is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentContext {
    #[serde(default)]
    pub agent_did: Option<Subject>,
    #[serde(default)]
    pub tenant_id: Option<TenantId>,
    #[serde(default)]
    pub user_did: Option<Subject>,
    #[serde(default)]
    #[schemars(length(max = 255))]
    pub session_id: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 255))]
    pub parent_sandbox_id: Option<String>,
}

/// How urgent a call is (X-39: low = 3, normal = 5, high = 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

impl Priority {
    /// The number of the manifest's scale.
    pub fn level(self) -> u8 {
        match self {
            Self::Low => 3,
            Self::Normal => 5,
            Self::High => 8,
        }
    }
}

/// How the call is to be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutionOptions {
    pub async_mode: bool,
    #[schemars(length(min = 1, max = 255))]
    pub idempotency_key: Option<String>,
    #[schemars(length(max = 255))]
    pub turn_group_id: Option<String>,
    /// When a call with the same key runs already: wait for its answer (the default), or be refused with a handle to it?
    pub wait_for_duplicate: Option<bool>,
    pub dry_run: bool,
    pub require_approval: bool,
    /// How soon a call in the background is done; absent: what the manifest says. Calls that are waited for have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Who is told when a call that runs in the background has ended.
    pub callback: Option<Callback>,
}

impl ExecutionOptions {
    /// The first option that only a call in the background can have, if one is given: whoever waits has no place in a queue
    /// and need not be called back.
    pub fn of_the_background(&self) -> Option<&'static str> {
        if self.callback.is_some() {
            return Some("callback");
        }
        self.priority.is_some_and(|priority| priority != Priority::Normal).then_some("priority")
    }
}

/// Whom a call wants told when it has ended: a subscription, or an address with the credential that signs (ASYNC-007).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Callback {
    /// A subscription of the tenant, whatever events it has asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_id: Option<String>,
    /// An address; then `secret` must be there too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub url: Option<String>,
    /// The name of a credential of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub secret: Option<String>,
}

/// Limits of this call; each can only lower what the manifest allows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallLimits {
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_seconds: Option<f64>,
    #[schemars(range(min = 1))]
    pub cpu_millicore_limit: Option<u32>,
    #[schemars(range(min = 1))]
    pub memory_mb_limit: Option<u32>,
    #[schemars(range(min = 1))]
    pub network_bandwidth_mbps: Option<u32>,
}

/// Documents the call refers to (LIFE-016).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentContext {
    pub document_refs: Vec<String>,
    pub version_pinning: BTreeMap<String, String>,
    pub query: Option<String>,
}

/// Checkpointing of the call (LIFE-017).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointOptions {
    /// Absent: what the manifest says, else yes for `long_running` and `async` tools and no for others.
    pub enable_checkpointing: Option<bool>,
    /// At most one micro-checkpoint is written in this time; the newest wins. Absent: what the manifest says, else 30.
    #[schemars(range(min = 1, max = 3600))]
    pub checkpoint_interval_seconds: Option<u32>,
    /// A checkpoint of an earlier call of the same tool, from which this one goes on.
    #[schemars(length(max = 36))]
    pub resume_from_checkpoint_id: Option<String>,
}

/// What kind of checkpoint (CKPT-001).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// Taken by the clock; kept for an hour, and gone when the call has succeeded.
    Micro,
    /// At an event the manifest declares; kept for 90 days.
    Macro,
    /// Because the tool or a person gave it a name; kept until it is deleted.
    Named,
}

impl CheckpointKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Micro, Self::Macro, Self::Named];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Micro => "micro",
            Self::Macro => "macro",
            Self::Named => "named",
        }
    }
}

/// A checkpoint that was made while a call ran (LIFE-019).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CheckpointNote {
    pub checkpoint_id: String,
    pub checkpoint_type: CheckpointKind,
    /// RFC 3339, UTC.
    pub timestamp: String,
}

/// The canonical status words (LIFE-020, X-30) and DESIGN §5's `indeterminate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvocationStatus {
    Pending,
    Running,
    Success,
    Error,
    Timeout,
    Cancelled,
    PermissionDenied,
    PendingApproval,
    Indeterminate,
}

impl InvocationStatus {
    /// The word on the wire, in metrics and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::PermissionDenied => "permission_denied",
            Self::PendingApproval => "pending_approval",
            Self::Indeterminate => "indeterminate",
        }
    }
}

/// The answer to a call that ran to its end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InvokeResponse {
    pub invocation_id: InvocationId,
    pub status: InvocationStatus,
    pub result: Value,
    pub tool_id: String,
    pub tool_version: Version,
    /// Was the result of an earlier call returned?
    pub cached: bool,
    /// The same in the word of the success envelope. (LIFE-009)
    pub source: ResultSource,
    pub provenance: Provenance,
    pub execution_time_ms: u64,
    pub execution_metadata: ExecutionMetadata,
    /// The newest state of the call that is still kept; a later call can go on from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_ref: Option<String>,
    pub trace_id: TraceId,
}

/// Where a result comes from (LIFE-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultSource {
    /// An earlier call computed it.
    Cache,
    /// This call computed it.
    Compute,
}

/// What a result was computed by, and when (LIFE-009).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Provenance {
    /// The tool, `namespace.tool_id`.
    pub source: String,
    /// The version that ran, also if that was in an earlier call.
    pub version: Version,
    /// When the tool had computed it. RFC 3339, UTC.
    pub executed_at: String,
}

/// The answer to a call that did not: problem details (RFC 9457) carrying the error envelope.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ErrorResponse {
    /// A page about the code.
    pub r#type: String,
    pub title: &'static str,
    pub detail: String,
    pub error: ErrorEnvelope,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<InvocationId>,
    /// The status word of the invocation, not the HTTP status: that is in the status line and in the error table.
    pub status: InvocationStatus,
    /// Times and usage of a call whose caller was recognised, as far as it came. (LIFE-014)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_metadata: Option<ExecutionMetadata>,
    /// The newest state of the call that is still kept; a later call can go on from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_ref: Option<String>,
    /// The end of what the failed tool wrote to its log, for administrators, operators and tool authors of its tenant. (EXEC-010)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Times, usage and notices of one call (LIFE-019).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExecutionMetadata {
    pub duration_ms: u64,
    pub started_at: String,
    pub completed_at: String,
    /// How the program of the tool ended, if it has one: 0 if it succeeded, -1 if nobody knows. (EXEC-010)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub cpu_used_millicore_seconds: u64,
    pub memory_peak_mb: u64,
    pub network_bytes_sent: u64,
    pub network_bytes_received: u64,
    /// Strings that were taken for the numbers or booleans they stand for.
    pub coercions: Vec<CoercionNote>,
    /// Set when the version is on its way out.
    pub deprecation: Option<DeprecationNotice>,
    /// Set when it is the last good result, because the service behind the tool is left alone for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<StaleNotice>,
    /// Set when the result was cut to its limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation: Option<Truncation>,
    /// Tokens used by the model behind the tool, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_used: Option<u64>,
    /// Decimal text in the currency of the price list.
    pub cost: String,
    /// The currency of the cost; absent if it cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_currency: Option<crate::money::Currency>,
    /// The newest of those that were made while it ran, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoints_created: Vec<CheckpointNote>,
}

/// What a caller of a deprecated version should know (REG-010, REG-011).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeprecationNotice {
    /// RFC 3339 times, UTC.
    pub deprecated_at: String,
    /// From here on only exact pins are served.
    pub sunset_at: String,
    /// From here on the version may be removed.
    pub removal_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_guide: Option<String>,
}

/// That a result is a former one (RES-019).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StaleNotice {
    /// Milliseconds since it came from the service.
    pub age_ms: u64,
}

/// How a result was cut (VALID-013): never silently.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Truncation {
    pub strings_cut: u32,
    pub arrays_cut: u32,
    /// Where, and how much there was; the first few only.
    pub places: Vec<CutPlace>,
}

/// One place where something is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CutPlace {
    /// JSON pointer into the result.
    pub path: String,
    /// Characters or items that are left; the marker of a string is not counted.
    pub kept: usize,
    /// Characters or items that there were.
    pub of: usize,
}

/// `POST /v1/tools/invoke/batch`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    #[schemars(length(min = 1, max = 10))]
    pub calls: Vec<BatchCall>,
}

/// One call of a batch.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct BatchCall {
    /// Does a failure of this call stop the batch? Default true (LIFE-021).
    #[serde(default = "yes")]
    pub critical: bool,
    #[serde(flatten)]
    pub call: InvokeRequest,
}

fn yes() -> bool {
    true
}
