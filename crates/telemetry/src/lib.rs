//! What can be seen from outside: counters for Prometheus, traces for a collector, and a log.

mod archive;
mod instruments;
mod log;
mod metrics;
mod sinks;
mod store;
mod tls;
mod traces;
mod upstreams;

pub use archive::ArchiveMetrics;
pub use log::{LogControl, LogFormat, LoggingError, check_log_level, init_logging};
pub use metrics::{Metrics, MetricsFormat};
pub use sinks::SinkMetrics;
pub use store::StoreMetrics;
pub use tls::TlsMetrics;
pub use traces::{SampleRatio, SampleRatioError, TraceConfig, TraceError, TraceRedaction, TracerHandle};
pub use upstreams::UpstreamMetrics;
