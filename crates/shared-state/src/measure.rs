//! What breakers and limits cost a call, measured through the port, so that every adapter is asked the same.

use std::time::Duration;

use ports::resilience::{BreakerAdmission, BreakerSettings, BreakerVerdict, PermittedOutcome, RateQuota};
use ports::shared_state::{BreakerKey, KeyedQuota, SharedState, SharedStateError};
use tokio::time::Instant;

/// How long a guarded call spends with the shared state: leave, a limit, and the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateCost {
    /// Half of the calls took no longer.
    pub p50: Duration,
    /// Ninety-nine of a hundred took no longer.
    pub p99: Duration,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The state did not answer.
    #[error(transparent)]
    State(#[from] SharedStateError),
    /// A breaker or a limit that should let everything through did not.
    #[error("a call was refused, so there is nothing to measure")]
    Refused,
}

/// Calls one after the other, as a caller with one connection makes them.
pub async fn cost(state: &dyn SharedState, calls: usize) -> Result<StateCost, MeasureError> {
    let key: BreakerKey = "measured".parse().map_err(|_| MeasureError::Refused)?;
    let quota = RateQuota::new(10_000, Duration::from_secs(1)).map_err(|_| MeasureError::Refused)?;
    let settings = BreakerSettings::default();
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        state.take(&[KeyedQuota { key: "measured", quota }], 1).await?;
        let BreakerAdmission::Permitted(permit) = state.acquire(&key, &settings, Duration::from_secs(30)).await? else {
            return Err(MeasureError::Refused);
        };
        state.record(&key, &settings, permit, PermittedOutcome::of(BreakerVerdict::Succeeded)).await?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
    Ok(StateCost { p50: at(50), p99: at(99) })
}
