//! A clock that only moves when it is told to, so that leases and delays can be tested without waiting.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kernel::ports::clock::{Clock, UnixMillis};

/// Where it starts.
const NOON: i64 = 1_790_000_000_000;

/// The clock.
#[derive(Debug)]
pub struct HandClock(AtomicI64);

impl HandClock {
    /// At some noon.
    pub fn at_noon() -> Self {
        Self(AtomicI64::new(NOON))
    }

    /// Lets time pass.
    pub fn pass(&self, span: Duration) {
        self.0.fetch_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap_or(0))
    }

    /// Stores do not wait by this clock.
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}
