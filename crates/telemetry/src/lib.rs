//! What can be seen from outside: counters for Prometheus and a log.

mod logging;
mod metrics;
mod sinks;
mod upstreams;

pub use logging::{LogFormat, LoggingError, init_logging};
pub use metrics::Metrics;
pub use sinks::SinkMetrics;
pub use upstreams::UpstreamMetrics;
