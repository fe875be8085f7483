//! What a server offers besides tools, asked for as a call of a pure tool is made: the same authorization, conditions,
//! limits, budget, masking, counting and record. Only the way it runs is another one, because no executor knows it.
//!
//! Invariants
//! - OFF-1: nothing is asked of a server that [`OfferingCall::begin`] did not let through, and nothing of its answer is told
//!   that did not come through [`OfferingCall::end`].
//! - OFF-2: what a policy or an activation demands is kept, or what was asked for is refused.
//!
//! Not here: which servers there are, and asking them (`crate::offerings`).

use std::sync::Arc;
use std::time::Duration;

use contract::canonical;
use contract::envelope::{AgentContext, CallLimits, InvokeRequest};
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::manifest::Isolation;
use contract::trace_context::TraceContext;
use fair_places::FairPermit;
use ports::actor::Actor;
use ports::executor::ResourceUsage;
use ports::observer::Phase;
use ports::tool_origin::ToolOrigin;
use ports::tool_version::ToolVersion;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::authorize::{Authorized, authorize_from};
use super::conditions::Conditions;
use super::execute::{cancelled, demanded, spend};
use super::facts::CallFacts;
use super::shown_output::{redacted, redacted_failure};
use super::summary::summarise;
use super::validate::Validated;
use super::verify::{Verified, obeys_the_size};
use crate::access::AccessSnapshot;
use crate::concurrency::NoPlace;
use crate::identity::Principal;
use crate::invoke::{IncomingCall, Kernel};
use crate::ledger::CallKey;
use crate::offerings::PATIENCE;

/// Something that is asked of a server, as the tool it stands for.
#[derive(Debug)]
pub(crate) struct OfferedTool {
    pub(crate) tool: Arc<ToolVersion>,
    /// The server behind it, as policies are told of it.
    pub(crate) origin: Option<Arc<ToolOrigin>>,
    pub(crate) access: Arc<AccessSnapshot>,
}

/// What is asked, and how the record tells of it.
#[derive(Debug)]
pub(crate) struct OfferingAsked {
    pub(crate) note: String,
    /// What it is about, as limits, policies and the record hear of it.
    pub(crate) arguments: Value,
}

/// One question to a server, until it is answered and recorded.
#[derive(Debug)]
pub(crate) struct OfferingCall {
    facts: CallFacts,
    admitted: Result<Authorized, Refusal>,
    /// Among the calls of this server, until it is ended.
    _place: Option<FairPermit>,
}

impl OfferingCall {
    /// Asks everything that is asked about a call before it runs, and counts it. `found` is what it is about, if that is there
    /// for this caller. Whatever comes of it is to be ended.
    pub(crate) async fn begin(
        kernel: &Kernel,
        actor: Actor<'_>,
        caller: Arc<Principal>,
        found: Result<OfferedTool, Refusal>,
        asked: OfferingAsked,
    ) -> Result<Self, Refusal> {
        let arrival = IncomingCall {
            credential: None,
            source: None,
            request: InvokeRequest::default(),
            trace: Some(TraceContext::begun(actor.trace_id)),
            parent_left: None,
            audience: None,
            cancellation: CancellationToken::new(),
        };
        let mut facts = CallFacts::begin(kernel, &arrival);
        facts.enter(kernel, Phase::Receive);
        facts.reserve_record(kernel).await?;
        facts.caller = Some(Arc::clone(&caller));
        facts.offering = Some(asked.note);
        let admitted = match found {
            Ok(found) => admit(kernel, &mut facts, caller, found, asked.arguments).await,
            Err(refusal) => Err(refusal),
        };
        let (admitted, place) = match admitted {
            Ok((authorized, place)) => (Ok(authorized), Some(place)),
            Err(refusal) => (Err(refusal), None),
        };
        if admitted.is_ok() {
            facts.enter(kernel, Phase::Execute);
            facts.begun = true;
        }
        Ok(Self { facts, admitted, _place: place })
    }

    /// May it be asked? If so, how long may the answer take, if somebody says so?
    pub(crate) fn admitted(&self, kernel: &Kernel) -> Result<Option<Duration>, Refusal> {
        let Authorized { caller, conditions, .. } = self.admitted.as_ref().map_err(Clone::clone)?;
        Ok(time_allowed(kernel, caller, conditions))
    }

    /// Records and counts how it ended. Gives back as much of the answer as the caller may see.
    pub(crate) async fn end(mut self, kernel: &Kernel, answer: Result<Value, Refusal>) -> Result<Value, Refusal> {
        let carried = match self.admitted {
            Ok(authorized) => {
                self.facts.used = answer.is_ok().then(ResourceUsage::default);
                self.facts.enter(kernel, Phase::Verify);
                verify(&self.facts, authorized, answer)
            }
            Err(refusal) => Err(refusal),
        };
        if carried.is_err() {
            self.facts.journey.stopped();
        }
        match kernel.end(&mut self.facts, carried).await {
            Ok(returned) => Ok(returned.into_response().result),
            Err(failed) => Err(failed.refusal),
        }
    }
}

async fn admit(
    kernel: &Kernel,
    facts: &mut CallFacts,
    caller: Arc<Principal>,
    found: OfferedTool,
    arguments: Value,
) -> Result<(Authorized, FairPermit), Refusal> {
    let OfferedTool { tool, origin, access } = found;
    facts.tool = Some(Arc::clone(&tool));
    let mut conditions = Conditions::default();
    let subjects = std::iter::once(caller.subject()).chain(caller.chain().iter().map(|link| &link.sub));
    for subject in subjects {
        let view = access.view(caller.tenant(), subject);
        let overrides = view.reach(&tool.id, &tool.aliases, || tool.manifest.side_effect_policy);
        let overrides = overrides.map_err(|_| not_enabled(&tool.id))?;
        overrides.into_iter().for_each(|overrides| conditions.add_overrides(overrides));
    }
    facts.enter(kernel, Phase::Validate);
    let parameters_digest = canonical::digest(&arguments);
    facts.parameters_digest = Some(parameters_digest);
    let mut validated = Validated {
        caller,
        tool,
        parameters: Arc::new(arguments),
        parameters_digest,
        coercions: Vec::new(),
        require_approval: false,
        key: CallKey { given: None, turn_group: None, session: None, wait: false },
        time_asked: None,
        parent_left: None,
        limits: CallLimits::default(),
        context: AgentContext::default(),
        conditions,
        access,
    };
    summarise(kernel, facts, &mut validated).await?;
    facts.enter(kernel, Phase::Authorize);
    let authorized = authorize_from(kernel, validated, origin).await?;
    // A server runs as it was entered; nothing about one question changes that.
    if let Some(level) = authorized.conditions.isolation.filter(|level| *level > Isolation::Builtin) {
        return Err(not_kept(&authorized.tool.id, &format!("isolation={}", level.as_str())));
    }
    let demand = demanded(kernel, authorized.caller.tenant(), &authorized.tool);
    if demand > Isolation::Builtin {
        return Err(not_isolated(&authorized.tool.id, demand));
    }
    facts.note_decision(&authorized);
    // As a call does: in its agent's turn, and before anything is counted durably.
    let within = time_allowed(kernel, &authorized.caller, &authorized.conditions).unwrap_or(PATIENCE).min(PATIENCE);
    let place = kernel.concurrency.call(&authorized.caller, kernel.clock(), &facts.cancellation, within).await;
    let place = place.map_err(|none| match none {
        NoPlace::Refused(refusal) => refusal,
        NoPlace::Cancelled => cancelled(kernel, facts, &authorized.tool),
    })?;
    spend(kernel, &authorized.caller).await?;
    Ok((authorized, place))
}

/// How long the answer may take, if somebody says so.
fn time_allowed(kernel: &Kernel, caller: &Principal, conditions: &Conditions) -> Option<Duration> {
    [conditions.timeout, caller.time_left(kernel.clock().now())].into_iter().flatten().min()
}

fn verify(facts: &CallFacts, authorized: Authorized, answer: Result<Value, Refusal>) -> Result<Verified, Refusal> {
    let Authorized { tool, conditions, .. } = authorized;
    let redactor = &*facts.redactor;
    let answer = answer.map_err(|refusal| redacted_failure(redactor, &tool, &conditions, refusal))?;
    let result = redacted(redactor, &tool, &conditions, answer)?;
    obeys_the_size(&tool, &result, &conditions)?;
    let (usage, coercions) = (ResourceUsage::default(), Vec::new());
    Ok(Verified { tool, coercions, result, usage, truncation: None, ran: None, to_keep: None })
}

/// OFF-2, and ISO-3: what the operator demands of a server's tools holds for whatever else it offers.
fn not_isolated(tool: &ToolId, demand: Isolation) -> Refusal {
    let level = demand.as_str();
    Refusal::new(ErrorCode::E3405, format!("`{tool}` must be isolated by `{level}`, and its server is not"))
        .hint("it runs as it was entered; less isolation than `[isolation] demands` says is never given")
        .retryable(false)
}

/// OFF-2.
fn not_kept(tool: &ToolId, demanded: &str) -> Refusal {
    Refusal::new(ErrorCode::E3206, format!("policies demand `{demanded}`, which cannot be kept for `{tool}`"))
        .hint("ask an administrator for a policy that permits it without this obligation")
}

fn not_enabled(tool: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3101, format!("`{tool}` was not found or is not enabled for this agent"))
        .hint("an administrator can enable it with PUT /v1/activations")
}
