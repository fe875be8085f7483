//! How a breaker behaves: what opens it, how long, and what closes it again. (V1…V4, DESIGN §8.11)
//!
//! What people write is a [`SettingsDraft`]: everything optional, numbers as they come. [`SettingsDraft::checked`] makes
//! [`BreakerSettings`] of it or says what is wrong; settings cannot be had in another way, so that a machine never divides
//! by a window of nothing.
//!
//! Not here: which tool has which (`guard`), the configuration's words (`cli`).

use base::backoff::grown_ms;
use contract::manifest::BreakerConfig;
use serde::{Deserialize, Serialize};

/// Largest window by count: each call in it is kept.
pub const WINDOW_CALLS_MAX: u32 = 1_000;
/// Largest window by time, in seconds: each second in it is kept.
pub const WINDOW_SECONDS_MAX: u32 = 3_600;
/// Longest wait of any kind, in milliseconds: thirty days.
pub const WAIT_MS_MAX: u64 = 30 * 86_400_000;
/// Most permits of a half-open breaker.
pub const HALF_OPEN_CALLS_MAX: u32 = 1_000;

/// By what a breaker remembers calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum WindowKind {
    /// Those of the last so many seconds, the running one included.
    Time { seconds: u32 },
    /// The last so many.
    Count { calls: u32 },
}

/// How long an open breaker stays open.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum OpenWait {
    /// Always the same.
    Fixed { ms: u64 },
    /// Longer each time that it opens again without having been closed.
    Exponential { first_ms: u64, factor: f64, max_ms: u64 },
}

impl OpenWait {
    /// The wait of the n-th opening in a row, from 1.
    pub fn ms(self, opening: u32) -> u64 {
        match self {
            Self::Fixed { ms } => ms,
            Self::Exponential { first_ms, factor, max_ms } => grown_ms(first_ms, factor, opening).min(max_ms),
        }
    }
}

/// What ends the half-open state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum HalfOpenRule {
    /// One failure opens; so many successes close. Permits are places: one that has its result is free again.
    OneFailure { success_threshold: u32 },
    /// All permits are given once; when all have their results, the rates decide.
    Rates,
}

/// The share of calls that a half-open breaker lets through (RES-006).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryShare {
    /// At first, in percent.
    pub first_percent: u32,
    /// By how much each success raises it.
    pub step_percent: u32,
}

impl CanaryShare {
    /// By how much a share is raised unless somebody says otherwise.
    pub const STEP_PERCENT: u32 = 10;

    /// The share after so many successes.
    pub fn after(self, successes: u32) -> u32 {
        self.first_percent.saturating_add(self.step_percent.saturating_mul(successes)).min(100)
    }
}

/// How a breaker behaves. Made by [`SettingsDraft::checked`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakerSettings {
    /// So many failures within the window open it.
    pub failure_threshold: Option<u32>,
    /// Failures of so many percent open it, once there are enough calls.
    pub failure_percent: Option<f64>,
    /// Slow calls of so many percent open it, once there are enough calls.
    pub slow_percent: Option<f64>,
    /// A call that takes longer than this is slow.
    pub slow_after_ms: u64,
    /// Calls from which on percentages mean something.
    pub minimum_calls: u32,
    pub window: WindowKind,
    pub open_wait: OpenWait,
    pub half_open_max_calls: u32,
    pub half_open_rule: HalfOpenRule,
    /// The share of calls that it lets through then; `None`: as many as there are places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryShare>,
    /// The longest that it is half-open, after which it opens again; `None`: as long as it takes.
    pub half_open_max_ms: Option<u64>,
}

impl Default for BreakerSettings {
    /// Those of DESIGN §8.11 and RES-002.
    fn default() -> Self {
        Self {
            failure_threshold: Some(5),
            failure_percent: None,
            slow_percent: None,
            slow_after_ms: 60_000,
            minimum_calls: 100,
            window: WindowKind::Time { seconds: 60 },
            open_wait: OpenWait::Fixed { ms: 60_000 },
            half_open_max_calls: 10,
            half_open_rule: HalfOpenRule::OneFailure { success_threshold: 3 },
            canary: None,
            half_open_max_ms: None,
        }
    }
}

impl BreakerSettings {
    /// These, with what a manifest says instead (RES-002). Its ranges were checked when it was admitted; what was
    /// written past them is cut to what a machine can do.
    #[must_use]
    pub fn overridden(&self, own: &BreakerConfig) -> Self {
        let at_least_one = |number: u8| u32::from(number).max(1);
        let percent = |number: u8| f64::from(number.clamp(1, 100));
        Self {
            failure_threshold: Some(at_least_one(own.failure_threshold)),
            failure_percent: own.failure_percent.map(percent).or(self.failure_percent),
            slow_percent: own.slow_percent.map(percent).or(self.slow_percent),
            slow_after_ms: own.slow_after_ms.map_or(self.slow_after_ms, |ms| u64::from(ms).max(1)),
            minimum_calls: own.minimum_calls.map_or(self.minimum_calls, |calls| u32::from(calls).max(1)),
            canary: own.canary_percent.map_or(self.canary, |first| {
                let step = own.canary_step_percent.map_or(CanaryShare::STEP_PERCENT, u32::from);
                Some(CanaryShare { first_percent: u32::from(first).clamp(1, 100), step_percent: step.min(100) })
            }),
            window: WindowKind::Time { seconds: u32::from(own.window_seconds).clamp(1, WINDOW_SECONDS_MAX) },
            open_wait: OpenWait::Fixed { ms: u64::from(own.timeout_seconds).max(1) * 1000 },
            half_open_max_calls: at_least_one(own.half_open_max_calls),
            half_open_rule: HalfOpenRule::OneFailure { success_threshold: at_least_one(own.success_threshold) },
            ..self.clone()
        }
    }

    /// Calls from which on percentages mean something: a window by count never has more than its size. (W8)
    pub fn calls_needed(&self) -> u32 {
        match self.window {
            WindowKind::Count { calls } => self.minimum_calls.min(calls),
            WindowKind::Time { .. } => self.minimum_calls,
        }
    }

    /// May one guest bring so many failures or slow calls in a span of the window's length? A window reaches into two such
    /// spans at most, and all of them together must reach no bound (BRK-5).
    pub fn is_under_bounds(&self, bad: u32) -> bool {
        let twice = bad.saturating_mul(2);
        let needed = f64::from(self.calls_needed());
        let mut shares = [self.failure_percent, self.slow_percent].into_iter().flatten();
        self.failure_threshold.is_none_or(|most| twice < most)
            && shares.all(|most| f64::from(twice) * 100.0 < most * needed)
    }
}

/// Settings as somebody wrote them. What is left out is as in [`BreakerSettings::default`].
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsDraft {
    /// Zero: failures are not counted, only their share.
    pub failure_threshold: Option<i64>,
    pub failure_percent: Option<f64>,
    pub slow_percent: Option<f64>,
    pub slow_after_ms: Option<i64>,
    pub minimum_calls: Option<i64>,
    pub window_seconds: Option<i64>,
    pub window_calls: Option<i64>,
    pub open_ms: Option<i64>,
    pub open_backoff_first_ms: Option<i64>,
    pub open_backoff_factor: Option<f64>,
    pub open_backoff_max_ms: Option<i64>,
    pub half_open_max_calls: Option<i64>,
    /// Successes that close it. Zero: the rates decide.
    pub success_threshold: Option<i64>,
    /// Percent of calls that a half-open one lets through at first.
    pub canary_percent: Option<i64>,
    /// By how much each success raises that.
    pub canary_step_percent: Option<i64>,
    /// Zero: no bound.
    pub half_open_max_ms: Option<i64>,
}

/// Settings no breaker can have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// Too small or too large.
    #[error("`{name}` must be from {least} to {most}")]
    OutOfRange { name: &'static str, least: u64, most: u64 },
    /// Not a share.
    #[error("`{name}` must be over 0 and at most 100 percent")]
    NotAPercentage { name: &'static str },
    /// Not a factor.
    #[error("`{name}` must be from 1 to 100")]
    NotAFactor { name: &'static str },
    /// Two that exclude each other.
    #[error("`{one}` and `{other}` exclude each other")]
    Together { one: &'static str, other: &'static str },
    /// Nothing would ever open it.
    #[error("neither a number of failures nor a rate is given, so nothing would open it")]
    NeverOpens,
    /// The same, because what would have to be counted does not fit.
    #[error(
        "`failure_threshold` is {threshold}, and the last {calls} calls are counted (`window_calls`), so nothing would open it"
    )]
    ThresholdBeyondWindow { threshold: u32, calls: u32 },
}

impl SettingsDraft {
    /// The settings, or the first thing that is wrong with them.
    pub fn checked(&self) -> Result<BreakerSettings, SettingsError> {
        let base = BreakerSettings::default();
        let failure_percent = percentage("failure_percent", self.failure_percent)?;
        let slow_percent = percentage("slow_percent", self.slow_percent)?;
        let failure_threshold = match self.failure_threshold {
            // What nobody has asked for gives way to the window that somebody has.
            None => base.failure_threshold.filter(|_| failure_percent.is_none()).map(|most| {
                let calls = self.window_calls.and_then(|calls| u32::try_from(calls).ok());
                calls.map_or(most, |calls| most.min(calls.max(1)))
            }),
            Some(0) => None,
            Some(_) => Some(small("failure_threshold", self.failure_threshold, 0, 100_000)?),
        };
        if failure_threshold.is_none() && failure_percent.is_none() && slow_percent.is_none() {
            return Err(SettingsError::NeverOpens);
        }
        let window = self.window()?;
        if let (Some(threshold), WindowKind::Count { calls }) = (failure_threshold, window)
            && threshold > calls
            && failure_percent.is_none()
            && slow_percent.is_none()
        {
            return Err(SettingsError::ThresholdBeyondWindow { threshold, calls });
        }
        Ok(BreakerSettings {
            failure_threshold,
            failure_percent,
            slow_percent,
            slow_after_ms: wait("slow_after_ms", self.slow_after_ms, base.slow_after_ms)?,
            minimum_calls: small("minimum_calls", self.minimum_calls, base.minimum_calls, 100_000)?,
            window,
            open_wait: self.open_wait()?,
            half_open_max_calls: small(
                "half_open_max_calls",
                self.half_open_max_calls,
                base.half_open_max_calls,
                HALF_OPEN_CALLS_MAX,
            )?,
            half_open_rule: match self.success_threshold {
                None => base.half_open_rule,
                Some(0) => HalfOpenRule::Rates,
                Some(_) => HalfOpenRule::OneFailure {
                    success_threshold: small("success_threshold", self.success_threshold, 0, HALF_OPEN_CALLS_MAX)?,
                },
            },
            canary: match self.canary_percent {
                None => None,
                Some(_) => Some(CanaryShare {
                    first_percent: small("canary_percent", self.canary_percent, 0, 100)?,
                    step_percent: small(
                        "canary_step_percent",
                        self.canary_step_percent,
                        CanaryShare::STEP_PERCENT,
                        100,
                    )?,
                }),
            },
            half_open_max_ms: match self.half_open_max_ms {
                None | Some(0) => None,
                Some(_) => Some(wait("half_open_max_ms", self.half_open_max_ms, 0)?),
            },
        })
    }

    fn window(&self) -> Result<WindowKind, SettingsError> {
        match (self.window_seconds, self.window_calls) {
            (Some(_), Some(_)) => Err(SettingsError::Together { one: "window_seconds", other: "window_calls" }),
            (None, None) => Ok(BreakerSettings::default().window),
            (seconds @ Some(_), None) => {
                Ok(WindowKind::Time { seconds: small("window_seconds", seconds, 0, WINDOW_SECONDS_MAX)? })
            }
            (None, calls) => Ok(WindowKind::Count { calls: small("window_calls", calls, 0, WINDOW_CALLS_MAX)? }),
        }
    }

    fn open_wait(&self) -> Result<OpenWait, SettingsError> {
        let Some(factor) = self.open_backoff_factor else {
            return Ok(match self.open_ms {
                None => BreakerSettings::default().open_wait,
                Some(_) => OpenWait::Fixed { ms: wait("open_ms", self.open_ms, 0)? },
            });
        };
        if self.open_ms.is_some() {
            return Err(SettingsError::Together { one: "open_ms", other: "open_backoff_factor" });
        }
        if !(1.0..=100.0).contains(&factor) {
            return Err(SettingsError::NotAFactor { name: "open_backoff_factor" });
        }
        Ok(OpenWait::Exponential {
            first_ms: wait("open_backoff_first_ms", self.open_backoff_first_ms, 60_000)?,
            factor,
            max_ms: wait("open_backoff_max_ms", self.open_backoff_max_ms, WAIT_MS_MAX)?,
        })
    }
}

fn percentage(name: &'static str, given: Option<f64>) -> Result<Option<f64>, SettingsError> {
    match given {
        Some(percent) if !(percent > 0.0 && percent <= 100.0) => Err(SettingsError::NotAPercentage { name }),
        fine => Ok(fine),
    }
}

fn small(name: &'static str, given: Option<i64>, unset: u32, most: u32) -> Result<u32, SettingsError> {
    let Some(given) = given else { return Ok(unset) };
    let fine = u32::try_from(given).ok().filter(|number| (1..=most).contains(number));
    fine.ok_or_else(|| SettingsError::OutOfRange { name, least: 1, most: u64::from(most) })
}

fn wait(name: &'static str, given: Option<i64>, unset: u64) -> Result<u64, SettingsError> {
    let Some(given) = given else { return Ok(unset) };
    let fine = u64::try_from(given).ok().filter(|ms| (1..=WAIT_MS_MAX).contains(ms));
    fine.ok_or(SettingsError::OutOfRange { name, least: 1, most: WAIT_MS_MAX })
}
