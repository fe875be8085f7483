//! Within execute: one attempt at running a tool, and several, with the breaker of the service behind it asked before each.
//! (DESIGN §8.10, RES-003, RES-014…016)
//!
//! Invariants
//! - ATT-1: a tool counts as begun only after its breaker has let it through, so that a call refused there leaves nothing
//!   behind. From then on it may have run, until its executor says how far the attempt came.
//! - ATT-2: an attempt is repeated only if its error can be retried, its status is among those of the manifest, and repeating
//!   it cannot make an effect happen twice: the tool is safe to repeat, or the call has a key and its executor says that
//!   nothing was sent or that it was refused before execution. It keeps its key, its id and its place in the ledger (RES-015).
//! - ATT-3: what is done in the background is not repeated here, nor answered with a former result: the queue tries it again.
//! - ATT-5: of several addresses of a service the first is asked whose breaker lets it through; after a failure that may be
//!   repeated, the next one. (RES-012, RES-019)
//! - ATT-4: a former result is given only if the breaker refuses, and only for what `resilience::last_results` keeps. (RES-019)
//! - ATT-6: an attempt that had less time than the tool takes for itself, because its caller, a token, a parent, a policy or a
//!   queue left no more, and that ended with that time, says nothing about the service. Else whoever sends a few calls with
//!   no time would close a service to everybody.
//!
//! Not here: how long to wait (`resilience::retry`), what counts as a failure of the service (`resilience::outcome`).

use std::sync::Arc;
use std::time::Duration;

use crate::identity::Principal;
use contract::envelope::StaleNotice;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::TenantId;
use ports::call_deadline::CallDeadline;
use ports::entropy::chance;
use ports::executor::{
    CallDispatch, ExecutionReach, Executor, ExecutorError, ResourceUsage, ToolCall, ToolOutput, UsageAtEnd,
};
use ports::observer::EffectStep;
use ports::program_log::ProgramLog;
use ports::resilience::guard::{GuardedService, ResilienceGuard, RetryGuard};
use ports::tool_version::ToolVersion;
use serde_json::json;

use super::execute::{Former, Output, cancelled, timed_out};
use super::facts::{CallFacts, millis};
use crate::checkpoints::{self, CheckpointKeeper};
use crate::invoke::Kernel;
use crate::ledger::CallKey;
use crate::resilience::Resilience;
use crate::resilience::guard::{FailoverGuard, guard_of};
use crate::resilience::last_results::ResultKey;
use crate::resilience::retry::{JudgedAttempt, NextAttempt, RetryAttempts, spread};
use crate::resilience::service::EnteredService;

/// How long it may take to find out what an attempt used that was ended from outside: about as long as a sandbox takes to end.
const USAGE_READING_MAX: Duration = Duration::from_secs(2);

/// What an attempt needs.
pub(super) struct Run<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) executor: &'a dyn Executor,
    pub(super) keeper: Option<&'a CheckpointKeeper>,
    pub(super) deadline: Arc<CallDeadline>,
}

/// A tool with something around it, and whom to ask.
pub(super) struct Guarded<'a> {
    resilience: &'a Resilience,
    guard: Option<&'a ResilienceGuard>,
    failover: Option<FailoverGuard>,
}

impl Guarded<'_> {
    /// The breakers of its service: none, one, or one for each address.
    fn services(&self) -> &[GuardedService] {
        match (&self.failover, self.guard) {
            (Some(failover), _) => &failover.services,
            (None, guard) => guard.map_or(&[][..], |guard| guard.breaker.as_slice()),
        }
    }

    fn retries(&self) -> Option<&RetryGuard> {
        match (&self.failover, self.guard) {
            (Some(failover), _) => failover.retries.as_ref(),
            (None, guard) => guard?.retries.as_ref(),
        }
    }
}

impl<'a> Run<'a> {
    /// What stands around calls of this tool, if anything does.
    pub(super) fn guard<'t>(&self, tool: &'t ToolVersion) -> Option<Guarded<'t>>
    where
        'a: 't,
    {
        let resilience: &'a Resilience = self.kernel.resilience.as_deref()?;
        let guard = guard_of(tool, &resilience.settings);
        let failover = FailoverGuard::of(tool, guard, &self.executor.endpoints(tool), &resilience.settings);
        let stands = guard.is_some_and(|guard| guard.breaker.is_some() || guard.retries.is_some());
        (stands || failover.is_some()).then_some(Guarded { resilience, guard, failover })
    }

    /// Runs it once. From here on the tool may have done something (ATT-1), until its executor says what is known.
    pub(super) async fn once(&self, facts: &mut CallFacts, call: ToolCall) -> Result<ToolOutput, Refusal> {
        if !std::mem::replace(&mut facts.begun, true) && facts.held.is_some() {
            self.kernel.parts.observer.step(EffectStep::Starting);
        }
        facts.reach = ExecutionReach::MayHaveRun;
        (facts.failed_usage, facts.failed_program) = (None, None);
        // A call in the ledger has one mark for all attempts, which is read also if the call is dropped.
        let dispatch: Arc<CallDispatch> =
            facts.held.as_ref().map(|held| Arc::clone(&held.dispatch)).unwrap_or_default();
        dispatch.release();
        let tool = Arc::clone(&call.tool);
        let at_end = Arc::new(UsageAtEnd::default());
        let program_log = Arc::new(ProgramLog::default());
        let call = ToolCall {
            dispatch: Arc::clone(&dispatch),
            usage_at_end: Arc::clone(&at_end),
            program_log: Arc::clone(&program_log),
            ..call
        };
        let ended = |refusal| Err(ExecutorError::new(refusal, dispatch.reach()));
        // Asked before the executor is: what was never sent is not begun any more, also if its turn comes just now, because
        // others were ended with it. What was sent and has its answer just now keeps it.
        let never_sent = async {
            facts.cancellation.cancelled().await;
            if dispatch.reach() != ExecutionReach::NotSent {
                std::future::pending::<()>().await;
            }
        };
        let output = tokio::select! {
            biased;
            () = never_sent => ended(cancelled(self.kernel, facts, &tool)),
            output = self.executor.execute(call) => output,
            () = facts.cancellation.cancelled() => ended(cancelled(self.kernel, facts, &tool)),
            () = checkpoints::tend(self.keeper) => ended(cancelled(self.kernel, facts, &tool)),
            () = self.deadline.nears(Duration::ZERO) => ended(timed_out(&tool, millis(self.deadline.allowed()))),
        };
        facts.reach = output.as_ref().map_or_else(|error| error.reach, |_| ExecutionReach::Answered);
        if facts.reach.is_clean() {
            dispatch.hold();
        }
        facts.program_log = program_log.take().map(|log| facts.redactor.text(&log).into_owned());
        let read = match &output {
            Err(error) if error.used.is_none() => self.read_usage(&at_end).await,
            Err(_) | Ok(_) => None,
        };
        output.map_err(|error| {
            facts.failed_usage = error.used.map(|used| *used).or(read);
            facts.failed_program = error.program;
            as_declared(&tool, error.refusal)
        })
    }

    /// What an attempt used whose executor could not say it any more. Asked after the executor's future was dropped, which
    /// ends what it had begun.
    async fn read_usage(&self, at_end: &UsageAtEnd) -> Option<ResourceUsage> {
        let reading = at_end.take()?;
        tokio::select! {
            biased;
            usage = reading => Some(usage),
            () = self.kernel.clock().sleep(USAGE_READING_MAX) => None,
        }
    }

    /// Runs it as often as it takes and as is allowed.
    pub(super) async fn guarded(
        &self,
        facts: &mut CallFacts,
        call: ToolCall,
        guarded: Guarded<'_>,
        caller: &Principal,
        (key, result_key): (&CallKey, Option<&ResultKey>),
    ) -> Result<Output, Refusal> {
        let tool = Arc::clone(&call.tool);
        let background = caller.is_recorded();
        let (resilience, services) = (guarded.resilience, guarded.services());
        let retries = guarded.retries().filter(|_| !background);
        let mut attempts = retries.map(|retries| (retries, RetryAttempts::new(retries.plan)));
        let mut last: Option<Refusal> = None;
        let mut first_asked = 0;
        loop {
            // Those that come through a door were counted with everything else that limits them.
            let counted = last.is_none() && !background;
            let entered =
                match self.enter_any(resilience, (&tool, caller.tenant()), services, (first_asked, counted)).await {
                    Ok(entered) => entered,
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
                };
            let endpoint = entered.as_ref().map_or(0, |(endpoint, _)| *endpoint);
            let (began, time_given) = (self.kernel.clock().monotonic(), self.time_left());
            let result = self.once(facts, ToolCall { endpoint, time_left: self.time_left(), ..call.clone() }).await;
            if let Some((_, entered)) = &entered {
                let took = self.kernel.clock().monotonic().saturating_sub(began);
                let health = || self.kernel.insights.as_ref()?.score(&tool);
                if result.is_err() && is_cut_short(&tool, time_given, took) {
                    resilience.give_back(entered).await;
                } else {
                    resilience.leave(entered, result.as_ref(), took, health).await;
                }
            }
            let refusal = match result {
                Ok(output) => return Ok(Output::Fresh(output)),
                Err(refusal) => refusal,
            };
            let Some((retries, attempts)) = &mut attempts else { return Err(refusal) };
            let judged = judge(&tool, key, retries, (&refusal, facts.reach));
            let (at_most, at_least) = match attempts.after(judged, self.time_left()) {
                NextAttempt::Finish(_) => return Err(told(refusal, attempts.made())),
                NextAttempt::Wait { at_most, at_least } => (at_most, at_least),
            };
            if !resilience.may_repeat(retries).await {
                return Err(exhausted(&tool, &refusal, attempts.made()));
            }
            // Another address need not be waited for, until each was asked once.
            let elsewhere = usize::try_from(attempts.made()).is_ok_and(|made| made < services.len());
            first_asked = endpoint.saturating_add(1);
            let wait =
                if elsewhere { Duration::ZERO } else { spread(at_most, at_least, chance(self.kernel.entropy())) };
            let wait = wait.min(self.time_left());
            tracing::debug!(tool_name = %tool.id, code = refusal.code.as_str(), attempt = attempts.made(), ?wait, "tool_attempt_failed");
            tokio::select! {
                biased;
                () = facts.cancellation.cancelled() => return Err(cancelled(self.kernel, facts, &tool)),
                () = self.kernel.clock().sleep(wait) => {}
            }
            if self.time_left().is_zero() {
                return Err(told(refusal, attempts.made()));
            }
            facts.repeats = attempts.made();
            last = Some(refusal);
        }
    }

    /// ATT-5: leave to ask one of these, and which. If none gives it, the refusal of the one that may be asked soonest.
    async fn enter_any<'g>(
        &self,
        resilience: &Resilience,
        of: (&ToolVersion, &TenantId),
        services: &'g [GuardedService],
        (first_asked, counted): (usize, bool),
    ) -> Result<Option<(usize, EnteredService<'g>)>, Refusal> {
        let mut soonest: Option<Refusal> = None;
        let number = services.len();
        for endpoint in (0..number).map(|n| n.saturating_add(first_asked).checked_rem(number).unwrap_or(0)) {
            let Some(service) = services.get(endpoint) else { continue };
            match resilience.enter(of, service, counted, self.time_left()).await {
                Ok(entered) => return Ok(Some((endpoint, entered))),
                Err(refusal) if refusal.code == ErrorCode::E3501 => {
                    let sooner = soonest.as_ref().is_none_or(|other| refusal.retry_after_ms < other.retry_after_ms);
                    soonest = if sooner { Some(refusal) } else { soonest };
                }
                Err(refusal) => return Err(refusal),
            }
        }
        soonest.map_or(Ok(None), Err)
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
        self.deadline.left()
    }
}

/// ATT-6. A little less than the tool's own time is what is left of it after everything that is asked before.
fn is_cut_short(tool: &ToolVersion, time_given: Duration, took: Duration) -> bool {
    let nearly = |time: Duration| time.mul_f64(0.9);
    let own = Duration::from_millis(tool.manifest.timeout_default_ms());
    time_given < nearly(own) && took >= nearly(time_given)
}

/// A failure in the words of the manifest (MAN-010): whether it may be retried, and what to do about it, unless the executor
/// knows better about this very occurrence. An author's word never makes a call repeatable whose effect could happen twice.
fn as_declared(tool: &ToolVersion, mut refusal: Refusal) -> Refusal {
    let Some(declared) = tool.manifest.errors.iter().find(|declared| declared.code == refusal.code) else {
        return refusal;
    };
    if !declared.retryable || tool.manifest.side_effect_policy.is_safe_to_retry() {
        refusal.retryable = Some(declared.retryable);
    }
    if refusal.hint.is_none() || refusal.code == ErrorCode::E3401 {
        refusal.hint = Some(declared.description.clone());
    }
    refusal
}

/// ATT-2.
fn judge(
    tool: &ToolVersion,
    key: &CallKey,
    retries: &RetryGuard,
    (refusal, reach): (&Refusal, ExecutionReach),
) -> JudgedAttempt {
    let harmless = tool.manifest.side_effect_policy.is_safe_to_retry() || (key.is_there() && reach.is_clean());
    let status = match refusal.reason.as_deref() {
        Some(RefusalReason::UpstreamStatus(status)) => *status,
        _ => refusal.code.http(),
    };
    let listed = retries.statuses.contains(&status);
    let retryable = refusal.retryable.unwrap_or_else(|| refusal.code.row().retry.retryable());
    if !(retryable && harmless && listed) {
        return JudgedAttempt::Final;
    }
    JudgedAttempt::Again { after: refusal.retry_after_ms.map(Duration::from_millis) }
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
