//! What a breaker is asked and told, and what it answers: modes, permits, verdicts, moves by hand, events and snapshots.
//!
//! Not here: the machine itself (`breaker`), its settings (`settings`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::resilience::window::WindowTotals;

/// In which state a breaker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerMode {
    Closed,
    Open,
    HalfOpen,
    ForcedOpen,
    Disabled,
    MetricsOnly,
}

impl BreakerMode {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Closed, Self::Open, Self::HalfOpen, Self::ForcedOpen, Self::Disabled, Self::MetricsOnly];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::ForcedOpen => "forced_open",
            Self::Disabled => "disabled",
            Self::MetricsOnly => "metrics_only",
        }
    }
}

/// Leave to make one call, given back with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerPermit {
    pub epoch: u64,
    /// The place of a probe.
    pub slot: Option<u64>,
    /// When it was given, by the clock of whoever holds the state.
    pub at_ms: u64,
}

/// The answer to somebody who wants to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BreakerAdmission {
    Permitted(BreakerPermit),
    /// Not now. `retry_after_ms` is absent where only a person can change it.
    Refused {
        mode: BreakerMode,
        retry_after_ms: Option<u64>,
    },
}

/// How a call ended, as a breaker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerVerdict {
    Succeeded,
    Failed,
    /// It says nothing about the service: the permit goes back as if there had been no call.
    Ignored,
}

/// The result of a permitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermittedOutcome {
    pub verdict: BreakerVerdict,
    /// How long it took; absent: by the clock of whoever holds the state, from the permit on.
    pub duration_ms: Option<u64>,
    /// The service itself says that it wants to be left alone for so long: opens at once.
    pub open_for_ms: Option<u64>,
    /// Which guest has called, if one has (BRK-5).
    pub guest: Option<GuestTag>,
}

/// A tenant that calls a tool of another one, as a breaker knows it: one of so many that there is room for all of them. Two
/// that have the same tag count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GuestTag(u8);

impl GuestTag {
    /// How many there are.
    pub const NUMBER: u8 = 64;

    /// From a digest of whatever names the tenant.
    pub fn of(digest: u8) -> Self {
        Self(digest % Self::NUMBER)
    }

    /// Its number, for adapters.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl PermittedOutcome {
    /// A plain end, timed by whoever holds the state.
    pub fn of(verdict: BreakerVerdict) -> Self {
        Self { verdict, duration_ms: None, open_for_ms: None, guest: None }
    }
}

/// What was reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExceededThreshold {
    Failures(u32),
    FailurePercent(f64),
    SlowPercent(f64),
}

/// Why a state changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerReason {
    Exceeded(ExceededThreshold),
    /// A probe failed.
    ProbeFailed,
    /// Enough probes succeeded.
    Recovered,
    /// The wait was over.
    WaitOver,
    /// It was half-open for too long.
    HalfOpenTooLong,
    /// The service asked for it, or the health of a tool does. (RES-013)
    Asked,
    /// Somebody did it by hand.
    Manual,
}

impl fmt::Display for BreakerReason {
    /// In a few words for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exceeded(ExceededThreshold::Failures(1)) => f.write_str("1 failure"),
            Self::Exceeded(ExceededThreshold::Failures(failures)) => write!(f, "{failures} failures"),
            Self::Exceeded(ExceededThreshold::FailurePercent(percent)) => write!(f, "{percent:.0} % failures"),
            Self::Exceeded(ExceededThreshold::SlowPercent(percent)) => write!(f, "{percent:.0} % slow calls"),
            Self::ProbeFailed => f.write_str("a trial call failed"),
            Self::Recovered => f.write_str("trial calls succeeded"),
            Self::WaitOver => f.write_str("the wait is over"),
            Self::HalfOpenTooLong => f.write_str("half-open for too long"),
            Self::Asked => f.write_str("asked for by the service or by the health of a tool"),
            Self::Manual => f.write_str("by hand"),
        }
    }
}

/// Something worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerEvent {
    Transition {
        at_ms: u64,
        from: BreakerMode,
        to: BreakerMode,
        reason: BreakerReason,
        /// The epoch that begins with it.
        epoch: u64,
    },
    /// A bound was reached; told once, until the counters begin anew.
    Exceeded(ExceededThreshold),
}

/// What somebody does to a breaker by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManualMove {
    /// Opens it, for so long or as long as its settings say.
    Open {
        for_ms: Option<u64>,
    },
    /// Opens it until then.
    OpenUntil {
        at_ms: u64,
    },
    /// Opens it until somebody says otherwise.
    ForceOpen,
    HalfOpen,
    Close,
    /// Lets everything through and counts nothing.
    Disable,
    /// Lets everything through and counts.
    MetricsOnly,
    /// Closed, with all counters at zero.
    Reset,
}

/// A change that there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a breaker that is {} cannot be made {}", .from.as_str(), .to.as_str())]
pub struct IllegalMove {
    pub from: BreakerMode,
    pub to: BreakerMode,
}

/// A permit or none, and what came of asking.
#[derive(Debug, Clone, PartialEq)]
pub struct AcquireOutcome {
    pub admission: BreakerAdmission,
    pub events: Vec<BreakerEvent>,
}

/// A breaker to look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BreakerSnapshot {
    pub mode: BreakerMode,
    /// Since when.
    pub since_ms: u64,
    /// When an open one lets probes through.
    pub until_ms: Option<u64>,
    /// What it judges by: the window, or the probes of a half-open one.
    pub totals: WindowTotals,
    /// Undefined under the least number of calls.
    pub failure_percent: Option<f64>,
    pub slow_percent: Option<f64>,
    /// Calls refused since it was made or reset.
    pub refused: u64,
    /// Probes under way.
    pub probes: u32,
    /// The share of calls in percent that a half-open one lets through, if it has one (BRK-4).
    pub canary_percent: Option<u32>,
    /// Why it opened last, while it is not closed.
    pub opened_by: Option<BreakerReason>,
}
