//! What do a breaker and a limit cost a call, in memory and in Redis? The goal: Redis adds less than 0.5 ms at the median.
//!
//! `cargo run --release -p gantry-shared-state --example shared_state_cost -- redis://127.0.0.1:6379/`
#![expect(clippy::print_stdout, reason = "a measurement for people at a terminal")]

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared_state::measure::{StateCost, cost};
use gantry_shared_state::{MemoryState, RedisSettings, RedisState};
use ports::clock::{Clock, UnixMillis};
use tokio::time::Instant;

/// Calls that are measured, and as many before them that are not.
const CALLS: usize = 5_000;
/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The machine's time since the start.
#[derive(Debug)]
struct Since(Instant);

impl Clock for Since {
    fn now(&self) -> UnixMillis {
        UnixMillis(0).plus(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("name a Redis, for example redis://127.0.0.1:6379/")?;
    let memory = MemoryState::new(Arc::new(Since(Instant::now())));
    let redis = RedisState::open(&RedisSettings {
        namespace: "measured".into(),
        operation_timeout: Duration::from_secs(1),
        ..RedisSettings::new(url, "measured")
    })?;
    tokio::time::timeout(PATIENCE, redis.ready()).await?;
    cost(&memory, CALLS).await?;
    let own = cost(&memory, CALLS).await?;
    cost(&redis, CALLS).await?;
    let shared = cost(&redis, CALLS).await?;
    println!("memory: {}", shown(own));
    println!("redis:  {}", shown(shared));
    println!("added:  p50 {:.3} ms", shared.p50.saturating_sub(own.p50).as_secs_f64() * 1_000.0);
    Ok(())
}

fn shown(cost: StateCost) -> String {
    format!("p50 {:.3} ms, p99 {:.3} ms", cost.p50.as_secs_f64() * 1_000.0, cost.p99.as_secs_f64() * 1_000.0)
}
