//! The adapter in memory against the suites every adapter must pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::SaturatingFrom as _;
use gantry_shared_state::MemoryState;
use gantry_shared_state::conformance::StateAdapter;
use ports::clock::{Clock, UnixMillis};
use ports::observer::{FinishedCall, Observer, ToolSpeech};
use ports::resilience::{BreakerSettings, ManualMove, RateQuota};
use ports::shared_state::{
    AllTaken, BreakerKey, BreakerQuery, KeyedQuota, RateLimits as _, ReplaceMode, SharedBreakers as _, SharedState,
    SharedStateError, SharedValues as _,
};

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
impl StateAdapter for InMemory {
    fn state(&self) -> Arc<dyn SharedState> {
        Arc::clone(&self.state) as Arc<dyn SharedState>
    }

    fn other(&self) -> Arc<dyn SharedState> {
        self.state()
    }

    async fn pass(&self, span: Duration) {
        let millis = u64::saturating_from(span.as_millis());
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

/// Counts what was forgotten.
#[derive(Debug, Default)]
struct Forgotten(AtomicU64);

impl Observer for Forgotten {
    fn invocation_finished(&self, _: &FinishedCall<'_>) {}
    fn registry_swapped(&self, _: usize, _: usize) {}
    fn audit_queue(&self, _: usize) {}
    fn audit_append_failed(&self) {}
    fn decision(&self, _: bool) {}
    fn authentication_failed(&self, _: contract::error::ErrorCode) {}
    fn keys_fetched(&self, _: bool) {}
    fn tool_spoke(&self, _: &ToolSpeech<'_>) {}
    fn shared_state_evicted(&self, _: &'static str, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::SeqCst);
    }
}

fn observed() -> (MemoryState, Arc<SteppedClock>, Arc<Forgotten>) {
    let (clock, forgotten) = (Arc::new(SteppedClock::default()), Arc::new(Forgotten::default()));
    let state = MemoryState::observed(Arc::clone(&clock) as Arc<dyn Clock>, Arc::clone(&forgotten) as _);
    (state, clock, forgotten)
}

#[tokio::test]
async fn idle_breakers_make_room_and_one_that_is_open_stays() -> Result<(), Box<dyn std::error::Error>> {
    let (state, _, forgotten) = observed();
    let settings = BreakerSettings::default();
    let open: BreakerKey = "open".parse()?;
    state.shift(&open, &settings, ManualMove::ForceOpen).await??;
    for number in 0..40_000 {
        let key: BreakerKey = format!("service-{number}").parse()?;
        state.acquire(&key, &settings, Duration::from_secs(1)).await?;
    }
    assert!(forgotten.0.load(Ordering::SeqCst) > 20_000);
    let kept =
        state.inspect(&BreakerQuery { service: Some("open".into()), limit: 1, ..BreakerQuery::default() }).await?;
    assert_eq!(kept.len(), 1);
    Ok(())
}

#[tokio::test]
async fn limits_that_are_used_are_never_forgotten_for_want_of_room() -> Result<(), Box<dyn std::error::Error>> {
    let (state, clock, forgotten) = observed();
    let quota = RateQuota::new(1, Duration::from_hours(1))?;
    let mut full = false;
    for number in 0..200_000 {
        let key = format!("user-{number}");
        match state.take(&[KeyedQuota { key: &key, quota }], 1).await {
            Ok(_) => {}
            Err(SharedStateError::Full) => {
                full = true;
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    assert!(full, "there is a most");
    assert_eq!(forgotten.0.load(Ordering::SeqCst), 0);
    assert!(matches!(state.take(&[KeyedQuota { key: "user-0", quota }], 1).await?, AllTaken::Refused { .. }));
    // When everything is there again, they are as good as none.
    clock.0.fetch_add(3_600_000, Ordering::SeqCst);
    for number in 0..1_000 {
        let key = format!("another-{number}");
        assert!(matches!(state.take(&[KeyedQuota { key: &key, quota }], 1).await?, AllTaken::Allowed { .. }));
    }
    assert!(forgotten.0.load(Ordering::SeqCst) > 0);
    Ok(())
}

#[tokio::test]
async fn values_make_room_by_age() -> Result<(), Box<dyn std::error::Error>> {
    let (state, _, forgotten) = observed();
    let large = vec![7; 256 * 1024];
    for number in 0..2_000_u64 {
        let ttl = Duration::from_secs(1_000 + number);
        state.put(&format!("value-{number}"), &large, ttl, ReplaceMode::Always).await?;
    }
    assert!(forgotten.0.load(Ordering::SeqCst) >= 2_000 - 256);
    assert_eq!(state.get("value-1999").await?, Some(large));
    assert_eq!(state.get("value-0").await?, None);
    Ok(())
}
