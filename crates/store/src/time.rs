//! The store's own time, by which leases and windows are measured (IDEM-015, LEDGER-4).
//!
//! Read once from the wall when the store is opened and carried on by the monotonic clock from there, so that a wall clock
//! that jumps while the process runs ends no lease and no window early. A wall clock that was wrong before the start only
//! makes windows longer if it was slow; if it was fast, nobody can know.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ports::clock::{Clock, UnixMillis};

/// The time of one open store.
#[derive(Clone)]
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    opened_at: UnixMillis,
    opened: Duration,
}

impl StoreTime {
    /// From now on; without a clock, the machine's.
    #[expect(clippy::disallowed_methods, reason = "for those who open a store without a clock")]
    pub(crate) fn starting(clock: Option<Arc<dyn Clock>>) -> Self {
        let clock = clock.unwrap_or_else(|| Arc::new(Machine(Instant::now())));
        Self { opened_at: clock.now(), opened: clock.monotonic(), clock }
    }

    /// The store's present.
    pub(crate) fn now(&self) -> UnixMillis {
        self.opened_at.plus(self.clock.monotonic().saturating_sub(self.opened))
    }
}

impl Default for StoreTime {
    fn default() -> Self {
        Self::starting(None)
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreTime({})", self.now())
    }
}

/// A span as a number that can still be added to a time.
pub(crate) fn milliseconds(span: Duration) -> i64 {
    const FOREVER: i64 = i64::MAX / 2;
    i64::try_from(span.as_millis()).map_or(FOREVER, |span| span.min(FOREVER))
}

/// The machine's clocks.
#[derive(Debug)]
struct Machine(Instant);

impl Clock for Machine {
    #[expect(clippy::disallowed_methods, reason = "for those who open a store without a clock")]
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixMillis::default().plus(since)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}
