//! The handler over Streamable HTTP, as little of it as its users need: the suites when they look at the fixture itself,
//! and the bench, which wants a server that costs nothing.
//!
//! An answer that comes first is sent as JSON; when something comes before it, everything is sent as events.
//!
//! Not here: header checks, resumption, the stream of GET. Those are the gateway's to do, and it is the one under test.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Waker, Poll};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::wire::{FixtureHandler, FixtureRequest, OUTGOING_MAX, OpenQuestions, ReplyLine, RequestEra, WireMessage};

/// Every session is this one: the fixture remembers nothing of anybody.
const SESSION: &str = "fixture";

/// What is sent back.
pub(crate) enum FixtureAnswer {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Value>, Option<Value>),
}

/// Serves until the task is dropped.
pub async fn serve(listener: TcpListener, handler: Arc<dyn FixtureHandler>) -> Result<()> {
    let questions = Arc::new(OpenQuestions::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (handler, questions) = (Arc::clone(&handler), Arc::clone(&questions));
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let (handler, questions) = (Arc::clone(&handler), Arc::clone(&questions));
                async move { Ok::<_, Infallible>(answer(request, handler, questions).await) }
            });
            // A client that goes away ends its own connection.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Listens on a free port of loopback.
pub async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn answer(
    request: hyper::Request<Incoming>,
    handler: Arc<dyn FixtureHandler>,
    questions: Arc<OpenQuestions>,
) -> Response<FixtureAnswer> {
    if request.method() != Method::POST {
        return empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let Ok(body) = request.into_body().collect().await else { return empty(StatusCode::BAD_REQUEST) };
    match WireMessage::read(&body.to_bytes()) {
        None => empty(StatusCode::BAD_REQUEST),
        Some(WireMessage::Notification { .. }) => empty(StatusCode::ACCEPTED),
        Some(WireMessage::Response { id, outcome }) => {
            questions.answer(&id, outcome);
            empty(StatusCode::ACCEPTED)
        }
        Some(WireMessage::Request(request)) => handled(request, handler, questions).await,
    }
}

async fn handled(
    request: FixtureRequest,
    handler: Arc<dyn FixtureHandler>,
    questions: Arc<OpenQuestions>,
) -> Response<FixtureAnswer> {
    let (out, mut messages) = mpsc::channel(OUTGOING_MAX);
    let (era, is_handshake) = (request.era(), request.method == "initialize");
    let line = ReplyLine::new(out, questions);
    tokio::spawn(async move {
        let outcome = handler.handle(&request, &line).await;
        line.send(request.answered(outcome)).await;
    });
    let first = messages.recv().await;
    let is_answer = first.as_ref().is_some_and(|message| message.get("method").is_none());
    let mut response = if is_answer {
        let message = first.unwrap_or_default();
        let code = message.get("error").and_then(|error| error.get("code")).and_then(Value::as_i64);
        let mut response = Response::new(FixtureAnswer::Whole(Some(Bytes::from(message.to_string()))));
        *response.status_mut() = match (era, code) {
            (RequestEra::New, Some(-32601)) => StatusCode::NOT_FOUND,
            (RequestEra::New, Some(-32602 | -32021)) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    } else {
        let mut response = Response::new(FixtureAnswer::Events(messages, first));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    };
    if is_handshake {
        response.headers_mut().insert("mcp-session-id", HeaderValue::from_static(SESSION));
    }
    response
}

fn empty(status: StatusCode) -> Response<FixtureAnswer> {
    let mut response = Response::new(FixtureAnswer::Whole(None));
    *response.status_mut() = status;
    response
}

impl Body for FixtureAnswer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, waker: &mut Waker<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = |message: Value| Ok(Frame::data(Bytes::from(format!("data: {message}\n\n"))));
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(messages, first) => match first.take() {
                Some(message) => Poll::Ready(Some(event(message))),
                None => messages.poll_recv(waker).map(|message| message.map(event)),
            },
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Events(..) => hyper::body::SizeHint::default(),
        }
    }
}
