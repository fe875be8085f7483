//! A call that somebody has made for another: whoever begins a job of another again does not become its caller, and must be
//! allowed to make the call all the same. (decision 0081)
//!
//! What is asked is what phase 3 asks of a caller: token, scopes and limits on arguments, activations, policies with what they
//! demand, rate limits, budgets. The call itself runs with the rights of its owner, who is asked when it runs; so it runs if
//! both may, and under the owner's obligations. What limits calls counts it once, as one of its owner's; the manager's rate
//! limits are only looked at, because most of them are the same ones. A budget belongs to one token and is spent.

use contract::canonical;
use contract::error::Refusal;
use policy::Caller;
use ports::tool_version::ToolVersion;
use serde_json::Value;

use super::authorize::{effects_are_gated, origin_of, token_covers};
use super::conditions::Conditions;
use super::execute::spend;
use super::receive::not_enabled;
use crate::access::DecisionRequest;
use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::resilience::guard::guard_of;

/// May the manager have this call made, now? Budgets are spent; nothing else is counted.
pub(crate) async fn may_manage(
    kernel: &Kernel,
    manager: &Principal,
    tool: &ToolVersion,
    arguments: &Value,
    needs_approval: bool,
) -> Result<(), Refusal> {
    token_covers(manager, tool, arguments)?;
    let access = kernel.access().snapshot().clone();
    let mut conditions = Conditions::default();
    conditions.approval = needs_approval;
    for subject in subjects(manager) {
        let view = access.view(manager.tenant(), subject);
        // A tool of another tenant's own is in nobody's reach here; whether it may be called is for token and policies to say.
        if !view.has(&tool.tenant, &tool.id) {
            continue;
        }
        let effects = || tool.manifest.side_effect_policy;
        let overrides = view.reach(&tool.id, &tool.aliases, effects).map_err(|why| not_enabled(&tool.id, why))?;
        overrides.into_iter().for_each(|overrides| conditions.add_overrides(overrides));
    }
    let origin = origin_of(kernel, tool)?;
    let call = DecisionRequest {
        caller: manager,
        tool,
        origin: origin.as_deref(),
        arguments,
        arguments_digest: canonical::digest(arguments),
        now: kernel.clock().now(),
    };
    let decision = kernel.access().decide(&access, call).await?;
    decision.obligations.iter().for_each(|obligation| conditions.add(obligation));
    effects_are_gated(tool, &conditions)?;
    if let Some(resilience) = &kernel.resilience {
        resilience.would_count(manager, tool, guard_of(tool, &resilience.settings)).await?;
    }
    spend(kernel, manager).await
}

/// Everybody in whose name the token acts.
fn subjects(caller: &Caller) -> impl Iterator<Item = &contract::ids::Subject> {
    std::iter::once(caller.subject()).chain(caller.chain().iter().map(|link| &link.sub))
}
