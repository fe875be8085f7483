//! Traces: which calls are recorded, and the queue to whoever sends them to a collector. (OBS-001…003)
//!
//! Invariants
//! - TRA-1: a call never waits for its trace. A full queue drops the trace and counts it; audit records are another matter.
//! - TRA-2: a trace is recorded as a whole or not at all, and what is handed on says which.
//! - TRA-3: what leaves has been through the redaction, and never holds parameters or results.
//!
//! Not here: when phases begin and end (`kernel::call_trace`).

mod export;
mod otlp;
mod sampler;
mod spans;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::trace_context::TraceContext;
use ports::clock::Clock;
use ports::observer::TracedCall;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use export::Exporter;
pub use sampler::{SampleRatio, SampleRatioError};

/// Calls that wait to be sent. A collector that is slow for some seconds costs nothing.
const QUEUE_MAX: usize = 8_192;
/// How long the last traces may take when the server ends.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// Where traces go, and how many.
#[derive(Debug, Clone)]
pub struct TraceConfig {
    /// The collector, for example `http://127.0.0.1:4318`; without a path, `/v1/traces` is meant.
    pub endpoint: String,
    /// Of the traces that begin here, so many are recorded; those of others as they say.
    pub ratio: SampleRatio,
    /// The `authorization` header for the collector.
    pub authorization: Option<String>,
    /// What this server calls itself.
    pub service: String,
}

/// What is left of a text.
type Redact = dyn for<'a> Fn(&'a str) -> Cow<'a, str> + Send + Sync;

/// Takes out of a text what must not leave.
#[derive(Clone)]
pub struct TraceRedaction(Arc<Redact>);

impl TraceRedaction {
    /// By this function.
    pub fn new(redact: impl for<'a> Fn(&'a str) -> Cow<'a, str> + Send + Sync + 'static) -> Self {
        Self(Arc::new(redact))
    }

    pub(crate) fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        (self.0)(text)
    }
}

impl fmt::Debug for TraceRedaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redaction(…)")
    }
}

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("`{0}` is not an address of a collector: use for example `http://127.0.0.1:4318`")]
    Endpoint(String),
    #[error("the authorization for the collector is not a header")]
    Authorization,
    #[error("the HTTP client cannot be built")]
    Client(#[source] outbound::BuildError),
}

/// Calls whose trace was sent, or was not.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceCounts(Family<OutcomeLabel, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutcomeLabel {
    /// `sent`, `queue_full` or `not_taken` by the collector.
    outcome: &'static str,
}

impl TraceCounts {
    pub(crate) fn family(&self) -> Family<OutcomeLabel, Counter> {
        self.0.clone()
    }

    pub(crate) fn add(&self, outcome: &'static str, calls: usize) {
        self.0.get_or_create(&OutcomeLabel { outcome }).inc_by(u64::saturating_from(calls));
    }
}

/// Decides which traces are recorded, and takes them.
#[derive(Debug)]
pub(crate) struct Tracer {
    ratio: SampleRatio,
    queue: mpsc::Sender<Box<TracedCall>>,
    counts: TraceCounts,
}

/// Ends the sending.
#[derive(Debug)]
pub struct TracerHandle {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Tracer {
    pub(crate) fn start(
        config: &TraceConfig,
        redaction: TraceRedaction,
        clock: Arc<dyn Clock>,
        counts: TraceCounts,
    ) -> Result<(Self, TracerHandle), TraceError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let stop = CancellationToken::new();
        let exporter = Exporter::new(config, redaction, clock, counts.clone())?;
        let task = tokio::spawn(exporter.run(waiting, stop.clone()));
        Ok((Self { ratio: config.ratio, queue, counts }, TracerHandle { stop, task }))
    }

    /// As the caller says if it says something; otherwise by the ratio (TRA-2).
    pub(crate) fn records(&self, context: &TraceContext) -> bool {
        if context.parent.is_some() { context.is_sampled() } else { self.ratio.takes(context.trace_id) }
    }

    /// TRA-1.
    pub(crate) fn take(&self, trace: Box<TracedCall>) {
        if self.queue.try_send(trace).is_err() {
            self.counts.add("queue_full", 1);
        }
    }
}

impl TracerHandle {
    /// Sends what waits, if that is quick, and ends.
    pub async fn close(self) {
        self.stop.cancel();
        let abort = self.task.abort_handle();
        if tokio::time::timeout(CLOSING_TIME, self.task).await.is_err() {
            abort.abort();
            tracing::warn!("the last traces were not sent in time");
        }
    }
}
