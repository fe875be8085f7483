//! Phase 4, execute: run the tool, under its deadline. What stands between it and a service that fails is in `attempts`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::cost::ReportedCost;
use contract::envelope::StaleNotice;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use contract::manifest::{Execution, Isolation};
use contract::schema::CoercionNote;
use fair_places::FairPermit;
use policy::{Action, Caller};
use ports::access_store::BudgetSpending;
use ports::audit_sink::AuditAction;
use ports::call_deadline::CallDeadline;
use ports::executor::{CallTrace, Executor, ToolCall, ToolOutput, no_executor};
use ports::job_store::JobKey;
use ports::observer::EffectStep;
use ports::registry_store::StoreError;
use ports::resolved_limits::ResolvedLimits;
use ports::tool_version::ToolVersion;
use ports::upstream_spans::OutwardCall;

use super::attempts::Run;
use super::authorize::Authorized;
use super::conditions::Conditions;
use super::facts::{CALLS, CallFacts, millis};
use super::shown_output::{ShownWords, redacted_failure};
use crate::call_companion::{CallCompanion, SpeechBucket};
use crate::concurrency::NoPlace;
use crate::deadline::TimeAllowed;
use crate::invocation_ids::{IdHold, job_digest, taken};
use crate::invoke::Kernel;
use crate::isolation::{self, IsolationFacts};
use crate::ledger::{self, KeptOutcome, KeptResult, LedgerClaim, LedgerRequest, WaitsFor};
use crate::resilience::last_results::{LastResult, ResultKey};

/// A call that ran to its end. Its output has not been looked at.
#[derive(Debug)]
pub struct Executed {
    pub(super) tool: Arc<ToolVersion>,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) output: Output,
    pub(super) conditions: Conditions,
    /// Bytes that its output may have.
    pub(super) result_bytes_max: u64,
    /// Under what it is kept as the last good result, if it turns out to be one.
    pub(super) result_key: Option<ResultKey>,
}

/// Where the output comes from.
#[derive(Debug)]
pub(super) enum Output {
    /// The tool has just given it.
    Fresh(ToolOutput),
    /// The call was made before; this was its result, verified then.
    Kept(Box<KeptResult>),
    /// The service behind the tool is left alone; this is what it said last.
    Stale(Former),
}

/// A result of an earlier call, and how old it is.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) last: Arc<LastResult>,
    pub(super) notice: StaleNotice,
}

/// Runs the phase.
pub async fn execute(kernel: &Kernel, facts: &mut CallFacts, authorized: Authorized) -> Result<Executed, Refusal> {
    if facts.is_id_given {
        // Boxed: few calls bring an id, and every call would carry the room.
        facts.id_hold = Box::pin(id_held(kernel, facts, &authorized)).await?;
    }
    let Authorized {
        caller,
        tool,
        parameters,
        parameters_digest,
        key,
        coercions,
        time_allowed,
        limits,
        conditions,
        decision: _,
    } = authorized;
    // Read before anything is counted or written: a call that cannot run as declared must leave nothing behind.
    tool.permissions()?;
    let result_bytes = kernel.parts.envelope.result_bytes_of(&tool.manifest)?;
    let limits = kernel.parts.envelope.resolve(tool.manifest.resource_limits.as_ref(), &limits)?;
    let limits = ResolvedLimits { result_bytes, ..limits };
    let isolation = isolation(kernel, &caller, &tool, &conditions);
    let executor = executor_for(kernel, &tool, isolation)?;
    facts.checkpointing.possible(&**executor, &tool)?;
    let TimeAllowed { usual, most } = time_allowed;
    let deadline = Arc::new(CallDeadline::new(Arc::clone(&kernel.parts.clock), usual, most));
    let time_left = || deadline.left();
    // Before anything is written: whoever finds no place in time leaves nothing behind. A job had its turn in the queue.
    let places = &kernel.concurrency;
    let _running = match facts.is_job {
        true => None,
        false => Some(placed(
            kernel,
            facts,
            &tool,
            places.call(&caller, kernel.clock(), &facts.cancellation, time_left()).await,
        )?),
    };

    // A tool with effects takes its place in the ledger, durably, before it starts; or it was done before. One without is
    // asked about only if somebody gave the call a name.
    let has_effects = tool.manifest.side_effect_policy.has_effects();
    if has_effects || key.given.is_some() {
        let intent = ledger::intent_of(
            facts.invocation_id,
            facts.trace_id,
            &caller,
            &tool,
            (&parameters, parameters_digest),
            &key,
            kernel.parts.books.owner(),
        );
        // Does it wait for another call with its key, and not for the ledger?
        let waits = WaitsFor::default();
        let claiming = async {
            if !has_effects {
                return kernel.parts.books.claim_lightly(intent, (key.wait, facts.is_job), &waits).await;
            }
            kernel.parts.observer.step(EffectStep::Intending);
            let (wait, is_id_given) = (key.wait, facts.is_id_given);
            let wish = LedgerRequest { intent, wait, is_id_given, entropy: kernel.entropy(), waits: &waits };
            kernel.parts.books.claim(wish).await
        };
        let claim = tokio::select! {
            biased;
            claim = claiming => claim?,
            () = facts.cancellation.cancelled() => return Err(cancelled(kernel, facts, &tool)),
            () = deadline.nears(Duration::ZERO) => {
                return Err(match waits.get() {
                    Some(first) => still_running(&tool, first),
                    None => timed_out(&tool, millis(deadline.allowed())),
                });
            }
        };
        match claim {
            LedgerClaim::Run(held) => {
                facts.invocation_id = held.invocation;
                facts.held = Some(held);
                kernel.parts.observer.step(EffectStep::Intended);
                let slot = kernel.parts.recorder.reserve().await?;
                let record = facts.record(AuditAction::InvocationStarted, kernel.clock().now(), None);
                // Boxed: calls without effects have no use for the room.
                Box::pin(slot.record_durably(record)).await?;
            }
            LedgerClaim::RunLightly(noted) => facts.noted = noted,
            LedgerClaim::Replay(first, kept) => {
                facts.replay_of = Some(first);
                let kept = match kept {
                    KeptOutcome::Success(kept) => kept,
                    KeptOutcome::Resolved { result, truncation } => {
                        Box::new(KeptResult::of_person(result, truncation, facts.started_at))
                    }
                    KeptOutcome::Failure(failure) => {
                        facts.told_checkpoint = failure.checkpoint();
                        return Err(redacted_failure(&*facts.redactor, &tool, &conditions, failure.refusal()));
                    }
                };
                let (output, result_bytes_max) = (Output::Kept(kept), result_bytes);
                return Ok(Executed { tool, coercions, output, conditions, result_bytes_max, result_key: None });
            }
        }
    }
    // EXEC-005: what runs no code of a tool's author here uses none of what the number protects. Held until the end, and
    // not while it waits for another call.
    let _place = match facts.place.take() {
        None if needs_place(isolation) => {
            let turn = places.sandboxed(&caller, kernel.clock(), &facts.cancellation, time_left());
            Some(placed(kernel, facts, &tool, turn.await)?)
        }
        kept => kept.filter(|_| needs_place(isolation)),
    };
    // Under the id the call has by now.
    let checkpointing = &mut facts.checkpointing;
    let resume = checkpointing.begin(kernel, &caller, &tool, facts.invocation_id).await?;
    let own_key = key.of(&caller, &tool, &parameters);
    // Without a key, whoever goes on from a state goes on with the act of the call that saved it.
    let began_as = resume.as_ref().map_or(facts.invocation_id, |point| point.invocation_id);
    let act = ledger::act_key(caller.tenant(), &tool.id, own_key.as_ref(), began_as);
    let keeper = checkpointing.keeper();
    match facts.is_job {
        true => spend_for_job(kernel, &caller, facts.invocation_id).await?,
        false => spend(kernel, &caller).await?,
    }
    // A call that waited for another one has less time left for itself.
    let time_left = time_left();
    if time_left.is_zero() {
        return Err(timed_out(&tool, millis(deadline.allowed())));
    }

    // A call that goes on from what another one has saved depends on more than its parameters.
    let result_key = if resume.is_some() { None } else { ResultKey::of(&tool, &caller, parameters_digest) };
    let outward = facts.journey.outward(&kernel.parts.clock);
    let underway = outward.begin(None, || OutwardCall::Executor(executor.kind()));
    let audience = facts.audience.take().map(|audience| {
        let words = ShownWords::new(Arc::clone(&facts.redactor), Arc::clone(&tool), conditions.clone());
        (audience, words)
    });
    let attendant = Arc::new(CallCompanion {
        invocation_id: facts.invocation_id,
        tool: Arc::clone(&tool),
        clock: Arc::clone(&kernel.parts.clock),
        observer: Arc::clone(&kernel.parts.observer),
        redactor: Arc::clone(&facts.redactor),
        pace: Mutex::new(SpeechBucket::full(kernel.clock().monotonic())),
        audience,
        keeper: keeper.clone(),
        deadline: Arc::clone(&deadline),
        has_asked: AtomicBool::new(false),
    });
    let call = ToolCall {
        invocation_id: facts.invocation_id,
        trace_id: facts.trace_id,
        trace: CallTrace::new(outward, &underway),
        tool: Arc::clone(&tool),
        parameters,
        tenant: caller.tenant().clone(),
        subject: caller.subject().clone(),
        user: caller.user().cloned(),
        agent: caller.root_subject().clone(),
        endpoint: 0,
        time_left,
        deadline: Some(Arc::clone(&deadline)),
        limits,
        isolation,
        companion: Arc::clone(&attendant) as _,
        resume,
        dispatch: Arc::default(),
        usage_at_end: Arc::default(),
        program_log: Arc::default(),
        idempotency_key: act.into(),
    };
    let prices = tool.manifest.cost_config.as_ref();
    facts.units = contract::cost::units_of(prices, &call.parameters);
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
    let run = Run { kernel, executor: &**executor, keeper: keeper.as_deref(), deadline };
    let output = match run.guard(&tool) {
        None => run.once(facts, call).await.map(Output::Fresh),
        // Boxed, so that a call without any of this does not carry it along.
        Some(guarded) => Box::pin(run.guarded(facts, call, guarded, &caller, (&key, result_key.as_ref()))).await,
    };
    underway.end(match &output {
        Ok(Output::Fresh(_) | Output::Kept(_)) => None,
        Ok(Output::Stale(_)) => Some(ErrorCode::E3501),
        Err(refusal) => Some(refusal.code),
    });
    let shown = |refusal| redacted_failure(&*facts.redactor, &tool, &conditions, refusal);
    let mut output = match output.map_err(shown)? {
        Output::Fresh(output) => output,
        former => {
            if let Output::Stale(former) = &former {
                facts.stale = Some((former.last.invocation, former.notice));
                // Whoever asks again with this key asks the service, if it can be asked by then.
                facts.noted = None;
            }
            let (output, result_bytes_max) = (former, result_bytes);
            return Ok(Executed { tool, coercions, output, conditions, result_bytes_max, result_key: None });
        }
    };
    // What was said beside the result goes before what stands in it.
    let reported = ReportedCost::in_result(prices, &output.value);
    output.usage.cost_incurred = output.usage.cost_incurred.or(reported.cost);
    output.usage.tokens = output.usage.tokens.or(reported.tokens);
    facts.used = Some(output.usage);
    if facts.held.is_some() {
        kernel.parts.observer.step(EffectStep::Ended);
    }
    let result_key = result_key.filter(|_| !attendant.has_asked.load(Ordering::Acquire));
    let (output, result_bytes_max) = (Output::Fresh(output), result_bytes);
    Ok(Executed { tool, coercions, output, conditions, result_bytes_max, result_key })
}

/// Takes the id that the call came with, if nobody has it. The ledger says whether it has, when the call is begun.
async fn id_held(kernel: &Kernel, facts: &CallFacts, authorized: &Authorized) -> Result<Option<IdHold>, Refusal> {
    let (call, key) = (authorized.identity(), authorized.key());
    let (caller, tool, parameters) = authorized.admitted();
    let id = JobKey { tenant: caller.tenant().clone(), id: facts.invocation_id };
    if facts.is_job {
        return Ok(kernel.ids.hold_for_job(&id, call));
    }
    let hold = kernel.ids.hold(&id, call.clone())?;
    let digest = job_digest(&tool.id, parameters);
    kernel.ids.free_of_jobs(&id, &call, digest, (key, &*kernel.parts.redactor)).await?;
    // The ledger refuses what it begins. A call without effects is none of those, and its record must not stand beside another's.
    if !tool.manifest.side_effect_policy.has_effects() {
        let line = kernel.books().ledger().find(&id.tenant, id.id).await.map_err(|error| error.refusal())?;
        if line.is_some_and(|line| !call.is_of(&line.intent)) {
            return Err(taken());
        }
    }
    Ok(hold)
}

fn placed(
    kernel: &Kernel,
    facts: &CallFacts,
    tool: &ToolVersion,
    place: Result<FairPermit, NoPlace>,
) -> Result<FairPermit, Refusal> {
    place.map_err(|why| match why {
        NoPlace::Refused(refusal) => refusal,
        NoPlace::Cancelled => cancelled(kernel, facts, tool),
    })
}

/// Counts the call against the budget of the token and of every token it was delegated from, before it runs.
pub(super) async fn spend(kernel: &Kernel, caller: &Caller) -> Result<(), Refusal> {
    let spendings = spendings(caller);
    if spendings.is_empty() {
        return Ok(());
    }
    within_budget(kernel.access().spend(&spendings).await)
}

/// The same for a job, which is one call however often it is tried, interrupted or put back: counted when it is let run first.
async fn spend_for_job(kernel: &Kernel, caller: &Caller, id: InvocationId) -> Result<(), Refusal> {
    let mut spendings = spendings(caller);
    if spendings.is_empty() {
        return Ok(());
    }
    let job = job_counted(caller, id);
    let mark = job.token.clone();
    spendings.insert(0, job);
    match kernel.access().spend(&spendings).await.map_err(|error| error.refusal())? {
        Err(used_up) if used_up == mark => Ok(()),
        answer => within_budget(Ok(answer)),
    }
}

/// A call that was counted as it began goes on as a job.
pub(crate) async fn note_spent_by_job(kernel: &Kernel, caller: &Caller, id: InvocationId) {
    if !spendings(caller).is_empty()
        && let Err(error) = kernel.access().spend(&[job_counted(caller, id)]).await
    {
        tracing::warn!(%id, "it was not noted that a call was counted which goes on as a job; should it be interrupted, it is counted twice: {error}");
    }
}

/// What says that a job has been counted: a budget of one, which no token has, because no id of an issuer begins so.
fn job_counted(caller: &Caller, id: InvocationId) -> BudgetSpending {
    BudgetSpending { token: format!("\u{1f}job {} {id}", caller.tenant()), calls_max: 1 }
}

/// Whether [`spend`] would let the call run. Nothing is counted.
pub(super) async fn would_spend(kernel: &Kernel, caller: &Caller) -> Result<(), Refusal> {
    let spendings = spendings(caller);
    if spendings.is_empty() {
        return Ok(());
    }
    within_budget(kernel.access().would_spend(&spendings).await)
}

/// Every budget that a call of this caller counts against.
fn spendings(caller: &Caller) -> Vec<BudgetSpending> {
    let own = caller.budget().and_then(|budget| budget.calls).zip(caller.token_id());
    let own = own.map(|(calls, token)| (calls, token, caller.issuer()));
    let handed_on = caller.chain().iter().filter_map(|link| {
        let calls = link.budget.as_ref()?.calls?;
        Some((calls, link.jti.as_deref()?, link.iss.as_deref()))
    });
    own.into_iter()
        .chain(handed_on)
        // A token's id is unique among those of its issuer only.
        .map(|(calls_max, token, issuer)| {
            let issuer = issuer.or_else(|| caller.issuer()).unwrap_or_default();
            BudgetSpending { token: format!("{issuer} {token}"), calls_max }
        })
        .collect()
}

fn within_budget(answer: Result<Result<(), String>, StoreError>) -> Result<(), Refusal> {
    match answer.map_err(|error| error.refusal())? {
        Ok(()) => Ok(()),
        Err(_) => Err(Refusal::new(ErrorCode::E3211, "the calls this token allows are used up")
            .hint("ask for a new token; the call was not run")),
    }
}

/// Will calls of this tool by this tenant need a place among those of their agent, unless a policy demands more of one call?
pub(crate) fn takes_place(kernel: &Kernel, tenant: &TenantId, tool: &ToolVersion) -> bool {
    needs_place(demanded(kernel, tenant, tool))
}

fn needs_place(isolation: Isolation) -> bool {
    isolation > Isolation::Builtin
}

/// The most of what manifest, operator and policies demand.
fn isolation(kernel: &Kernel, caller: &Caller, tool: &ToolVersion, conditions: &Conditions) -> Isolation {
    let demanded = demanded(kernel, caller.tenant(), tool);
    conditions.isolation.map_or(demanded, |level| level.max(demanded))
}

pub(super) fn demanded(kernel: &Kernel, tenant: &TenantId, tool: &ToolVersion) -> Isolation {
    let asked = tool.manifest.execution.as_ref().map_or(Isolation::Builtin, Execution::isolation_asked);
    let facts = IsolationFacts { tool: &tool.id, aliases: &tool.aliases, tags: &tool.manifest.tags, tenant };
    kernel.parts.isolation.effective(asked, facts)
}

fn executor_for<'k>(
    kernel: &'k Kernel,
    tool: &ToolVersion,
    demand: Isolation,
) -> Result<&'k Arc<dyn Executor>, Refusal> {
    let Some(binding) = &tool.manifest.execution else {
        return Err(Refusal::new(
            ErrorCode::E3108,
            format!("`{}` {} is catalogued without a way to run it", tool.id, tool.version),
        )
        .hint("publish a version whose manifest has an `execution` table")
        .retryable(false));
    };
    let kind = binding.kind();
    let executor =
        kernel.parts.executors.iter().find(|executor| executor.kind() == kind).ok_or_else(|| no_executor(kind))?;
    isolation::possible(binding, demand)?;
    executor.ready(tool, binding, demand)?;
    Ok(executor)
}

/// Ended by whoever made the call, or by the end of this server.
pub(super) fn cancelled(kernel: &Kernel, facts: &CallFacts, tool: &ToolVersion) -> Refusal {
    let why = if facts.is_left(kernel) { "was ended, because this server ends" } else { "was cancelled while it ran" };
    Refusal::new(ErrorCode::E3703, format!("`{}` {} {why}", tool.id, tool.version))
        .hint("call it again if the result is still wanted; a tool with effects may have had some of them")
        .retryable(tool.manifest.side_effect_policy.is_safe_to_retry())
}

/// The first call may run, or be a job that still waits for its turn.
fn still_running(tool: &ToolVersion, first: InvocationId) -> Refusal {
    Refusal::new(
        ErrorCode::E3409,
        format!("the first call of `{}` {} with this key has not ended", tool.id, tool.version),
    )
    .hint("nothing was run a second time; ask again, with the same key")
    .details(ledger::handle(first))
    .retryable(true)
}

pub(super) fn timed_out(tool: &ToolVersion, after_ms: u64) -> Refusal {
    let refusal = Refusal::new(ErrorCode::E3402, format!("`{}` {} took longer than its {after_ms} ms", tool.id, tool.version))
        .hint("ask for more time with resource_limits.timeout_seconds if the tool's timeout_class allows it, or ask for less work");
    // a timed-out write must not be repeated blindly.
    refusal.retryable(tool.manifest.side_effect_policy.is_safe_to_retry())
}
