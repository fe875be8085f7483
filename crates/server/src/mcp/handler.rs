//! What the server answers, method by method. `rmcp` has read the message and knows the revision; each method here finds
//! out who asks, asks the part that knows, and gives the answer back.

#![expect(deprecated, reason = "newer revisions have no logging, but older clients ask for it and may have it")]

use std::borrow::Cow;
use std::sync::Arc;

use contract::error::Refusal;
use ports::entropy::new_trace_id;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, Extensions, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    TASKS_EXTENSION_ID, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::call_status::call_status;
use super::client_state::ClientState;
use super::config::McpMode;
use super::earlier_tasks::{self, EarlierTasks};
use super::offering_relay::OfferingRelay;
use super::offering_rounds::OfferingRounds;
use super::subscriptions::{ClientNotice, ListSubscriptions, ResourceSubscriptions, WATCHED_MAX};
use super::tasks::{self, VisitorTasks};
use super::tools_call::ToolsCall;
use super::{McpVisit, lazy, pages, resources, subscriptions, to_wire, tool_list};
use crate::door::Door;
use crate::incoming_request::CallerCredential;

/// What every client is told about this server.
const INSTRUCTIONS: &str = "Gantry runs the tools of this installation under its policies. What is listed may be used by \
    this caller; errors say what to change. Results that are too large come as a preview and a link to the rest.";
const INSTRUCTIONS_LAZY: &str = "Gantry runs the tools of this installation under its policies. They are not all listed: find \
    them with search_tools, read describe_tool before the first use, and call them with call_tool.";

/// Answers one request, or all requests of one session.
#[derive(Debug)]
pub(crate) struct McpHandler {
    client: ClientState,
    from: From,
    /// What it watches, for its session.
    watching: Arc<ResourceSubscriptions>,
}

/// Where requests come from.
#[derive(Debug)]
pub(super) enum From {
    /// Each request brings its own visit, left by the front.
    Http { first: McpVisit },
    /// One client that has started us and whose token we were given.
    Stdio { who: CallerCredential, toolset: Option<Arc<str>> },
}

impl McpHandler {
    pub(super) fn new(door: Arc<Door>, from: From) -> Self {
        Self { client: ClientState::new(door), from, watching: Arc::default() }
    }

    fn door(&self) -> &Arc<Door> {
        &self.client.door
    }

    fn relay<'a>(&'a self, visit: &'a McpVisit) -> OfferingRelay<'a> {
        OfferingRelay::at(self.door(), visit)
    }

    fn tasks<'a>(&'a self, visit: &'a McpVisit) -> VisitorTasks<'a> {
        VisitorTasks { door: self.door(), visit }
    }

    fn offerings<'a>(&'a self, visit: &'a McpVisit) -> OfferingRounds<'a> {
        OfferingRounds { client: &self.client, visit }
    }

    /// Does this client have tasks as its revision has them?
    fn has_earlier_tasks(&self, context: &RequestContext<RoleServer>) -> bool {
        let revision = context.protocol_version();
        matches!(self.from, From::Http { .. })
            && revision.is_some_and(|revision| revision.as_str() == earlier_tasks::REVISION)
            && tasks::task_jobs(self.door()).is_some()
    }

    fn list_ttl_ms(&self) -> u64 {
        self.door().mcp().config.list_ttl_ms
    }

    /// A page of a list.
    fn page<T>(
        &self,
        items: Vec<(String, T)>,
        request: Option<PaginatedRequestParams>,
    ) -> Result<(Vec<T>, Option<String>), ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        pages::page(items, cursor.as_deref(), self.door().mcp().config.page_size).ok_or_else(wrong_cursor)
    }

    /// Who asks. Over HTTP the front has found out; a token that was given once is looked at anew each time.
    pub(super) async fn visit(&self, extensions: &Extensions) -> Result<McpVisit, ErrorData> {
        match &self.from {
            From::Http { .. } => {
                let parts = extensions.get::<http::request::Parts>();
                let visit = parts.and_then(|parts| parts.extensions.get::<McpVisit>());
                visit.cloned().ok_or_else(|| ErrorData::internal_error("the request has lost its sender", None))
            }
            From::Stdio { who, toolset } => {
                let who = &who.in_trace(new_trace_id(self.door().kernel().entropy()));
                let recognised = self.door().kernel().recognise(who.actor()).await;
                let caller = recognised.map_err(|refusal| refused(&refusal, who))?;
                Ok(McpVisit {
                    who: who.clone(),
                    caller,
                    toolset: toolset.clone(),
                    as_task: false,
                    lacks: Arc::default(),
                    seen: Arc::default(),
                })
            }
        }
    }

    /// The same for a request that is no call: with a place among those (`requests`), in its turn, for as long as it is worked
    /// on. Not for what waits for its client, which may take its time.
    async fn placed_visit(&self, extensions: &Extensions) -> Result<McpVisit, ErrorData> {
        let visit = self.visit(extensions).await?;
        let place = self.door().request_place(&visit.caller).await.map_err(|refusal| refused(&refusal, &visit.who))?;
        Ok(McpVisit { who: visit.who.holding(place), ..visit })
    }
}

/// Gantry's own stand before those of servers, in their own order: no server has an empty name.
fn own<T>(items: Vec<T>) -> Vec<(String, T)> {
    items.into_iter().enumerate().map(|(at, item)| (format!("\n{at:04}"), item)).collect()
}

fn wrong_cursor() -> ErrorData {
    ErrorData::invalid_params("`cursor` is not one that this server has given out", None)
}

fn refused(refusal: &Refusal, who: &CallerCredential) -> ErrorData {
    to_wire::error(refusal, who.trace_id)
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let mcp = self.door().mcp();
        let lazily = match &self.from {
            From::Http { first } => mcp.listing(self.door().kernel(), first).meta.is_some(),
            From::Stdio { .. } => false,
        };
        // Servers come and go while clients stay, so what could be behind is always said to be there; lists say what is.
        let mut capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        if tasks::task_jobs(self.door()).is_some() {
            let extensions = capabilities.extensions.get_or_insert_default();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        }
        let about = Implementation::new("gantry", env!("CARGO_PKG_VERSION")).with_title("Gantry");
        ServerConfig::new(capabilities)
            .with_server_info(about)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_instructions(if lazily { INSTRUCTIONS_LAZY } else { INSTRUCTIONS })
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        let mcp = self.door().mcp();
        let offered = mcp.listing(self.door().kernel(), &visit);
        let cursor = request.and_then(|request| request.cursor);
        let mut page = offered.page(cursor.as_deref(), mcp.config.page_size).ok_or_else(wrong_cursor)?;
        if self.has_earlier_tasks(&context) {
            for tool in &mut page.tools {
                let known = offered.named(&tool.name);
                let support = known.map(|known| tasks::TaskMode::of(&mcp.config, &known.version));
                let said = known.and_then(|known| tool_list::task_support(&known.version.manifest));
                earlier_tasks::mark(tool, support, said);
            }
        }
        let mut result = ListToolsResult::with_all_items(page.tools)
            .with_ttl_ms(mcp.config.list_ttl_ms)
            .with_cache_scope(CacheScope::Private);
        result.next_cursor = page.next;
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let visit = self.visit(&context.extensions).await?;
        ToolsCall { client: &self.client, visit: &visit, context: &context }.answer(request).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        self.tasks(&visit).task(&request.task_id).await.map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        self.tasks(&visit).answer(&request.task_id, request.input_responses).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        self.tasks(&visit).cancel(&request.task_id).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if !self.has_earlier_tasks(&context) {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let visit = match request.method.as_str() {
            // One begins a call, the other waits for its end.
            "tools/call" | "tasks/result" => self.visit(&context.extensions).await?,
            _ => self.placed_visit(&context.extensions).await?,
        };
        EarlierTasks { client: &self.client, visit: &visit, context: &context }.answer(request).await
    }

    /// For the check of headers that repeat arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let From::Http { first } = &self.from else { return None };
        if self.door().mcp().config.mode == McpMode::Discovery {
            return None;
        }
        let listing = self.door().mcp().listing(self.door().kernel(), first);
        match &listing.meta {
            Some(meta) if matches!(name, lazy::SEARCH | lazy::DESCRIBE | lazy::CALL) => {
                meta.iter().find(|tool| tool.name == name).cloned()
            }
            _ => listing.named(name).map(|tool| tool.wire.clone()),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        let mut all = own(resources::list(visit.caller.caller()));
        all.extend(self.relay(&visit).resources().await.map_err(|refusal| refused(&refusal, &visit.who))?);
        let (shown, next) = self.page(all, request)?;
        let mut result = ListResourcesResult::with_all_items(shown);
        result.next_cursor = next;
        Ok(result.with_ttl_ms(self.list_ttl_ms()).with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        let mut all = own(resources::templates());
        all.extend(self.relay(&visit).templates().await.map_err(|refusal| refused(&refusal, &visit.who))?);
        let (shown, next) = self.page(all, request)?;
        let mut result = ListResourceTemplatesResult::with_all_items(shown);
        result.next_cursor = next;
        Ok(result.with_ttl_ms(self.list_ttl_ms()).with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let visit = self.visit(&context.extensions).await?;
        if !resources::is_own(&request.uri) {
            return self.offerings(&visit).read_resource(request, &context).await;
        }
        let visit = self.placed_visit(&context.extensions).await?;
        let contents = match call_status(self.tasks(&visit), &request.uri).await {
            // One that is not there is answered as every other resource that is not.
            Some(status) => status.map_err(|_| refused(&resources::nothing(&request.uri), &visit.who)),
            None => {
                let (kernel, results) = (self.door().kernel(), &self.door().mcp().results);
                let read = resources::read(kernel, results, &visit.who, &visit.caller, &request.uri).await;
                read.map_err(|refusal| refused(&refusal, &visit.who))
            }
        };
        let contents = contents.map_err(|error| to_wire::unread(error, &request.uri))?;
        let result = ReadResourceResult::new(vec![contents]).with_ttl_ms(0).with_cache_scope(CacheScope::Private);
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        let all = self.relay(&visit).prompts().await.map_err(|refusal| refused(&refusal, &visit.who))?;
        let (shown, next) = self.page(all, request)?;
        let mut result = ListPromptsResult::with_all_items(shown);
        result.next_cursor = next;
        Ok(result.with_ttl_ms(self.list_ttl_ms()).with_cache_scope(CacheScope::Private))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let visit = self.visit(&context.extensions).await?;
        self.offerings(&visit).get_prompt(request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        self.offerings(&visit).complete(request).await
    }

    /// Older clients watch resources by their session.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let visit = self.placed_visit(&context.extensions).await?;
        let added = self.watching.add(self.door(), &visit, &request.uri).await;
        added.map_err(|refusal| to_wire::unread(refused(&refusal, &visit.who), &request.uri))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.visit(&context.extensions).await?;
        self.watching.remove(&request.uri);
        Ok(())
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.client.set_log_level(request.level);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // Whose stream this is, is known here only over HTTP; elsewhere what cannot be watched ends the stream.
        let may_watch = |uri: &str| match &self.from {
            From::Http { first } if resources::changes(uri) => {
                resources::may_watch(self.door().kernel(), &first.caller, uri).is_ok()
            }
            From::Http { first } => self.relay(first).may_have(uri),
            From::Stdio { .. } => true,
        };
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.truncate(WATCHED_MAX);
            uris.retain(|uri| may_watch(uri));
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let visit = self.visit(&context.request_context().extensions).await?;
        let _place =
            self.door().mcp().listeners.take(visit.caller.caller()).map_err(|_| {
                ErrorData::internal_error("too many clients listen at the moment; try again later", None)
            })?;
        let (accepted, watching) = (context.accepted(), ResourceSubscriptions::default());
        for uri in accepted.resource_subscriptions.iter().flatten() {
            let watched = watching.add(self.door(), &visit, uri).await;
            watched.map_err(|refusal| refused(&refusal, &visit.who))?;
        }
        let wants = ListSubscriptions {
            tools: accepted.tools_list_changed == Some(true),
            resources: accepted.resources_list_changed == Some(true),
            prompts: accepted.prompts_list_changed == Some(true),
        };
        let sink = context.sink();
        let tell = |told| async move {
            let told = match told {
                ClientNotice::Tools => sink.notify_tool_list_changed().await,
                ClientNotice::Resources => sink.notify_resource_list_changed().await,
                ClientNotice::Prompts => sink.notify_prompt_list_changed().await,
                ClientNotice::Updated(uri) => sink.notify_resource_updated(uri).await,
            };
            told.is_ok()
        };
        tokio::select! {
            () = context.cancelled() => {}
            () = subscriptions::follow(self.door(), &visit, wants, &watching, tell) => {}
        }
        Ok(())
    }

    /// `rmcp` has cancelled the request; what outlasts requests is cancelled here.
    async fn on_cancelled(&self, notification: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        if let Some(id) = &notification.request_id {
            self.client.lasting.cancel(id);
        }
    }

    /// Older clients are told of changes without asking.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(visit) = self.visit(&context.extensions).await else { return };
        let (door, watching, peer) = (Arc::clone(self.door()), Arc::clone(&self.watching), context.peer);
        tokio::spawn(async move {
            let gone = async {
                while !peer.is_transport_closed() {
                    tokio::time::sleep(GONE_EVERY).await;
                }
            };
            let tell = |told| {
                let peer = &peer;
                async move {
                    let told = match told {
                        ClientNotice::Tools => peer.notify_tool_list_changed().await,
                        ClientNotice::Resources => peer.notify_resource_list_changed().await,
                        ClientNotice::Prompts => peer.notify_prompt_list_changed().await,
                        ClientNotice::Updated(uri) => {
                            peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
                        }
                    };
                    told.is_ok() || !peer.is_transport_closed()
                }
            };
            tokio::select! {
                () = gone => {}
                () = subscriptions::follow(&door, &visit, ListSubscriptions::ALL, &watching, tell) => {}
            }
        });
    }
}

/// How often a session's follower looks whether its session is still there.
const GONE_EVERY: std::time::Duration = std::time::Duration::from_secs(5);
