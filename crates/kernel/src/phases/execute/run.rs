//! Run of a call: its tool is begun with everything it needs, and what it says and used is noted.
//!
//! Not here: attempts, and what stands around them (`attempts`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use contract::cost::ReportedCost;
use contract::error::{ErrorCode, Refusal};
use policy::Action;
use ports::executor::{CallTrace, ToolCall, ToolOutput};
use ports::observer::EffectStep;
use ports::upstream_spans::OutwardCall;

use super::super::attempts::Run;
use super::super::facts::{CALLS, CallFacts};
use super::super::shown_output::{ShownWords, redacted_failure};
use super::prepare::PreparedCall;
use super::resume::ResumedCall;
use super::spend::SpentCall;
use super::{Outcome, Output};
use crate::call_companion::{CallCompanion, SpeechBucket};
use crate::checkpoints::CheckpointKeeper;
use crate::invoke::Kernel;
use crate::resilience::last_results::ResultKey;

/// Runs the tool to its end, or until its time is over.
pub(super) async fn run(
    kernel: &Kernel,
    facts: &mut CallFacts,
    SpentCall(resumed): SpentCall<'_>,
) -> Result<Outcome, Refusal> {
    // The place goes back when the call has ended.
    let ResumedCall { placed, from, keeper, act } = resumed;
    let call = placed.call;
    // A call that waited for another one has less time left for itself.
    let time_left = call.deadline.left();
    if time_left.is_zero() {
        return Err(call.timed_out());
    }
    // A call that goes on from what another one has saved depends on more than its parameters.
    let result_key = match from {
        Some(_) => None,
        None => ResultKey::of(&call.tool, &call.caller, call.parameters_digest),
    };
    let outward = facts.journey.outward(&kernel.parts.clock);
    let underway = outward.begin(None, || OutwardCall::Executor(call.executor.kind()));
    let companion = companion(kernel, facts, call, keeper.clone());
    let trace = CallTrace::new(outward, &underway);
    let asked = ToolCall {
        invocation_id: facts.invocation_id,
        trace_id: facts.trace_id,
        trace,
        tool: Arc::clone(&call.tool),
        parameters: Arc::clone(&call.parameters),
        tenant: call.caller.tenant().clone(),
        subject: call.caller.subject().clone(),
        user: call.caller.user().cloned(),
        agent: call.caller.root_subject().clone(),
        endpoint: 0,
        time_left,
        deadline: Some(Arc::clone(&call.deadline)),
        limits: call.limits,
        isolation: call.isolation,
        companion: Arc::clone(&companion) as _,
        resume: from,
        dispatch: Arc::default(),
        usage_at_end: Arc::default(),
        program_log: Arc::default(),
        idempotency_key: act.into(),
    };
    note_start(facts, call);
    let run =
        Run { kernel, executor: &**call.executor, keeper: keeper.as_deref(), deadline: Arc::clone(&call.deadline) };
    let output = match run.guard(&call.tool) {
        None => run.once(facts, asked).await.map(Output::Fresh),
        // Boxed, so that a call without any of this does not carry it along.
        Some(guarded) => {
            let keys = (&call.key, result_key.as_ref());
            Box::pin(run.guarded(facts, asked, guarded, &call.caller, keys)).await
        }
    };
    underway.end(match &output {
        Ok(Output::Fresh(_) | Output::Kept(_)) => None,
        Ok(Output::Stale(_)) => Some(ErrorCode::E3501),
        Err(refusal) => Some(refusal.code),
    });
    let shown = |refusal| redacted_failure(&*facts.redactor, &call.tool, &call.conditions, refusal);
    match output.map_err(shown)? {
        Output::Fresh(output) => {
            let output = note_use(kernel, facts, call, output);
            let is_keepable = !companion.has_asked.load(Ordering::Acquire);
            Ok((Output::Fresh(output), result_key.filter(|_| is_keepable)))
        }
        former => {
            if let Output::Stale(former) = &former {
                facts.stale = Some((former.last.invocation, former.notice));
                // Whoever asks again with this key asks the service, if it can be asked by then.
                facts.noted = None;
            }
            Ok((former, None))
        }
    }
}

/// What hears the tool, and answers what it asks.
fn companion(
    kernel: &Kernel,
    facts: &mut CallFacts,
    call: &PreparedCall<'_>,
    keeper: Option<Arc<CheckpointKeeper>>,
) -> Arc<CallCompanion> {
    let audience = facts.audience.take().map(|audience| {
        let words = ShownWords::new(Arc::clone(&facts.redactor), Arc::clone(&call.tool), call.conditions.clone());
        (audience, words)
    });
    Arc::new(CallCompanion {
        invocation_id: facts.invocation_id,
        tool: Arc::clone(&call.tool),
        clock: Arc::clone(&kernel.parts.clock),
        observer: Arc::clone(&kernel.parts.observer),
        redactor: Arc::clone(&facts.redactor),
        pace: Mutex::new(SpeechBucket::full(kernel.clock().monotonic())),
        audience,
        keeper,
        deadline: Arc::clone(&call.deadline),
        has_asked: AtomicBool::new(false),
    })
}

/// Notes what is known as the tool begins: what of the parameters is paid for, and who may read what its program writes.
fn note_start(facts: &mut CallFacts, call: &PreparedCall<'_>) {
    let PreparedCall { caller, tool, conditions, .. } = call;
    facts.units = contract::cost::units_of(tool.manifest.cost_config.as_ref(), &call.parameters);
    tracing::debug!(
        target: CALLS,
        tenant_id = %caller.tenant(),
        agent_id = %caller.subject(),
        tool_name = %tool.id,
        side_effect_policy = tool.manifest.side_effect_policy.as_str(),
        "tool_execution_started"
    );
    // EXEC-010: only for those who look after the tool, and not where a policy hides parts of its results from them.
    facts.hides_words = conditions.hides_members();
    facts.shows_output = caller.may(Action::SeeToolOutput) && *caller.tenant() == tool.tenant && !facts.hides_words;
}

/// Notes what the tool has used. What was said beside the result goes before what stands in it.
fn note_use(kernel: &Kernel, facts: &mut CallFacts, call: &PreparedCall<'_>, mut output: ToolOutput) -> ToolOutput {
    let reported = ReportedCost::in_result(call.tool.manifest.cost_config.as_ref(), &output.value);
    output.usage.cost_incurred = output.usage.cost_incurred.or(reported.cost);
    output.usage.tokens = output.usage.tokens.or(reported.tokens);
    facts.used = Some(output.usage);
    if facts.held.is_some() {
        kernel.parts.observer.step(EffectStep::Ended);
    }
    output
}
