//! Between verify and return: a call that had its place in the ledger leaves it, durably, before anybody hears of its end.
//!
//! An answer the caller has seen is durable (DESIGN §5). So an end that cannot be written is not told as if it had been: the
//! caller hears that its outcome is unknown, which is the truth about what a restart would find.

use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::InvocationId;
use ports::ledger::EntryState;
use ports::observer::EffectStep;
use ports::redactor::redacted;
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use super::facts::{CallFacts, millis};
use super::verify::Verified;
use crate::invoke::Kernel;
use crate::ledger::{self, FailedEnd, KeptResult, UnwrittenReason};
use crate::resilience::last_results::LastResult;

/// The end of a call, in the ledger if it belongs there.
#[derive(Debug)]
pub struct SettledCall(pub(super) Result<Verified, Refusal>);

/// Runs the phase.
pub async fn settle(kernel: &Kernel, facts: &mut CallFacts, mut carried: Result<Verified, Refusal>) -> SettledCall {
    if let (Some(resilience), Ok(verified)) = (&kernel.resilience, &mut carried)
        && let Some((key, value)) = verified.to_keep.take()
    {
        resilience.last_results.keep(key, last_result(kernel, facts, value));
    }
    if let (Some(noted), Ok(verified)) = (facts.noted.take(), &carried) {
        kernel.parts.books.remember(noted, kept(kernel, facts, verified));
    }
    let Some(held) = facts.held.take() else { return SettledCall(carried) };
    let Some(tool) = facts.tool.clone() else { return SettledCall(carried) };
    let effects = tool.manifest.side_effect_policy;
    // A failure is only told again, so of its words as much is kept as may be seen.
    let shown = carried.as_ref().err().map(|refusal| redacted(&*facts.redactor, refusal.clone()));
    let cause = carried.as_ref().err().map_or("", |refusal| ledger::cause(refusal.code, facts.is_left(kernel)));
    let kept = match (&carried, &shown) {
        (Ok(verified), _) => Ok(kept(kernel, facts, verified)),
        (Err(refusal), shown) => {
            let checkpoint = facts.checkpointing.summary.newest.map(|id| id.to_string());
            Err(FailedEnd { refusal: shown.as_ref().unwrap_or(refusal), cause, checkpoint })
        }
    };
    let settlement = ledger::settlement(effects, facts.reach, kept);
    let state = settlement.state;
    kernel.parts.observer.step(EffectStep::Settling);
    // Those who wait for this call look again once it is written.
    let written = kernel.parts.books.settle(held, settlement).await;
    kernel.parts.observer.step(EffectStep::Settled);
    SettledCall(match (written, carried) {
        (Ok(()), Err(refusal)) if state == EntryState::Unknown => {
            Err(unknown(&tool, facts.invocation_id, refusal, cause))
        }
        (Ok(()), carried) => carried,
        // Nothing happened, so nothing is lost with the line that says so.
        (Err(UnwrittenReason::Store), Err(refusal)) if state == EntryState::FailedClean => Err(refusal),
        (Err(why), _) => Err(not_kept(&tool, why)),
    })
}

/// What a repeated call is answered with.
fn kept(kernel: &Kernel, facts: &CallFacts, verified: &Verified) -> KeptResult {
    let clock = kernel.clock();
    KeptResult {
        result: verified.result.clone(),
        truncation: verified.truncation.clone(),
        usage: verified.usage,
        started_at: facts.started_at.to_string(),
        completed_at: clock.now().to_string(),
        duration_ms: millis(clock.monotonic().saturating_sub(facts.started)),
    }
}

/// What is answered while the service behind the tool is left alone (RES-019).
fn last_result(kernel: &Kernel, facts: &CallFacts, value: Value) -> LastResult {
    let clock = kernel.clock();
    let at = clock.monotonic();
    LastResult {
        value,
        invocation: facts.invocation_id,
        started_at: facts.started_at.to_string(),
        completed_at: clock.now().to_string(),
        duration_ms: millis(at.saturating_sub(facts.started)),
        at,
    }
}

/// The effect may have happened. A tool that nobody has classified counts as one that must not run twice (DESIGN §8.19): what its
/// executor said stands in the details.
fn unknown(tool: &ToolVersion, invocation: InvocationId, refusal: Refusal, cause: &'static str) -> Refusal {
    if refusal.code == ErrorCode::E3413 {
        return with_cause(refusal, cause);
    }
    let say_so = ledger::resolve_command(invocation);
    Refusal::new(ErrorCode::E3413, format!("{}; whether it had its effect is not known", refusal.message))
        .hint(match &tool.manifest.compensation_tool_id {
            None => format!("it is not repeated: find out, then say so: {say_so}"),
            Some(undo) => {
                format!("it is not repeated: find out, then say so: {say_so}; if it had its effect, `{undo}` undoes it")
            }
        })
        .details(json!({
            "code": refusal.code.as_str(),
            "cause": cause,
            "details": refusal.details,
            "compensation_tool_id": tool.manifest.compensation_tool_id,
        }))
        .because(RefusalReason::OutcomeUnknown { code: refusal.code, behind: refusal.reason.clone() })
        .retryable(false)
        .caused_by(refusal)
}

/// An executor that knew itself that nobody knows has not said why in the word that the ledger keeps.
fn with_cause(mut refusal: Refusal, cause: &'static str) -> Refusal {
    let mut details = refusal.details.take().map_or_else(|| json!({}), |details| *details);
    if let Some(members) = details.as_object_mut() {
        members.entry("code").or_insert_with(|| refusal.code.as_str().into());
        members.entry("cause").or_insert_with(|| cause.into());
    }
    refusal.details(details)
}

fn not_kept(tool: &ToolVersion, why: UnwrittenReason) -> Refusal {
    let what = match why {
        UnwrittenReason::Fenced => "ended after this server had lost its hold on it, so its result was discarded",
        UnwrittenReason::Store => "ended, but how could not be written down",
    };
    Refusal::new(ErrorCode::E3413, format!("`{}` {} {what}", tool.id, tool.version))
        .hint("ask for it with the same idempotency key, or look at it with `gantry jobs show`; it is not repeated")
        .retryable(false)
}
