//! What a token allows, as people write it on the command line. The same for a new token and for one that is handed on.

use clap::Args;
use contract::version::VersionRange;
use policy::{ArgumentLimit, CallBudget, PermissionScope, Role, ToolGrant, ToolPattern};
use serde_json::Value;

/// Tools, scopes, limits and a budget.
#[derive(Debug, Default, Args)]
pub(crate) struct RightsFlags {
    /// A tool it may call: `id`, `namespace.*` or `*`, each with `@RANGE` if wanted (repeatable)
    #[arg(long = "tool", value_name = "PATTERN[@RANGE]", value_parser = grant)]
    pub(super) tools: Vec<ToolGrant>,
    /// A scope it holds, such as `tool:*` or `network:https://api.example.com` (repeatable)
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(super) scopes: Vec<PermissionScope>,
    /// A limit on an argument, such as '{"tool_id": "pay.refund", "argument": "/amount", "max": 100}'; besides `min` and
    /// `max` there are `one_of`, `max_length` and `under` (repeatable: all of them must hold)
    #[arg(long = "limit", value_name = "JSON", value_parser = limit)]
    pub(super) limits: Vec<ArgumentLimit>,
    /// How many calls it is good for, together with everything delegated from it [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    budget_calls: Option<u64>,
}

impl RightsFlags {
    /// The budget, if there is one.
    pub(super) fn budget(&self) -> Option<CallBudget> {
        self.budget_calls.map(|calls| CallBudget { calls: Some(calls) })
    }
}

fn grant(text: &str) -> Result<ToolGrant, String> {
    let (pattern, range) = match text.split_once('@') {
        Some((pattern, range)) => (pattern, Some(VersionRange::parse(range).map_err(|error| error.to_string())?)),
        None => (text, None),
    };
    let tool_id = pattern.parse::<ToolPattern>().map_err(|error| error.to_string())?;
    Ok(ToolGrant { tool_id, version_range: range })
}

fn limit(text: &str) -> Result<ArgumentLimit, String> {
    let limit: ArgumentLimit = serde_json::from_str(text).map_err(|error| error.to_string())?;
    limit.check().map_err(|error| error.to_string())?;
    Ok(limit)
}

/// A role by its name.
pub(super) fn role(text: &str) -> Result<Role, String> {
    serde_json::from_value(Value::String(text.to_owned()))
        .map_err(|_| "use admin, tool_author, operator, approver, auditor or agent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_patterns_with_an_optional_range() {
        for (text, fine) in [
            ("calculator", true),
            ("demo.*@^1", true),
            ("*", true),
            ("calculator@>=1 <2", true),
            ("calculator@", true),
            ("de*", false),
            ("calculator@^x^", false),
        ] {
            assert_eq!(grant(text).is_ok(), fine, "{text}");
        }
    }

    #[test]
    fn limits_are_checked_where_they_are_written() {
        for (text, fine) in [
            (r#"{"tool_id": "pay.refund", "argument": "/amount", "max": 100}"#, true),
            (r#"{"tool_id": "*", "argument": "/path", "under": "/data"}"#, true),
            (r#"{"tool_id": "pay.refund", "argument": "/amount"}"#, false),
            (r#"{"tool_id": "pay.refund", "argument": "amount", "max": 100}"#, false),
            (r#"{"tool_id": "pay.refund", "argument": "/amount", "most": 100}"#, false),
            ("100", false),
        ] {
            assert_eq!(limit(text).is_ok(), fine, "{text}");
        }
    }

    #[test]
    fn every_role_has_the_name_the_help_gives_it() {
        for name in ["admin", "tool_author", "operator", "approver", "auditor", "agent"] {
            assert!(role(name).is_ok(), "{name}");
        }
        assert!(role("root").is_err());
    }
}
