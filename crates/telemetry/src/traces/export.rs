//! Sends traces to a collector: OTLP over HTTP, as protobuf.
//!
//! Invariants
//! - EXP-1: bounded in everything: calls of a batch, time of a request, attempts, pauses. What is not taken is counted and
//!   forgotten.
//! - EXP-2: no redirect is followed and no proxy of the environment is used; nothing the collector says is passed on.
//!
//! Not here: what a span looks like (`spans`), what is sent at all (`traces`).

use std::sync::Arc;
use std::time::Duration;

use base::backoff::GrowingPause;
use bytes::Bytes;
use outbound::ClientOptions;
use ports::clock::Clock;
use ports::observer::TracedCall;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::otlp::export_request;
use super::spans::SpanMaker;
use super::{TraceConfig, TraceCounts, TraceError, TraceRedaction};

/// Calls in one request.
const BATCH_MAX: usize = 512;
/// How often is looked whether enough calls have gathered before they are sent, and after how long each. Nothing is awaited but
/// time meanwhile: to be woken for every call would cost more than its trace.
const LOOKS_MAX: u32 = 25;
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that a call takes, about.
const CALL_BYTES: usize = 2_048;
/// How long a request may take.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Times a batch is sent.
const ATTEMPTS_MAX: u32 = 4;
/// The pause before it is sent again, and the longest: each is twice the one before, or what the collector asks for.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The place of traces at a collector (OTLP/HTTP).
const PATH: &str = "/v1/traces";

/// Sends what it is given.
#[derive(Debug)]
pub(super) struct Exporter {
    client: Client,
    endpoint: Url,
    authorization: Option<HeaderValue>,
    service: String,
    redaction: TraceRedaction,
    clock: Arc<dyn Clock>,
    counts: TraceCounts,
}

/// What became of one attempt.
enum Sent {
    Taken,
    /// It may be taken later.
    Again(Option<Duration>),
    Refused,
}

impl Exporter {
    pub(super) fn new(
        config: &TraceConfig,
        redaction: TraceRedaction,
        clock: Arc<dyn Clock>,
        counts: TraceCounts,
    ) -> Result<Self, TraceError> {
        let wrong = || TraceError::Endpoint(config.endpoint.chars().filter(|c| !c.is_control()).take(200).collect());
        let mut endpoint = Url::parse(&config.endpoint).map_err(|_| wrong())?;
        if !matches!(endpoint.scheme(), "http" | "https") || !endpoint.has_host() {
            return Err(wrong());
        }
        if matches!(endpoint.path(), "" | "/") {
            endpoint.set_path(PATH);
        }
        let header = |text: &str| {
            let mut value = HeaderValue::from_str(text).map_err(|_| TraceError::Authorization)?;
            value.set_sensitive(true);
            Ok(value)
        };
        let authorization = config.authorization.as_deref().map(header).transpose()?;
        let options = ClientOptions { total: Some(REQUEST_TIME), idle_per_host: 1, ..ClientOptions::default() };
        let client = outbound::operators_client(options).map_err(TraceError::Client)?;
        let service = config.service.clone();
        Ok(Self { client, endpoint, authorization, service, redaction, clock, counts })
    }

    /// Sends whatever comes, until it is told to stop; then what is left, once.
    pub(super) async fn run(self, mut waiting: mpsc::Receiver<Box<TracedCall>>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let taken = tokio::select! {
                biased;
                taken = waiting.recv_many(&mut batch, BATCH_MAX) => taken,
                () = stop.cancelled() => 0,
            };
            if taken == 0 {
                return;
            }
            self.gather(&waiting, batch.len(), &stop).await;
            while batch.len() < BATCH_MAX
                && let Ok(trace) = waiting.try_recv()
            {
                batch.push(trace);
            }
            self.deliver(&batch, &stop).await;
            batch.clear();
        }
    }

    /// Lets a batch grow for a moment.
    async fn gather(&self, waiting: &mpsc::Receiver<Box<TracedCall>>, taken: usize, stop: &CancellationToken) {
        for _ in 0..LOOKS_MAX {
            if taken + waiting.len() >= BATCH_MAX {
                return;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(LOOK) => {}
            }
        }
    }

    /// EXP-1.
    async fn deliver(&self, batch: &[Box<TracedCall>], stop: &CancellationToken) {
        let body = Bytes::from(self.request(batch));
        let mut pause = GrowingPause::doubling(PAUSE, PAUSE_MAX);
        for attempt in 1..=ATTEMPTS_MAX {
            match self.send(body.clone()).await {
                Sent::Taken => return self.counts.add("sent", batch.len()),
                Sent::Again(asked) if attempt < ATTEMPTS_MAX && !stop.is_cancelled() => {
                    let usual = pause.next_pause();
                    let wait = asked.unwrap_or(usual).min(PAUSE_MAX);
                    tokio::select! {
                        () = self.clock.sleep(wait) => {}
                        () = stop.cancelled() => {}
                    }
                }
                Sent::Again(_) | Sent::Refused => break,
            }
        }
        tracing::warn!(calls = batch.len(), "the collector did not take traces; they are dropped");
        self.counts.add("not_taken", batch.len());
    }

    fn request(&self, batch: &[Box<TracedCall>]) -> Vec<u8> {
        let version = env!("CARGO_PKG_VERSION");
        let resource = [("service.name", self.service.as_str()), ("service.version", version)];
        let mut maker = SpanMaker::new(&self.redaction);
        export_request(&resource, ("gantry", version), batch.len() * CALL_BYTES, |to| {
            for trace in batch {
                maker.write(trace, to);
            }
        })
    }

    async fn send(&self, body: Bytes) -> Sent {
        let mut request = self.client.post(self.endpoint.clone()).body(body);
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        match request.send().await {
            Ok(response) => judged(&response),
            Err(error) => {
                tracing::debug!(connecting = error.is_connect(), timeout = error.is_timeout(), "no collector");
                Sent::Again(None)
            }
        }
    }
}

/// By the protocol, these statuses may be tried again and all others may not.
fn judged(response: &Response) -> Sent {
    let status = response.status();
    if status.is_success() {
        return Sent::Taken;
    }
    tracing::debug!(status = status.as_u16(), "a collector refused traces");
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Sent::Again(asked.map(Duration::from_secs))
        }
        _ => Sent::Refused,
    }
}
