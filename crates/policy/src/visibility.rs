//! The three tiers: what there is, what a tenant has, what an agent may use (VIS-001…009, DESIGN §8.7).
//!
//! Pure: who the agent is, which activation it has and what the tenant's default is are handed in.

use contract::manifest::SideEffectPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What holds where no activation says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VisibilityDefault {
    /// Nothing may be used.
    Disabled,
    /// Tools that change nothing may be used.
    ReadOnly,
    /// Everything may be used.
    Enabled,
}

/// What an activation changes about a tool. Only ever stricter than the manifest (VIS-005, X-32).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyOverrides {
    /// `true` asks the user first, whatever the manifest says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_confirmation: Option<bool>,
    /// `true` asks an approver first, whatever the manifest says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_approval: Option<bool>,
    /// Calls take at most this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u32>,
    /// Members of the result that are masked, wherever they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
}

/// Why a tool of the tenant is not for this agent (VIS-012).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyUnavailable {
    /// An activation says so.
    DisabledForAgent,
    /// There is no activation, and the default lets only tools through that change nothing.
    NeverActivated,
    /// There is no activation, and the default lets nothing through.
    DisabledByDefault,
    /// The manifest has switched it off.
    SwitchedOff,
    /// No version can be called any more.
    Retired,
}

/// Is a tool of the tenant in the agent's reach? `activated` is what the activation says, if there is one.
pub fn reach(
    activated: Option<bool>,
    default: VisibilityDefault,
    effects: SideEffectPolicy,
) -> Result<(), WhyUnavailable> {
    match (activated, default) {
        (Some(true), _) | (None, VisibilityDefault::Enabled) => Ok(()),
        (Some(false), _) => Err(WhyUnavailable::DisabledForAgent),
        (None, VisibilityDefault::ReadOnly) if effects == SideEffectPolicy::Pure => Ok(()),
        (None, VisibilityDefault::ReadOnly) => Err(WhyUnavailable::NeverActivated),
        (None, VisibilityDefault::Disabled) => Err(WhyUnavailable::DisabledByDefault),
    }
}
