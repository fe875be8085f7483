//! Phase 1, receive: make room in the audit log, recognise the caller, find the tool and the version it means in what is
//! visible to this caller.

use std::sync::Arc;
use std::time::Duration;

use contract::envelope::InvokeRequest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::version::VersionSpec;
use policy::WhyUnavailable;
use ports::registry_store::ToolQuarantine;
use ports::tool_version::ToolVersion;
use serde_json::json;

use super::conditions::Conditions;
use super::facts::CallFacts;
use crate::access::AccessSnapshot;
use crate::identity::Principal;
use crate::invoke::{IncomingCall, Kernel};

/// A call whose caller and tool are known.
#[derive(Debug)]
pub struct Received {
    pub(super) caller: Arc<Principal>,
    pub(super) tool: Arc<ToolVersion>,
    pub(super) request: InvokeRequest,
    pub(super) parent_left: Option<Duration>,
    pub(super) conditions: Conditions,
    /// One view of access for the whole call, so that no change can fall between two of its questions.
    pub(super) access: Arc<AccessSnapshot>,
}

impl Received {
    /// A call whose caller waits for it has no place in a queue and nobody to call back: options that say otherwise were
    /// meant for a call in the background.
    pub(crate) fn has_nothing_of_the_background(&self) -> Result<(), Refusal> {
        match self.request.execution_options.of_the_background() {
            None => Ok(()),
            Some(option) => Err(Refusal::new(
                ErrorCode::E3004,
                format!("`execution_options.{option}` is for calls in the background, and this one is waited for"),
            )
            .hint(format!("send the call by itself with `async_mode`, or leave `{option}` out; it was not run"))),
        }
    }
}

/// Is a call made, or only asked about?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Call,
    Theory,
}

/// Runs the phase.
pub async fn receive(kernel: &Kernel, facts: &mut CallFacts, arrival: IncomingCall<'_>) -> Result<Received, Refusal> {
    facts.slot = Some(kernel.parts.recorder.reserve().await?);
    let now = facts.started_at;
    let caller = kernel.identity().recognise(kernel.access(), arrival.credential, arrival.source, now).await?;
    facts.caller = Some(Arc::clone(&caller));
    find_tool(kernel, facts, caller, arrival, Occasion::Call)
}

/// Runs the phase for a caller who has proven itself before; whether it is still welcome is asked as for everybody.
/// What the arrival shows as its credential is not looked at.
pub(crate) async fn receive_again(
    kernel: &Kernel,
    facts: &mut CallFacts,
    caller: Arc<Principal>,
    arrival: IncomingCall<'_>,
) -> Result<Received, Refusal> {
    facts.slot = Some(kernel.parts.recorder.reserve().await?);
    facts.caller = Some(Arc::clone(&caller));
    kernel.identity().welcome(kernel.access(), &caller, facts.started_at).await?;
    find_tool(kernel, facts, caller, arrival, Occasion::Call)
}

/// Runs the phase for a call that will not be made: it takes no room in the audit log, and nobody is told of it.
pub(crate) async fn receive_in_theory(
    kernel: &Kernel,
    facts: &mut CallFacts,
    arrival: IncomingCall<'_>,
) -> Result<Received, Refusal> {
    let now = facts.started_at;
    let caller = kernel.identity().recognise(kernel.access(), arrival.credential, arrival.source, now).await?;
    find_tool(kernel, facts, caller, arrival, Occasion::Theory)
}

/// The tool and the version that are meant, in what is visible to this caller. If there is none, what was asked for is kept
/// for the record, unless something is in the name that must not be seen.
fn find_tool(
    kernel: &Kernel,
    facts: &mut CallFacts,
    caller: Arc<Principal>,
    IncomingCall { request, parent_left, .. }: IncomingCall<'_>,
    occasion: Occasion,
) -> Result<Received, Refusal> {
    match visible_tool(kernel, facts, &caller, &request, occasion) {
        Ok((tool, conditions, access)) => Ok(Received { caller, tool, request, parent_left, conditions, access }),
        Err(refusal) => {
            let name = &*request.tool_id;
            if facts.tool.is_none() && *facts.redactor.text(name) == *name {
                facts.wanted = name.parse().ok();
            }
            Err(refusal)
        }
    }
}

/// The tool in the version that is meant, under which conditions, and the view of access that says so.
type Visible = (Arc<ToolVersion>, Conditions, Arc<AccessSnapshot>);

fn visible_tool(
    kernel: &Kernel,
    facts: &mut CallFacts,
    caller: &Principal,
    request: &InvokeRequest,
    occasion: Occasion,
) -> Result<Visible, Refusal> {
    let now = facts.started_at;
    let spec = VersionSpec::parse(request.tool_version.as_deref().unwrap_or_default())
        .map_err(|error| Refusal::new(ErrorCode::E3004, format!("tool_version: {error}")))?;
    let access = kernel.access().snapshot().clone();
    let view = access.view(caller.tenant(), caller.subject());
    let registry = kernel.registry().snapshot();
    let tool = registry
        .find(caller.tenant(), &request.tool_id)
        .filter(|tool| view.has(&tool.tenant, &tool.id))
        .ok_or_else(|| {
            let sight = kernel.sight(&access, caller);
            registry.not_found(caller.tenant(), &request.tool_id, |tool| sight.knows(tool))
        })?;
    // Before anything about its versions or parameters is said.
    if !caller.names(&tool.id) {
        return Err(not_named(&tool.id));
    }
    let named = tool;
    let tool = named.resolve_named(&spec, now, |version| caller.may_call(&named.id, version))?;
    if occasion == Occasion::Call {
        kernel.registry().warn_of_match(caller.tenant(), named, &spec, tool, now);
    }
    facts.tool = Some(Arc::clone(tool));
    // The caller and everybody who handed its token on: a name that was chosen in a delegation gives nothing that its
    // chooser does not have.
    let mut conditions = Conditions::default();
    let delegators = caller.chain().iter().map(|link| access.view(caller.tenant(), &link.sub));
    for view in std::iter::once(view).chain(delegators) {
        let effects = || tool.manifest.side_effect_policy;
        let overrides = view.reach(&tool.id, &tool.aliases, effects).map_err(|why| not_enabled(&tool.id, why))?;
        overrides.into_iter().for_each(|overrides| conditions.add_overrides(overrides));
    }
    if let Some(held) = kernel.availability().quarantine_of(&tool.tenant, &tool.id) {
        return Err(quarantined(&held));
    }
    if let Some(why) = kernel.availability().why_not(&tool.tenant, &tool.id) {
        return Err(not_available(&tool.id, why));
    }
    Ok((Arc::clone(tool), conditions, access))
}

/// AUTH-004: the token does not name the tool at all.
fn not_named(tool: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3204, format!("the token does not name `{tool}`"))
        .hint("ask for a token whose `tools` include it")
}

/// REG-024: a person has taken the tool out of use. The reason is for those who may release it; `GET /v1/tools/{id}` has it.
fn quarantined(held: &ToolQuarantine) -> Refusal {
    let keeper =
        if held.by_tenant.is_home() { "whoever administers the installation" } else { "whoever keeps the tool" };
    Refusal::new(ErrorCode::E3107, format!("`{}` was taken out of use at {}", held.tool, held.at))
        .hint(format!("ask {keeper}: `gantry tool release` puts it back into use"))
        .details(json!({ "why_unavailable": WhyUnavailable::Quarantined }))
}

/// Published and in reach, but not to be had at the moment (REG-022, REG-023).
fn not_available(tool: &ToolId, why: WhyUnavailable) -> Refusal {
    if why == WhyUnavailable::ServerRemoved {
        // What is left of it is history: it is in no list either.
        return Refusal::new(ErrorCode::E3101, format!("there is no tool `{tool}` any more: {}", why.as_str()))
            .hint("use another tool: `gantry tool list` or GET /v1/tools; an administrator can put the server back")
            .details(json!({ "why_unavailable": why }));
    }
    let passes = why == WhyUnavailable::ServerUnavailable;
    let hint = match why {
        WhyUnavailable::Quarantined => "an administrator can look at the change and accept it: `gantry server review`",
        WhyUnavailable::Withdrawn => "use another tool; `gantry server list` shows what its server offers",
        _ => "try again later; `gantry server list` shows its server",
    };
    Refusal::new(ErrorCode::E3108, format!("`{tool}` cannot be called: {}", why.as_str()))
        .hint(hint)
        .details(json!({ "why_unavailable": why }))
        .retryable(passes)
}

/// VIS-009: in the tenant's reach, but not in this agent's.
pub(super) fn not_enabled(tool: &ToolId, why: WhyUnavailable) -> Refusal {
    Refusal::new(ErrorCode::E3101, format!("tool `{tool}` was not found or is not enabled for this agent"))
        .hint(format!("{}; an administrator can enable it with PUT /v1/activations", why.as_str()))
        .details(json!({ "why_unavailable": why }))
}
