//! What a breaker remembers of the calls before: the last so many, or those of the last so many seconds. (W1…W9)
//!
//! A window by time keeps one sum per second in which there was a call, so its size is bounded by its seconds and not by
//! the traffic. Seconds drop out one by one as the clock moves; a clock that goes back counts into the newest second that
//! is there, because a call must not get lost to a correction of the clock.
//!
//! Not here: what the sums mean (`breaker`).

use std::collections::VecDeque;

use base::SaturatingFrom as _;
use serde::{Deserialize, Serialize};

use super::settings::WindowKind;

/// One finished call, as a window counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedCall {
    pub failed: bool,
    pub slow: bool,
    pub duration_ms: u64,
}

/// Sums over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WindowTotals {
    pub calls: u32,
    pub failed: u32,
    /// Slow ones, whether they failed or not.
    pub slow: u32,
    /// Slow ones that failed.
    pub slow_failed: u32,
    pub duration_ms: u64,
}

impl WindowTotals {
    /// Calls that did not fail.
    pub fn succeeded(&self) -> u32 {
        self.calls.saturating_sub(self.failed)
    }

    /// Failures in percent of all calls; zero without calls.
    pub fn failure_percent(&self) -> f64 {
        percent(self.failed, self.calls)
    }

    /// Slow calls in percent of all.
    pub fn slow_percent(&self) -> f64 {
        percent(self.slow, self.calls)
    }

    /// Milliseconds of a call on average.
    pub fn average_ms(&self) -> u64 {
        self.duration_ms.checked_div(u64::from(self.calls)).unwrap_or(0)
    }

    /// With one call more.
    pub fn add(&mut self, call: CountedCall) {
        self.calls = self.calls.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(call.failed));
        self.slow = self.slow.saturating_add(u32::from(call.slow));
        self.slow_failed = self.slow_failed.saturating_add(u32::from(call.slow && call.failed));
        self.duration_ms = self.duration_ms.saturating_add(call.duration_ms);
    }

    fn remove(&mut self, gone: &Self) {
        self.calls = self.calls.saturating_sub(gone.calls);
        self.failed = self.failed.saturating_sub(gone.failed);
        self.slow = self.slow.saturating_sub(gone.slow);
        self.slow_failed = self.slow_failed.saturating_sub(gone.slow_failed);
        self.duration_ms = self.duration_ms.saturating_sub(gone.duration_ms);
    }
}

fn percent(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) * 100.0 / f64::from(whole) }
}

/// The calls that count, with their sums.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallWindow {
    totals: WindowTotals,
    /// The last calls, oldest first, of a window by count.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    calls: VecDeque<CountedCall>,
    /// Seconds with calls, oldest first, of a window by time.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    seconds: VecDeque<(u64, WindowTotals)>,
}

impl CallWindow {
    /// Counts a call.
    pub fn record(&mut self, kind: WindowKind, call: CountedCall, now_ms: u64) {
        match kind {
            WindowKind::Count { calls } => {
                while self.calls.len() >= usize::saturating_from(calls) {
                    let Some(oldest) = self.calls.pop_front() else { break };
                    let mut gone = WindowTotals::default();
                    gone.add(oldest);
                    self.totals.remove(&gone);
                }
                self.calls.push_back(call);
            }
            WindowKind::Time { .. } => {
                self.forget(kind, now_ms);
                let second = now_ms / 1000;
                match self.seconds.back_mut() {
                    Some((newest, sum)) if *newest >= second => sum.add(call),
                    _ => {
                        let mut sum = WindowTotals::default();
                        sum.add(call);
                        self.seconds.push_back((second, sum));
                    }
                }
            }
        }
        self.totals.add(call);
    }

    /// The sums as of now.
    pub fn totals(&mut self, kind: WindowKind, now_ms: u64) -> WindowTotals {
        self.forget(kind, now_ms);
        self.totals
    }

    /// Forgets every call.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops the seconds that have passed out of a window by time.
    fn forget(&mut self, kind: WindowKind, now_ms: u64) {
        let WindowKind::Time { seconds } = kind else { return };
        let first = (now_ms / 1000).saturating_sub(u64::from(seconds).saturating_sub(1));
        while let Some((second, sum)) = self.seconds.front() {
            if *second >= first {
                break;
            }
            self.totals.remove(sum);
            self.seconds.pop_front();
        }
    }
}
