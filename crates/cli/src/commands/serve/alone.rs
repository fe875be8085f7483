//! A server for one MCP client that has started it, on standard input and output: what `gantry mcp` does when no server runs
//! on the data directory.
//!
//! It opens the doors on a free loopback port as well and says where, because the data directory can have one server only:
//! the next client that starts `gantry mcp` is led here, and so is `gantry call`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use policy::{BearerSecret, MintRequest};
use ports::actor::Actor;
use ports::entropy::new_trace_id;
use server::{Door, DoorParts};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::assembly::{self, RunningKernel, VersionKind};
use super::callbacks::Callbacks;
use super::jobs::SealedQueue;
use super::tls::TlsKeeper;
use super::{announcement, follow_registry, keepers, listening, load, look_requests, signals, watch, watchers};
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Serves the client until it closes its side, or a signal comes. `given`: the token to act with; else one is made as `wish`
/// says.
pub(in crate::commands) async fn serve(
    context: &CommandContext,
    given: Option<String>,
    wish: &MintRequest,
    toolset: Option<&str>,
) -> Result<(), CommandFailure> {
    let config = context.config(Vec::new())?;
    // Standard output belongs to the protocol; the log goes to standard error, as everywhere.
    let redacting = assembly::redacting(context, &config)?;
    let redaction = telemetry::TraceRedaction::new(redacting.of_all());
    let log = telemetry::init_logging(config.log.format, &config.log.level, context.wants_colour(), redaction)
        .map_err(|error| CommandFailure::new(error.to_string()).hint("mend `[log] level`"))?;
    let signals = signals::Signals::listen()?;
    let (assembly, traces) = assembly::build(context, &config, redacting, VersionKind::Published).await?;
    let tls = TlsKeeper::open(&config, &context.data_dir(), &assembly.metrics, Arc::clone(&assembly.clock) as _)?;
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(here)
        .await
        .map_err(|error| CommandFailure::new(format!("cannot listen on a loopback address: {error}")))?;
    let queue = SealedQueue::build(&assembly, &config)?;
    let callbacks = Callbacks::build(&assembly, &config, &queue.queue)?;
    let RunningKernel {
        kernel,
        insights,
        recorder,
        loaders,
        processes,
        mut policies,
        upstreams,
        sinks,
        shared: _,
        changes,
    } = Box::pin(assembly.open(&config, &queue, Arc::clone(&callbacks.webhooks))).await?;
    if let Some(policies) = &mut policies {
        policies.begin().await?;
    }
    assembly::register_builtins(&kernel, &assembly).await?;
    let folders = load(loaders).await;
    let stored = assembly.servers()?;
    let catalogue = super::upstreams::open(&kernel, stored, &upstreams, changes.as_ref(), &config).await?;
    let token = match given {
        Some(token) => token,
        None => {
            let trace_id = new_trace_id(kernel.entropy());
            let actor = Actor { credential: Some(BearerSecret(assembly.admin_token())), source: None, trace_id };
            kernel.mint_token(actor, wish).await?.token
        }
    };
    let announced = context.data_dir().announce(&announcement(&listener, tls.is_some())?)?;
    let jobs = Box::pin(super::jobs::open(&kernel, &queue, &callbacks)).await?;
    let watchers = watchers(folders);
    let door = Door::new(DoorParts {
        config: config.server.limits.clone(),
        mcp: config.mcp.clone(),
        session_key: assembly.session_key(),
        insights: Some(Arc::clone(&insights)),
        servers: Some(Arc::clone(&catalogue) as _),
        webhooks: Some(Arc::clone(&callbacks.webhooks)),
        inbound_jobs: callbacks.inbound.clone(),
        jobs: Some(Arc::clone(&jobs)),
        log: Some(log),
        tool_folders: look_requests(&watchers),
        ..DoorParts::of_kernel(Arc::clone(&kernel), assembly.metrics_text(tls.as_ref().map(TlsKeeper::state)))
    });
    let listener = listening(listener, tls.as_ref(), &config);
    let background = super::jobs::begin(&assembly, queue, callbacks, jobs)?;
    let mut keepers = keepers(&kernel, &insights, &processes, policies, &assembly);
    keepers.extend(tls.map(|tls| tokio::spawn(tls.run())));
    keepers.extend(follow_registry(&kernel, changes));
    keepers.push(tokio::spawn(async move { catalogue.follow().await }));
    keepers.extend(watch(watchers, &assembly));
    let ended = CancellationToken::new();
    let stopped = ended.clone();
    let serving = tokio::spawn(server::serve(listener, Arc::clone(&door), async move { stopped.cancelled().await }));
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    let talked = tokio::select! {
        talked = server::serve_stdio(door, &token, toolset, streams, ended.clone()) => talked,
        () = signals.first() => Ok(()),
    };
    ended.cancel();
    if serving.await.is_err() {
        tracing::error!("the doors ended abnormally");
    }
    background.end().await;
    for keeper in keepers {
        keeper.abort();
    }
    processes.warm().clear();
    let closed = tokio::time::timeout(super::CLOSING_TIMEOUT, async {
        upstreams.shut_down().await;
        insights.source().close().await;
        recorder.close().await;
        sinks.close().await;
        assembly.store.close().await;
        if let Some(traces) = traces {
            traces.close().await;
        }
    });
    let in_time = closed.await.is_ok();
    announced.withdraw();
    talked.map_err(|error| CommandFailure::new(error.to_string()))?;
    if in_time { Ok(()) } else { Err(CommandFailure::new("the audit log could not be flushed in time")) }
}
