//! The accept loop: bounded connections, one task each, and an orderly end (OPS-011).
//!
//! The end has three steps: `/health/ready` turns 503 while connections are still accepted (`lame_duck_ms`), and every answer
//! asks its client to connect anew, which leads it elsewhere; then who has connected already is let in, nothing new is
//! accepted, idle connections close and calls run on; what still runs after `drain_timeout_ms` is counted and ended as if it
//! had been cancelled, so that each call is answered, recorded and settled with what is known of it (decision 0074). What
//! has not ended by then is dropped.
//!
//! Not here: what signals the end (the caller's future), handshakes (`tls`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use futures_util::future::{BoxFuture, Either, pending};
use futures_util::{FutureExt as _, StreamExt as _};
use http::Response;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Service as _;

use crate::base_url::OverTls;
use crate::connections::ConnectionLimits;
use crate::door::Door;
use crate::incoming_request::PeerAddress;
use crate::mcp::front::{self, is_stream};
use crate::pace::{AnswerGuard, ConnectionPause, ConnectionProgress, PacedStream};
use crate::routes;
use crate::tls::{ClientStream, DoorListener};

/// Pause after a failed accept, for example when file descriptors have run out.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Connections that are let in after the last moment; more than a listener keeps waiting.
const BACKLOG_MAX: usize = 4096;
/// When nobody has come for so long, nobody was waiting; longer than the runtime needs to hear of it.
const BACKLOG_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// How long a connection that was told to make room may take for it.
const MAKING_ROOM: std::time::Duration = std::time::Duration::from_secs(1);
/// How long calls have to settle after they were ended; about as long as a store that is slow may take for it.
const SETTLING_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Bytes that hyper buffers per connection, besides the header limit.
const BUFFER_BYTES: usize = 64 * 1024;

/// How the door closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Calls that ran when the door stopped accepting.
    pub in_flight: usize,
    /// Of these, calls that came to their end.
    pub finished: usize,
    /// Of these, calls that did not within the drain time.
    pub aborted: usize,
}

/// Serves connections until `shutdown` completes, then closes in order.
pub async fn serve(
    listener: impl Into<DoorListener>,
    door: Arc<Door>,
    shutdown: impl Future<Output = ()>,
) -> DrainOutcome {
    let listener: DoorListener = listener.into();
    door.listens_on_loopback(listener.local_addr().is_ok_and(|addr| addr.ip().is_loopback()));
    let (stop, stopped) = watch::channel(());
    let mut serving = Serving {
        router: routes::router(Arc::clone(&door)),
        http: http_of(&door),
        open: Arc::clone(door.connections()),
        newcomer: None,
        connections: JoinSet::new(),
        stopped,
        over_tls: listener.is_tls(),
        door,
    };
    serving.accept_until(&listener, shutdown).await;
    serving.door.start_draining();
    let lame_duck = serving.door.config().lame_duck();
    if !lame_duck.is_zero() {
        serving.accept_until(&listener, tokio::time::sleep(lame_duck)).await;
    }
    serving.accept_waiting(&listener).await;
    drop(listener);
    serving.door.stop_listening();
    drop(stop);
    serving.drain().await
}

struct Serving {
    router: Router,
    http: http1::Builder,
    open: Arc<ConnectionLimits>,
    /// Accepted, and not let in before somebody makes room.
    newcomer: Option<(ClientStream, PeerAddress)>,
    connections: JoinSet<()>,
    /// Closed when connections should end.
    stopped: watch::Receiver<()>,
    over_tls: bool,
    door: Arc<Door>,
}

impl Serving {
    async fn accept_until(&mut self, listener: &DoorListener, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        let open = Arc::clone(&self.open);
        loop {
            tokio::select! {
                () = &mut end => return,
                newcomer = accept(listener), if self.newcomer.is_none() => self.newcomer = Some(newcomer),
                () = open.room(), if self.newcomer.is_some() => self.let_in(),
                // Finished tasks are taken off, so that the set does not grow.
                Some(ended) = self.connections.join_next(), if !self.connections.is_empty() => {
                    if ended.is_err() {
                        tracing::error!("a connection ended abnormally");
                    }
                }
            }
        }
    }

    /// Lets in who has connected and was not accepted yet: closing the listener would cut them off unheard. At most as many
    /// as there is room for.
    async fn accept_waiting(&mut self, listener: &DoorListener) {
        for _ in 0..BACKLOG_MAX {
            if self.newcomer.is_none() {
                let pause = listener.quiet_time(BACKLOG_PAUSE).await;
                self.newcomer = tokio::time::timeout(pause, accept(listener)).await.ok();
            }
            let is_room = tokio::time::timeout(BACKLOG_PAUSE, self.open.room()).await.is_ok();
            if self.newcomer.is_none() || !is_room {
                return;
            }
            self.let_in();
        }
    }

    fn let_in(&mut self) {
        if let Some((stream, peer)) = self.newcomer.take() {
            self.spawn(stream, peer);
        }
    }

    fn spawn(&mut self, stream: ClientStream, peer: PeerAddress) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let config = self.door.config();
        let progress = Arc::new(ConnectionProgress::default());
        let slot = self.open.enter(peer.address(), Arc::clone(&progress));
        let (open, of_connection, own) = (Arc::clone(&self.open), Arc::clone(&progress), slot.own(&progress));
        let io = PacedStream::new(stream, Arc::clone(&progress), config.header_read_timeout(), config.idle_timeout());
        let (router, door, over_tls) = (self.router.clone(), Arc::clone(&self.door), self.over_tls);
        let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            progress.asked();
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(own.clone());
            if over_tls {
                request.extensions_mut().insert(OverTls);
            }
            let request = request.map(Body::new);
            let watched = front::is_conversation(&request);
            let leaving = Arc::clone(&door);
            let answering = if routes::is_call(&request) && !door.config().probes_only {
                Either::Left(routes::call(Arc::clone(&door), request).map(Ok))
            } else {
                Either::Right(router.clone().call(request))
            };
            let (progress, open) = (Arc::clone(&progress), Arc::clone(&open));
            async move {
                if watched {
                    let until_idle = UntilIdle::new(&progress, open);
                    let answer = Box::pin(converse(answering, Arc::clone(&progress), until_idle)).await;
                    return answer.map(|answer| closing(answer, &leaving));
                }
                let answer = answering.await;
                if answer.as_ref().is_ok_and(|response| response.headers().contains_key(http::header::CONNECTION)) {
                    progress.linger();
                }
                let answering = UntilIdle::new(&progress, open);
                answer.map(|response| {
                    let response = closing(response, &leaving);
                    if is_stream(&response) { lasting(response, answering, pending()) } else { response }
                })
            }
        });
        let connection = self.http.serve_connection(TokioIo::new(io), service);
        let mut stopped = self.stopped.clone();
        self.connections.spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                // The sender never sends: this completes when it is dropped.
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                () = slot.make_room.cancelled() => make_room(connection, &of_connection).await,
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke off");
            }
            drop(slot);
        });
    }

    async fn all_gone_within(&mut self, patience: std::time::Duration) -> bool {
        let all_gone = async {
            while self.connections.join_next().await.is_some() {}
            self.door.orphans().wait().await;
        };
        tokio::time::timeout(patience, all_gone).await.is_ok()
    }

    async fn drain(mut self) -> DrainOutcome {
        let in_flight = self.door.calls_running();
        let in_time = self.all_gone_within(self.door.config().drain_timeout()).await;
        let aborted = if in_time { 0 } else { self.door.calls_running().min(in_flight) };
        if !in_time {
            self.door.kernel().drain_cancellation().cancel();
            self.all_gone_within(SETTLING_MAX).await;
        }
        self.door.orphans().give_up();
        self.connections.shutdown().await;
        self.door.orphans().wait().await;
        DrainOutcome { in_flight, finished: in_flight.saturating_sub(aborted), aborted }
    }
}

/// Ends a connection that is to make room, in good order if that takes no longer than it may.
async fn make_room<S>(
    mut connection: Pin<&mut http1::Connection<TokioIo<PacedStream>, S>>,
    progress: &ConnectionProgress,
) -> hyper::Result<()>
where
    S: Service<http::Request<hyper::body::Incoming>, Response = Response<Body>, Error = Infallible>,
{
    // Nothing of this connection runs meanwhile, so what is cut off here was not read to its end (CONN-2).
    if matches!(progress.pause(), Some(ConnectionPause::Reading(_))) {
        return Ok(());
    }
    connection.as_mut().graceful_shutdown();
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            // Headers and bodies that never end are not waited for; a request that came meanwhile is the last.
            () = tokio::time::sleep(MAKING_ROOM) => if progress.pause().is_some() {
                return Ok(());
            },
        }
    }
}

/// Answers a request whose client cancels it by going away: the answering is dropped then.
async fn converse(
    answering: impl Future<Output = Result<Response<Body>, Infallible>>,
    progress: Arc<ConnectionProgress>,
    until_the_end: UntilIdle,
) -> Result<Response<Body>, Infallible> {
    let watch = Arc::clone(&progress);
    // Boxed, because it goes on with the answer.
    let mut gone: BoxFuture<'static, ()> = Box::pin(async move { watch.gone().await });
    let answer = tokio::select! {
        answer = answering => answer?,
        // Nobody reads this.
        () = &mut gone => return Ok(Response::new(Body::empty())),
    };
    if answer.headers().contains_key(http::header::CONNECTION) {
        until_the_end.answering.0.linger();
    }
    Ok(if is_stream(&answer) { lasting(answer, until_the_end, gone) } else { answer })
}

/// The last answer on its connection, if the door is closing: whoever asks again connects anew, to somebody who stays.
fn closing(mut response: Response<Body>, door: &Door) -> Response<Body> {
    if door.is_draining() {
        response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    response
}

/// A stream keeps its connection busy until it ends, however long it is silent, or until its client has gone.
fn lasting(
    response: Response<Body>,
    answering: UntilIdle,
    gone: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    response.map(|body| {
        let pieces = body.into_data_stream().take_until(gone).map(move |piece| {
            let _until_the_end = &answering;
            piece
        });
        Body::from_stream(pieces)
    })
}

/// An answer under way. Dropped, its connection is idle, and whoever waits for room hears of it.
struct UntilIdle {
    // In this order: first the answer is done, then it is told.
    answering: AnswerGuard,
    _then: Tells,
}

struct Tells(Arc<ConnectionLimits>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.became_idle();
    }
}

impl UntilIdle {
    fn new(progress: &Arc<ConnectionProgress>, open: Arc<ConnectionLimits>) -> Self {
        Self { answering: AnswerGuard(Arc::clone(progress)), _then: Tells(open) }
    }
}

/// The next connection. Safe to drop at any time.
async fn accept(listener: &DoorListener) -> (ClientStream, PeerAddress) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, PeerAddress::of(address)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn http_of(door: &Door) -> http1::Builder {
    let header_bytes_max = door.config().header_bytes_max;
    let mut http = http1::Builder::new();
    // Time for headers and idleness is kept by `pace`; the number of headers by `routes`, because hyper's own limit
    // costs an allocation per request.
    http.header_read_timeout(None).max_header_size(header_bytes_max).max_buf_size(header_bytes_max.max(BUFFER_BYTES));
    // A client may say "that was all" by closing its side and still wants the answer.
    http.half_close(true);
    http
}
