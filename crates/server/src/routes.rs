//! The table of everything that can be asked, one [`RouteOperation`] per line, kept beside its handler in `routes/`.
//!
//! The router and the OpenAPI document are both made from this table, so neither can know what the other does not.
//!
//! The MCP door is mounted beside the table and not part of it: it is described by its own protocol.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use axum::{Extension, Router};
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use futures_util::FutureExt as _;
use http::Response;
use schemars::{Schema, SchemaGenerator};

use crate::answer::Handled;
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::mcp::front::{self, McpPath};
use crate::problem::{RESOURCE_METADATA, RefusalResponse, method_not_allowed, no_such_endpoint};
use crate::query::QueryParameters;

mod activations;
mod affordances;
mod agents;
mod audit;
mod batch;
mod breakers;
mod checkpoints;
mod compat;
mod discovery;
mod explain;
pub(crate) mod health;
mod inbound_jobs;
mod instances;
mod invocations;
mod invoke;
mod jobs_admin;
mod json_rpc;
mod keys;
mod ledger;
mod lifecycle;
mod log_level;
mod oauth;
mod page_limit;
mod pages;
mod policies;
mod quarantine;
mod register;
mod rights;
mod servers;
mod tenants;
mod tokens;
mod tool_folders;
mod tool_health;
mod tool_logs;
mod tools;
mod usage;
mod webhooks;

/// How an operation is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteMethod {
    /// Also answers HEAD.
    Get,
    Post,
    Put,
    Delete,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Everybody.
    Public,
    /// Whoever shows a valid token; what it allows is decided by the kernel.
    Token,
    /// Everybody or a token, as configured (`metrics_public`).
    Configured,
}

/// What has places of its own (REQ-3): calls, and streams of events. Every other operation for which a token is needed takes
/// one of the places for requests; messages of JSON-RPC take theirs one by one.
const WITH_OWN_PLACES: [&str; 4] = ["invokeTool", "invokeBatch", "jsonRpc", "invocationEvents"];

/// When a request takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It needs none.
    Never,
    /// As soon as it is known who asks.
    AtOnce,
    /// When its body has been read.
    AfterBody,
}

/// What the table says about a request before its handler sees it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    access: RouteAccess,
    turn: Turn,
    parameters: &'static [RouteParameter],
}

impl Entry {
    /// What did not come by the table: unknown paths, which are for everybody, and calls ([`call`]), whose handler recognises the
    /// caller itself.
    const UNLISTED: Self = Self { access: RouteAccess::Public, turn: Turn::Never, parameters: &[] };

    fn of(operation: &RouteOperation) -> Self {
        let turn = match operation.asks {
            _ if operation.access != RouteAccess::Token || WITH_OWN_PLACES.contains(&operation.id) => Turn::Never,
            RequestBody::Nothing => Turn::AtOnce,
            RequestBody::Json(_) | RequestBody::JsonIfAny(_) | RequestBody::FormOrJson(_) => Turn::AfterBody,
        };
        Self { access: operation.access, turn, parameters: operation.parameters }
    }
}

/// Where a parameter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterPlace {
    Path,
    Query,
    /// In the query, and it must be there.
    RequiredQuery,
}

/// One parameter outside the body.
#[derive(Debug)]
pub(crate) struct RouteParameter {
    pub(crate) place: ParameterPlace,
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

/// The body of a request.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Nothing,
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// The body may be left out.
    JsonIfAny(fn(&mut SchemaGenerator) -> Schema),
    /// A form, as OAuth has it, or JSON with the same members.
    FormOrJson(fn(&mut SchemaGenerator) -> Schema),
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// JSON, and refusals in the form of OAuth.
    Oauth(fn(&mut SchemaGenerator) -> Schema),
    /// Anything else, by its media type.
    Plain(&'static str),
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct RouteOperation {
    pub(crate) verb: RouteMethod,
    /// With placeholders in braces, as both the router and OpenAPI write them.
    pub(crate) path: &'static str,
    /// For generated clients.
    pub(crate) id: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) access: RouteAccess,
    pub(crate) parameters: &'static [RouteParameter],
    pub(crate) asks: RequestBody,
    /// Status and what it means; all good answers of one operation have the same shape.
    pub(crate) good: &'static [(u16, &'static str)],
    pub(crate) gives: ResponseBody,
    /// Codes beyond those that follow from `access` and `asks`.
    pub(crate) codes: &'static [ErrorCode],
    pub(crate) mount: fn(MethodFilter) -> MethodRouter<Arc<Door>>,
}

/// Every operation.
pub(crate) fn operations() -> impl Iterator<Item = &'static RouteOperation> {
    [
        register::OPERATIONS,
        tools::OPERATIONS,
        lifecycle::OPERATIONS,
        quarantine::OPERATIONS,
        compat::OPERATIONS,
        invoke::OPERATIONS,
        batch::OPERATIONS,
        json_rpc::OPERATIONS,
        invocations::OPERATIONS,
        jobs_admin::OPERATIONS,
        ledger::OPERATIONS,
        checkpoints::OPERATIONS,
        explain::OPERATIONS,
        tokens::OPERATIONS,
        oauth::OPERATIONS,
        audit::OPERATIONS,
        keys::OPERATIONS,
        tenants::OPERATIONS,
        agents::OPERATIONS,
        activations::OPERATIONS,
        policies::OPERATIONS,
        servers::OPERATIONS,
        breakers::OPERATIONS,
        webhooks::OPERATIONS,
        inbound_jobs::OPERATIONS,
        discovery::OPERATIONS,
        affordances::OPERATIONS,
        tool_health::OPERATIONS,
        tool_logs::OPERATIONS,
        usage::OPERATIONS,
        health::OPERATIONS,
        instances::OPERATIONS,
        log_level::OPERATIONS,
        tool_folders::OPERATIONS,
        pages::OPERATIONS,
    ]
    .into_iter()
    .flatten()
}

/// The router over the table; over the part of it that says how a worker is, if the door is a worker's.
pub(crate) fn router(door: Arc<Door>) -> Router {
    if door.config().probes_only {
        return mounted(health::OPERATIONS.iter())
            .fallback(|State(door): State<Arc<Door>>, request: Request| {
                carry(door, request, |_, _: IncomingRequest| async { Err(worker_only()) })
            })
            .with_state(door);
    }
    let table = mounted(operations());
    table
        .route(
            front::PATH,
            any(|State(door): State<Arc<Door>>, request: Request| front::answer(door, request, McpPath::Whole)),
        )
        .route(
            "/mcp/{toolset}",
            any(|State(door): State<Arc<Door>>, request: Request| front::answer(door, request, McpPath::Toolset)),
        )
        .route(&format!("{RESOURCE_METADATA}/mcp"), to(MethodFilter::GET, oauth::metadata_of_part))
        .route(&format!("{RESOURCE_METADATA}/mcp/{{toolset}}"), to(MethodFilter::GET, oauth::metadata_of_part))
        .fallback(|State(door): State<Arc<Door>>, request: Request| {
            carry(door, request, |_, incoming: IncomingRequest| async move {
                Err(no_such_endpoint(incoming.parts.uri.path()))
            })
        })
        .method_not_allowed_fallback(|State(door): State<Arc<Door>>, request: Request| {
            carry(door, request, |_, incoming: IncomingRequest| async move {
                Err(method_not_allowed(&incoming.parts.method, incoming.parts.uri.path()))
            })
        })
        .with_state(door)
}

fn mounted(operations: impl Iterator<Item = &'static RouteOperation>) -> Router<Arc<Door>> {
    operations.fold(Router::new(), |router, operation| {
        let filter = match operation.verb {
            RouteMethod::Get => MethodFilter::GET,
            RouteMethod::Post => MethodFilter::POST,
            RouteMethod::Put => MethodFilter::PUT,
            RouteMethod::Delete => MethodFilter::DELETE,
        };
        router.route(operation.path, (operation.mount)(filter).route_layer(Extension(Entry::of(operation))))
    })
}

/// What a worker says to whoever wants more than to know how it is.
fn worker_only() -> RefusalResponse {
    Refusal::new(ErrorCode::E3010, "this server only does jobs and takes no calls")
        .hint("ask a server that was started without `--worker-only`")
        .into()
}

/// Is this the one request that nearly all others are? It needs no table to be found, and looking it up there costs a
/// tenth of a call.
pub(crate) fn is_call<B>(request: &http::Request<B>) -> bool {
    request.method() == http::Method::POST && request.uri().path() == invoke::PATH
}

/// Answers such a request as the table would, but for one thing: the handler recognises the caller itself, because a call of
/// nobody's is recorded.
pub(crate) async fn call(door: Arc<Door>, request: Request) -> Response<Body> {
    carry(door, request, invoke::invoke).await
}

/// A handler as an axum route.
pub(crate) fn to<H, F>(filter: MethodFilter, handler: H) -> MethodRouter<Arc<Door>>
where
    H: Fn(Arc<Door>, IncomingRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Handled> + Send + 'static,
{
    on(filter, move |State(door): State<Arc<Door>>, request: Request| carry(door, request, handler))
}

/// What every request has in common: a trace, a limit on headers, a host that is ours, somebody who is recognised (of a call: by
/// its handler) before anything else is looked at, one rendering, and a panic that stays in its request.
async fn carry<H, F>(door: Arc<Door>, request: Request, handler: H) -> Response<Body>
where
    H: Fn(Arc<Door>, IncomingRequest) -> F,
    F: Future<Output = Handled> + Send,
{
    // Left there by the table.
    let entry = request.extensions().get::<Entry>().copied().unwrap_or(Entry::UNLISTED);
    let mut incoming = IncomingRequest::new(&door, request);
    let asked = incoming.asked();
    if let Err(refused) = let_in(&door, &mut incoming, entry).await {
        return refused.into_response(&asked);
    }
    let handled = AssertUnwindSafe(handler(door, incoming)).catch_unwind().await.unwrap_or_else(|_| {
        // The panic itself has been reported by the panic hook.
        tracing::error!(trace_id = %asked.trace_id, "a handler panicked");
        Err(RefusalResponse::internal())
    });
    match handled {
        Ok(answer) => answer.into_response(asked.trace_id),
        Err(refused) => refused.into_response(&asked),
    }
}

/// Who asks comes first: path, query and body are looked at once the caller is known.
async fn let_in(
    door: &Door,
    incoming: &mut IncomingRequest,
    Entry { access, turn, parameters }: Entry,
) -> Result<(), RefusalResponse> {
    let headers_max = door.config().headers_max;
    if incoming.parts.headers.len() > headers_max {
        return Err(too_many_headers(headers_max));
    }
    // A probe knows an address and no names, and is told no more than a word.
    if !health::is_probe(incoming.parts.uri.path()) {
        door.called_by_name(&incoming.parts, false)?;
    }
    if access == RouteAccess::Token {
        let who = incoming.credential()?;
        incoming.recognise(door, &who).await?;
        only_known(incoming.parts.uri.query().unwrap_or_default(), parameters)?;
        if turn != Turn::Never {
            incoming.needs_place();
        }
        if turn == Turn::AtOnce {
            incoming.take_place(door, &who).await?;
        }
    }
    Ok(())
}

/// A query parameter that nothing reads is refused, also where the request is in the body.
fn only_known(query: &str, parameters: &[RouteParameter]) -> Result<(), Refusal> {
    if query.is_empty() {
        return Ok(());
    }
    let known: Vec<&str> =
        parameters.iter().filter(|one| one.place != ParameterPlace::Path).map(|one| one.name).collect();
    QueryParameters::parse(query, &known).map(drop)
}

/// The tenant a request is about.
const TENANT: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "tenant",
    about: "the tenant; default the token's own",
    schema: SchemaGenerator::subschema_for::<TenantId>,
};

/// The tenant that the query names, if it names one.
fn tenant_asked(incoming: &IncomingRequest) -> Result<Option<TenantId>, RefusalResponse> {
    tenant_in(&incoming.query(&["tenant"])?)
}

fn tenant_in(query: &QueryParameters) -> Result<Option<TenantId>, RefusalResponse> {
    let named = query.one("tenant")?.map(str::parse::<TenantId>).transpose();
    Ok(named.map_err(|error| Refusal::new(ErrorCode::E3004, error.to_string()))?)
}

fn too_many_headers(headers_max: usize) -> RefusalResponse {
    Refusal::new(ErrorCode::E3004, format!("the request has more than {headers_max} headers"))
        .hint("send fewer headers")
        .into()
}
