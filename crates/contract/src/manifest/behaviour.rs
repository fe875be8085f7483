//! What a tool does to the world and what may be relied upon: effects, idempotency, errors, cost, observability
//! (MAN-010, MAN-025…036).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ErrorCode;
use crate::money::Currency;

/// The side-effect class (X-31). There is no default on purpose: `pure` would be fail-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SideEffectPolicy {
    /// Reads only.
    Pure,
    /// Writes, but twice is the same as once.
    Idempotent,
    /// Writes, and another tool can undo it.
    Compensatable,
    /// Writes, and nothing brings it back.
    Irreversible,
    /// Taken over from elsewhere, and nobody has said yet what it does (DESIGN §8.19). Counts as irreversible wherever a
    /// call might be repeated, undone or run beside others; whether it may run at all is for activations and policies.
    Unclassified,
}

/// The mutation class of the same fact, as the other vocabulary has it (MAN-027).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MutationClass {
    ReadOnly,
    WriteReversible,
    WriteIrreversible,
}

impl SideEffectPolicy {
    /// Does a call change anything outside?
    pub fn has_effects(self) -> bool {
        self != Self::Pure
    }

    /// May a call be repeated when nobody knows whether the first one happened? (VIS-006)
    pub fn is_safe_to_retry(self) -> bool {
        match self {
            Self::Pure | Self::Idempotent => true,
            Self::Compensatable | Self::Irreversible | Self::Unclassified => false,
        }
    }

    /// Must a call be taken for one that nothing brings back? (VIS-006)
    pub fn is_irreversible(self) -> bool {
        match self {
            Self::Irreversible | Self::Unclassified => true,
            Self::Pure | Self::Idempotent | Self::Compensatable => false,
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::Compensatable => "compensatable",
            Self::Irreversible => "irreversible",
            Self::Unclassified => "unclassified",
        }
    }

    /// The mutation class this policy stands for.
    pub fn mutation_class(self) -> MutationClass {
        match self {
            Self::Pure => MutationClass::ReadOnly,
            Self::Idempotent | Self::Compensatable => MutationClass::WriteReversible,
            Self::Irreversible | Self::Unclassified => MutationClass::WriteIrreversible,
        }
    }
}

/// What is done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum SideEffectOp {
    Create,
    Update,
    Delete,
}

/// One declared effect (MAN-027).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SideEffect {
    /// What is touched, for example `email` or `orders`.
    #[schemars(length(min = 1, max = 255))]
    pub resource: String,
    pub op: SideEffectOp,
    /// How far the effect reaches, for example `tenant` or `the named recipient`.
    #[schemars(length(min = 1, max = 255))]
    pub scope: String,
}

/// How repeated calls are recognised (MAN-030).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdempotencySpec {
    /// Parameters that make a call the same business act; empty means the caller's key alone decides.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub key_fields: Vec<String>,
    /// How long a key is remembered; never less than a day or twice the timeout class (X-07).
    #[serde(default = "day_in_seconds")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub window_seconds: u32,
}

fn day_in_seconds() -> u32 {
    86_400
}

/// A classified error that the tool itself can answer with (MAN-010).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorDeclaration {
    pub code: ErrorCode,
    #[serde(default)]
    pub retryable: bool,
    /// When it happens and what to do, for people and models.
    #[schemars(length(min = 1, max = 500))]
    pub description: String,
}

/// A document the tool wants handed in (MAN-025).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentDependency {
    /// For example `spec:requirements-*`.
    #[schemars(length(min = 1, max = 255))]
    pub document_pattern: String,
    #[schemars(regex(pattern = "^read$"))]
    pub access_mode: String,
    #[serde(default)]
    pub version_pinning: bool,
}

/// What variable cost is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostUnit {
    Token,
    Character,
    Record,
    Second,
}

/// Price of one unit. Decimal text, because money is not a float (X-38).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitCost {
    pub unit: CostUnit,
    #[schemars(length(max = 40), regex(pattern = r"^\d+(\.\d+)?$"))]
    pub cost_per_unit: String,
    /// The parameter that says how many units, after defaults are filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_field: Option<String>,
}

/// What a call costs (MAN-031).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40), regex(pattern = r"^\d+(\.\d+)?$"))]
    pub fixed_cost: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_unit: Option<UnitCost>,
    /// What the prices are in; default `USD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
    /// Where in its result the tool says what the call has cost, as a JSON pointer; that stands in place of these prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200), regex(pattern = r"^(/[^/]+)+$"))]
    pub cost_field: Option<String>,
    /// Where in its result the tool says how many tokens it used, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200), regex(pattern = r"^(/[^/]+)+$"))]
    pub tokens_field: Option<String>,
}

/// When somebody should be woken (MAN-035).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observability {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub alert_error_rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub alert_timeout_rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub baseline_p99_ms: Option<u32>,
}

/// Properties of the tool that generated tests may check (MAN-036).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BehaviouralContract {
    pub deterministic: bool,
    pub idempotent: bool,
    pub monotonic: bool,
    pub conserving: bool,
    pub reversible: bool,
    /// Parameters worth testing with.
    #[schemars(length(max = 32))]
    pub examples: Vec<Value>,
}
