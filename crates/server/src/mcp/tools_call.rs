//! `tools/call`: from a name and arguments to one call through the kernel, and back.
//!
//! ```text
//! handler ─▶ ToolsCall ─▶ CallRound ─▶ RunningCall ─┬▶ Kernel::invoke     a client that can only wait
//!                  │                                └▶ Jobs::call_heard   one that takes tasks, or says how long it waits
//!                  └▶ VisitorTasks ─▶ Jobs::start     a tool whose calls are tasks from their first moment
//! ```
//!
//! Not here: staying with the call while it runs (`rounds`).

use std::sync::Arc;
use std::time::Duration;

use affordances::CounterName;
use contract::envelope::{CallLimits, ExecutionOptions, InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal, RefusalReason};
use kernel::FailedCall;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode as WireCode, JsonObject,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::call_meta::{CallMeta, IDEMPOTENCY_KEY};
use super::client_state::ClientState;
use super::config::McpMode;
use super::result_presenter::ResultPresenter;
use super::rounds::{CallRound, RoundEnd};
use super::running_call::{RequestedRun, RunOutcome, RunSubject};
use super::tasks::{TaskMode, VisitorTasks, task_wanted};
use super::tool_list::{ListedTool, ToolListing, is_in};
use super::{McpVisit, call_status, lazy, names, seal, to_wire};

/// What is to be called.
struct Target {
    tool_id: String,
    tool: Option<Arc<ListedTool>>,
    arguments: JsonObject,
}

/// One `tools/call`.
pub(super) struct ToolsCall<'a> {
    pub(super) client: &'a ClientState,
    pub(super) visit: &'a McpVisit,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl<'a> ToolsCall<'a> {
    /// Calls the tool, or goes on with a call that waits for an answer.
    pub(super) async fn answer(&self, mut request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let mcp = self.client.door.mcp();
        let listing = self.listing();
        // A published tool may have the name of one that looks, and is a tool all the same.
        if mcp.config.mode == McpMode::Discovery && !(listing.meta.is_some() && is_looking(&request.name)) {
            return Err(ErrorData::method_not_found::<CallToolRequestMethod>());
        }
        let arguments = request.arguments.take().unwrap_or_default();
        let round = self.round(&request.name, &arguments);
        let (trace_id, tasks) = (round.trace_id, self.tasks());
        if let Some(state) = &request.request_state {
            let end = round.rejoin(state, request.input_responses.unwrap_or_default()).await?;
            return self.response(&round, end).await;
        }
        let target = match self.target(&listing, &request.name, arguments).await {
            Ok(Aim::Call(target)) => target,
            Ok(Aim::Answer(result)) => return Ok((*result).into()),
            Err(refusal) => return to_wire::refused(&refusal, trace_id, None).map(Into::into),
        };
        let support = target.tool.as_ref().map_or(TaskMode::Optional, |tool| TaskMode::of(&mcp.config, &tool.version));
        let task_jobs = tasks.jobs_for(&round);
        if support == TaskMode::Required && task_jobs.is_none() && tasks.jobs().is_some() {
            return Err(task_wanted(round.is_modern()));
        }
        let (invoke, wait) = match self.invocation(target.tool_id, target.arguments) {
            Ok(invoke) => invoke,
            Err(refusal) => return to_wire::refused(&refusal, trace_id, None).map(Into::into),
        };
        let given = request.input_responses;
        let run = match task_jobs {
            // Who says how long it waits can be told of a job.
            None => match (wait, tasks.jobs()) {
                (Some(wait), Some(jobs)) => RequestedRun::Promotable(Box::new(invoke), Arc::clone(jobs), Some(wait)),
                _ => RequestedRun::Call(Box::new(invoke)),
            },
            Some(jobs) if support == TaskMode::Optional => {
                RequestedRun::Promotable(Box::new(invoke), Arc::clone(jobs), wait)
            }
            Some(jobs) => {
                return match tasks.start(&round, jobs, invoke, round.abilities(), given.unwrap_or_default()).await {
                    Ok(accepted) => Ok(tasks.created(&accepted).await),
                    Err(refusal) => {
                        self.note_missing_scope(&refusal);
                        to_wire::refused(&refusal, trace_id, None).map(Into::into)
                    }
                };
            }
        };
        let end = round.begin(run, RunSubject::Tool(target.tool), given).await?;
        self.response(&round, end).await
    }

    /// What is to be called for a client that has asked for a task itself.
    pub(super) async fn prepared(
        &self,
        mut request: CallToolRequestParams,
    ) -> Result<(CallRound<'a>, InvokeRequest), ErrorData> {
        let arguments = request.arguments.take().unwrap_or_default();
        let round = self.round(&request.name, &arguments);
        let trace_id = round.trace_id;
        match self.target(&self.listing(), &request.name, arguments).await {
            Ok(Aim::Call(target)) => {
                let invoke = self.invocation(target.tool_id, target.arguments);
                let (invoke, _) = invoke.map_err(|refusal| to_wire::error(&refusal, trace_id))?;
                Ok((round, invoke))
            }
            Ok(Aim::Answer(_)) => {
                Err(ErrorData::new(WireCode::METHOD_NOT_FOUND, "this tool cannot be called as a task", None))
            }
            Err(refusal) => Err(to_wire::error(&refusal, trace_id)),
        }
    }

    /// A request that is bound to name and arguments.
    fn round(&self, name: &str, arguments: &JsonObject) -> CallRound<'a> {
        let binding = seal::binding(self.visit.caller.caller(), name, &Value::Object(arguments.clone()));
        CallRound::of(self.client, self.visit, self.context, binding)
    }

    fn listing(&self) -> Arc<ToolListing> {
        let door = &self.client.door;
        door.mcp().listing(door.kernel(), self.visit)
    }

    fn tasks(&self) -> VisitorTasks<'a> {
        VisitorTasks { door: &self.client.door, visit: self.visit }
    }

    fn presenter(&self) -> ResultPresenter<'a> {
        ResultPresenter { door: &self.client.door, visit: self.visit }
    }

    /// What a name means: a tool, or one of the three that find and describe tools.
    async fn target(&self, listing: &ToolListing, name: &str, arguments: JsonObject) -> Result<Aim, Refusal> {
        if listing.meta.is_some() {
            match name {
                lazy::SEARCH => return self.search(listing, &arguments).await.map(Aim::Answer),
                lazy::DESCRIBE => {
                    let asked = lazy::describe_asked(&arguments)?;
                    let found = listing.named_in_any_way(asked).ok_or_else(|| lazy::not_there(listing, asked))?;
                    return Ok(Aim::Answer(Box::new(lazy::described(found))));
                }
                lazy::CALL => {
                    let (name, inner) = lazy::call_asked(arguments)?;
                    if let Some(tool) = listing.named_in_any_way(&name) {
                        return Ok(Aim::at(tool, inner));
                    }
                    return self.direct(listing, &name, inner);
                }
                _ => {}
            }
        }
        self.direct(listing, name, arguments)
    }

    fn direct(&self, listing: &ToolListing, name: &str, arguments: JsonObject) -> Result<Aim, Refusal> {
        if let Some(tool) = listing.named(name) {
            return Ok(Aim::at(tool, arguments));
        }
        // What is not offered is still asked for by its id: the kernel knows why it is not to be had, and notes that
        // somebody wanted it.
        let toolsets = &self.client.door.mcp().config.toolsets;
        let toolset = self.visit.toolset.as_ref().map(|name| toolsets.get(&**name));
        let patterns = toolset.map(|patterns| patterns.map_or(&[][..], Vec::as_slice));
        let id =
            names::plain_id(name).filter(|id| is_in(patterns, id)).ok_or_else(|| lazy::not_there(listing, name))?;
        Ok(Aim::Call(Target { tool_id: id.to_string(), tool: None, arguments }))
    }

    async fn search(&self, listing: &ToolListing, arguments: &JsonObject) -> Result<Box<CallToolResult>, Refusal> {
        let (query, limit) = lazy::search_asked(arguments)?;
        let door = &self.client.door;
        let _place = door.request_place(&self.visit.caller).await?;
        // More than asked for: what is found but not offered here falls away.
        let hits = door.kernel().search_tools(self.visit.who.actor(), query, lazy::HITS_MAX).await?;
        let offered = hits.iter().filter_map(|hit| {
            let tool = listing.named_in_any_way(hit.current.id.as_str())?;
            Some((Arc::clone(tool), hit.score.unwrap_or_default()))
        });
        let offered: Vec<lazy::RankedTool> = offered.take(limit).collect();
        let (tokens_max, counters) = (door.mcp().config.search_tokens_max, door.counters());
        let packing = move || lazy::packed(&offered, tokens_max, counters.counting(CounterName::O200kBase));
        let packed = tokio::task::spawn_blocking(packing).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "what was found could not be packed");
            Refusal::new(ErrorCode::E3000, "what was found could not be packed").caused_by(error)
        })?;
        Ok(Box::new(lazy::found(&packed)))
    }

    /// The call as the kernel wants it, and how long the client says that it waits.
    fn invocation(
        &self,
        tool_id: String,
        parameters: JsonObject,
    ) -> Result<(InvokeRequest, Option<Duration>), Refusal> {
        let CallMeta { idempotency_key, timeout_seconds, wait, result_bytes: _ } =
            CallMeta::of(&self.context.meta.0.0)?;
        if wait.is_some() && self.tasks().jobs().is_none() {
            return Err(Refusal::new(ErrorCode::E3010, "this server has no background in which a call could go on")
                .hint("leave `dev.gantry/wait_seconds` out; nothing was run"));
        }
        let invoke = InvokeRequest {
            tool_id,
            tool_version: None,
            parameters,
            invocation_id: None,
            agent_context: None,
            execution_options: ExecutionOptions { idempotency_key, ..ExecutionOptions::default() },
            resource_limits: CallLimits { timeout_seconds, ..CallLimits::default() },
            document_context: None,
            checkpoint_config: None,
            execution_mode: None,
        };
        Ok((invoke, wait))
    }

    /// What a client hears of a call.
    async fn response(&self, round: &CallRound<'_>, turn: RoundEnd) -> Result<CallToolResponse, ErrorData> {
        let tasks = self.tasks();
        match turn {
            RoundEnd::Promoted(accepted, running, _, subject) if tasks.jobs_for(round).is_none() => {
                // What it asks from here on nobody answers: this client has no way to.
                drop(running.let_go());
                Ok(call_status::goes_on(&accepted, &subject).into())
            }
            RoundEnd::Promoted(accepted, running, given, _) => {
                tasks.hear(accepted.invocation_id, running.let_go(), given);
                Ok(tasks.created(&accepted).await)
            }
            RoundEnd::Asked(question) => Ok(question.into()),
            RoundEnd::Refused(refusal) => to_wire::refused(&refusal, round.trace_id, None).map(Into::into),
            RoundEnd::Ended(RunOutcome::Call(outcome), RunSubject::Tool(tool)) => {
                self.render(round, *outcome, tool.as_deref()).map(Into::into)
            }
            // A seal binds an answer to the method it was asked by.
            RoundEnd::Ended(..) => Err(ErrorData::internal_error("the answer belongs to another request", None)),
        }
    }

    fn render(
        &self,
        round: &CallRound<'_>,
        outcome: Result<InvokeResponse, Box<FailedCall>>,
        tool: Option<&ListedTool>,
    ) -> Result<CallToolResult, ErrorData> {
        let response = match outcome {
            Ok(response) => response,
            Err(mut failed) => {
                self.note_missing_scope(&failed.refusal);
                say_where_keys_go(&mut failed.refusal);
                if round.is_modern()
                    && let Some(error) = to_wire::missing_capability(&failed.refusal)
                {
                    return Err(error);
                }
                let mut result = to_wire::failure(&failed)?;
                self.presenter().readdress(&mut result, tool);
                return Ok(result);
            }
        };
        let relayed = tool.is_some_and(ListedTool::is_relayed);
        let tool_id = response.tool_id.clone();
        // What was refused when the call began is not asked about again at its end.
        let asked = CallMeta::of(&self.context.meta.0.0).ok().and_then(|said| said.result_bytes);
        let result = to_wire::result(response, relayed);
        Ok(self.presenter().presented(result, tool, &tool_id, asked))
    }

    /// A token that is too narrow is told so in the way of OAuth as well, where the answer can still say it.
    fn note_missing_scope(&self, refusal: &Refusal) {
        if let Some(RefusalReason::MissingScope(scope)) = refusal.reason.as_deref() {
            drop(self.visit.lacks.set(scope.clone()));
        }
    }
}

enum Aim {
    Call(Target),
    Answer(Box<CallToolResult>),
}

impl Aim {
    fn at(tool: &Arc<ListedTool>, arguments: JsonObject) -> Self {
        Self::Call(Target { tool_id: tool.version.id.to_string(), tool: Some(Arc::clone(tool)), arguments })
    }
}

/// A key that is missing is asked for where this protocol has a place for it.
fn say_where_keys_go(refusal: &mut Refusal) {
    if matches!(refusal.reason.as_deref(), Some(RefusalReason::MissingKey)) {
        refusal.hint = Some(format!(
            "set `_meta[\"{IDEMPOTENCY_KEY}\"]` of the call to something that is the same whenever you mean the same act; \
             nothing was run"
        ));
    }
}

fn is_looking(name: &str) -> bool {
    matches!(name, lazy::SEARCH | lazy::DESCRIBE)
}
