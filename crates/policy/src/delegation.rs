//! Delegation: user ⊇ agent ⊇ invocation, in tools, versions, scopes, argument limits, budget and lifetime (AUTH-014, AUTH-015).
//!
//! There is one judge, [`first_widening`]. Whoever makes a token from another asks it through [`narrow`], whoever gets a
//! token with a chain asks it through [`Delegator::verify`], so that what is issued and what is accepted cannot
//! drift apart.
//!
//! A wish for more is refused, never cut down: an agent that asked for ten tools and got nine would learn so at the worst
//! moment.
//!
//! Invariants
//! - DEL-1: whatever a child may do, its parent may do; so, step by step, may all above it.
//! - DEL-2: `narrow` answers rights in which `first_widening` finds nothing, or says what it found.
//!
//! Not here: signatures and revocation (`token`), counting what was spent (the store), whether a limit makes sense
//! ([`ArgumentLimit::check`]).

use std::fmt;

use contract::version::VersionRange;

use crate::argument_limit::ArgumentLimit;
use crate::budget::CallBudget;
use crate::grant::{ToolGrant, ToolPattern};
use crate::scope::PermissionScope;

mod chain;

pub use chain::{CHAIN_LINKS_MAX, ChainError, Delegator};

/// What somebody may do and until when.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegatedRights {
    pub tools: Vec<ToolGrant>,
    pub scopes: Vec<PermissionScope>,
    pub limits: Vec<ArgumentLimit>,
    pub budget: Option<CallBudget>,
    /// Seconds since the epoch.
    pub expires_at: i64,
}

/// What a delegated token should have. What is not asked for is inherited.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NarrowingRequest {
    pub tools: Option<Vec<ToolGrant>>,
    pub scopes: Option<Vec<PermissionScope>>,
    /// In addition to those there are.
    pub limits: Vec<ArgumentLimit>,
    pub budget: Option<CallBudget>,
    /// Seconds since the epoch.
    pub expires_at: Option<i64>,
}

/// The first thing in which a child is wider than its parent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RightsWidening {
    #[error("tool `{0}` is not among the delegator's tools")]
    Tool(ToolPattern),
    #[error("tool `{tool}` is not the delegator's in {}", Versions(.range.as_ref()))]
    VersionRange { tool: ToolPattern, range: Option<VersionRange> },
    #[error("scope `{0}` is not among the delegator's scopes")]
    Scope(PermissionScope),
    #[error("the delegator's limit on argument `{argument}` of `{tool}` is missing")]
    LimitMissing { tool: ToolPattern, argument: String },
    #[error("the budget is larger than the delegator's {most} calls")]
    Budget { most: u64 },
    #[error("the lifetime goes beyond the delegator's, which ends at {end} (seconds since the epoch)")]
    Lifetime { end: i64 },
}

/// Finds the first thing that `child` has and `parent` has not: tools, versions, scopes, limits, budget, lifetime.
///
/// Limits are compared by containment: the child must carry each of the parent's, whichever tools it is about.
pub fn first_widening(child: &DelegatedRights, parent: &DelegatedRights) -> Option<RightsWidening> {
    wider_tool(&child.tools, &parent.tools)
        .or_else(|| wider_scope(&child.scopes, &parent.scopes))
        .or_else(|| missing_limit(&child.limits, &parent.limits))
        .or_else(|| wider_budget(child.budget.as_ref(), parent.budget.as_ref()))
        .or_else(|| longer_life(child.expires_at, parent.expires_at))
}

/// The rights of a token made from one with the rights of `parent`, or in what the wish goes beyond them.
///
/// ```
/// # use gantry_policy::{NarrowingRequest, DelegatedRights, narrow};
/// let parent = DelegatedRights {
///     tools: vec![], scopes: vec!["filesystem:read:/data".parse().unwrap()], limits: vec![], budget: None, expires_at: 100,
/// };
/// let wish = |scope: &str| NarrowingRequest { scopes: Some(vec![scope.parse().unwrap()]), ..NarrowingRequest::default() };
/// let child = narrow(&parent, &wish("filesystem:read:/data/in")).unwrap();
/// assert_eq!(child.expires_at, 100);
/// assert_eq!(
///     narrow(&parent, &wish("filesystem:read:/")).unwrap_err().to_string(),
///     "scope `filesystem:read:/` is not among the delegator's scopes"
/// );
/// ```
pub fn narrow(parent: &DelegatedRights, wish: &NarrowingRequest) -> Result<DelegatedRights, RightsWidening> {
    let mut limits = parent.limits.clone();
    for limit in &wish.limits {
        if !limits.contains(limit) {
            limits.push(limit.clone());
        }
    }
    let child = DelegatedRights {
        tools: wish.tools.as_ref().unwrap_or(&parent.tools).clone(),
        scopes: wish.scopes.as_ref().unwrap_or(&parent.scopes).clone(),
        limits,
        budget: wish.budget.as_ref().or(parent.budget.as_ref()).cloned(),
        expires_at: wish.expires_at.unwrap_or(parent.expires_at),
    };
    match first_widening(&child, parent) {
        Some(widening) => Err(widening),
        None => Ok(child),
    }
}

// ------------------------------------------------------------------------------------------------------ part by part

fn wider_tool(child: &[ToolGrant], parent: &[ToolGrant]) -> Option<RightsWidening> {
    child.iter().find(|entry| !entry.is_covered_by(parent)).map(|entry| {
        let tool = entry.tool_id.clone();
        if parent.iter().any(|own| own.tool_id.covers(&tool)) {
            RightsWidening::VersionRange { tool, range: entry.version_range.clone() }
        } else {
            RightsWidening::Tool(tool)
        }
    })
}

fn wider_scope(child: &[PermissionScope], parent: &[PermissionScope]) -> Option<RightsWidening> {
    let beyond = |scope: &&PermissionScope| !parent.iter().any(|own| own.covers_scope(scope));
    child.iter().find(beyond).map(|scope| RightsWidening::Scope(scope.clone()))
}

fn missing_limit(child: &[ArgumentLimit], parent: &[ArgumentLimit]) -> Option<RightsWidening> {
    parent
        .iter()
        .find(|limit| !child.contains(limit))
        .map(|limit| RightsWidening::LimitMissing { tool: limit.tool_id.clone(), argument: limit.argument.clone() })
}

fn wider_budget(child: Option<&CallBudget>, parent: Option<&CallBudget>) -> Option<RightsWidening> {
    let most = parent?.calls?;
    let fits = child.is_some_and(|budget| budget.within(&CallBudget { calls: Some(most) }));
    (!fits).then_some(RightsWidening::Budget { most })
}

fn longer_life(child: i64, parent: i64) -> Option<RightsWidening> {
    (child > parent).then_some(RightsWidening::Lifetime { end: parent })
}

/// Versions in a sentence.
struct Versions<'r>(Option<&'r VersionRange>);

impl fmt::Display for Versions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(range) => write!(f, "all versions of `{range}`"),
            None => f.write_str("every version"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rights() -> DelegatedRights {
        DelegatedRights {
            tools: serde_json::from_value(json!([{ "tool_id": "pay.*", "version_range": "^1" }])).unwrap(),
            scopes: vec!["filesystem:read:/data".parse().unwrap()],
            limits: vec![limit("/amount")],
            budget: Some(CallBudget { calls: Some(10) }),
            expires_at: 1000,
        }
    }

    fn limit(argument: &str) -> ArgumentLimit {
        serde_json::from_value(json!({ "tool_id": "pay.refund", "argument": argument, "max": 100 })).unwrap()
    }

    fn grants(value: serde_json::Value) -> Option<Vec<ToolGrant>> {
        Some(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn what_is_not_asked_for_is_inherited() {
        assert_eq!(narrow(&rights(), &NarrowingRequest::default()), Ok(rights()));
    }

    #[test]
    fn a_wish_for_less_is_granted_and_limits_add_up() {
        let wish = NarrowingRequest {
            tools: grants(json!([{ "tool_id": "pay.refund", "version_range": "1.2.3" }])),
            scopes: Some(vec![]),
            limits: vec![limit("/amount"), limit("/fee")],
            budget: Some(CallBudget { calls: Some(1) }),
            expires_at: Some(999),
        };
        let child = narrow(&rights(), &wish).unwrap();
        assert_eq!(child.limits, [limit("/amount"), limit("/fee")]);
        assert_eq!((child.expires_at, child.budget, child.scopes), (999, Some(CallBudget { calls: Some(1) }), vec![]));
    }

    #[test]
    fn a_wish_for_more_is_refused_by_name() {
        let wish = NarrowingRequest::default;
        for (wish, message) in [
            (
                NarrowingRequest { tools: grants(json!([{ "tool_id": "calculator" }])), ..wish() },
                "tool `calculator` is not among the delegator's tools",
            ),
            (
                NarrowingRequest { tools: grants(json!([{ "tool_id": "pay.refund" }])), ..wish() },
                "tool `pay.refund` is not the delegator's in every version",
            ),
            (
                NarrowingRequest {
                    tools: grants(json!([{ "tool_id": "pay.refund", "version_range": ">=1.0.0" }])),
                    ..wish()
                },
                "tool `pay.refund` is not the delegator's in all versions of `>=1.0.0`",
            ),
            (
                NarrowingRequest { scopes: Some(vec!["filesystem:write:/data".parse().unwrap()]), ..wish() },
                "scope `filesystem:write:/data` is not among the delegator's scopes",
            ),
            (
                NarrowingRequest { budget: Some(CallBudget { calls: Some(11) }), ..wish() },
                "the budget is larger than the delegator's 10 calls",
            ),
            (
                NarrowingRequest { budget: Some(CallBudget { calls: None }), ..wish() },
                "the budget is larger than the delegator's 10 calls",
            ),
            (
                NarrowingRequest { expires_at: Some(1001), ..wish() },
                "the lifetime goes beyond the delegator's, which ends at 1000 (seconds since the epoch)",
            ),
        ] {
            assert_eq!(narrow(&rights(), &wish).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_dropped_limit_and_a_dropped_budget_are_widenings() {
        let no_limit = DelegatedRights { limits: vec![limit("/fee")], ..rights() };
        assert_eq!(
            first_widening(&no_limit, &rights()).unwrap().to_string(),
            "the delegator's limit on argument `/amount` of `pay.refund` is missing"
        );
        let no_budget = DelegatedRights { budget: None, ..rights() };
        assert_eq!(first_widening(&no_budget, &rights()), Some(RightsWidening::Budget { most: 10 }));
        assert_eq!(first_widening(&rights(), &no_budget), None);
    }
}
