//! The manifest: everything a tool declares about itself (MAN-001…037), in TOML, YAML or JSON.
//!
//! Reading has two stages, because an author wants *every* reason at once. The published JSON Schema of the manifest
//! (made from these very types) names all structural faults; then [`admission`] names all broken rules. Only a document
//! that passes both becomes a [`Manifest`], so whoever holds one may rely on it.
//!
//! Optional members stay `Option`: the content digest is taken over what the author wrote, and a default that a later
//! release changes must not turn a published version into a different one. Effective values come from methods.
//!
//! Not here: state that changes after publication (lifecycle, health, quarantine) belongs to the registry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, Digest};
use crate::ids::ToolId;
use crate::version::Version;

pub mod admission;
mod behaviour;
mod execution;
mod limits;
mod output;
mod parse;

pub use admission::{AdmissionFinding, ManifestError};
pub use behaviour::{
    BehaviouralContract, CostConfig, CostUnit, DocumentDependency, ErrorDeclaration, IdempotencySpec, MutationClass,
    Observability, SideEffect, SideEffectOp, SideEffectPolicy, UnitCost,
};
pub use execution::{Execution, Isolation, McpDisplay, ProcessProtocol, TaskSupport};
pub use limits::{
    BreakerConfig, CheckpointConfig, NetworkPolicy, RateLimit, ResourceLimits, RetryPolicy, StaleResults, TimeoutClass,
};
pub use parse::{ManifestFormat, schema as manifest_schema};

/// Where a tool comes from (MAN-006). How it runs is [`Execution`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Native,
    Mcp,
    Openapi,
    Langchain,
    Custom,
}

/// The four states of a published version, in the only order they are passed (REG-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleState {
    #[default]
    Active,
    Deprecated,
    Sunset,
    Removed,
}

impl LifecycleState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deprecated => "deprecated",
            Self::Sunset => "sunset",
            Self::Removed => "removed",
        }
    }
}

/// What happens to hostile-looking text in annotated fields (DESIGN §8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputGuard {
    Off,
    #[default]
    Reject,
    Strip,
}

/// How much of a result reaches the caller (DESIGN §8.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputPolicy {
    // As the tool answered, up to the largest size of a result.
    Raw,
    // The same without the values of sensitive fields: those that `result_schema` marks with `x-sensitivity`, and those whose
    // name says that they hold a secret.
    #[default]
    Standard,
    // The same without personal data and secrets wherever they stand in a text, and with strings over 10,000 characters and
    // arrays over 100 items cut.
    Strict,
}

/// Whether model-written strings are turned into the numbers and booleans they stand for (VALID-003, X-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CoercionMode {
    #[default]
    Lossless,
    Off,
}

/// Who wrote the tool (MAN-023).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Author {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "email"))]
    pub email: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub url: Option<String>,
}

/// Everything a tool declares about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    // ---- identity
    /// The tool's own name: snake_case, 3 to 255 characters.
    #[schemars(length(min = 3, max = 255), regex(pattern = r"^[a-z][a-z0-9_]*$"))]
    pub tool_id: String,
    /// Scopes the tool id; the tool is then written `namespace.tool_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[a-z][a-z0-9_]*$"))]
    pub namespace: Option<String>,
    /// Former names that still lead here, for example ids of another system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9_.-]+$")))]
    pub aliases: Vec<String>,
    /// SemVer 2.0.0.
    pub version: Version,
    /// For people.
    #[schemars(length(min = 3, max = 255))]
    pub name: String,
    /// For people and models; what search looks at.
    #[schemars(length(min = 10, max = 2000))]
    pub description: String,
    /// The organisation or author.
    #[schemars(length(min = 1, max = 255))]
    pub provider: String,
    /// Where the tool comes from.
    pub protocol: Protocol,
    /// Switched off tools are registered and listed but refuse to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

    // ---- contract
    /// JSON Schema (2020-12) of the parameters. Undeclared properties are refused unless the schema says otherwise.
    #[schemars(with = "SchemaObject")]
    pub parameters: Value,
    /// JSON Schema (2020-12) of the result.
    #[schemars(with = "SchemaObject")]
    pub result_schema: Value,
    /// The classified errors the tool itself can answer with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub errors: Vec<ErrorDeclaration>,
    /// Lossless coercion of strings (default), or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coercion: Option<CoercionMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_guard: Option<InputGuard>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_policy: Option<OutputPolicy>,

    // ---- rights
    /// What the tool may touch, for example `filesystem:read:/data`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 1024), regex(pattern = r"^[a-z_]+:[^ ]+$")))]
    pub required_permissions: Vec<String>,
    /// A named permission of the caller, for example `tool:web_search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^[a-z_]+:[^ ]+$"))]
    pub requires_permission: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,

    // ---- effects
    /// What the tool does to the world. Mandatory: there is no safe default.
    pub side_effect_policy: SideEffectPolicy,
    /// What exactly is created, changed or deleted. Mandatory for tools with effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub side_effects: Vec<SideEffect>,
    /// How repeated calls are recognised. Mandatory for tools with effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<IdempotencySpec>,
    /// The tool that undoes this one. Mandatory for compensatable tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation_tool_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_confirmation: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2000))]
    pub confirmation_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_approval: Option<bool>,
    /// Result cache lifetime in seconds; pure tools only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub cache_ttl_seconds: Option<u32>,

    // ---- running
    /// How the tool runs. Without it the tool can be found but not called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    /// How long a caller may have to wait. Mandatory.
    pub timeout_class: TimeoutClass,
    /// Seconds a call may take unless it says otherwise; never more than the class allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7200))]
    pub timeout_default: Option<u32>,
    /// Seconds a call may ask for at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_max: Option<u32>,
    /// Bytes of a result as JSON, at most. The server says what a tool has that says nothing, and what one may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 33_554_432))]
    pub result_bytes_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breaker_config: Option<BreakerConfig>,
    /// While its breaker is open, the tool answers with its last good result; pure tools only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_results: Option<StaleResults>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<ResourceLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Selects the circuit breaker, for example `sendgrid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub external_service: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_config: Option<CheckpointConfig>,
    /// 1 = low … 10 = critical; default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub document_dependencies: Vec<DocumentDependency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_config: Option<CostConfig>,

    // ---- watching and testing
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observability: Option<Observability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<BehaviouralContract>,
    /// Example parameters, for people and for generated tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub examples: Vec<Value>,

    // ---- finding
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 100)))]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 100)))]
    pub categories: Vec<String>,

    // ---- lifecycle at the time of publication
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle_state: Option<LifecycleState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date"))]
    pub deprecation_date: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date"))]
    pub sunset_date: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"), length(max = 2000))]
    pub migration_guide_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_tool_id: Option<String>,

    // ---- documentation
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10000))]
    pub changelog: Option<String>,
    /// The author's own word that this version breaks callers; must agree with the schemas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaking_changes: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"), length(max = 2000))]
    pub documentation_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"), length(max = 2000))]
    pub source_code_url: Option<String>,
    /// An SPDX identifier, or `Proprietary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub license: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
}

/// How a schema shows in the manifest's own schema: an object whose content is checked by compiling it.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "exists only for its schema")]
struct SchemaObject(#[schemars(extend("additionalProperties" = true))] std::collections::BTreeMap<String, Value>);

impl Manifest {
    /// The canonical name. Reading has checked both parts, so a fault here is a fault of ours and is reported as one.
    pub fn id(&self) -> Result<ToolId, crate::ids::NameError> {
        ToolId::new(self.namespace.as_deref(), &self.tool_id)
    }

    /// Identity of the content: equal digests mean "the same manifest" whatever syntax it was written in (REG-003).
    pub fn digest(&self) -> Digest {
        canonical::digest(&serde_json::to_value(self).unwrap_or(Value::Null))
    }

    /// May it run at all?
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// 1 … 10, default 5 (MAN-021).
    pub fn priority(&self) -> u8 {
        self.priority.unwrap_or(5)
    }

    /// Must a person say yes before it runs? Irreversible tools always (X-32).
    pub fn needs_approval(&self) -> bool {
        self.requires_approval.unwrap_or(false) || self.side_effect_policy == SideEffectPolicy::Irreversible
    }

    /// Milliseconds a call may take when it does not ask for less (X-09): the class gives the ceiling.
    pub fn timeout_default_ms(&self) -> u64 {
        const FALLBACK_MS: u64 = 30_000;
        let asked = self.timeout_default.map_or(FALLBACK_MS, |seconds| u64::from(seconds) * 1000);
        asked.min(self.timeout_max_ms())
    }

    /// Milliseconds a call may ask for at most.
    pub fn timeout_max_ms(&self) -> u64 {
        let class_ms = self.timeout_class.max_ms();
        self.timeout_max.map_or(class_ms, |seconds| (u64::from(seconds) * 1000).min(class_ms))
    }
}
