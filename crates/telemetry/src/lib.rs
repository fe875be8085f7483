//! What can be seen from outside: counters for Prometheus and a log.

mod logging;
mod metrics;

pub use logging::{LogFormat, LoggingError, init_logging};
pub use metrics::Metrics;
