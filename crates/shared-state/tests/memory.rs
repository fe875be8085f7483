//! The adapter in memory against the suites every adapter must pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_shared_state::MemoryState;
use gantry_shared_state::conformance::Adapter;
use kernel::ports::clock::{Clock, UnixMillis};
use kernel::ports::shared_state::SharedState;

/// Stands still until it is moved. Nobody sleeps by it.
#[derive(Debug, Default)]
struct SteppedClock(AtomicU64);

impl Clock for SteppedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_790_000_000_000).plus(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

struct InMemory {
    state: Arc<MemoryState>,
    clock: Arc<SteppedClock>,
}

#[async_trait::async_trait]
impl Adapter for InMemory {
    fn state(&self) -> Arc<dyn SharedState> {
        Arc::clone(&self.state) as Arc<dyn SharedState>
    }

    fn other(&self) -> Arc<dyn SharedState> {
        self.state()
    }

    async fn pass(&self, span: Duration) {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.clock.0.fetch_add(millis, Ordering::SeqCst);
    }
}

async fn open() -> InMemory {
    let clock = Arc::new(SteppedClock::default());
    InMemory { state: Arc::new(MemoryState::new(Arc::clone(&clock) as Arc<dyn Clock>)), clock }
}

mod breakers {
    gantry_shared_state::breakers_suite!(super::open);
}
mod limits {
    gantry_shared_state::limits_suite!(super::open);
}
mod values {
    gantry_shared_state::values_suite!(super::open);
}
