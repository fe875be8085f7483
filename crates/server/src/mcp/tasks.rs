//! MCP Tasks: a call that lasts is answered with a handle, and goes on as a job. (ASYNC-001…005, MCP 2026-07-28 `io.modelcontextprotocol/tasks`)
//!
//! ```text
//! tools/call ─┬─ the tool is a task from the beginning ─▶ Jobs::start ─────────────┐
//!             └─ anything else ─▶ Jobs::call_heard ─┬─ ended in time ─▶ its result  ├─▶ resultType "task"
//!                                                   └─ outlived the threshold ──────┘
//! tasks/get ─▶ Jobs::status · tasks/cancel ─▶ Jobs::cancel · tasks/update ─▶ what the running tool has asked (`asked`)
//! ```
//!
//! The id of a task is the id of its invocation, so REST, the command line and MCP speak of the same thing. Whether a call
//! becomes a task is decided here and by the tool; a client says only that it can take one. To clients that have not said
//! so nothing changes: they wait to the end, or to the deadline.
//!
//! Invariants
//! - TASK-1: a task that was answered is durable (JOBS-1).
//! - TASK-2: a task of somebody else, one that never was, and an id that is none are answered alike; who may look is decided
//!   where REST decides it (JOBS-3).
//! - TASK-3: what a tool asks is shown to, and answered by, the principal that made the call and nobody else.
//!
//! Not here: revision 2025-11-25, whose tasks look different (`earlier_tasks`), and what a task looks like (`wire`).

mod asked;
pub(super) mod wire;

use std::sync::Arc;

use contract::envelope::InvokeRequest;
use contract::error::{ErrorCode, KeptError, Refusal};
use contract::ids::InvocationId;
use contract::manifest::{Execution, TimeoutClass};
use jobs::{AcceptedCall, InvocationView, Jobs};
use kernel::IncomingCall;
use ports::job_store::{JobState, TOOL_CALL};
use ports::tool_version::ToolVersion;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, CreateTaskResult, DetailedTask, ErrorCode as WireCode, InputResponses,
    JsonObject, TaskPayload, TaskStatus,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::config::{McpConfig, McpMode};
use super::result_presenter::ResultPresenter;
use super::rounds::{CallRound, context_of};
use super::running_call::{ClientAbilities, ToolMessage, hearing};
use super::{McpVisit, seal, to_wire};
use crate::door::Door;

pub(crate) use asked::TaskQuestions;

/// How a tool takes to being a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskMode {
    /// When it lasts, or when the client asks for it.
    Optional,
    /// From the beginning.
    AtOnce,
    /// The same, and not for clients that cannot take one.
    Required,
}

impl TaskMode {
    /// Of a tool: as the operator says, or from the beginning if its author says that it is submitted and polled.
    pub(crate) fn of(config: &McpConfig, tool: &ToolVersion) -> Self {
        let is_in = |patterns: &[policy::ToolPattern]| patterns.iter().any(|pattern| pattern.matches(&tool.id));
        if is_in(&config.tasks_required) {
            Self::Required
        } else if is_in(&config.tasks_at_once) || is_submitted(tool) {
            Self::AtOnce
        } else {
            Self::Optional
        }
    }
}

/// Does its author say that it is submitted and polled? The class of a server's tool is the operator's, who gives it time and
/// does not know how long it takes.
fn is_submitted(tool: &ToolVersion) -> bool {
    let is_of_server = matches!(tool.manifest.execution, Some(Execution::Mcp { .. }));
    tool.manifest.timeout_class == TimeoutClass::Async && !is_of_server
}

/// The answer to everything that is no task of this caller.
pub(super) fn no_such_task() -> ErrorData {
    ErrorData::invalid_params("there is no such task", None)
}

/// A refusal of a job, as one of a task.
fn refused(refusal: &Refusal, visit: &McpVisit) -> ErrorData {
    match refusal.code {
        ErrorCode::E3702 => no_such_task(),
        _ => to_wire::error(refusal, visit.who.trace_id),
    }
}

/// Who keeps tasks, if this door has any.
pub(super) fn task_jobs(door: &Door) -> Option<&Arc<Jobs>> {
    door.jobs().filter(|_| door.mcp().config.mode == McpMode::Full)
}

/// Tasks of this door, for one visitor.
#[derive(Clone, Copy)]
pub(super) struct VisitorTasks<'a> {
    pub(super) door: &'a Arc<Door>,
    pub(super) visit: &'a McpVisit,
}

impl<'a> VisitorTasks<'a> {
    /// Who keeps them, if anybody does.
    pub(super) fn jobs(&self) -> Option<&'a Arc<Jobs>> {
        task_jobs(self.door)
    }

    /// The same for whoever asks so: nobody, if the client has not said that it can take a task.
    pub(super) fn jobs_for(&self, round: &CallRound<'_>) -> Option<&'a Arc<Jobs>> {
        let can = || round.context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks());
        self.jobs().filter(|_| round.is_modern() && can())
    }

    /// What is known of a task that this caller may look at (TASK-2).
    async fn seen(&self, id: &str) -> Result<InvocationView, ErrorData> {
        let (jobs, visit) = (self.jobs().ok_or_else(no_such_task)?, self.visit);
        let id: InvocationId = id.parse().map_err(|_| no_such_task())?;
        let seen = jobs.status(visit.who.actor(), None, id).await.map_err(|refusal| refused(&refusal, visit))?;
        // Other jobs are nothing that an MCP client has called.
        Some(seen).filter(|view| view.record.kind == TOOL_CALL).ok_or_else(no_such_task)
    }

    /// `tasks/get`.
    pub(super) async fn task(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        let view = self.seen(id).await?;
        Ok(self.detailed(view))
    }

    /// `tasks/update`: hands answers to the tool that asked. What answers no open question is ignored.
    pub(super) async fn answer(&self, id: &str, responses: InputResponses) -> Result<(), ErrorData> {
        let view = self.seen(id).await?;
        let principal = seal::principal(self.visit.caller.caller());
        self.door.mcp().task_questions.answer(view.record.key.id, &principal, responses);
        Ok(())
    }

    /// `tasks/cancel`: asks the job to end. Asking twice, or after the end, is fine.
    pub(super) async fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        let visit = self.visit;
        let view = self.seen(id).await?;
        let (id, who) = (view.record.key.id, visit.who.clone());
        let jobs = Arc::clone(self.jobs().ok_or_else(no_such_task)?);
        let (told, ended) = oneshot::channel();
        // Carried to its end even if the client does not wait for the answer.
        let carried = self.door.carry_call(visit.caller.caller(), async move {
            drop(told.send(jobs.cancel(who.actor(), None, id, None).await));
        });
        carried.map_err(|refusal| refused(&refusal, visit))?;
        let outcome = ended.await.map_err(|_| ErrorData::internal_error("the cancellation broke off", None))?;
        outcome.map(drop).map_err(|refusal| refused(&refusal, visit))
    }

    /// Where a task stands, with its end or its questions.
    fn detailed(&self, view: InvocationView) -> DetailedTask {
        let task = wire::task(&view.record, self.kept_for_ms());
        DetailedTask::new(task, self.payload(view))
    }

    pub(super) fn kept_for_ms(&self) -> u64 {
        let retention = self.jobs().map(|jobs| jobs.settings().retention).unwrap_or_default();
        u64::try_from(retention.as_millis()).unwrap_or(u64::MAX)
    }

    fn payload(&self, view: InvocationView) -> TaskPayload {
        let InvocationView { record, result, failed_run, .. } = view;
        let visit = self.visit;
        let presenter = ResultPresenter { door: self.door, visit };
        match record.state {
            JobState::Delayed | JobState::Queued | JobState::Running => {
                let principal = seal::principal(visit.caller.caller());
                let open = self.door.mcp().task_questions.open(record.key.id, &principal);
                open.map_or(TaskPayload::Working, |input_requests| TaskPayload::InputRequired { input_requests })
            }
            JobState::Cancelled => TaskPayload::Cancelled,
            JobState::Done => {
                let tool = self.door.mcp().listing(self.door.kernel(), visit);
                let tool = tool.named_in_any_way(&record.label);
                let relayed = tool.is_some_and(|tool| tool.is_relayed());
                let result = to_wire::kept_result(result.unwrap_or_default(), relayed);
                let result = presenter.presented(result, tool.map(|tool| &**tool), &record.label, None);
                TaskPayload::Completed { result: object(&result) }
            }
            JobState::Failed | JobState::Dead => {
                let KeptError { refusal, trace_id } = KeptError::read(&record.error.unwrap_or_default());
                if refusal.code == ErrorCode::E3413 && record.cancel_asked.is_some() {
                    return TaskPayload::Cancelled;
                }
                let trace_id = trace_id.unwrap_or(visit.who.trace_id);
                if is_fault(&refusal) {
                    return TaskPayload::Failed { error: object(&to_wire::error(&refusal, trace_id)) };
                }
                match to_wire::refused(&refusal, trace_id, Some(record.key.id)) {
                    Ok(result) => {
                        let checkpoint = failed_run.checkpoint_ref.as_deref();
                        let result = to_wire::with_run(result, failed_run.execution_metadata, checkpoint);
                        TaskPayload::Completed {
                            result: object(&presenter.presented(result, None, &record.label, None)),
                        }
                    }
                    Err(error) => TaskPayload::Failed { error: object(&error) },
                }
            }
        }
    }

    /// Begins a call as a task. `given` are answers to what it is known to ask.
    pub(super) async fn start(
        &self,
        round: &CallRound<'_>,
        jobs: &Arc<Jobs>,
        invoke: InvokeRequest,
        abilities: ClientAbilities,
        given: InputResponses,
    ) -> Result<AcceptedCall, Refusal> {
        let (audience, said) = hearing(abilities);
        let (jobs, who, cancellation) =
            (Arc::clone(jobs), self.visit.who.in_trace(round.trace_id), CancellationToken::new());
        let trace = context_of(self.visit, round.context);
        let (told, started) = oneshot::channel();
        self.door.carry_call(self.visit.caller.caller(), async move {
            let arrival = IncomingCall {
                credential: who.secret(),
                source: who.source(),
                request: invoke,
                trace: Some(trace),
                parent_left: None,
                audience: Some(audience),
                cancellation: cancellation.clone(),
            };
            if told.send(Box::pin(jobs.start(arrival)).await).is_err() {
                // The client has gone before it knew of the task, so nobody ever will.
                cancellation.cancel();
            }
        })?;
        let started = started.await.map_err(|_| Refusal::new(ErrorCode::E3000, "the call broke off"))?;
        let accepted = started.map_err(|failed| failed.refusal)?;
        // A call that is a task already is heard by whoever began it.
        if !accepted.is_repeat {
            self.hear(accepted.invocation_id, said, given);
        }
        Ok(accepted)
    }

    /// The answer to a call that has become a task.
    pub(super) async fn created(&self, accepted: &AcceptedCall) -> CallToolResponse {
        let (id, kept_for_ms) = (accepted.invocation_id.to_string(), self.kept_for_ms());
        let mut task = match self.seen(&id).await {
            Ok(view) => wire::task(&view.record, kept_for_ms),
            // It is there all the same, and its client must learn its id.
            Err(_) => wire::unseen(id, self.door.kernel().clock().now(), kept_for_ms),
        };
        // Where it stands by now is for those who ask: here it has just begun.
        (task.status, task.status_message) = (TaskStatus::Working, None);
        CallToolResponse::Task(CreateTaskResult::new(task))
    }

    /// Listens on to a call that is a task.
    pub(super) fn hear(&self, id: InvocationId, said: mpsc::Receiver<ToolMessage>, given: InputResponses) {
        let mcp = self.door.mcp();
        let principal = seal::principal(self.visit.caller.caller());
        let (bound, time) = (mcp.config.questions_max, mcp.config.answer_time());
        tokio::spawn(Arc::clone(&mcp.task_questions).hear(id, principal, said, given, bound, time));
    }
}

/// Did the protocol fail, and not the tool? Only then has a task "failed"; a tool that says it could not do it has completed.
fn is_fault(refusal: &Refusal) -> bool {
    to_wire::is_protocol_error(refusal)
}

fn object<T: serde::Serialize>(value: &T) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(members)) => members,
        _ => JsonObject::new(),
    }
}

/// The refusal of a client that cannot take a task, for a tool that is nothing else.
pub(crate) fn task_wanted(modern: bool) -> ErrorData {
    if modern {
        let required = ClientCapabilities::builder().enable_tasks().build();
        return ErrorData::missing_required_client_capability(required);
    }
    ErrorData::new(WireCode::METHOD_NOT_FOUND, "this tool can only be called as a task", None)
}

/// Does the tool say that it could not do it?
pub(super) fn is_error(result: &JsonObject) -> bool {
    result.get("isError") == Some(&Value::Bool(true))
}
