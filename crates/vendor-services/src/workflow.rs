//! `execute_workflow`: asks a workflow engine outside, keeps the run, and hears of its end. (ASYNC-013, FLOW-002…006)
//!
//! Sent to `{url}/webhook/{workflowId}`: the input with `_metadata` beside it, and the headers `x-request-id` and
//! `x-idempotency-key`, which are the same for every repetition. 200 with JSON is the output; 202 means that the workflow goes
//! on and will call back (`CallOuts::callback_heard`).
//!
//! Invariants
//! - FLOW-1: a run ends once (RUN-2), whether by its answer, by a refusal, by a callback or by what a person found out.
//! - FLOW-2: a job says `success` of a run that has ended so, and of no other.
//! - FLOW-3: an engine that may have begun the workflow is asked again only if whoever wanted it gave an `idempotencyKey`, by
//!   which the engine can know the repetition. Otherwise, and when all attempts are used up, nobody knows (E3413).
//!   (decision 0097)

use std::time::Duration;

use contract::canonical;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use contract::json::{self, JsonLimits};
use jobs::WaitingOutside;
use jobs::inbound_jobs::{CallbackTaken, NamedAct, WorkflowCallback, not_genuine};
use jobs::webhooks::{SignatureError, is_of_now, verify};
use kernel::background_calls::INTERRUPTED;
use ports::audit_sink::AuditAction;
use ports::job_store::JobRecord;
use ports::registry_store::StoreError;
use ports::secret_source::SecretValue;
use ports::workflow_runs::{NewRun, RunBeginOutcome, RunEnd, RunEnded, RunRecord, RunState};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::call_outs::{CallOutAttempt, CallOutEnd, CallOutStop, CallOuts, RUNS_RETENTION};
use crate::reached::Reached;
use crate::{InboundKind, typed};

/// Longest name of a workflow, and of a key.
const NAME_CHARS_MAX: usize = 128;
const KEY_CHARS_MAX: usize = 255;
/// How long a workflow that goes on may take to call back.
const CALLBACK_MAX: Duration = Duration::from_secs(24 * 3600);
/// Why nobody knows, in the words of docs/crashes.md.
const ANSWER_LOST: &str = "answer_lost";
const TIMED_OUT: &str = "timed_out";
/// The first look whether it has, should the callback itself not have been heard.
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// The member of the input that is ours.
const METADATA: &str = "_metadata";

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Payload {
    workflow_id: String,
    #[serde(default)]
    input: Map<String, Value>,
    #[serde(default)]
    idempotency_key: Option<String>,
    #[serde(default)]
    user_id: Option<String>,
    #[serde(default)]
    chat_id: Option<String>,
}

impl Payload {
    pub(crate) fn read(payload: &Value) -> Result<Self, Refusal> {
        let read: Self =
            typed(payload, "`workflowId`, `input` and, if wanted, `idempotencyKey`, `userId` and `chatId`")?;
        let name = &read.workflow_id;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.bytes().all(is_word) {
            return Err(Refusal::new(ErrorCode::E3004, "`workflowId` must be letters, digits, `-` and `_`"));
        }
        if read.idempotency_key.as_ref().is_some_and(|key| {
            key.is_empty() || key.len() > KEY_CHARS_MAX || !key.bytes().all(|byte| byte.is_ascii_graphic())
        }) {
            return Err(Refusal::new(ErrorCode::E3004, "`idempotencyKey` must be 1 to 255 visible characters"));
        }
        if read.input.contains_key(METADATA) {
            return Err(Refusal::new(ErrorCode::E3004, "`input._metadata` is reserved").hint("name it otherwise"));
        }
        Ok(read)
    }

    /// What of any number of messages one can have, if it has a key. A digest, because it is only compared.
    pub(crate) fn act(&self) -> Option<NamedAct> {
        let key = self.idempotency_key.as_ref()?;
        let key = format!("workflow {}", canonical::digest(&json!([self.workflow_id, key])));
        Some(NamedAct { key, window: RUNS_RETENTION, other_input: other_input() })
    }
}

/// What a workflow says when it has ended.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CallbackBody {
    invocation_id: InvocationId,
    status: CallbackStatus,
    #[serde(default)]
    output: Value,
    #[serde(default)]
    error: Value,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallbackStatus {
    Success,
    Failure,
}

pub(crate) async fn run(
    calls: &CallOuts,
    (tenant, id): (&TenantId, InvocationId),
    payload: &Value,
    attempt: CallOutAttempt,
) -> Result<CallOutEnd, CallOutStop> {
    let read = Payload::read(payload).map_err(CallOutStop::finally)?;
    let has_key = read.idempotency_key.is_some();
    let run = NewRun {
        tenant: tenant.clone(),
        id,
        workflow: read.workflow_id.clone(),
        idempotency_key: read.idempotency_key.clone().unwrap_or_else(|| id.to_string()),
        input: Value::Object(read.input.clone()),
    };
    let begun = calls.parts.runs.begin_run(&run).await.map_err(|error| CallOutStop::for_now(error.refusal()))?;
    let run_id = match begun {
        RunBeginOutcome::New if attempt.waits.is_none() => id,
        RunBeginOutcome::New => {
            // It went on outside, and nothing is known of it any more. It is not asked for a second time.
            calls.parts.runs.release_run(tenant, id).await.map_err(|error| CallOutStop::for_now(error.refusal()))?;
            return Err(CallOutStop::finally(nobody_knows(ANSWER_LOST)));
        }
        RunBeginOutcome::Known(known) => known,
    };
    if begun != RunBeginOutcome::New {
        // Another job with this key, or an earlier attempt of this one.
        let known = calls.known_run(tenant, run_id).await?;
        if known.input.as_ref().is_none_or(|input| canonical::digest(input) != canonical::digest(&run.input)) {
            return Err(CallOutStop::finally(other_input()));
        }
        if let Some(ended) = end_of(&known) {
            return ended.map(|result| CallOutEnd { result, audit: None }).map_err(CallOutStop::finally);
        }
        if attempt.waits.is_some() || run_id != id {
            return Err(calls.goes_on(attempt.waits));
        }
        if !has_key {
            return Err(CallOutStop::finally(nobody_knows(INTERRUPTED)));
        }
    }
    ask(calls, (tenant, run_id), read, &run.idempotency_key, has_key && !attempt.is_last, attempt.is_last).await
}

/// Asks the workflow engine, once.
async fn ask(
    calls: &CallOuts,
    (tenant, id): (&TenantId, InvocationId),
    Payload { workflow_id, mut input, user_id, chat_id, .. }: Payload,
    key: &str,
    may_repeat: bool,
    is_last: bool,
) -> Result<CallOutEnd, CallOutStop> {
    let place = calls.url(InboundKind::ExecuteWorkflow).and_then(|base| Ok((base, calls.secret()?)));
    let reached = match place {
        Ok((base, secret)) => {
            let metadata = json!({ "requestId": id, "userId": user_id, "chatId": chat_id, "triggeredBy": "ai" });
            input.insert(METADATA.to_owned(), metadata);
            let url = format!("{}/webhook/{workflow_id}", base.trim_end_matches('/'));
            let headers = vec![("x-request-id", id.to_string()), ("x-idempotency-key", key.to_owned())];
            let called = calls.call(secret, &url, &Value::Object(input), headers).await;
            calls.note_workflow(called.as_ref());
            Reached::of(called)
        }
        Err(unset) => Reached::Refused(unset),
    };
    let (refusal, was_status) = match reached {
        Reached::Answered(output) => {
            let (state, audit) =
                end_run(calls, tenant, id, &RunEnd::Success(output)).await.map_err(CallOutStop::for_now)?;
            // A callback may have been quicker, and said otherwise.
            return match told(id, state) {
                Ok(result) => Ok(CallOutEnd { result, audit }),
                Err(refusal) => Err(CallOutStop { audit, ..CallOutStop::finally(refusal) }),
            };
        }
        Reached::Accepted | Reached::MayHaveRun(_) => {
            // It may have called back before it answered.
            if let Some(ended) = end_of(&calls.known_run(tenant, id).await?) {
                return ended.map(|result| CallOutEnd { result, audit: None }).map_err(CallOutStop::finally);
            }
            return Err(match reached {
                Reached::MayHaveRun(refusal) if may_repeat => CallOutStop::for_now(refusal),
                Reached::MayHaveRun(refusal) => {
                    let cause = if refusal.code == ErrorCode::E3503 { TIMED_OUT } else { ANSWER_LOST };
                    let details = json!({ "cause": cause, "code": refusal.code.as_str() });
                    CallOutStop::finally(nobody_knows(cause).details(details))
                }
                _ => calls.goes_on(None),
            });
        }
        Reached::NotYet(refusal) if !is_last => {
            calls.parts.runs.release_run(tenant, id).await.map_err(|error| CallOutStop::for_now(error.refusal()))?;
            return Err(CallOutStop::for_now(refusal));
        }
        Reached::NotYet(refusal) | Reached::Refused(refusal) => {
            let was_status = refusal.message.contains("status");
            (refusal, was_status)
        }
    };
    let code = if was_status { "N8N_ERROR" } else { "INVOCATION_ERROR" };
    let end = RunEnd::Failure(json!({ "code": code, "message": refusal.message }));
    let (state, audit) = end_run(calls, tenant, id, &end).await.map_err(CallOutStop::for_now)?;
    if audit.is_some() {
        // Nothing ran, so the key stands for nothing.
        calls.parts.runs.release_run(tenant, id).await.map_err(|error| CallOutStop::for_now(error.refusal()))?;
        return Err(CallOutStop { audit, ..CallOutStop::finally(refusal) });
    }
    told(id, state).map(|result| CallOutEnd { result, audit: None }).map_err(CallOutStop::finally)
}

/// How a run ended, if it has.
fn end_of(run: &RunRecord) -> Option<Result<Value, Refusal>> {
    (run.state != RunState::Pending).then(|| told(run.id, run.state))
}

/// What a job says of a run that ended so. What the workflow said is told by the webhook, not here.
fn told(id: InvocationId, state: RunState) -> Result<Value, Refusal> {
    match state {
        RunState::Success => Ok(json!({ "invocationId": id, "status": state.as_str() })),
        RunState::Failure | RunState::Pending => Err(Refusal::new(ErrorCode::E3404, "the workflow has failed")
            .hint("the webhook `workflow.completed` has told what it said; look into the workflow engine")
            .details(json!({ "invocationId": id }))
            .retryable(false)),
    }
}

/// The same key, and something else to be done.
fn other_input() -> Refusal {
    Refusal::new(ErrorCode::E3410, "this `idempotencyKey` was used for another input of this workflow")
        .hint("use a new one for something new, or send the same again")
}

/// Nobody can know whether the workflow ran, or how it ended.
pub(crate) fn nobody_knows(cause: &'static str) -> Refusal {
    Refusal::new(ErrorCode::E3413, "nobody knows whether the workflow had its effect")
        .hint("find out whether it did, then say so: `gantry jobs resolve ID --happened` or `--did-not-happen`; a late callback says it, too")
        .details(json!({ "cause": cause }))
}

/// Did whoever asked for it give a key? Then the workflow engine is told the same request each time.
pub(crate) fn has_key(payload: &Value) -> bool {
    payload.get("idempotencyKey").is_some_and(Value::is_string)
}

/// Ends a run, if it has not ended, and tells those who want to know. How it has ended, and a word for the audit log if it did
/// now.
async fn end_run(
    calls: &CallOuts,
    tenant: &TenantId,
    id: InvocationId,
    end: &RunEnd,
) -> Result<(RunState, Option<(AuditAction, String)>), Refusal> {
    let ended = calls.parts.runs.end_run(tenant, id, end).await.map_err(|error| error.refusal())?;
    if ended == RunEnded::Unknown {
        return Err(unknown(id));
    }
    let run = calls.parts.runs.run(tenant, id).await.map_err(|error| error.refusal())?.ok_or_else(|| unknown(id))?;
    let (state, status) = (run.state, run.state.as_str());
    // Also when it ended before: whoever ended it may have died before this, and telling twice sends once.
    if let Some(webhooks) = &calls.parts.webhooks {
        let mut data = Map::new();
        data.insert("invocation_id".into(), json!(id));
        data.insert("workflow_id".into(), json!(run.workflow));
        data.insert("status".into(), json!(status));
        data.insert("output".into(), run.output.unwrap_or_default());
        data.insert("error".into(), run.error.unwrap_or_default());
        webhooks.announce_workflow(tenant, id, data).await?;
    }
    Ok(match ended {
        RunEnded::Now { took } => {
            let note = format!("{id} status={status} durationMs={}", took.as_millis());
            (state, Some((AuditAction::WorkflowCompleted, note)))
        }
        RunEnded::Before | RunEnded::Unknown => (state, None),
    })
}

fn refused(error: SignatureError) -> Refusal {
    tracing::warn!(%error, "a callback of a workflow was refused");
    not_genuine()
}

impl CallOuts {
    /// Could this be the signature of a callback? What can be told before the body is read.
    pub(crate) fn judge_callback_signature(&self, signature: &str) -> Result<(), Refusal> {
        self.callback_secret()?;
        is_of_now(signature, self.parts.clock.now()).map_err(refused)
    }

    fn callback_secret(&self) -> Result<&SecretValue, Refusal> {
        self.parts.secret.as_ref().ok_or_else(|| {
            Refusal::new(ErrorCode::E3408, "this server takes no callbacks")
                .hint("let the operator set `[inbound_jobs] secret`")
        })
    }

    /// A workflow says that it has ended (FLOW-006). The body must be signed with our secret, lately; a second time changes
    /// nothing.
    pub(crate) async fn callback_heard(
        &self,
        tenant: &TenantId,
        signature: &str,
        body: &[u8],
    ) -> Result<WorkflowCallback, Refusal> {
        let secret = self.callback_secret()?;
        verify(signature, std::slice::from_ref(secret), body, self.parts.clock.now()).map_err(refused)?;
        let limits = JsonLimits { bytes_max: body.len(), string_bytes_max: body.len(), ..JsonLimits::default() };
        let value = json::read(body, &limits)
            .map_err(|error| Refusal::new(ErrorCode::E3004, format!("the body is not acceptable: {error}")))?;
        let CallbackBody { invocation_id, status, output, error } =
            typed(&value, "`invocationId`, `status` (`success` or `failure`), `output` and `error`")?;
        let end = match status {
            CallbackStatus::Success => RunEnd::Success(output),
            CallbackStatus::Failure => RunEnd::Failure(error),
        };
        let (state, audit) = end_run(self, tenant, invocation_id, &end).await?;
        let taken = audit.map_or(CallbackTaken::Before, |audit| CallbackTaken::Now { audit });
        Ok(WorkflowCallback { id: invocation_id, end: told(invocation_id, state), taken })
    }

    /// Was the workflow engine asked for this job's run, without anybody knowing what came of it?
    pub(crate) async fn may_have_run(&self, tenant: &TenantId, id: InvocationId) -> Result<bool, StoreError> {
        Ok(self.parts.runs.run(tenant, id).await?.is_some_and(|run| run.state == RunState::Pending))
    }

    /// A job whose workflow has failed is begun again: the run is to be made, not told once more. Whoever sends a message with
    /// its key meanwhile is told of the job that has it in the queue.
    pub(crate) async fn failure_forgotten(&self, former: &JobRecord) -> Result<(), Refusal> {
        let tenant = &former.key.tenant;
        // Its own run, or that of the job which had its key before.
        let named = former.error.as_ref().and_then(|error| error.pointer("/details/invocationId"));
        let named = named.and_then(Value::as_str).and_then(|id| id.parse().ok());
        for id in [Some(former.key.id), named].into_iter().flatten() {
            let run = self.parts.runs.run(tenant, id).await.map_err(|error| error.refusal())?;
            if run.is_some_and(|run| run.state == RunState::Failure) {
                self.parts.runs.release_run(tenant, id).await.map_err(|error| error.refusal())?;
            }
        }
        Ok(())
    }

    /// A person has found out: the run ends so, or never was.
    pub(crate) async fn run_resolved(
        &self,
        tenant: &TenantId,
        id: InvocationId,
        happened: Option<&Value>,
    ) -> Result<(), Refusal> {
        match happened {
            Some(output) if self.may_have_run(tenant, id).await.map_err(|error| error.refusal())? => {
                end_run(self, tenant, id, &RunEnd::Success(output.clone())).await.map(drop)
            }
            Some(_) => Ok(()),
            None => self.parts.runs.release_run(tenant, id).await.map_err(|error| error.refusal()),
        }
    }

    /// A run that somebody has begun.
    async fn known_run(&self, tenant: &TenantId, id: InvocationId) -> Result<RunRecord, CallOutStop> {
        let run = self.parts.runs.run(tenant, id).await.map_err(|error| CallOutStop::for_now(error.refusal()))?;
        // Whoever had its key has just given it back.
        run.ok_or_else(|| CallOutStop::for_now(unknown(id)))
    }

    /// The workflow goes on and will say when it has ended; after [`CALLBACK_MAX`] nobody waits for that any longer.
    fn goes_on(&self, waits: Option<WaitingOutside>) -> CallOutStop {
        let now = self.parts.clock.now();
        let waits = waits.unwrap_or(WaitingOutside { since: now });
        let waited = now.since(waits.since);
        let Some(left) = CALLBACK_MAX.checked_sub(waited).filter(|left| !left.is_zero()) else {
            return CallOutStop::finally(nobody_knows(TIMED_OUT));
        };
        // A callback is heard at once. This is for one that comes at the same time, and for the end of the time: the longer it
        // has taken, the less often it is worth looking.
        let after = waited.max(LOOK_FIRST).min(left);
        let refusal = Refusal::new(ErrorCode::E3409, "the workflow goes on, and will call back");
        CallOutStop { waits: Some((waits, after)), ..CallOutStop::finally(refusal) }
    }
}

fn unknown(id: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3702, format!("there is no run `{id}`"))
}
