//! A server elsewhere that speaks Streamable HTTP (2025-03-26 and later).
//!
//! Each request is a POST with a line of its own: its answer, and whatever the server says while it works, come back on it.
//! So the whole exchange lives in the future of the request, and dropping that closes the line, which is how revision
//! 2026-07-28 cancels; older servers are told besides.
//!
//! Invariants
//! - HTTP-1: a request is sent once. A stream that breaks off is taken up again by GET from the last event, never by another
//!   POST, because that would be a second call.
//! - HTTP-2: a session the server has forgotten (404) ends the connection; the request that met it was not executed.
//! - HTTP-3: a token that is turned away (401) is replaced once for each request.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ::outbound::OriginClient;
use async_trait::async_trait;
use base::MutexExt as _;
use base::backoff::GrowingPause;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use ports::clock::Clock;
use ports::executor::ExecutorError;
use reqwest::{Method, RequestBuilder, Response};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_MCP_PROTOCOL_VERSION, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::outbound::{self, failed, is_of_type, judged};
use super::router::{MessageRouter, RequestTransmission};
use super::{MESSAGE_BYTES_MAX, MetServer, OutgoingRequest, ProtocolEra, ServerChannel, StopGrace, within};
use crate::fault::UpstreamFault;
use crate::headers;
use crate::oauth::TokenKeeper;
use crate::sse_events::{SseEvent, SseEvents};
use crate::wire::{self, CallId, IncomingMessage};

/// Times a broken stream is taken up again for one request.
const RESUMES_MAX: u32 = 5;
/// The pause before that, if the server names none, and the longest it may name.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause before the stream of notifications is opened again.
const LISTEN_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a cancellation or a farewell may take.
const COURTESY: Duration = Duration::from_secs(2);
/// Longest session id.
const SESSION_CHARS_MAX: usize = 1_024;

/// How a server elsewhere is reached and what it is shown.
#[derive(Debug, Clone)]
pub(crate) struct RemoteServer {
    pub(crate) http: OriginClient,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) tokens: Option<Arc<TokenKeeper>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl RemoteServer {
    /// Sends a request with everything the server wants to see, and once more with a new token if the first is turned away.
    pub(crate) async fn send(&self, build: impl Fn() -> RequestBuilder) -> Result<Response, UpstreamFault> {
        self.authorized(|credentials| build().headers(credentials).send(), || {}).await
    }

    /// Posts a body; `transmission` hears when a connection is there and the first byte is about to be written, whatever has
    /// to be asked of others before, and when what was sent was turned away.
    pub(crate) async fn post_noting(
        &self,
        url: &Url,
        body: &Bytes,
        headers: &HeaderMap,
        transmission: &RequestTransmission,
    ) -> Result<Response, UpstreamFault> {
        let send = |credentials: HeaderMap| {
            let build = move |request: RequestBuilder| request.headers(headers.clone()).headers(credentials.clone());
            let noted = transmission.clone();
            self.http.post_noting(url, body, build, move || noted.leaves())
        };
        self.authorized(send, || transmission.turned_away()).await
    }

    /// Sends a request with these headers, and once more with a new token if the first is turned away, which is told before
    /// the new token is asked for.
    async fn authorized<F>(
        &self,
        send: impl Fn(HeaderMap) -> F,
        turned_away: impl Fn(),
    ) -> Result<Response, UpstreamFault>
    where
        F: Future<Output = Result<Response, reqwest::Error>>,
    {
        let Some(tokens) = &self.tokens else {
            return send(self.headers.clone()).await.map_err(|error| failed(&error));
        };
        let mut token = tokens.header(None).await?;
        let mut again = true;
        loop {
            let mut credentials = self.headers.clone();
            credentials.insert(http::header::AUTHORIZATION, token.clone());
            let response = send(credentials).await.map_err(|error| failed(&error))?;
            // HTTP-3.
            if response.status() != http::StatusCode::UNAUTHORIZED || !std::mem::take(&mut again) {
                return Ok(response);
            }
            // The place that gives tokens may take its time, and a call that is ended meanwhile has not been executed.
            turned_away();
            token = tokens.header(Some(&token)).await.map_err(ExecutorError::refused)?;
        }
    }
}

/// The channel.
#[derive(Debug)]
pub(crate) struct StreamableChannel {
    shared: Arc<Shared>,
    _closed_on_drop: DropGuard,
}

#[derive(Debug)]
struct Shared {
    remote: RemoteServer,
    session: Mutex<Option<HeaderValue>>,
    /// What both speak, once it is known.
    version: OnceLock<(ProtocolEra, HeaderValue)>,
    closed: CancellationToken,
}

impl StreamableChannel {
    pub(crate) fn new(remote: RemoteServer) -> Self {
        let closed = CancellationToken::new();
        let closed_on_drop = closed.clone().drop_guard();
        let shared = Shared { remote, session: Mutex::default(), version: OnceLock::new(), closed };
        Self { shared: Arc::new(shared), _closed_on_drop: closed_on_drop }
    }
}

impl Shared {
    fn session(&self) -> Option<HeaderValue> {
        self.session.lock_unpoisoned().clone()
    }

    /// A request with the headers of the protocol.
    fn request(&self, method: Method) -> RequestBuilder {
        self.remote.http.request(method, &self.remote.url).headers(self.protocol_headers())
    }

    fn protocol_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some((_, version)) = self.version.get() {
            headers.insert(HEADER_MCP_PROTOCOL_VERSION, version.clone());
        }
        if let Some(session) = self.session() {
            headers.insert(HEADER_SESSION_ID, session);
        }
        headers
    }

    /// Posts a message with the headers of the protocol and these.
    async fn post(
        &self,
        body: Vec<u8>,
        standard: HeaderMap,
        transmission: &RequestTransmission,
    ) -> Result<Response, UpstreamFault> {
        let mut headers = self.protocol_headers();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(JSON_MIME_TYPE));
        headers.insert(http::header::ACCEPT, concat_accept());
        headers.extend(standard);
        self.remote.post_noting(&self.remote.url, &body.into(), &headers, transmission).await
    }

    /// Sends what wants no answer.
    async fn tell(&self, body: Vec<u8>) -> Result<(), UpstreamFault> {
        let has_session = self.session().is_some();
        let standard =
            wire::read(&body).ok().and_then(|all| all.into_iter().next()).and_then(|message| match message {
                IncomingMessage::Notification { method, params } if self.is_modern() => {
                    Some(headers::standard(&method, &params, None))
                }
                _ => None,
            });
        let standard = standard.unwrap_or_default();
        let response = self.post(body, standard, &RequestTransmission::default()).await?;
        judged(&response, has_session).map_or(Ok(()), Err)
    }

    fn is_modern(&self) -> bool {
        self.version.get().is_some_and(|(era, _)| *era == ProtocolEra::Modern)
    }

    /// Reads a stream until the answer to `id` is there; whatever else comes goes to the router.
    async fn read_stream(
        &self,
        mut response: Response,
        id: CallId,
        router: &MessageRouter,
    ) -> Result<Value, UpstreamFault> {
        let mut taken_up = 0;
        let mut last: Option<String> = None;
        let mut pause = RESUME_PAUSE;
        loop {
            let mut events = SseEvents::new(MESSAGE_BYTES_MAX);
            while let Ok(Some(chunk)) = response.chunk().await {
                router.count_received(id, chunk.len());
                let found = events.push(&chunk).map_err(|_| UpstreamFault::TooLarge)?;
                for SseEvent { data, id: event, retry_ms, .. } in found {
                    last = event.or(last);
                    pause = retry_ms.map_or(pause, |ms| Duration::from_millis(ms).min(RESUME_PAUSE_MAX));
                    if data.is_empty() {
                        continue;
                    }
                    if let Some(outcome) = answer_in(data.as_bytes(), id, router) {
                        return outcome;
                    }
                }
            }
            // HTTP-1.
            let Some(event) = last.as_deref().and_then(|event| HeaderValue::from_str(event).ok()) else {
                return Err(UpstreamFault::Lost("the stream of the answer broke off"));
            };
            taken_up += 1;
            if taken_up > RESUMES_MAX {
                return Err(UpstreamFault::Lost("the stream of the answer broke off too often"));
            }
            self.remote.clock.sleep(pause).await;
            response =
                self.remote.send(|| self.listening().header(HEADER_LAST_EVENT_ID, event.clone())).await.map_err(
                    |_| UpstreamFault::Lost("the stream of the answer broke off and could not be taken up again"),
                )?;
            if !response.status().is_success() || !is_of_type(&response, EVENT_STREAM_MIME_TYPE) {
                return Err(UpstreamFault::Lost("the stream of the answer broke off and could not be taken up again"));
            }
            router.taken_up();
        }
    }

    fn listening(&self) -> RequestBuilder {
        self.request(Method::GET).header(http::header::ACCEPT, EVENT_STREAM_MIME_TYPE)
    }

    /// The stream on which an old server says what belongs to no request. Not every server has one.
    async fn listen(&self, router: &MessageRouter) {
        let mut pause = GrowingPause::doubling(RESUME_PAUSE, LISTEN_PAUSE_MAX);
        let mut last: Option<HeaderValue> = None;
        loop {
            let sent = self.remote.send(|| match last.clone() {
                Some(event) => self.listening().header(HEADER_LAST_EVENT_ID, event),
                None => self.listening(),
            });
            match sent.await {
                Ok(response) => match judged(&response, true) {
                    None if is_of_type(&response, EVENT_STREAM_MIME_TYPE) => {
                        pause.reset();
                        self.hear(response, router, &mut last, &mut pause).await;
                    }
                    // HTTP-2.
                    Some(UpstreamFault::NotSent(why)) => return router.end(why),
                    // It has none (405), or none for us.
                    None | Some(UpstreamFault::Status(400..=499) | UpstreamFault::Denied(_)) => return,
                    Some(_) => {}
                },
                Err(fault) => tracing::debug!(%fault, "the stream of notifications cannot be opened"),
            }
            self.remote.clock.sleep(pause.next_pause()).await;
        }
    }

    async fn hear(
        &self,
        mut response: Response,
        router: &MessageRouter,
        last: &mut Option<HeaderValue>,
        pause: &mut GrowingPause,
    ) {
        let mut events = SseEvents::new(MESSAGE_BYTES_MAX);
        while let Ok(Some(chunk)) = response.chunk().await {
            let Ok(found) = events.push(&chunk) else { return };
            for event in found {
                if let Some(id) = event.id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
                    *last = Some(id);
                }
                if let Some(ms) = event.retry_ms {
                    pause.asked(Duration::from_millis(ms));
                }
                if !event.data.is_empty() {
                    router.received(event.data.as_bytes(), None);
                }
            }
        }
    }
}

/// Both kinds of answers are understood.
fn concat_accept() -> HeaderValue {
    HeaderValue::from_static("application/json, text/event-stream")
}

/// Why a request has no result whose answer has this status: a refusal may come with its reason, and the reason may say that
/// the work had begun.
pub(super) async fn rejection(
    fault: UpstreamFault,
    response: Response,
    id: CallId,
    router: &MessageRouter,
) -> UpstreamFault {
    // Whatever is said besides, the connection is of no more use (HTTP-2).
    if let UpstreamFault::NotSent(why) = fault {
        router.end(why);
    }
    if !matches!(fault, UpstreamFault::Status(_) | UpstreamFault::NotSent(_)) || !is_of_type(&response, JSON_MIME_TYPE)
    {
        return fault;
    }
    let status = response.status().as_u16();
    // A reason that breaks off, or is none, changes nothing about the status that came before it.
    let body = outbound::body(response).await.unwrap_or_default();
    router.count_received(id, body.len());
    match answer_in(&body, id, router) {
        None => fault,
        Some(Err(UpstreamFault::Refused { error, .. })) => fault.with_reason(status, error),
        Some(Err(other)) => other,
        // It has done the work, and calls that a failure.
        Some(Ok(_)) => UpstreamFault::Nonsense("answer to the request"),
    }
}

/// The answer to `id`, if it is in this text; whatever else is there goes to the router.
fn answer_in(text: &[u8], id: CallId, router: &MessageRouter) -> Option<Result<Value, UpstreamFault>> {
    let Ok(messages) = wire::read(text) else {
        router.received(text, Some(id));
        return None;
    };
    let mut found = None;
    for message in messages {
        match message {
            // A server that could not read the id leaves it out; on this line there is only one request.
            IncomingMessage::Answer { id: answered, outcome }
                if answered == Some(id) || (answered.is_none() && outcome.is_err()) =>
            {
                found.get_or_insert_with(|| outcome.map_err(UpstreamFault::from));
            }
            other => router.take(other, Some(id)),
        }
    }
    found
}

#[async_trait]
impl ServerChannel for StreamableChannel {
    async fn exchange(&self, router: &MessageRouter, request: OutgoingRequest<'_>) -> Result<Value, UpstreamFault> {
        let shared = &self.shared;
        let has_session = shared.session().is_some();
        let mut standard = HeaderMap::new();
        if shared.is_modern() || request.method == "server/discover" {
            standard = headers::standard(request.method, request.params, request.schema);
            if shared.version.get().is_none() {
                let version = HeaderValue::from_static("2026-07-28");
                standard.insert("mcp-protocol-version", version);
            }
        }
        headers::trace(request.params, &mut standard);
        let body = request.bytes();
        let transmission = router.transmission(request.id, body.len());
        let response = shared.post(body, standard, &transmission).await?;
        if let Some(fault) = judged(&response, has_session) {
            return Err(rejection(fault, response, request.id, router).await);
        }
        if request.method == "initialize"
            && let Some(session) = response.headers().get(HEADER_SESSION_ID)
            && session.len() <= SESSION_CHARS_MAX
        {
            *shared.session.lock_unpoisoned() = Some(session.clone());
        }
        if is_of_type(&response, EVENT_STREAM_MIME_TYPE) {
            return shared.read_stream(response, request.id, router).await;
        }
        if !is_of_type(&response, JSON_MIME_TYPE) {
            return Err(UpstreamFault::Nonsense("answer of the protocol"));
        }
        let body = outbound::body(response).await?;
        router.count_received(request.id, body.len());
        answer_in(&body, request.id, router).unwrap_or(Err(UpstreamFault::Nonsense("answer to the request")))
    }

    async fn tell(&self, message: Vec<u8>) -> Result<(), UpstreamFault> {
        self.shared.tell(message).await
    }

    fn cancelled(&self, message: Vec<u8>) {
        // Closing the line was the cancellation.
        if self.shared.is_modern() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let clock = Arc::clone(&shared.remote.clock);
                // A courtesy: nobody waits for the call any more, nor for whether this was heard.
                let _ = within(&*clock, COURTESY, shared.tell(message)).await;
            });
        }
    }

    fn agreed(&self, met: &MetServer) {
        if let Ok(version) = HeaderValue::from_str(&met.version) {
            // A connection is met once; a second word about it changes nothing.
            let _ = self.shared.version.set((met.era, version));
        }
    }

    fn listen(&self, router: &Arc<MessageRouter>) {
        if self.shared.is_modern() {
            return;
        }
        let (shared, router) = (Arc::clone(&self.shared), Arc::clone(router));
        tokio::spawn(async move {
            tokio::select! {
                () = shared.closed.cancelled() => {}
                () = shared.listen(&router) => {}
                () = router.ended() => {}
            }
        });
    }

    async fn close(&self, _: StopGrace) {
        self.shared.closed.cancel();
        if self.shared.session().is_some() {
            let farewell = self.shared.remote.send(|| self.shared.request(Method::DELETE));
            // A server that does not listen lets the session grow old by itself.
            let _ = within(&*self.shared.remote.clock, COURTESY, farewell).await;
        }
    }
}
