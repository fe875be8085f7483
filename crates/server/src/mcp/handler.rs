//! What the server answers, method by method. `rmcp` has read the message and knows the revision; each method here finds
//! out who asks, asks the part that knows, and gives the answer back.

#![expect(deprecated, reason = "newer revisions have no logging, but older clients ask for it and may have it")]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use contract::error::Refusal;
use kernel::ports::entropy::new_trace_id;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, Extensions, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::config::McpMode;
use super::{Visit, lazy, resources, to_wire};
use crate::door::Door;
use crate::incoming::Credential;

/// What every client is told about this server.
const INSTRUCTIONS: &str = "Gantry runs the tools of this installation under its policies. What is listed may be used by \
    this caller; errors say what to change. Results that are too large come as a preview and a link to the rest.";
const INSTRUCTIONS_LAZY: &str = "Gantry runs the tools of this installation under its policies. They are not all listed: find \
    them with search_tools, read describe_tool before the first use, and call them with call_tool.";

/// Levels as they are kept; 0 is none.
const LEVELS: [LoggingLevel; 8] = [
    LoggingLevel::Debug,
    LoggingLevel::Info,
    LoggingLevel::Notice,
    LoggingLevel::Warning,
    LoggingLevel::Error,
    LoggingLevel::Critical,
    LoggingLevel::Alert,
    LoggingLevel::Emergency,
];

/// Answers one request, or all requests of one session.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(super) door: Arc<Door>,
    from: From,
    /// What an older client wants to hear of, for its session.
    log_level: AtomicU8,
}

/// Where requests come from.
#[derive(Debug)]
pub(super) enum From {
    /// Each request brings its own visit, left by the front.
    Http { first: Visit },
    /// One client that has started us and whose token we were given.
    Stdio { who: Credential, toolset: Option<Arc<str>> },
}

impl Handler {
    pub(super) fn new(door: Arc<Door>, from: From) -> Self {
        Self { door, from, log_level: AtomicU8::new(0) }
    }

    pub(super) fn log_level(&self) -> Option<LoggingLevel> {
        usize::from(self.log_level.load(Ordering::Relaxed)).checked_sub(1).and_then(|at| LEVELS.get(at)).copied()
    }

    /// Who asks. Over HTTP the front has found out; a token that was given once is looked at anew each time.
    async fn visit(&self, extensions: &Extensions) -> Result<Visit, ErrorData> {
        match &self.from {
            From::Http { .. } => {
                let parts = extensions.get::<http::request::Parts>();
                let visit = parts.and_then(|parts| parts.extensions.get::<Visit>());
                visit.cloned().ok_or_else(|| ErrorData::internal_error("the request has lost its sender", None))
            }
            From::Stdio { who, toolset } => {
                let who = &who.in_trace(new_trace_id(self.door.kernel().entropy()));
                let recognised = self.door.kernel().recognise(who.actor()).await;
                let caller = recognised.map_err(|refusal| refused(&refusal, who))?;
                Ok(Visit {
                    who: who.clone(),
                    caller,
                    toolset: toolset.clone(),
                    lacks: Arc::default(),
                    seen: Arc::default(),
                })
            }
        }
    }
}

/// Tells one client whenever its own list has changed, until it is gone, may not see it any more, or we end.
async fn follow<F, T>(door: &Arc<Door>, visit: &Visit, tell: F)
where
    F: Fn() -> T + Send + Sync,
    T: Future<Output = bool> + Send,
{
    let mcp = door.mcp();
    let mut news = mcp.news.follow(&door.shared_kernel());
    let mut last = visit.seen.get().copied().unwrap_or_else(|| mcp.listing(door.kernel(), visit).fingerprint);
    loop {
        // The token may have ended or been revoked meanwhile.
        let Ok(caller) = door.kernel().recognise(visit.who.actor()).await else { return };
        let now = mcp.listing(door.kernel(), &Visit { caller, ..visit.clone() }).fingerprint;
        if now != last {
            last = now;
            if !tell().await {
                return;
            }
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            () = mcp.ending.cancelled() => return,
        }
    }
}

fn refused(refusal: &Refusal, who: &Credential) -> ErrorData {
    to_wire::error(refusal, who.trace_id)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mcp = self.door.mcp();
        let lazily = match &self.from {
            From::Http { first } => mcp.listing(self.door.kernel(), first).meta.is_some(),
            From::Stdio { .. } => false,
        };
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_resources()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
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
        let visit = self.visit(&context.extensions).await?;
        let mcp = self.door.mcp();
        let listing = mcp.listing(self.door.kernel(), &visit);
        let cursor = request.and_then(|request| request.cursor);
        let page = listing
            .page(cursor.as_deref(), mcp.config.page_size)
            .ok_or_else(|| ErrorData::invalid_params("`cursor` is not one that this server has given out", None))?;
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
        self.call(visit, request, context).await
    }

    /// For the check of headers that repeat arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let From::Http { first } = &self.from else { return None };
        if self.door.mcp().config.mode == McpMode::Discovery {
            return None;
        }
        let listing = self.door.mcp().listing(self.door.kernel(), first);
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
        no_cursor(request)?;
        let visit = self.visit(&context.extensions).await?;
        let result = ListResourcesResult::with_all_items(resources::list(visit.caller.caller()));
        Ok(result.with_ttl_ms(self.door.mcp().config.list_ttl_ms).with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        no_cursor(request)?;
        let result = ListResourceTemplatesResult::with_all_items(resources::templates());
        Ok(result.with_ttl_ms(self.door.mcp().config.list_ttl_ms).with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let visit = self.visit(&context.extensions).await?;
        let (kernel, results) = (self.door.kernel(), &self.door.mcp().results);
        let read = resources::read(kernel, results, &visit.who, visit.caller.caller(), &request.uri).await;
        let contents = read.map_err(|refusal| refused(&refusal, &visit.who))?;
        let result = ReadResourceResult::new(vec![contents]).with_ttl_ms(0).with_cache_scope(CacheScope::Private);
        Ok(result.into())
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let at = LEVELS.iter().position(|level| *level == request.level).unwrap_or_default();
        self.log_level.store(u8::try_from(at + 1).unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let visit = self.visit(&context.request_context().extensions).await?;
        let slots = Arc::clone(&self.door.mcp().listeners);
        let Ok(_slot) = slots.try_acquire_owned() else {
            return Err(ErrorData::internal_error("too many clients listen at the moment; try again later", None));
        };
        if context.accepted().tools_list_changed != Some(true) {
            tokio::select! {
                () = context.cancelled() => {}
                () = self.door.mcp().ending.cancelled() => {}
            }
            return Ok(());
        }
        let sink = context.sink();
        tokio::select! {
            () = context.cancelled() => Ok(()),
            () = follow(&self.door, &visit, || async { sink.notify_tool_list_changed().await.is_ok() }) => Ok(()),
        }
    }

    /// Older clients are told of changes without asking.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(visit) = self.visit(&context.extensions).await else { return };
        let (door, peer) = (Arc::clone(&self.door), context.peer);
        tokio::spawn(async move {
            let gone = async {
                while !peer.is_transport_closed() {
                    tokio::time::sleep(GONE_EVERY).await;
                }
            };
            tokio::select! {
                () = gone => {}
                () = follow(&door, &visit, || async { peer.notify_tool_list_changed().await.is_ok() || !peer.is_transport_closed() }) => {}
            }
        });
    }
}

/// How often a session's follower looks whether its session is still there.
const GONE_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// These lists are short and have one page.
fn no_cursor(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("`cursor` is not one that this server has given out", None)),
    }
}
