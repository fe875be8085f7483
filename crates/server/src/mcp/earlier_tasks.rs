//! Tasks as revision 2025-11-25 has them: the client asks for one with `task` in its call, the server says in `tools/list`
//! which tools take to it, and the end is fetched by a method of its own.
//!
//! `rmcp` knows only the tasks of the next revision. So this stands at the edge of a session: on the way in ([`taken`])
//! what would be understood as the later methods becomes a request that only [`EarlierTasks`] knows; on the way out
//! ([`announced`], [`given`]) what the types of the later revision have no room for is put in.
//!
//! ```text
//! tools/call {task: {…}} ─▶ {task: {taskId, status, …}}       tasks/result ─▶ waits for the end, then the tool's own result
//! tasks/get, tasks/cancel ─▶ the task                         tasks/list ─▶ one's own, newest first
//! notifications/tasks/status on the session's stream, whenever one that was begun in it changes, and
//! notifications/progress under the token of the call that became the task
//! ```
//!
//! A tool that runs like this has nobody to ask: the revision would ask on a stream of `tasks/result`, which nothing
//! promises to be there.
//!
//! Not here: what a task is, and who may see it (`tasks`). Older revisions and standard input have no tasks of this kind.

use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use contract::manifest::TaskSupport;
use jobs::Jobs;
use ports::job_store::{JobFilter, JobKey, JobRecord, TOOL_CALL};
use rmcp::model::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, CustomNotification, CustomRequest, CustomResult,
    DetailedTask, ErrorCode as WireCode, InputResponses, ProgressNotificationParam, ProgressToken,
    ServerJsonRpcMessage, ServerNotification, ServerResult, TASKS_EXTENSION_ID, Task, TaskPayload, TaskStatus, Tool,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::client_state::ClientState;
use super::running_call::ClientAbilities;
use super::tasks::{TaskMode, VisitorTasks, is_error, no_such_task, wire};
use super::tools_call::ToolsCall;
use super::{McpVisit, call_logs, lazy, pages, to_wire};

/// The revision.
pub(crate) const REVISION: &str = "2025-11-25";
/// What a result says about the task it is the end of.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// Where the word about a tool stands until it can stand where the revision wants it.
const MARK: &str = "dev.gantry/task_support";
/// Tasks on one page of `tasks/list`.
const LIST_MAX: usize = 100;
/// How often other processes' doings are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one `tasks/result` waits, and one task is followed for its session.
const FOLLOW_MAX: Duration = Duration::from_secs(60 * 60);
/// How long a client may take to accept a notification before it is dropped.
const TELLING_TIME: Duration = Duration::from_secs(1);

// ------------------------------------------------------------------------------------------------- the edge of a session

/// What a session of this revision is told at its beginning; whether it has tasks is said in the answer. Other revisions
/// lose the word about an extension that they cannot use.
pub(crate) fn announced(message: ServerJsonRpcMessage) -> (ServerJsonRpcMessage, bool) {
    let ServerJsonRpcMessage::Response(mut response) = message else { return (message, false) };
    let ServerResult::InitializeResult(result) = &mut response.result else {
        return (ServerJsonRpcMessage::Response(response), false);
    };
    let extensions = &mut result.capabilities.extensions;
    let offered = extensions.as_mut().and_then(|all| all.remove(TASKS_EXTENSION_ID)).is_some();
    extensions.take_if(|all| all.is_empty());
    let has_tasks = offered && result.protocol_version.as_str() == REVISION;
    if has_tasks && let Ok(mut value) = serde_json::to_value(&*result) {
        if let Some(capabilities) = value.get_mut("capabilities").and_then(Value::as_object_mut) {
            let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
            capabilities.insert("tasks".to_owned(), tasks);
        }
        response.result = ServerResult::CustomResult(CustomResult(value));
    }
    (ServerJsonRpcMessage::Response(response), has_tasks)
}

/// A message of a client of this revision, as the handler is to see it.
pub(crate) fn taken(message: ClientJsonRpcMessage) -> ClientJsonRpcMessage {
    let ClientJsonRpcMessage::Request(mut message) = message else { return message };
    let by_id = |method: &str, id: &str, extensions| {
        let params = Some(json!({ "taskId": id }));
        ClientRequest::CustomRequest(CustomRequest { extensions, ..CustomRequest::new(method, params) })
    };
    message.request = match message.request {
        ClientRequest::CallToolRequest(call) if wants_task(&call.extensions) => {
            let params = serde_json::to_value(&call.params).ok();
            let request = CustomRequest { extensions: call.extensions, ..CustomRequest::new("tools/call", params) };
            ClientRequest::CustomRequest(request)
        }
        ClientRequest::GetTaskRequest(get) => by_id("tasks/get", &get.params.task_id, get.extensions),
        ClientRequest::CancelTaskRequest(cancel) => by_id("tasks/cancel", &cancel.params.task_id, cancel.extensions),
        other => other,
    };
    ClientJsonRpcMessage::Request(message)
}

fn wants_task(extensions: &rmcp::model::Extensions) -> bool {
    let parts = extensions.get::<http::request::Parts>();
    parts.and_then(|parts| parts.extensions.get::<McpVisit>()).is_some_and(|visit| visit.as_task)
}

/// A message to a client of this revision: lists of tools say which of them take to being a task.
pub(crate) fn given(mut sent: ServerSseMessage) -> ServerSseMessage {
    let Some(message) = &sent.message else { return sent };
    let ServerJsonRpcMessage::Response(response) = &**message else { return sent };
    let ServerResult::ListToolsResult(list) = &response.result else { return sent };
    let Ok(mut value) = serde_json::to_value(list) else { return sent };
    for tool in value.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(tool) = tool.as_object_mut() else { continue };
        let marked = tool.get_mut("_meta").and_then(Value::as_object_mut).and_then(|meta| meta.remove(MARK));
        if tool.get("_meta").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
            tool.remove("_meta");
        }
        tool.insert("execution".to_owned(), json!({ "taskSupport": marked.unwrap_or_else(|| json!("optional")) }));
    }
    let mut response = response.clone();
    response.result = ServerResult::CustomResult(CustomResult(value));
    sent.message = Some(Arc::new(ServerJsonRpcMessage::Response(response)));
    sent
}

/// Notes on a tool that it does not just take to being a task. What its server says of it counts unless the operator has
/// said that it must be one.
pub(crate) fn mark(tool: &mut Tool, support: Option<TaskMode>, said: Option<TaskSupport>) {
    let word = match (support, said) {
        (Some(TaskMode::Required), _) => "required",
        (Some(TaskMode::Optional | TaskMode::AtOnce), Some(said)) => said.as_str(),
        (Some(TaskMode::Optional | TaskMode::AtOnce), None) => return,
        (None, _) if tool.name == lazy::CALL => return,
        (None, _) => "forbidden",
    };
    tool.meta.get_or_insert_default().0.insert(MARK.to_owned(), json!(word));
}

// ----------------------------------------------------------------------------------------------------------- the methods

/// One request of a client of this revision about its tasks.
pub(super) struct EarlierTasks<'a> {
    pub(super) client: &'a ClientState,
    pub(super) visit: &'a McpVisit,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl<'a> EarlierTasks<'a> {
    fn tasks(&self) -> VisitorTasks<'a> {
        VisitorTasks { door: &self.client.door, visit: self.visit }
    }

    /// What only clients of this revision ask.
    pub(super) async fn answer(&self, request: CustomRequest) -> Result<CustomResult, ErrorData> {
        let tasks = self.tasks();
        let params = request.params.unwrap_or_default();
        let id = || params.get("taskId").and_then(Value::as_str).ok_or_else(no_such_task);
        let value = match request.method.as_str() {
            "tools/call" => {
                let call: CallToolRequestParams = serde_json::from_value(params)
                    .map_err(|error| ErrorData::invalid_params(format!("the call is not one: {error}"), None))?;
                let listener = TaskListener::of(self.context);
                let created = self.call_as_task(call).await?;
                self.tell_changes(created, listener);
                json!({ "task": shown(&tasks.task(&created.to_string()).await?) })
            }
            "tasks/get" => shown(&tasks.task(id()?).await?),
            "tasks/result" => self.result_of(id()?).await?,
            "tasks/list" => self.own_tasks(params.get("cursor")).await?,
            "tasks/cancel" => {
                let id = id()?;
                if tasks.task(id).await?.status().is_terminal() {
                    return Err(ErrorData::invalid_params("the task has ended", None));
                }
                tasks.cancel(id).await?;
                shown(&tasks.task(id).await?)
            }
            method => return Err(ErrorData::new(WireCode::METHOD_NOT_FOUND, method.to_owned(), None)),
        };
        Ok(CustomResult(value))
    }

    async fn call_as_task(&self, call: CallToolRequestParams) -> Result<InvocationId, ErrorData> {
        let tasks = self.tasks();
        let jobs = tasks.jobs().ok_or_else(no_such_task)?;
        let calls = ToolsCall { client: self.client, visit: self.visit, context: self.context };
        let (round, invoke) = calls.prepared(call).await?;
        // Progress is told from the task (`follow`), and nobody can be asked.
        let started = tasks.start(&round, jobs, invoke, ClientAbilities::default(), InputResponses::new()).await;
        started.map(|accepted| accepted.invocation_id).map_err(|refusal| to_wire::error(&refusal, round.trace_id))
    }

    /// One's own, also for those who may see more.
    async fn own_tasks(&self, cursor: Option<&Value>) -> Result<Value, ErrorData> {
        let (tasks, visit) = (self.tasks(), self.visit);
        let wrong = || ErrorData::invalid_params("`cursor` is not one that this server has given out", None);
        let before = match cursor.filter(|cursor| !cursor.is_null()) {
            None => None,
            Some(cursor) => {
                let key = cursor.as_str().and_then(pages::key_of).ok_or_else(wrong)?;
                Some(key.parse::<u64>().map_err(|_| wrong())?)
            }
        };
        let jobs = tasks.jobs().ok_or_else(no_such_task)?;
        let filter =
            JobFilter { owner: Some(visit.caller.owner()), kind: Some(TOOL_CALL.to_owned()), ..JobFilter::default() };
        let listed = jobs.list(visit.who.actor(), filter, before, LIST_MAX).await;
        let listed = listed.map_err(|refusal| to_wire::error(&refusal, visit.who.trace_id))?;
        let kept = tasks.kept_for_ms();
        let listing: Vec<Value> = listed.jobs.iter().map(|(_, record)| plain(&wire::task(record, kept))).collect();
        let mut answer = json!({ "tasks": listing });
        if let (Some(next), Some(members)) = (listed.next, answer.as_object_mut()) {
            members.insert("nextCursor".to_owned(), json!(pages::cursor_of(&next.to_string())));
        }
        Ok(answer)
    }

    /// Waits for the end, and gives what the call would have given.
    async fn result_of(&self, id: &str) -> Result<Value, ErrorData> {
        let (tasks, visit, context) = (self.tasks(), self.visit, self.context);
        let jobs = tasks.jobs().ok_or_else(no_such_task)?;
        // Before the first look, so that nothing falls between.
        let mut news = jobs.changes();
        let mut task = tasks.task(id).await?;
        if !task.status().is_terminal() {
            let _room = self.client.door.watcher(visit.caller.caller()).ok_or_else(|| {
                let refusal =
                    Refusal::new(ErrorCode::E3001, "too many clients wait for tasks").hint("ask with tasks/get");
                to_wire::error(&refusal, visit.who.trace_id)
            })?;
            let waiting = async {
                while !task.status().is_terminal() {
                    stirred(&mut news, &task.task.task_id).await;
                    task = tasks.task(id).await?;
                }
                Ok(())
            };
            tokio::select! {
                waited = tokio::time::timeout(FOLLOW_MAX, waiting) => match waited {
                    Ok(waited) => waited?,
                    Err(_) => return Err(ErrorData::internal_error("the task has not ended yet; ask again", None)),
                },
                () = context.ct.cancelled() => return Err(ErrorData::internal_error("nobody waits any more", None)),
            }
        }
        let related = json!({ "taskId": task.task.task_id });
        match task.payload {
            TaskPayload::Completed { mut result } => {
                // Of the next revision.
                result.remove("resultType");
                if let Some(meta) = result.entry("_meta").or_insert_with(|| json!({})).as_object_mut() {
                    meta.insert(RELATED.to_owned(), related);
                }
                Ok(Value::Object(result))
            }
            TaskPayload::Failed { error } => Err(serde_json::from_value(Value::Object(error))
                .unwrap_or_else(|_| ErrorData::internal_error("the task failed", None))),
            _ => {
                let why = task.task.status_message.unwrap_or_else(|| "the task was cancelled".to_owned());
                Err(ErrorData::internal_error(why, Some(json!({ "_meta": { RELATED: related } }))))
            }
        }
    }

    /// Tells the session of a task whenever it changes, until it has ended or the session has.
    fn tell_changes(&self, id: InvocationId, listener: TaskListener) {
        let (tasks, visit) = (self.tasks(), self.visit.clone());
        let (Some(jobs), Some(room)) = (tasks.jobs(), self.client.door.watcher(visit.caller.caller())) else {
            return;
        };
        let (jobs, mut news, kept) = (Arc::clone(jobs), jobs.changes(), tasks.kept_for_ms());
        tokio::spawn(async move {
            let _room = room;
            let following = follow(&jobs, &visit, id, kept, listener, &mut news);
            // Longer than that nobody promises; asking is always right.
            let _ = tokio::time::timeout(FOLLOW_MAX, following).await;
        });
    }
}

/// The client of a task: its session, and the token under which it wants to hear of progress. The token of the call that became
/// the task stays good until the task has ended.
struct TaskListener {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Highest progress told so far: it may only rise.
    percent_told: f64,
}

impl TaskListener {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        // A token that its client did not give is for the logs of a call, and nobody wants to hear of progress under it.
        let token = context.meta.get_progress_token().filter(|_| !call_logs::is_unasked(&context.extensions));
        Self { peer: context.peer.clone(), token, percent_told: 0.0 }
    }

    async fn tell_status(&self, task: &Task) {
        let note = CustomNotification::new("notifications/tasks/status", Some(plain(task)));
        let telling = self.peer.send_notification(ServerNotification::CustomNotification(note));
        let _ = tokio::time::timeout(TELLING_TIME, telling).await;
    }

    async fn tell_progress(&mut self, record: &JobRecord) {
        let (Some(token), Some(percent)) = (&self.token, record.progress_percent) else { return };
        if percent <= self.percent_told {
            return;
        }
        self.percent_told = percent;
        let mut note = ProgressNotificationParam::new(token.clone(), percent);
        (note.total, note.message) = (Some(100.0), record.phase.clone());
        let _ = tokio::time::timeout(TELLING_TIME, self.peer.notify_progress(note)).await;
    }
}

async fn follow(
    jobs: &Jobs,
    visit: &McpVisit,
    id: InvocationId,
    kept: u64,
    mut listener: TaskListener,
    news: &mut broadcast::Receiver<JobKey>,
) {
    let mut told = None;
    while !listener.peer.is_transport_closed() {
        // Whoever may not look any more is told nothing more.
        let Ok(view) = jobs.status(visit.who.actor(), None, id).await else { return };
        let task = wire::task(&view.record, kept);
        // Before the end is told: after it the token means nothing.
        listener.tell_progress(&view.record).await;
        let now = Some((task.status, task.status_message.clone()));
        if told != now {
            listener.tell_status(&task).await;
            told = now;
        }
        if task.status.is_terminal() {
            return;
        }
        stirred(news, &task.task_id).await;
    }
}

/// Returns when the job has changed in this process, or may have changed in another.
async fn stirred(news: &mut broadcast::Receiver<JobKey>, id: &str) {
    let heard = async {
        loop {
            match news.recv().await {
                Ok(changed) if changed.id.to_string() != id => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    };
    let _ = tokio::time::timeout(LOOK_EVERY, heard).await;
}

/// A task with what is known of its end: in this revision a tool that could not do it has failed.
fn shown(task: &DetailedTask) -> Value {
    let mut plain_task = task.task.clone();
    if let TaskPayload::Completed { result } = &task.payload
        && is_error(result)
    {
        plain_task.status = TaskStatus::Failed;
    }
    if plain_task.status == TaskStatus::InputRequired {
        plain_task.status = TaskStatus::Working;
    }
    plain(&plain_task)
}

/// A task by the names of this revision.
fn plain(task: &Task) -> Value {
    let mut value = json!({
        "taskId": task.task_id, "status": task.status, "createdAt": task.created_at,
        "lastUpdatedAt": task.last_updated_at, "ttl": task.ttl_ms, "pollInterval": task.poll_interval_ms,
    });
    if let (Some(message), Some(members)) = (&task.status_message, value.as_object_mut()) {
        members.insert("statusMessage".to_owned(), json!(message));
    }
    value
}
