//! A server elsewhere that speaks the HTTP+SSE of revision 2024-11-05: one stream comes, messages go by POST to an address the
//! stream names first.
//!
//! Invariants
//! - LSSE-1: the address is of the same scheme, host and port as the stream, so that no server can send our messages, and the
//!   credentials in them, elsewhere.
//! - LSSE-2: the end of the stream is the end of the connection: there is no way to take it up again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue};
use reqwest::{Method, Response};
use rmcp::transport::common::http_header::{EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::outbound::{failed, is_of_type, judged};
use super::router::{MessageRouter, RequestTransmission};
use super::streamable::{RemoteServer, rejection};
use super::{MESSAGE_BYTES_MAX, OutgoingRequest, ServerChannel, StopGrace, within};
use crate::fault::UpstreamFault;
use crate::sse_events::{SseEvent, SseEvents};

/// How long a cancellation may take.
const COURTESY: Duration = Duration::from_secs(2);
/// Longest address a stream may name.
const ENDPOINT_BYTES_MAX: usize = 8 << 10;

/// The channel.
#[derive(Debug)]
pub(crate) struct LegacySse {
    remote: RemoteServer,
    endpoint: Url,
    closed: CancellationToken,
    _closed_on_drop: DropGuard,
}

impl LegacySse {
    /// Opens the stream and waits for the address; whoever calls bounds that wait.
    pub(crate) async fn open(remote: RemoteServer, router: &Arc<MessageRouter>) -> Result<Self, UpstreamFault> {
        let request =
            || remote.http.request(Method::GET, &remote.url).header(http::header::ACCEPT, EVENT_STREAM_MIME_TYPE);
        let mut response = remote.send(request).await?;
        if let Some(fault) = judged(&response, false) {
            return Err(fault);
        }
        if !is_of_type(&response, EVENT_STREAM_MIME_TYPE) {
            return Err(UpstreamFault::Nonsense("stream of events"));
        }
        let mut events = SseEvents::new(MESSAGE_BYTES_MAX);
        let (endpoint, early) = loop {
            let chunk = response.chunk().await.map_err(|error| failed(&error))?;
            let chunk = chunk.ok_or(UpstreamFault::NotSent("the stream ended before it began"))?;
            let mut found = events.push(&chunk).map_err(|_| UpstreamFault::Nonsense("stream of events"))?.into_iter();
            if let Some(event) = found.by_ref().find(|event| event.kind == "endpoint") {
                break (endpoint(&remote.url, &event.data)?, found.collect::<Vec<_>>());
            }
        };
        let closed = CancellationToken::new();
        let reading = read(response, events, early, Arc::clone(router));
        let (until, router) = (closed.clone(), Arc::clone(router));
        tokio::spawn(async move {
            tokio::select! {
                () = until.cancelled() => {}
                () = reading => {}
            }
            router.end("the stream of the server ended");
        });
        let closed_on_drop = closed.clone().drop_guard();
        Ok(Self { remote, endpoint, closed, _closed_on_drop: closed_on_drop })
    }
}

/// LSSE-1.
fn endpoint(stream: &Url, named: &str) -> Result<Url, UpstreamFault> {
    let unusable = UpstreamFault::Nonsense("address of its own");
    if named.len() > ENDPOINT_BYTES_MAX {
        return Err(unusable);
    }
    let endpoint = stream.join(named.trim()).map_err(|_| unusable.clone())?;
    if endpoint.origin() == stream.origin() { Ok(endpoint) } else { Err(unusable) }
}

async fn read(mut response: Response, mut events: SseEvents, early: Vec<SseEvent>, router: Arc<MessageRouter>) {
    let hear = |found: Vec<SseEvent>| {
        let messages = found.into_iter().filter(|event| !event.data.is_empty() && event.kind != "endpoint");
        messages.for_each(|event| router.received(event.data.as_bytes(), None));
    };
    hear(early);
    while let Ok(Some(chunk)) = response.chunk().await {
        match events.push(&chunk) {
            Ok(found) => hear(found),
            Err(_) => return router.end("a message of the server was too long"),
        }
    }
}

async fn post(
    remote: &RemoteServer,
    endpoint: &Url,
    body: Vec<u8>,
    transmission: &RequestTransmission,
) -> Result<Response, UpstreamFault> {
    let json = HeaderValue::from_static(JSON_MIME_TYPE);
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, json)]);
    remote.post_noting(endpoint, &body.into(), &headers, transmission).await
}

#[async_trait]
impl ServerChannel for LegacySse {
    async fn exchange(&self, router: &MessageRouter, request: OutgoingRequest<'_>) -> Result<Value, UpstreamFault> {
        let (mut answer, _) = router.wait_for(request.id)?;
        let bytes = request.bytes();
        let transmission = router.transmission(request.id, bytes.len());
        let posting = post(&self.remote, &self.endpoint, bytes, &transmission);
        tokio::pin!(posting);
        let outcome = tokio::select! {
            // Some servers answer on the stream before they let the POST go.
            biased;
            outcome = &mut answer => return outcome.unwrap_or(Err(UpstreamFault::Lost("the connection was closed"))),
            outcome = &mut posting => outcome,
        };
        match outcome {
            Ok(response) => {
                if let Some(fault) = judged(&response, true) {
                    return Err(rejection(fault, response, request.id, router).await);
                }
            }
            Err(fault) => {
                if let UpstreamFault::NotSent(why) = fault {
                    router.end(why);
                }
                return Err(fault);
            }
        }
        answer.await.unwrap_or(Err(UpstreamFault::Lost("the connection was closed")))
    }

    async fn tell(&self, message: Vec<u8>) -> Result<(), UpstreamFault> {
        let response = post(&self.remote, &self.endpoint, message, &RequestTransmission::default()).await?;
        judged(&response, true).map_or(Ok(()), Err)
    }

    fn cancelled(&self, message: Vec<u8>) {
        let (remote, endpoint) = (self.remote.clone(), self.endpoint.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let clock = Arc::clone(&remote.clock);
                // A courtesy: nobody waits for the call any more, nor for whether this was heard.
                let _ =
                    within(&*clock, COURTESY, post(&remote, &endpoint, message, &RequestTransmission::default())).await;
            });
        }
    }

    async fn close(&self, _: StopGrace) {
        self.closed.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_nowhere_but_to_the_host_of_the_stream() {
        let stream = Url::parse("https://a.example/sse").unwrap();
        for (named, good) in [
            ("/messages?session=1", true),
            ("messages", true),
            ("https://a.example/x", true),
            ("https://b.example/x", false),
            ("//b.example/x", false),
            ("http://a.example/x", false),
            ("https://a.example:8443/x", false),
        ] {
            assert_eq!(endpoint(&stream, named).is_ok(), good, "{named}");
        }
    }
}
