//! `execute_workflow`: asks a workflow engine outside, keeps the run, and hears of its end. (ASYNC-013, FLOW-002…006)
//!
//! Sent to `{url}/webhook/{workflowId}`: the input with `_metadata` beside it, and the headers `x-request-id` and
//! `x-idempotency-key`, which are the same for every repetition. 200 with JSON is the output; 202 means that the workflow goes
//! on and will call back ([`CallOuts::called_back`]).
//!
//! Invariant: a run ends once (RUN-2), whether by its answer, by its last failed attempt or by a callback.

use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::call_outs::{Answer, CallOuts, Ended, Stopped, bad_status};
use super::{InboundKind, not_genuine, typed};
use crate::ports::audit_sink::AuditAction;
use crate::ports::secret_source::Secret;
use crate::ports::workflow_runs::{Begun, NewRun, RunEnd, RunEnded, RunState};
use crate::webhooks::{SignatureError, is_of_now, verify};

/// Longest name of a workflow, and of a key.
const NAME_CHARS_MAX: usize = 128;
const KEY_CHARS_MAX: usize = 255;
/// The member of the input that is ours.
const METADATA: &str = "_metadata";

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Payload {
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
    pub(super) fn read(payload: &Value) -> Result<Self, Refusal> {
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

/// What came of a callback.
#[derive(Debug, Clone, PartialEq)]
pub enum CallbackTaken {
    /// The run has ended with it. For the audit log.
    Now { audit: (AuditAction, String) },
    /// It had ended before; nothing was changed.
    Before,
}

pub(super) async fn run(
    calls: &CallOuts,
    (tenant, id): (&TenantId, InvocationId),
    payload: &Value,
    is_last: bool,
) -> Result<Ended, Stopped> {
    let Payload { workflow_id, mut input, idempotency_key, user_id, chat_id } =
        Payload::read(payload).map_err(Stopped::finally)?;
    let base = calls.url(InboundKind::ExecuteWorkflow).map_err(Stopped::finally)?;
    let key = idempotency_key.unwrap_or_else(|| id.to_string());
    let run = NewRun {
        tenant: tenant.clone(),
        id,
        workflow: workflow_id.clone(),
        idempotency_key: key.clone(),
        input: Value::Object(input.clone()),
    };
    let begun = calls.parts.runs.begin_run(&run).await.map_err(|error| Stopped::for_now(error.refusal()))?;
    let id = match begun {
        Begun::New => id,
        Begun::Known(known) => known,
    };
    let known = calls.parts.runs.run(tenant, id).await.map_err(|error| Stopped::for_now(error.refusal()))?;
    if let Some(ended) = known.filter(|run| run.state != RunState::Pending) {
        // Another job with this key, or an earlier attempt of this one.
        return Ok(Ended { result: json!({ "invocationId": id, "status": ended.state.as_str() }), audit: None });
    }
    let metadata = json!({ "requestId": id, "userId": user_id, "chatId": chat_id, "triggeredBy": "ai" });
    input.insert(METADATA.to_owned(), metadata);
    let url = format!("{}/webhook/{workflow_id}", base.trim_end_matches('/'));
    let headers = vec![("x-request-id", id.to_string()), ("x-idempotency-key", key)];
    let called = calls.call(&url, &Value::Object(input), headers).await;
    calls.note_workflow(called.as_ref());
    let called = match called {
        Ok(Answer { status: 202, .. }) => {
            return Ok(Ended { result: json!({ "invocationId": id, "status": "pending" }), audit: None });
        }
        Ok(Answer { status, json }) if (200..300).contains(&status) => Ok(json.unwrap_or_default()),
        Ok(Answer { status, .. }) => Err(bad_status(status)),
        Err(stopped) => Err(stopped),
    };
    let end = match called {
        Ok(output) => RunEnd::Success(output),
        Err(stopped) if stopped.again && !is_last => return Err(stopped),
        Err(stopped) => {
            let code = match stopped.refusal.code {
                ErrorCode::E3503 => "TIMEOUT",
                ErrorCode::E3502 if stopped.refusal.message.contains("status") => "N8N_ERROR",
                _ => "INVOCATION_ERROR",
            };
            RunEnd::Failure(json!({ "code": code, "message": stopped.refusal.message }))
        }
    };
    let audit = end_run(calls, tenant, id, &end).await.map_err(Stopped::for_now)?;
    let status = if matches!(end, RunEnd::Success(_)) { "success" } else { "failure" };
    Ok(Ended { result: json!({ "invocationId": id, "status": status }), audit })
}

/// Ends a run, if it has not ended, and tells those who want to know.
async fn end_run(
    calls: &CallOuts,
    tenant: &TenantId,
    id: InvocationId,
    end: &RunEnd,
) -> Result<Option<(AuditAction, String)>, Refusal> {
    let ended = calls.parts.runs.end_run(tenant, id, end).await.map_err(|error| error.refusal())?;
    let took: Duration = match ended {
        RunEnded::Now { took } => took,
        RunEnded::Before => Duration::ZERO,
        RunEnded::Unknown => return Err(unknown(id)),
    };
    // Also when it ended before: whoever ended it may have died before this, and telling twice sends once.
    if let Some(webhooks) = &calls.parts.webhooks
        && let Some(run) = calls.parts.runs.run(tenant, id).await.map_err(|error| error.refusal())?
    {
        let mut data = Map::new();
        data.insert("invocation_id".into(), json!(id));
        data.insert("workflow_id".into(), json!(run.workflow));
        data.insert("status".into(), json!(run.state.as_str()));
        data.insert("output".into(), run.output.unwrap_or_default());
        data.insert("error".into(), run.error.unwrap_or_default());
        webhooks.announce_workflow(tenant, id, data).await?;
    }
    let status = if matches!(end, RunEnd::Success(_)) { "success" } else { "failure" };
    let note = format!("{id} status={status} durationMs={}", took.as_millis());
    Ok(matches!(ended, RunEnded::Now { .. }).then_some((AuditAction::WorkflowCompleted, note)))
}

fn refused(error: SignatureError) -> Refusal {
    tracing::warn!(%error, "a callback of a workflow was refused");
    not_genuine()
}

impl CallOuts {
    /// Could this be the signature of a callback? What can be told before the body is read.
    pub fn judge_callback(&self, signature: &str) -> Result<(), Refusal> {
        self.callback_secret()?;
        is_of_now(signature, self.parts.clock.now()).map_err(refused)
    }

    fn callback_secret(&self) -> Result<&Secret, Refusal> {
        self.parts.secret.as_ref().ok_or_else(|| {
            Refusal::new(ErrorCode::E3408, "this server takes no callbacks")
                .hint("let the operator set `[inbound_jobs] secret`")
        })
    }

    /// A workflow says that it has ended (FLOW-006). The body must be signed with our secret, lately; a second time changes
    /// nothing.
    pub async fn called_back(&self, tenant: &TenantId, signature: &str, body: &[u8]) -> Result<CallbackTaken, Refusal> {
        let secret = self.callback_secret()?;
        verify(signature, std::slice::from_ref(secret), body, self.parts.clock.now()).map_err(refused)?;
        let value: Value =
            serde_json::from_slice(body).map_err(|_| Refusal::new(ErrorCode::E3004, "the body is not JSON"))?;
        let CallbackBody { invocation_id, status, output, error } =
            typed(&value, "`invocationId`, `status` (`success` or `failure`), `output` and `error`")?;
        let end = match status {
            CallbackStatus::Success => RunEnd::Success(output),
            CallbackStatus::Failure => RunEnd::Failure(error),
        };
        let audit = end_run(self, tenant, invocation_id, &end).await?;
        Ok(audit.map_or(CallbackTaken::Before, |audit| CallbackTaken::Now { audit }))
    }
}

fn unknown(id: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3702, format!("there is no run `{id}`"))
}
