//! Hearing what becomes of breakers, whichever replica brought it about, and telling whoever watches. (RES-011)

use tokio::sync::broadcast::error::RecvError;

use super::breaker::BreakerMode;
use super::service::Resilience;
use crate::ports::shared_state::{BreakerKey, BreakerQuery, INSPECTED_MAX};

impl Resilience {
    /// Tells of every transition from now on. Never ends by itself while the shared state lives; whoever starts it ends it.
    pub async fn follow(&self) {
        let mut heard = self.breakers.transitions();
        // What other replicas have brought about before this one was there.
        self.tell_all().await;
        loop {
            match heard.recv().await {
                Ok(transition) => self.tell(&transition.key, transition.change.from, transition.change.to),
                Err(RecvError::Lagged(_)) => self.tell_all().await,
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// How everything stands.
    async fn tell_all(&self) {
        let query = BreakerQuery { limit: INSPECTED_MAX, ..BreakerQuery::default() };
        match self.breakers.inspect(&query).await {
            Ok(reports) => {
                for report in reports {
                    self.observer.breaker_changed(&report.key, report.snapshot.mode, report.snapshot.mode);
                }
            }
            Err(error) => tracing::warn!(%error, "how breakers stand could not be asked"),
        }
    }

    fn tell(&self, key: &BreakerKey, from: BreakerMode, to: BreakerMode) {
        let (old, new) = (from.as_str(), to.as_str());
        match to {
            BreakerMode::Open | BreakerMode::ForcedOpen => {
                tracing::warn!(breaker = %key, from = old, to = new, "breaker_state_changed");
            }
            BreakerMode::Closed | BreakerMode::HalfOpen | BreakerMode::Disabled | BreakerMode::MetricsOnly => {
                tracing::info!(breaker = %key, from = old, to = new, "breaker_state_changed");
            }
        }
        self.observer.breaker_changed(key, from, to);
    }
}
