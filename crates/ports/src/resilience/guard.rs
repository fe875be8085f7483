//! What stands around the calls of one version of a tool: the breaker of its service, its limits, and how it is tried again.
//!
//! It is worked out once for each version and kept beside its schemas ([`ToolVersion::guard`](crate::tool_version::ToolVersion::guard)),
//! so that a tool with none of it costs a call one look at an empty option.
//!
//! Not here: working it out, and asking it (`kernel::resilience`).

use base::backoff::BackoffInterval;

use super::limiter::RateQuota;
use super::settings::BreakerSettings;
use crate::shared_state::BreakerKey;

/// Most attempts of any plan.
pub const ATTEMPTS_MAX: u32 = 100;

/// What stands around calls of one version of a tool.
#[derive(Debug)]
pub struct ResilienceGuard {
    pub breaker: Option<GuardedService>,
    pub retries: Option<RetryGuard>,
    /// How often one user may call it: a word for the key, and the quota.
    pub per_user: Vec<(&'static str, RateQuota)>,
}

/// The service behind a tool.
#[derive(Debug)]
pub struct GuardedService {
    pub key: BreakerKey,
    pub settings: BreakerSettings,
    /// The keys of its limit and of its budget of retries.
    pub rate_key: String,
    pub quota: Option<RateQuota>,
    /// Below so many hundredths of the tool's health score one failure opens it. (RES-013)
    pub health_percent: Option<u8>,
}

impl GuardedService {
    /// RES-013: is the tool so unwell that one failure is enough? With too few calls nobody can say.
    pub fn is_unhealthy(&self, health: impl FnOnce() -> Option<(f64, u64)>) -> bool {
        let Some(percent) = self.health_percent else { return false };
        let needed = u64::from(self.settings.minimum_calls);
        health().is_some_and(|(score, calls)| calls >= needed && score * 100.0 < f64::from(percent))
    }
}

/// How a tool is tried again.
#[derive(Debug)]
pub struct RetryGuard {
    pub plan: RetryPlan,
    pub statuses: Vec<u16>,
    pub budget_key: String,
    pub budget: Option<RateQuota>,
}

/// How often and after what waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPlan {
    attempts_max: u32,
    interval: BackoffInterval,
}

/// A plan that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("attempts must be from 1 to {ATTEMPTS_MAX}")]
pub struct PlanError;

impl RetryPlan {
    /// At most so many attempts, with waits between them.
    pub fn new(attempts_max: u32, interval: BackoffInterval) -> Result<Self, PlanError> {
        if !(1..=ATTEMPTS_MAX).contains(&attempts_max) {
            return Err(PlanError);
        }
        Ok(Self { attempts_max, interval })
    }

    /// The first attempt included.
    pub fn attempts_max(self) -> u32 {
        self.attempts_max
    }

    /// The waits between them.
    pub fn interval(self) -> BackoffInterval {
        self.interval
    }
}
