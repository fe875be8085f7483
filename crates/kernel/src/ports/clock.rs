//! Time. The kernel never asks the machine for it, so tests can hold it still and step it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Milliseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// This instant plus a span; saturates at the end of time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The span from `earlier` to this instant; zero if it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for UnixMillis {
    /// RFC 3339 in UTC with milliseconds, the one form of time on the wire and in records (STORE-014).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stamp = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "{stamp:.3}")
    }
}

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, for records and expiry. May jump.
    fn now(&self) -> UnixMillis;

    /// Time since some fixed instant, for measuring spans. Never goes back.
    fn monotonic(&self) -> Duration;

    /// Completes once `span` has passed on the monotonic clock.
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>>;
}
