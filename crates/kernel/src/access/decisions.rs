//! Policy decisions, remembered (DESIGN §8.6).
//!
//! The key holds everything a decision can depend on: the epoch, the caller's rights and those of everybody who handed its
//! token on, the tool version and the server behind it, and of the context only what the policies in force read. It is consulted after the token has
//! been verified and its tool checked, never before.
//!
//! What a decision costs is known before it is made. Beyond a millisecond it is made beside the threads that answer everybody,
//! beyond a second it is not made, and the call is refused. (decision 0117)
//!
//! Invariants
//! - DEC-1: every layer, the external engine included, is asked about every delegate of the delegation chain. All must allow, and
//!   the obligations of all hold: a name that was chosen in a token exchange sheds nothing (decision 0042).
//! - DEC-2: one call asks a layer at most once for each delegate, and a chain has a bounded number of delegates.
//! - DEC-3: no thread of the event loop evaluates for longer than [`COST_INLINE_MAX`], nor any other for longer than [`COST_MAX`].

use std::sync::Arc;
use std::time::Duration;

use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::{Subject, TenantId};
use futures_util::future::try_join_all;
use policy::{
    Caller, ContextNeeds, Delegator, Obligation, OutputSchema, Policies, PolicyQuestion, PolicyVerdict, ToolFacts,
};
use ports::clock::UnixMillis;
use ports::policy_engine::EngineError;
use ports::tool_origin::ToolOrigin;
use ports::tool_version::ToolVersion;
use quick_cache::sync::Cache;
use serde_json::{Value, json};

use super::service::AccessControl;
use super::snapshot::{AccessSnapshot, PolicyLayer};
use super::subject_invalidation::{InvalidationMark, SubjectInvalidations};
use super::tool_reach::ReachFacts;
use crate::concurrency::computed_within;

/// Remembered decisions; the least used make room.
const REMEMBERED_MAX: usize = 50_000;
/// Steps of about a nanosecond that a decision takes on the way of the call.
const COST_INLINE_MAX: u64 = 1_000_000;
/// Steps that a decision may take at all.
const COST_MAX: u64 = 1_000_000_000;
/// How long a call waits for a decision that takes long.
const LONG_DECISION_WAIT: Duration = Duration::from_secs(30);
/// How long a caller should wait when the external engine gave no decision.
const ENGINE_RETRY_AFTER_MS: u64 = 1000;

/// What the policies said about a call that may go on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PolicyDecision {
    pub(crate) obligations: Vec<Obligation>,
    /// Names of the policies that allowed it.
    pub(crate) determining: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    epoch: u64,
    mark: InvalidationMark,
    caller: [u8; 32],
    owner: TenantId,
    /// The digest of the manifest, which holds id and version.
    tool: Digest,
    /// Of the server behind it: what that may touch changes without the manifest.
    origin: Option<Digest>,
    arguments: Option<Digest>,
    second: Option<i64>,
}

#[derive(Debug, Clone)]
struct Remembered {
    outcome: Result<Arc<PolicyDecision>, Denial>,
    at: UnixMillis,
}

#[derive(Debug, Clone)]
struct Denial {
    layer: &'static str,
    verdict: Arc<PolicyVerdict>,
}

/// The memory.
#[derive(Debug)]
pub(super) struct Decisions {
    remembered: Cache<Key, Remembered>,
    ttl_ms: i64,
    /// Of whom an authority outside has said that it decides otherwise now. Its mark is part of the key, so that what was
    /// asked before the word came and is answered after it is not remembered past it.
    naming: SubjectInvalidations,
}

impl Decisions {
    pub(super) fn new(ttl_ms: i64) -> Self {
        Self { remembered: Cache::new(REMEMBERED_MAX), ttl_ms, naming: SubjectInvalidations::new() }
    }

    /// No decision made so far is used again.
    pub(super) fn forget(&self) {
        self.naming.name_everybody();
        self.remembered.clear();
    }

    /// No decision about these made so far is used again, whether they call, are called for, or have handed on what is
    /// called with. What is about others stays. (AUTH-011)
    pub(super) fn forget_those_of(&self, subjects: &[Subject]) {
        if self.naming.name(subjects) {
            self.remembered.clear();
        }
    }

    fn mark(&self, caller: &Caller) -> InvalidationMark {
        let handed_on = caller.chain().iter().map(|link| &link.sub);
        self.naming.mark([caller.subject()].into_iter().chain(caller.user()).chain(handed_on))
    }
}

/// One call that wants to go on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionRequest<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) tool: &'a ToolVersion,
    /// The server behind the tool, if there is one.
    pub(crate) origin: Option<&'a ToolOrigin>,
    pub(crate) arguments: &'a Value,
    pub(crate) arguments_digest: Digest,
    pub(crate) now: UnixMillis,
}

impl AccessControl {
    /// Is there anything that decides about calls of this tenant?
    pub(crate) fn has_policies(&self, snapshot: &AccessSnapshot, tenant: &TenantId) -> bool {
        let is_written = snapshot.platform().record.is_some() || snapshot.tenant_policies(tenant).is_some();
        is_written || self.engine().is_some()
    }

    /// What the policies say: those of the platform, those of the tenant and the external engine, all of which must allow.
    pub(crate) async fn decide(
        &self,
        snapshot: &AccessSnapshot,
        call: DecisionRequest<'_>,
    ) -> Result<Arc<PolicyDecision>, Refusal> {
        if !self.has_policies(snapshot, call.caller.tenant()) {
            // Nobody has written a policy: there is nothing to ask and nothing to remember.
            return Ok(Arc::clone(self.no_policies()));
        }
        let platform = snapshot.platform();
        let tenant = snapshot.tenant_policies(call.caller.tenant());
        let layers = [Some(("platform", platform)), tenant.map(|layer| ("tenant", layer))];
        let needs = layers.iter().flatten().filter_map(|(_, layer)| layer.policies.as_ref()).fold(
            if self.engine().is_some() { ContextNeeds::ALL } else { ContextNeeds::default() },
            |sum, policies| sum.and(policies.needs()),
        );
        let key = Key {
            epoch: snapshot.epoch,
            mark: self.decisions().mark(call.caller),
            caller: *call.caller.digest(),
            owner: call.tool.tenant.clone(),
            tool: call.tool.digest,
            origin: call.origin.map(ToolOrigin::digest),
            arguments: needs.arguments.then_some(call.arguments_digest),
            second: needs.time.then(|| call.now.0.div_euclid(1000)),
        };
        let known = self.decisions().remembered.get(&key);
        let fresh = known.filter(|known| (0..self.decisions().ttl_ms).contains(&(call.now.0 - known.at.0)));
        self.observer().decision(fresh.is_some());
        let outcome = match fresh {
            Some(known) => known.outcome,
            None => {
                // Boxed: most calls find their decision remembered.
                let outcome = Box::pin(self.ask(layers.into_iter().flatten(), call)).await?;
                self.decisions().remembered.insert(key, Remembered { outcome: outcome.clone(), at: call.now });
                outcome
            }
        };
        outcome.map_err(|denial| denied(&denial))
    }

    /// Asks every layer about every delegate. An error is not remembered: the next call asks again.
    async fn ask<'l>(
        &self,
        layers: impl Iterator<Item = (&'static str, &'l Arc<PolicyLayer>)>,
        call: DecisionRequest<'_>,
    ) -> Result<Result<Arc<PolicyDecision>, Denial>, Refusal> {
        let facts = ReachFacts::of(call.tool, call.origin)?;
        let delegates = delegates(&question(call, &facts, self.environment()), call.caller.chain());
        let layers: Layers = layers
            .filter(|(_, layer)| layer.record.is_some())
            .map(|(name, layer)| match layer.policies {
                Some(_) => Ok((name, Arc::clone(layer))),
                None => Err(unusable(name)),
            })
            .collect::<Result<_, _>>()?;
        let judged = if cost(&layers, &delegates, Policies::cost_at_most) <= COST_INLINE_MAX {
            judged(&layers, &delegates)
        } else {
            self.judged_aside(layers, call).await?
        };
        let mut decision = match judged {
            Ok(decision) => decision,
            Err(denial) => return Ok(Err(denial)),
        };
        if let Some(engine) = self.engine() {
            // At once, so that a long chain waits no longer for the engine than a short one.
            let verdicts = try_join_all(delegates.iter().map(|delegate| engine.decide(&delegate.question)));
            let verdicts = verdicts.await.map_err(no_decision)?;
            if let Err(denial) = decision.add("engine", delegates.iter().zip(verdicts)) {
                return Ok(Err(denial));
            }
        }
        Ok(Ok(Arc::new(decision)))
    }
}

impl AccessControl {
    /// What takes long is decided where it holds up nobody else, in places that tenants share.
    async fn judged_aside(
        &self,
        layers: Layers,
        call: DecisionRequest<'_>,
    ) -> Result<Result<PolicyDecision, Denial>, Refusal> {
        let (kept, environment) = (KeptCall::of(call), self.environment().to_owned());
        let judging = move || {
            let call = kept.call();
            let facts = ReachFacts::of(call.tool, call.origin)?;
            let delegates = delegates(&question(call, &facts, &environment), call.caller.chain());
            if cost(&layers, &delegates, Policies::cost) > COST_MAX {
                return Err(too_long());
            }
            Ok(judged(&layers, &delegates))
        };
        let agent = (call.caller.tenant(), call.caller.root_subject().as_str());
        let done = computed_within(LONG_DECISION_WAIT, self.clock(), self.long_decisions(), agent, judging).await;
        done.map_err(|why| not_in_time(why.reason()))?
    }
}

/// The layers with policies in force, which can all be used.
type Layers = Vec<(&'static str, Arc<PolicyLayer>)>;

/// A call that outlives the one who asks.
struct KeptCall {
    caller: Caller,
    tool: ToolVersion,
    origin: Option<ToolOrigin>,
    arguments: Value,
    arguments_digest: Digest,
    now: UnixMillis,
}

impl KeptCall {
    fn of(call: DecisionRequest<'_>) -> Self {
        Self {
            caller: call.caller.clone(),
            tool: call.tool.clone(),
            origin: call.origin.cloned(),
            arguments: call.arguments.clone(),
            arguments_digest: call.arguments_digest,
            now: call.now,
        }
    }

    fn call(&self) -> DecisionRequest<'_> {
        DecisionRequest {
            caller: &self.caller,
            tool: &self.tool,
            origin: self.origin.as_ref(),
            arguments: &self.arguments,
            arguments_digest: self.arguments_digest,
            now: self.now,
        }
    }
}

/// What the layers say about every delegate.
fn judged(layers: &Layers, delegates: &[Delegate<'_>]) -> Result<PolicyDecision, Denial> {
    let mut decision = PolicyDecision::default();
    for (name, layer) in layers {
        if let Some(policies) = &layer.policies {
            decision.add_layer(name, policies, delegates)?;
        }
    }
    Ok(decision)
}

/// What asking all of them costs.
fn cost(layers: &Layers, delegates: &[Delegate<'_>], of: impl Fn(&Policies, &PolicyQuestion<'_>) -> u64) -> u64 {
    let policies = layers.iter().filter_map(|(_, layer)| layer.policies.as_ref());
    let costs = policies.flat_map(|policies| delegates.iter().map(|delegate| of(policies, &delegate.question)));
    costs.fold(0, u64::saturating_add)
}

fn too_long() -> Refusal {
    Refusal::new(
        ErrorCode::E3205,
        "the policies would take too long to decide about these arguments, so the call is refused",
    )
    .hint(
        "send shorter texts and lists, or have an administrator write policies that search less: `like` with shorter \
             pieces between `*`, fewer conditions on long arguments",
    )
    .retryable(false)
}

fn not_in_time(why: &str) -> Refusal {
    let refusal = Refusal::new(
        ErrorCode::E3205,
        format!("the policies take long to decide about these arguments, and there is no decision: {why}"),
    )
    .hint("nothing was run; send shorter texts and lists, or try again in a second");
    Refusal { retry_after_ms: Some(ENGINE_RETRY_AFTER_MS), ..refusal }
}

/// ACC-3.
pub(super) fn unusable(layer: &str) -> Refusal {
    Refusal::new(ErrorCode::E3205, format!("the {layer}'s policies in force cannot be used"))
        .hint("an administrator must replace them: see the server's log and PUT /v1/policies")
        .retryable(false)
}

fn no_decision(error: EngineError) -> Refusal {
    tracing::error!(error = &error as &dyn std::error::Error, "the external policy engine failed");
    let refusal = Refusal::new(ErrorCode::E3205, "the policy engine gave no decision, so the call is refused")
        .hint("try again in a moment; an operator should look at the policy engine")
        .caused_by(error);
    Refusal { retry_after_ms: Some(ENGINE_RETRY_AFTER_MS), ..refusal }
}

impl PolicyDecision {
    fn add_layer(
        &mut self,
        layer: &'static str,
        policies: &Policies,
        delegates: &[Delegate<'_>],
    ) -> Result<(), Denial> {
        // Lazily: the first denial ends the question.
        self.add(layer, delegates.iter().map(|delegate| (delegate, policies.decide(&delegate.question))))
    }

    /// Joins what one layer says about each delegate.
    fn add<'h>(
        &mut self,
        layer: &'static str,
        verdicts: impl Iterator<Item = (&'h Delegate<'h>, PolicyVerdict)>,
    ) -> Result<(), Denial> {
        let mut determining: Vec<String> = Vec::new();
        for (delegate, verdict) in verdicts {
            if !verdict.allowed {
                return Err(Denial { layer, verdict: Arc::new(delegate.denied(verdict)) });
            }
            for name in verdict.determining {
                if !determining.contains(&name) {
                    determining.push(name);
                }
            }
            for obligation in verdict.obligations {
                if !self.obligations.contains(&obligation) {
                    self.obligations.push(obligation);
                }
            }
        }
        self.determining.append(&mut determining);
        Ok(())
    }
}

/// Somebody in whose name a call is made: the caller, or one who handed the token on.
#[derive(Debug)]
pub(super) struct Delegate<'a> {
    pub(super) question: PolicyQuestion<'a>,
    is_delegator: bool,
}

impl Delegate<'_> {
    /// The denial, with the name of the delegator whom it is about.
    fn denied(&self, verdict: PolicyVerdict) -> PolicyVerdict {
        if !self.is_delegator {
            return verdict;
        }
        let reason = format!("{} (for `{}`, who handed the token on)", verdict.reason, self.question.agent);
        PolicyVerdict { reason, ..verdict }
    }
}

/// Everybody in whose name the call is made, the caller first, each once. Nobody delegates on what it may not do itself, whatever
/// the name it is handed on to; what a link does not say is taken from the token.
pub(super) fn delegates<'a>(caller: &PolicyQuestion<'a>, chain: &'a [Delegator]) -> Vec<Delegate<'a>> {
    let mut delegates = vec![Delegate { question: *caller, is_delegator: false }];
    for link in chain {
        let question = PolicyQuestion {
            agent: &link.sub,
            roles: link.roles.as_deref().unwrap_or(caller.roles),
            scopes: link.scopes.as_deref().unwrap_or(caller.scopes),
            ..*caller
        };
        // An agent that narrowed its own token for one purpose is the same delegate, unless its rights were others.
        let same = |other: &Delegate<'_>| {
            let other = &other.question;
            (other.agent, other.roles, other.scopes) == (question.agent, question.roles, question.scopes)
        };
        if !delegates.iter().any(same) {
            delegates.push(Delegate { question, is_delegator: true });
        }
    }
    delegates
}

pub(super) fn question<'a>(
    call: DecisionRequest<'a>,
    facts: &'a ReachFacts<'a>,
    environment: &'a str,
) -> PolicyQuestion<'a> {
    let (caller, tool) = (call.caller, call.tool);
    let manifest = &tool.manifest;
    PolicyQuestion {
        tenant: caller.tenant(),
        agent: caller.subject(),
        user: caller.user(),
        session: caller.session(),
        roles: caller.roles(),
        scopes: caller.scopes(),
        tool: ToolFacts {
            id: &tool.id,
            aliases: &tool.aliases,
            version: &tool.version,
            tags: &manifest.tags,
            categories: &manifest.categories,
            effects: manifest.side_effect_policy,
            required_permissions: &manifest.required_permissions,
            provider: &manifest.provider,
            reach: facts.reach(),
            output_schema: if manifest.constrains_output() {
                OutputSchema::Declared
            } else {
                OutputSchema::Unconstrained
            },
        },
        arguments: call.arguments,
        now_ms: call.now.0,
        environment,
    }
}

/// E3206 with its reasons: which layer said no, and which of its policies.
fn denied(denial: &Denial) -> Refusal {
    let Denial { layer, verdict } = denial;
    Refusal::new(ErrorCode::E3206, format!("policy denies this call: {}", verdict.reason))
        .hint(if verdict.determining.is_empty() {
            "ask an administrator for a policy that permits it"
        } else {
            "change the call, or ask an administrator about the policies named in `details.policies`"
        })
        .details(json!({ "layer": layer, "policies": verdict.determining, "reason": verdict.reason }))
        .because(RefusalReason::Denied { policies: verdict.determining.iter().map(ToString::to_string).collect() })
}
