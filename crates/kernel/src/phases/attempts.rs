//! Within execute: one attempt at running a tool, and several, with the breaker of the service behind it asked before each.
//! (DESIGN §8.10, RES-003, RES-014…016)
//!
//! Invariants
//! - ATT-1: a tool is marked as started only after its breaker has let it through, so that a call refused there leaves
//!   nothing behind.
//! - ATT-2: an attempt is repeated only if its error can be retried, its status is among those of the manifest, and repeating
//!   it cannot make an effect happen twice: the tool is safe to repeat, or the call has a key and surely nothing happened. It
//!   keeps its key, its id and its place in the ledger (RES-015).
//! - ATT-3: what is done in the background is not repeated here, nor answered with a former result: the queue tries it again.
//! - ATT-4: a former result is given only if the breaker refuses, and only for what `resilience::last_results` keeps. (RES-019)
//!
//! Not here: how long to wait (`resilience::retry`), what counts as a failure of the service (`resilience::outcome`).

use std::sync::Arc;
use std::time::Duration;

use crate::identity::Principal;
use contract::envelope::StaleNotice;
use contract::error::{ErrorCode, Refusal};
use serde_json::json;

use super::execute::{Former, Output, cancelled, timed_out};
use super::facts::{Facts, millis};
use crate::checkpoints::{self, Keeper};
use crate::invoke::Kernel;
use crate::ledger::{self, CallKey};
use crate::ports::executor::{Executor, ToolCall, ToolOutput};
use crate::ports::observer::Step;
use crate::registry::ToolVersion;
use crate::resilience::Resilience;
use crate::resilience::backoff::chance;
use crate::resilience::guard::{Guard, Retries};
use crate::resilience::last_results::ResultKey;
use crate::resilience::retry::{Attempts, Judged, Next, spread};

/// What an attempt needs.
pub(super) struct Run<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) executor: &'a dyn Executor,
    pub(super) keeper: Option<&'a Keeper>,
    /// By the monotonic clock.
    pub(super) deadline: Duration,
    pub(super) time_allowed: Duration,
}

/// A tool with something around it, and whom to ask.
pub(super) type Guarded<'a> = (&'a Resilience, &'a Guard);

impl<'a> Run<'a> {
    /// What stands around calls of this tool, if anything does.
    pub(super) fn guard<'t>(&self, tool: &'t ToolVersion) -> Option<Guarded<'t>>
    where
        'a: 't,
    {
        let resilience: &'a Resilience = self.kernel.resilience.as_deref()?;
        let guard = tool.guard(&resilience.settings)?;
        (guard.breaker.is_some() || guard.retries.is_some()).then_some((resilience, guard))
    }

    /// From here on the tool may have done something (ATT-1).
    pub(super) fn begin(&self, facts: &mut Facts) {
        facts.begun = true;
        if let Some(held) = facts.held.as_mut().filter(|held| !held.started) {
            held.started = true;
            self.kernel.parts.observer.step(Step::Starting);
        }
    }

    /// Runs it once.
    pub(super) async fn once(&self, facts: &Facts, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let tool = Arc::clone(&call.tool);
        let time_left = self.time_left();
        tokio::select! {
            biased;
            output = self.executor.execute(call) => output,
            () = facts.cancellation.cancelled() => Err(cancelled(&tool)),
            () = checkpoints::tend(self.keeper) => Err(cancelled(&tool)),
            () = self.kernel.clock().sleep(time_left) => Err(timed_out(&tool, millis(self.time_allowed))),
        }
    }

    /// Runs it as often as it takes and as is allowed.
    pub(super) async fn guarded(
        &self,
        facts: &mut Facts,
        call: ToolCall,
        (resilience, guard): Guarded<'_>,
        caller: &Principal,
        (key, result_key): (&CallKey, Option<&ResultKey>),
    ) -> Result<Output, Refusal> {
        let tool = Arc::clone(&call.tool);
        let background = caller.is_warranted();
        let retries = guard.retries.as_ref().filter(|_| !background);
        let mut attempts = retries.map(|retries| (retries, Attempts::new(retries.plan)));
        let mut last: Option<Refusal> = None;
        loop {
            // Those that come through a door were counted with everything else that limits them.
            let counted = last.is_none() && !background;
            let entered = match &guard.breaker {
                None => None,
                Some(service) => match resilience.enter(&tool, service, counted, self.time_left()).await {
                    Ok(entered) => Some(entered),
                    Err(refusal) => {
                        let is_open = refusal.code == ErrorCode::E3501;
                        if let Some(key) = result_key.filter(|_| is_open && !background)
                            && let Some(former) = self.former_result(resilience, &tool, key)
                        {
                            return Ok(Output::Stale(former));
                        }
                        // What the service itself said last is the better answer.
                        return Err(last.unwrap_or(refusal));
                    }
                },
            };
            self.begin(facts);
            let began = self.kernel.clock().monotonic();
            let result = self.once(facts, ToolCall { time_left: self.time_left(), ..call.clone() }).await;
            if let Some(entered) = &entered {
                let took = self.kernel.clock().monotonic().saturating_sub(began);
                resilience.leave(entered, result.as_ref(), took).await;
            }
            let refusal = match result {
                Ok(output) => return Ok(Output::Fresh(output)),
                Err(refusal) => refusal,
            };
            let Some((retries, attempts)) = &mut attempts else { return Err(refusal) };
            let judged = judge(&tool, key, retries, &refusal);
            let (at_most, at_least) = match attempts.after(judged, self.time_left()) {
                Next::Finish(_) => return Err(told(refusal, attempts.made())),
                Next::Wait { at_most, at_least } => (at_most, at_least),
            };
            if !resilience.may_repeat(retries).await {
                return Err(exhausted(&tool, &refusal, attempts.made()));
            }
            let wait = spread(at_most, at_least, chance(self.kernel.entropy())).min(self.time_left());
            tracing::debug!(tool_name = %tool.id, code = refusal.code.as_str(), attempt = attempts.made(), ?wait, "tool_attempt_failed");
            tokio::select! {
                biased;
                () = facts.cancellation.cancelled() => return Err(cancelled(&tool)),
                () = self.kernel.clock().sleep(wait) => {}
            }
            if self.time_left().is_zero() {
                return Err(told(refusal, attempts.made()));
            }
            facts.repeats = attempts.made();
            last = Some(refusal);
        }
    }

    /// ATT-4.
    fn former_result(&self, resilience: &Resilience, tool: &ToolVersion, key: &ResultKey) -> Option<Former> {
        let wanted = tool.manifest.stale_results.as_ref()?;
        let now = self.kernel.clock().monotonic();
        let age_max = Duration::from_secs(u64::from(wanted.max_age_seconds));
        let last = resilience.last_results.find(key, age_max, now)?;
        let age_ms = millis(now.saturating_sub(last.at));
        tracing::debug!(tool_name = %tool.id, age_ms, "a former result is answered, because the service is left alone");
        Some(Former { notice: StaleNotice { age_ms }, last })
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_sub(self.kernel.clock().monotonic())
    }
}

/// ATT-2.
fn judge(tool: &ToolVersion, key: &CallKey, retries: &Retries, refusal: &Refusal) -> Judged {
    let harmless = tool.manifest.side_effect_policy.is_safe_to_retry()
        || (key.is_there() && ledger::surely_did_nothing(refusal.code));
    let listed = retries.statuses.contains(&refusal.code.http());
    let retryable = refusal.retryable.unwrap_or_else(|| refusal.code.row().retry.retryable());
    if !(retryable && harmless && listed) {
        return Judged::Final;
    }
    Judged::Again { after: refusal.retry_after_ms.map(Duration::from_millis) }
}

/// How often it was tried is worth knowing.
fn told(refusal: Refusal, attempts: u32) -> Refusal {
    if attempts < 2 {
        return refusal;
    }
    let mut details = refusal.details.as_deref().cloned().unwrap_or_else(|| json!({}));
    if let Some(members) = details.as_object_mut() {
        members.insert("attempts".to_owned(), attempts.into());
    }
    refusal.details(details)
}

/// RES-016.
fn exhausted(tool: &ToolVersion, last: &Refusal, attempts: u32) -> Refusal {
    tracing::warn!(
        alert = "RETRY_BUDGET_EXHAUSTED",
        tool_name = %tool.id,
        code = last.code.as_str(),
        "the budget of retries is used up"
    );
    let refusal = Refusal::new(
        ErrorCode::E3411,
        format!("`{}` {} failed, and too much is being tried again already: {}", tool.id, tool.version, last.message),
    )
    .details(json!({ "attempts": attempts, "last_error": { "code": last.code.as_str(), "message": last.message } }));
    Refusal { retry_after_ms: last.retry_after_ms, ..refusal }
}
