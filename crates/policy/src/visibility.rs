//! The three tiers: what there is, what a tenant has, what an agent may use (VIS-001…009, DESIGN §8.7).
//!
//! Pure: who the agent is, which activation it has and what the tenant's default is are handed in.
//!
//! Invariants
//! - VIS-A: an override only tightens. What would loosen is refused when it is written ([`PolicyOverrides::check`]) and
//!   does nothing where it is found anyway ([`PolicyOverrides::merge`]).
//! - VIS-B: of the activations that name a tool the most specific one decides, alone. There is one per pattern (the
//!   pattern is part of the key), so there are no ties.
//!
//! Not here: whether there is a version to call, and the catalogue (the kernel).

use contract::ids::ToolId;
use contract::manifest::SideEffectPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::abac::is_member_name;
use crate::grant::ToolPattern;

/// Longest time an override can name: the ceiling of manifests.
const TIMEOUT_SECONDS_MAX: u32 = 86_400;
/// Most members that one override masks, and the longest name of one.
const REDACT_MAX: usize = 64;
const MEMBER_CHARS_MAX: usize = 128;

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
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    pub redact: Vec<String>,
}

/// Why overrides were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// It would take away what the manifest asks for, or pretend to.
    #[error(
        "override `{name}` can only be `true`: overrides make a tool stricter, never looser; leave it out to keep what the manifest says"
    )]
    Loosens { name: &'static str },
    /// No call ends in no time, and none may take longer than a day.
    #[error("override `timeout_seconds` must be between 1 and {TIMEOUT_SECONDS_MAX}")]
    Timeout,
    /// Too many names, or one that no member can have.
    #[error(
        "override `redact` has at most {REDACT_MAX} names of 1 to {MEMBER_CHARS_MAX} characters: names of members, no paths and no patterns"
    )]
    Redact,
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
    /// What its server says about it has changed, and nobody has accepted that yet.
    Quarantined,
    /// The server behind it does not answer.
    ServerUnavailable,
    /// The server behind it no longer offers it.
    Withdrawn,
    /// The server it came from was removed.
    ServerRemoved,
}

impl WhyUnavailable {
    /// The reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DisabledForAgent => "an activation disables it",
            Self::NeverActivated => "it changes things and nobody has activated it",
            Self::DisabledByDefault => "nobody has activated it",
            Self::SwitchedOff => "its manifest has switched it off",
            Self::Retired => "no version of it can be called any more",
            Self::Quarantined => "its definition has changed and is held for review",
            Self::ServerUnavailable => "the server behind it does not answer",
            Self::Withdrawn => "the server behind it no longer offers it",
            Self::ServerRemoved => "the MCP server it came from was removed",
        }
    }
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

// ------------------------------------------------------------------------------------------------- PolicyOverrides

impl PolicyOverrides {
    /// Do these overrides only tighten, and say something that can be done?
    ///
    /// ```
    /// # use gantry_policy::PolicyOverrides;
    /// let overrides = |json: &str| serde_json::from_str::<PolicyOverrides>(json).unwrap();
    /// assert!(overrides(r#"{"requires_confirmation": true}"#).check().is_ok());
    /// assert!(overrides(r#"{"requires_confirmation": false}"#).check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), OverrideError> {
        if self.requires_confirmation == Some(false) {
            return Err(OverrideError::Loosens { name: "requires_confirmation" });
        }
        if self.requires_approval == Some(false) {
            return Err(OverrideError::Loosens { name: "requires_approval" });
        }
        if self.timeout_seconds.is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)) {
            return Err(OverrideError::Timeout);
        }
        let fine = |name: &String| is_member_name(name) && name.chars().count() <= MEMBER_CHARS_MAX;
        if self.redact.len() > REDACT_MAX || !self.redact.iter().all(fine) {
            return Err(OverrideError::Redact);
        }
        Ok(())
    }

    /// Both at once: whatever either asks for, the shorter time, all that either masks. The order does not matter, and a
    /// `false` is nothing.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let either =
            |left: Option<bool>, right: Option<bool>| (left == Some(true) || right == Some(true)).then_some(true);
        let mut redact: Vec<String> = self.redact.iter().chain(&other.redact).cloned().collect();
        redact.sort_unstable();
        redact.dedup();
        Self {
            requires_confirmation: either(self.requires_confirmation, other.requires_confirmation),
            requires_approval: either(self.requires_approval, other.requires_approval),
            timeout_seconds: self.timeout_seconds.into_iter().chain(other.timeout_seconds).min(),
            redact,
        }
    }
}

// ----------------------------------------------------------------------------------------------- which activation

/// How specific a pattern is: a tool before its namespace before everything.
pub fn specificity(pattern: &ToolPattern) -> u8 {
    match pattern {
        ToolPattern::All => 0,
        ToolPattern::Namespace(_) => 1,
        ToolPattern::One(_) => 2,
    }
}

/// The record that decides about a tool, among those of one agent: the most specific one that names it.
///
/// ```
/// # use gantry_policy::most_specific;
/// let records = [("*", false), ("demo.*", true)].map(|(pattern, enabled)| (pattern.parse().unwrap(), enabled));
/// let enabled = |tool: &str| most_specific(&records, |record| &record.0, &tool.parse().unwrap()).map(|record| record.1);
/// assert_eq!((enabled("demo.word_stats"), enabled("calculator")), (Some(true), Some(false)));
/// ```
pub fn most_specific<'r, R>(
    records: impl IntoIterator<Item = &'r R>,
    pattern_of: impl Fn(&R) -> &ToolPattern,
    tool: &ToolId,
) -> Option<&'r R> {
    records
        .into_iter()
        .filter(|record| pattern_of(record).matches(tool))
        .max_by_key(|record| specificity(pattern_of(record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_decided_by_activation_then_default_then_class() {
        use SideEffectPolicy::{Compensatable, Idempotent, Irreversible, Pure, Unclassified};
        use VisibilityDefault::{Disabled, Enabled, ReadOnly};
        use WhyUnavailable::{DisabledByDefault, DisabledForAgent, NeverActivated};
        let table = [
            (Some(true), Disabled, [Ok(()), Ok(())]),
            (Some(true), ReadOnly, [Ok(()), Ok(())]),
            (Some(true), Enabled, [Ok(()), Ok(())]),
            (Some(false), Disabled, [Err(DisabledForAgent), Err(DisabledForAgent)]),
            (Some(false), ReadOnly, [Err(DisabledForAgent), Err(DisabledForAgent)]),
            (Some(false), Enabled, [Err(DisabledForAgent), Err(DisabledForAgent)]),
            (None, Disabled, [Err(DisabledByDefault), Err(DisabledByDefault)]),
            (None, ReadOnly, [Ok(()), Err(NeverActivated)]),
            (None, Enabled, [Ok(()), Ok(())]),
        ];
        for (activated, default, [pure, with_effects]) in table {
            assert_eq!(reach(activated, default, Pure), pure, "{activated:?} {default:?} pure");
            for class in [Idempotent, Compensatable, Irreversible, Unclassified] {
                assert_eq!(reach(activated, default, class), with_effects, "{activated:?} {default:?} {class:?}");
            }
        }
    }

    fn overrides(json: serde_json::Value) -> PolicyOverrides {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn overrides_that_loosen_are_refused() {
        use serde_json::json;
        for (given, expected) in [
            (json!({}), None),
            (json!({ "requires_confirmation": true, "requires_approval": true, "timeout_seconds": 5 }), None),
            (json!({ "redact": ["iban"] }), None),
            (json!({ "requires_confirmation": false }), Some("override `requires_confirmation` can only be `true`")),
            (json!({ "requires_approval": false }), Some("override `requires_approval` can only be `true`")),
            (json!({ "timeout_seconds": 0 }), Some("between 1 and 86400")),
            (json!({ "timeout_seconds": 86_401 }), Some("between 1 and 86400")),
            (json!({ "redact": [""] }), Some("at most 64 names")),
            (json!({ "redact": ["got.email"] }), Some("no paths and no patterns")),
            (json!({ "redact": ["email redact=got"] }), Some("no paths and no patterns")),
            (json!({ "redact": vec!["x"; 65] }), Some("at most 64 names")),
        ] {
            let found = overrides(given.clone()).check().map_err(|error| error.to_string());
            match (expected, &found) {
                (None, Ok(())) => {}
                (Some(text), Err(message)) => assert!(message.contains(text), "{given}: {message}"),
                _ => panic!("{given}: {found:?}"),
            }
        }
        assert!(serde_json::from_value::<PolicyOverrides>(json!({ "requires_nothing": true })).is_err());
    }

    #[test]
    fn the_tightest_of_several_overrides_wins_in_any_order() {
        use serde_json::json;
        let loose = overrides(json!({ "requires_approval": false, "timeout_seconds": 60, "redact": ["b", "a"] }));
        let tight = overrides(json!({ "requires_approval": true, "timeout_seconds": 30, "redact": ["c", "a"] }));
        let merged = overrides(json!({ "requires_approval": true, "timeout_seconds": 30, "redact": ["a", "b", "c"] }));
        assert_eq!(loose.merge(&tight), merged);
        assert_eq!(tight.merge(&loose), merged);
        assert_eq!(merged.merge(&merged), merged);
        assert_eq!(merged.merge(&PolicyOverrides::default()), merged);
        assert_eq!(loose.merge(&PolicyOverrides::default()).requires_approval, None, "a false is nothing");
    }

    #[test]
    fn the_most_specific_record_decides() {
        let records = ["*", "demo.*", "demo.word_stats", "other.*"].map(|text| text.parse::<ToolPattern>().unwrap());
        for (tool, expected) in [
            ("demo.word_stats", "demo.word_stats"),
            ("demo.other_tool", "demo.*"),
            ("other.word_stats", "other.*"),
            ("calculator", "*"),
        ] {
            let tool = tool.parse().unwrap();
            // Whatever the order of the records.
            assert_eq!(most_specific(&records, |own| own, &tool).unwrap().to_string(), expected);
            assert_eq!(most_specific(records.iter().rev(), |own| own, &tool).unwrap().to_string(), expected);
        }
        assert_eq!(most_specific(&records[1..], |own| own, &"calculator".parse().unwrap()), None);
    }
}
