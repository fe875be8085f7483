//! Phase 2, validate: everything about the call that can be judged by its shape. Nothing has run, nothing is changed.
//!
//! The parameters that leave this phase are the ones that will be executed; nobody touches them in between (VALID-005).
//! So a tool that wants its input stripped has it stripped before the schema sees it, and guards that refuse look at what
//! the schema let through, with its defaults.

use std::sync::Arc;
use std::time::Duration;

use contract::canonical::{self, Digest};
use contract::envelope::{CallLimits, ExecutionMode, InvokeRequest};
use contract::error::{ErrorCode, Refusal};
use contract::guard::GuardBreach;
use contract::manifest::InputGuard;
use contract::schema::{CoercionNote, InvalidInput};
use policy::Caller;
use ports::tool_version::ToolVersion;
use serde_json::{Map, Value, json};

use super::conditions::Conditions;
use super::execute::cancelled;
use super::facts::CallFacts;
use super::receive::Received;
use crate::access::AccessSnapshot;
use crate::concurrency::NoPlace;
use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::ledger::CallKey;

/// Longest idempotency key.
const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
/// Evaluations of a schema that are made at once, on the way of the call: less than a millisecond.
pub(super) const CHECK_WORK_INLINE_MAX: u64 = 100_000;
/// How long parameters that take longer wait for their turn, and are looked at, at the most.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(30);

/// A call whose parameters fit the tool.
#[derive(Debug)]
pub struct Validated {
    pub(super) caller: Arc<Principal>,
    pub(super) tool: Arc<ToolVersion>,
    pub(super) parameters: Arc<Value>,
    pub(super) parameters_digest: Digest,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) require_approval: bool,
    pub(super) key: CallKey,
    pub(super) time_asked: Option<Duration>,
    pub(super) parent_left: Option<Duration>,
    pub(super) limits: CallLimits,
    pub(super) context: contract::envelope::AgentContext,
    pub(super) conditions: Conditions,
    pub(super) access: Arc<AccessSnapshot>,
}

/// Runs the phase.
pub async fn validate(kernel: &Kernel, facts: &mut CallFacts, received: Received) -> Result<Validated, Refusal> {
    let Received { caller, tool, request, parent_left, conditions, access } = received;
    refuse_what_is_not_built(&request)?;
    refuse_what_does_nothing(&tool, &request)?;
    limits_can_be_kept(&tool, &request.resource_limits)?;
    facts.checkpointing.wish(request.checkpoint_config.as_ref())?;
    idempotency_key_shape(request.execution_options.idempotency_key.as_deref())?;
    let key = CallKey::of_request(&request);
    let time_asked = time_asked(request.resource_limits.timeout_seconds)?;

    let schema = tool.parameters_schema()?;
    let mut parameters = Value::Object(request.parameters);
    let stripped = strip(&tool, &mut parameters);
    let prepared = if schema.work(&parameters) <= CHECK_WORK_INLINE_MAX {
        schema.prepare(parameters)
    } else {
        let version = Arc::clone(&tool);
        let check = move || version.parameters_schema().map(|schema| schema.prepare(parameters));
        aside(kernel, facts, &caller, (&tool, time_asked), check).await??
    };
    let prepared = prepared.map_err(|invalid| invalid_parameters(&tool, &invalid))?;
    let parameters_digest = canonical::digest(&prepared.value);
    facts.parameters_digest = Some(parameters_digest);
    let coercions: Vec<CoercionNote> = stripped.into_iter().chain(prepared.coercions).collect();
    facts.coercions.clone_from(&coercions);
    refuse_breaches(&tool, &prepared.value)?;
    Ok(Validated {
        caller,
        tool,
        parameters: Arc::new(prepared.value),
        parameters_digest,
        coercions,
        require_approval: request.execution_options.require_approval,
        key,
        time_asked,
        parent_left,
        limits: request.resource_limits,
        context: request.agent_context.unwrap_or_default(),
        conditions,
        access,
    })
}

/// What takes long is done where it holds up nobody else. (decision 0115)
pub(super) async fn aside<T: Send + 'static>(
    kernel: &Kernel,
    facts: &CallFacts,
    caller: &Principal,
    (tool, time_asked): (&ToolVersion, Option<Duration>),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let within = time_asked.unwrap_or(CHECK_WAIT_MAX).min(CHECK_WAIT_MAX);
    let done = kernel.concurrency.check(caller, kernel.clock(), &facts.cancellation, within, work).await;
    done.map_err(|why| match why {
        NoPlace::Refused(refusal) => refusal,
        NoPlace::Cancelled => cancelled(kernel, facts, tool),
    })
}

/// The parameters as this phase leaves them, of a call that it let through.
pub(crate) async fn prepared(
    kernel: &Kernel,
    caller: &Caller,
    tool: &Arc<ToolVersion>,
    parameters: Map<String, Value>,
) -> Option<Value> {
    let mut parameters = Value::Object(parameters);
    strip(tool, &mut parameters);
    let schema = tool.parameters_schema().ok()?;
    if schema.work(&parameters) <= CHECK_WORK_INLINE_MAX {
        return Some(schema.prepare(parameters).ok()?.value);
    }
    let version = Arc::clone(tool);
    let check = move || Some(version.parameters_schema().ok()?.prepare(parameters).ok()?.value);
    kernel.concurrency.check_answer(caller, check).await.ok()?
}

/// An option that cannot be honoured is refused, never ignored: a dry run that runs would be a lie. `async_mode` is honoured
/// before a call comes here: what the queue takes over arrives without it, so where it is still set, nobody is there to take it.
fn refuse_what_is_not_built(request: &InvokeRequest) -> Result<(), Refusal> {
    let options = &request.execution_options;
    let asked = [
        (options.async_mode || request.execution_mode == Some(ExecutionMode::Async), "execution_options.async_mode"),
        (options.dry_run, "execution_options.dry_run"),
        (request.document_context.is_some(), "document_context"),
        (
            request.agent_context.as_ref().is_some_and(|context| context.parent_sandbox_id.is_some()),
            "agent_context.parent_sandbox_id",
        ),
    ];
    match asked.into_iter().find(|(wanted, _)| *wanted) {
        None => Ok(()),
        Some((_, option)) => Err(Refusal::new(ErrorCode::E3010, format!("`{option}` is not available on this server"))
            .hint(format!("leave `{option}` out; the call was not run"))),
    }
}

/// Members that say which call this is, where nothing would look at them: whoever sends one relies on it.
fn refuse_what_does_nothing(tool: &ToolVersion, request: &InvokeRequest) -> Result<(), Refusal> {
    let options = &request.execution_options;
    if options.turn_group_id.is_some() && !tool.manifest.side_effect_policy.has_effects() {
        return Err(Refusal::new(
            ErrorCode::E3004,
            format!(
                "`execution_options.turn_group_id` does nothing here: `{}` {} has no effects",
                tool.id, tool.version
            ),
        )
        .hint("leave it out, or give an `idempotency_key` to be answered with the same result; the call was not run"));
    }
    let is_named = options.idempotency_key.is_some() || options.turn_group_id.is_some();
    if options.wait_for_duplicate.is_some() && !is_named && request.invocation_id.is_none() {
        return Err(Refusal::new(
            ErrorCode::E3004,
            "`execution_options.wait_for_duplicate` does nothing for a call without an idempotency key",
        )
        .hint("leave it out, or give an `idempotency_key`; the call was not run"));
    }
    Ok(())
}

/// Whoever sets a limit relies on it, so one that the way of running cannot keep is refused (EXEC-004).
fn limits_can_be_kept(tool: &ToolVersion, limits: &CallLimits) -> Result<(), Refusal> {
    let Some(binding) = tool.manifest.execution.as_ref().filter(|binding| !binding.keeps_limits()) else {
        return Ok(());
    };
    let asked = [
        (limits.cpu_millicore_limit, "cpu_millicore_limit"),
        (limits.memory_mb_limit, "memory_mb_limit"),
        (limits.network_bandwidth_mbps, "network_bandwidth_mbps"),
    ];
    match asked.into_iter().find(|(limit, _)| limit.is_some()) {
        None => Ok(()),
        Some((_, member)) => Err(Refusal::new(
            ErrorCode::E3010,
            format!("`resource_limits.{member}` cannot be kept for a tool of type `{}`", binding.kind()),
        )
        .hint(format!(
            "leave `{member}` out: calls of `{}` have no process of their own; the call was not run",
            tool.id
        ))),
    }
}

fn idempotency_key_shape(key: Option<&str>) -> Result<(), Refusal> {
    let fine = key.is_none_or(|key| {
        !key.is_empty() && key.chars().count() <= IDEMPOTENCY_KEY_CHARS_MAX && key.chars().all(|c| !c.is_control())
    });
    if fine {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::E3004, "execution_options.idempotency_key has a wrong shape")
        .hint(format!("use 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable characters")))
}

fn time_asked(seconds: Option<f64>) -> Result<Option<Duration>, Refusal> {
    const SECONDS_MAX: f64 = 86_400.0;
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(Some(Duration::from_secs_f64(seconds))),
        Some(_) => Err(Refusal::new(ErrorCode::E3004, "resource_limits.timeout_seconds is out of range")
            .hint("use more than 0 and at most 86400 seconds")),
    }
}

/// Deletes what the guards object to, for the tools that ask for it; the caller is told where.
fn strip(tool: &ToolVersion, parameters: &mut Value) -> Vec<CoercionNote> {
    match tool.manifest.input_guard.unwrap_or_default() {
        InputGuard::Off | InputGuard::Reject => Vec::new(),
        InputGuard::Strip => {
            let paths = tool.guards().strip(parameters).into_iter();
            paths.map(|path| CoercionNote { path, from: "string", to: "stripped string" }).collect()
        }
    }
}

/// E3305 with place, guard and rule of every breach, and without the text (VALID-007).
fn refuse_breaches(tool: &ToolVersion, parameters: &Value) -> Result<(), Refusal> {
    let guards = tool.guards();
    if guards.is_empty() {
        return Ok(());
    }
    let breaches = match tool.manifest.input_guard.unwrap_or_default() {
        InputGuard::Off => Vec::new(),
        InputGuard::Reject => guards.check(parameters),
        InputGuard::Strip => guards.check_stripped(parameters),
    };
    let Some(GuardBreach { path, guard, reason }) = breaches.first() else { return Ok(()) };
    let more = match breaches.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let message =
        format!("the {guard} guard of `{}` {} refuses the parameters: {place}{reason}{more}", tool.id, tool.version);
    Err(Refusal::new(ErrorCode::E3305, message)
        .hint("rephrase the text without it; if it is meant, ask the author of the tool to change `x-guard` there")
        .details(json!({ "errors": breaches })))
}

/// E3301 with every violation, or E3302 when strings could not be taken for what they should be (VALID-001, VALID-003).
fn invalid_parameters(tool: &ToolVersion, invalid: &InvalidInput) -> Refusal {
    let code = if invalid.coercion_failed { ErrorCode::E3302 } else { ErrorCode::E3301 };
    let first = invalid.violations.first().map_or_else(String::new, |v| {
        if v.path.is_empty() { format!(": {}", v.message) } else { format!(": {}: {}", v.path, v.message) }
    });
    let more = match invalid.violations.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    Refusal::new(code, format!("the parameters do not fit `{}` {}{first}{more}", tool.id, tool.version))
        .details(json!({ "errors": invalid.violations }))
}
