//! Phase 3, authorize: may this caller run this version with these parameters, now?
//!
//! The order is fixed: the token first, then its scopes and argument limits, then policies, then what the tool, its
//! activation and the policies demand besides (LIFE-005). What may be done is what all of them allow; none can add to
//! what another refuses. A refusal here is recorded like every other end of a call.

use std::sync::Arc;

use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::cost::{self, CostEstimate};
use contract::envelope::{AgentContext, CallLimits};
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::manifest::Execution;
use contract::schema::CoercionNote;
use policy::{ArgumentLimit, Caller};
use ports::tool_origin::ToolOrigin;
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use super::conditions::Conditions;
use super::execute::would_spend;
use super::validate::Validated;
use crate::access::{DecisionRequest, PolicyDecision};
use crate::deadline::{SYNC_MAX, TimeAllowed, TimeLimits, time_allowed};
use crate::identity::Principal;
use crate::invocation_ids::CallIdentity;
use crate::invoke::Kernel;
use crate::ledger::{self, CallKey};
use crate::resilience::guard::guard_of;

/// The server behind a tool, if there is one; or why nobody can say. Then nothing is decided.
pub(super) type OriginFound = Result<Option<Arc<ToolOrigin>>, Refusal>;

/// A call that may run.
#[derive(Debug)]
pub struct Authorized {
    pub(super) caller: Arc<Principal>,
    pub(super) tool: Arc<ToolVersion>,
    pub(super) parameters: Arc<Value>,
    pub(super) parameters_digest: Digest,
    pub(super) key: CallKey,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) time_allowed: TimeAllowed,
    pub(super) limits: CallLimits,
    pub(super) conditions: Conditions,
    pub(super) decision: Arc<PolicyDecision>,
}

impl Authorized {
    /// The caller, the tool and the parameters of an authorized call. A job that is submitted keeps these three.
    pub(crate) fn admitted(&self) -> (&Arc<Principal>, &Arc<ToolVersion>, &Value) {
        (&self.caller, &self.tool, &self.parameters)
    }

    /// What makes it the same call as another one under its id.
    pub(crate) fn identity(&self) -> CallIdentity {
        CallIdentity {
            owner: self.caller.owner(),
            tool: self.tool.id.clone(),
            parameters: self.parameters_digest,
            key: self.key.of(&self.caller, &self.tool, &self.parameters),
            is_claimed: self.tool.manifest.side_effect_policy.has_effects() || self.key.given.is_some(),
        }
    }

    /// What its caller said about which call it is.
    pub(crate) fn key(&self) -> &CallKey {
        &self.key
    }

    /// What it will probably cost, and how long it may take.
    fn estimate(&self) -> CostEstimate {
        let prices = self.tool.manifest.cost_config.as_ref();
        let timeout_ms = u64::saturating_from(self.time_allowed.usual.as_millis());
        cost::estimate(prices, &self.parameters, Some(timeout_ms))
    }

    /// What the policies said.
    pub(crate) fn decision(&self) -> &PolicyDecision {
        &self.decision
    }
}

/// Runs the phase, and counts the call against its limits. A background job was already counted when it was submitted.
pub async fn authorize(kernel: &Kernel, validated: Validated) -> Result<Authorized, Refusal> {
    let origin = origin_of(kernel, &validated.tool);
    authorize_by(kernel, validated, origin).await
}

/// Runs the phase for what no executor runs, and so none knows the origin of.
pub(super) async fn authorize_from(
    kernel: &Kernel,
    validated: Validated,
    origin: Option<Arc<ToolOrigin>>,
) -> Result<Authorized, Refusal> {
    authorize_by(kernel, validated, Ok(origin)).await
}

async fn authorize_by(kernel: &Kernel, validated: Validated, origin: OriginFound) -> Result<Authorized, Refusal> {
    let authorized = authorize_uncounted(kernel, validated, origin).await?;
    // RES-017, RES-018: last, so that nothing is taken by a call that is refused anyway. A background job was already counted when
    // it was submitted.
    let Authorized { caller, tool, .. } = &authorized;
    if let Some(resilience) = kernel.resilience.as_ref().filter(|_| !caller.is_recorded()) {
        resilience.count(caller, tool, guard_of(tool, &resilience.settings)).await?;
    }
    Ok(authorized)
}

/// Asks what [`authorize`] asks, about a call that will not be made: limits are looked at, and nothing is counted. What comes
/// of it cannot be executed.
pub(crate) async fn authorize_in_theory(
    kernel: &Kernel,
    validated: Validated,
) -> Result<(Arc<PolicyDecision>, CostEstimate), Refusal> {
    let origin = origin_of(kernel, &validated.tool);
    let authorized = authorize_uncounted(kernel, validated, origin).await?;
    let Authorized { caller, tool, .. } = &authorized;
    if let Some(resilience) = &kernel.resilience {
        resilience.would_count(caller, tool, guard_of(tool, &resilience.settings)).await?;
    }
    would_spend(kernel, caller).await?;
    Ok((Arc::clone(&authorized.decision), authorized.estimate()))
}

async fn authorize_uncounted(
    kernel: &Kernel,
    validated: Validated,
    origin: OriginFound,
) -> Result<Authorized, Refusal> {
    let Validated {
        caller,
        tool,
        parameters,
        parameters_digest,
        coercions,
        require_approval,
        key,
        time_asked,
        parent_left,
        limits,
        context,
        mut conditions,
        access,
    } = validated;
    token_covers(&caller, &tool, &parameters)?;
    context_agrees_with_the_token(&caller, &context)?;
    tool_is_enabled(&tool)?;

    let now = kernel.clock().now();
    let origin = origin?;
    let call = DecisionRequest {
        caller: &caller,
        tool: &tool,
        origin: origin.as_deref(),
        arguments: &parameters,
        arguments_digest: parameters_digest,
        now,
    };
    let decision = kernel.access().decide(&access, call).await?;
    decision.obligations.iter().for_each(|obligation| conditions.add(obligation));
    conditions.approval |= require_approval;
    effects_are_gated(&tool, &conditions)?;
    ledger::demanded(&tool, &key)?;

    let limits_of_time = TimeLimits {
        asked: time_asked,
        conditions: conditions.timeout,
        token_left: caller.time_left(kernel.clock().now()),
        parent_left,
        // Nobody waits on a line for a call that is done in the background.
        sync_max: (!caller.is_recorded()).then_some(SYNC_MAX),
    };
    let time_allowed = time_allowed(&tool.manifest, limits_of_time)
        .ok_or_else(|| Refusal::new(ErrorCode::E3002, "no time is left for this call"))?;
    Ok(Authorized {
        caller,
        tool,
        parameters,
        parameters_digest,
        key,
        coercions,
        time_allowed,
        limits,
        conditions,
        decision,
    })
}

/// The server behind the tool, as the executor that would run it knows it.
pub(super) fn origin_of(kernel: &Kernel, tool: &ToolVersion) -> OriginFound {
    let kind = tool.manifest.execution.as_ref().map(Execution::kind);
    let executor = kernel.parts.executors.iter().find(|executor| Some(executor.kind()) == kind);
    executor.map_or(Ok(None), |executor| executor.origin(tool))
}

/// What the token alone says: the tool, its scopes, its limits.
pub(super) fn token_covers(caller: &Caller, tool: &ToolVersion, arguments: &Value) -> Result<(), Refusal> {
    token_names_the_tool(caller, tool)?;
    scopes_cover_the_needs(caller, tool)?;
    arguments_are_within_limits(caller, tool, arguments)
}

fn token_names_the_tool(caller: &Caller, tool: &ToolVersion) -> Result<(), Refusal> {
    if caller.may_call(&tool.id, &tool.version) {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::E3204, format!("the token does not name `{}` {}", tool.id, tool.version))
        .hint("ask for a token whose `tools` include it"))
}

/// AUTH-013: what the tool needs must be granted in full.
fn scopes_cover_the_needs(caller: &Caller, tool: &ToolVersion) -> Result<(), Refusal> {
    let manifest = &tool.manifest;
    let needs = manifest.required_permissions.iter().chain(manifest.requires_permission.iter()).map(String::as_str);
    match caller.missing_scope(needs.chain(tool.permissions()?.needs())) {
        None => Ok(()),
        Some(missing) => Err(Refusal::new(ErrorCode::E3206, format!("scope `{missing}` is not granted"))
            .hint(format!("ask for a token whose `scopes` cover `{missing}`"))
            .because(RefusalReason::MissingScope(missing.to_owned()))),
    }
}

/// The token may say "at most 100". A limit names the argument and the bound; the value is not told.
fn arguments_are_within_limits(caller: &Caller, tool: &ToolVersion, arguments: &Value) -> Result<(), Refusal> {
    // A limit on a former name of the tool is a limit on the tool, whichever of its names it is called by.
    let applies = |limit: &ArgumentLimit| tool.names().any(|name| limit.applies_to(name));
    for limit in caller.limits().iter().filter(|limit| applies(limit)) {
        limit.holds(arguments).map_err(|breach| {
            Refusal::new(ErrorCode::E3206, format!("the token limits this call: {breach}"))
                .hint("stay within the limit, or ask for a token with a wider one")
                .details(json!({ "argument": limit.argument }))
        })?;
    }
    Ok(())
}

/// the token is the truth; a body that says otherwise is a mistake or an attack.
pub(crate) fn context_agrees_with_the_token(caller: &Caller, context: &AgentContext) -> Result<(), Refusal> {
    let contradiction = [
        ("agent_did", context.agent_did.as_ref().is_some_and(|given| given != caller.subject())),
        ("tenant_id", context.tenant_id.as_ref().is_some_and(|given| given != caller.tenant())),
        ("user_did", context.user_did.as_ref().is_some_and(|given| Some(given) != caller.user())),
        (
            "session_id",
            caller.session().is_some_and(|own| context.session_id.as_deref().is_some_and(|given| given != own)),
        ),
    ];
    match contradiction.into_iter().find(|(_, contradicts)| *contradicts) {
        None => Ok(()),
        Some((member, _)) => {
            Err(Refusal::new(ErrorCode::E3206, format!("agent_context.{member} contradicts the token"))
                .hint("leave it out, or use a token that says the same"))
        }
    }
}

fn tool_is_enabled(tool: &ToolVersion) -> Result<(), Refusal> {
    if tool.manifest.is_enabled() {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::E3108, format!("`{}` {} is switched off by its manifest", tool.id, tool.version))
        .hint("use another version or tool")
        .retryable(false))
}

/// What cannot be undone waits for a person. Until that is built, such calls are refused rather than let through
/// (DESIGN §6.1, §8.19).
pub(super) fn effects_are_gated(tool: &ToolVersion, conditions: &Conditions) -> Result<(), Refusal> {
    let manifest = &tool.manifest;
    if conditions.approval || manifest.needs_approval() {
        return Err(Refusal::new(
            ErrorCode::E3208,
            format!("`{}` {} may run only after a person has approved it", tool.id, tool.version),
        )
        .hint("this server has no approvals yet, so the call cannot be run here"));
    }
    if conditions.confirmation || manifest.requires_confirmation == Some(true) {
        return Err(Refusal::new(
            ErrorCode::E3210,
            format!("`{}` {} may run only after its user has confirmed it", tool.id, tool.version),
        )
        .hint("this server cannot ask for confirmation yet, so the call cannot be run here"));
    }
    Ok(())
}
