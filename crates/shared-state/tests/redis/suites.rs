//! Redis against the suites every adapter must pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gantry_shared_state::RedisState;
use gantry_shared_state::conformance::StateAdapter;
use ports::shared_state::SharedState;

use crate::server::{replica, shared, unique};

/// Two replicas whose steps happen at a time that the suite moves.
struct InRedis {
    replicas: [Arc<RedisState>; 2],
    now_us: AtomicU64,
}

#[async_trait]
impl StateAdapter for InRedis {
    fn state(&self) -> Arc<dyn SharedState> {
        Arc::clone(&self.replicas[0]) as _
    }

    fn other(&self) -> Arc<dyn SharedState> {
        Arc::clone(&self.replicas[1]) as _
    }

    async fn pass(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap();
        let now_us = self.now_us.fetch_add(micros, Ordering::SeqCst) + micros;
        self.replicas.iter().for_each(|state| state.hold_clock(now_us));
    }
}

async fn open() -> InRedis {
    let namespace = unique("suite");
    let one = replica(shared(), &namespace).await;
    let other = replica(shared(), &namespace).await;
    let adapter = InRedis {
        replicas: [Arc::new(one), Arc::new(other)],
        now_us: AtomicU64::new(shared().time_us() + 3_600_000_000),
    };
    adapter.pass(Duration::ZERO).await;
    adapter
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
