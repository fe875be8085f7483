//! Trying again: how often, after what, and when not. (RES-014…016, X-28, DESIGN §8.10; R1…R12)
//!
//! [`RetryAttempts`] is the machine: the verdict on an attempt goes in, and what to do next comes out. `phases::attempts` drives it.
//! Whether something *may* be repeated is the judge's word, not this module's.
//!
//! Invariants
//! - RTY-1: never more attempts than the plan has, and no wait beyond the time that is left.
//! - RTY-2: an error the judge calls final is handed on as it came, at once.
//! - RTY-3: what the other side asked for is the least that is waited; if that is more than there is time for, nothing is.
//!
//! Not here: intervals and chance (`base::backoff`), the shared budget (the judge's or the caller's business).

use std::time::Duration;

use base::backoff::full_jitter;
use ports::resilience::guard::RetryPlan;

/// What the judge says of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgedAttempt {
    /// That is the answer, good or bad.
    Final,
    /// Once more. `after` is what the other side asked for.
    Again { after: Option<Duration> },
    /// Once more, after exactly this, whatever the plan's intervals say. `None`: no wait would do, so not at all.
    AgainIn(Option<Duration>),
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    /// Hand on what came.
    Finish(RetryStop),
    /// Wait, then try again. Before chance has its say, if it is to have one.
    Wait { at_most: Duration, at_least: Duration },
}

/// Why nothing more is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryStop {
    /// It is the answer.
    Settled,
    /// There are no more attempts.
    Exhausted,
    /// There is no time for the wait, or no wait that would do.
    NoTime,
}

/// Attempts at one thing. Each use begins at one (R12).
#[derive(Debug, Clone, Copy)]
pub struct RetryAttempts {
    plan: RetryPlan,
    made: u32,
}

impl RetryAttempts {
    /// None made yet.
    pub fn new(plan: RetryPlan) -> Self {
        Self { plan, made: 0 }
    }

    /// How many were made.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// An attempt was made, and judged thus, with so much time left.
    pub fn after(&mut self, judged: JudgedAttempt, time_left: Duration) -> NextAttempt {
        self.made = self.made.saturating_add(1);
        let (at_most, at_least) = match judged {
            JudgedAttempt::Final => return NextAttempt::Finish(RetryStop::Settled),
            _ if self.made >= self.plan.attempts_max() => return NextAttempt::Finish(RetryStop::Exhausted),
            JudgedAttempt::AgainIn(None) => return NextAttempt::Finish(RetryStop::NoTime),
            JudgedAttempt::AgainIn(Some(wait)) => (wait, wait),
            JudgedAttempt::Again { after } => {
                let asked = after.unwrap_or(Duration::ZERO);
                (self.plan.interval().ceiling(self.made).max(asked), asked)
            }
        };
        // RTY-1, RTY-3. At the end of the wait there must be time for the attempt itself.
        if at_least >= time_left {
            return NextAttempt::Finish(RetryStop::NoTime);
        }
        NextAttempt::Wait { at_most, at_least }
    }
}

/// Full jitter over what is above the least: what the other side asked for is not shortened, and not everybody comes back at
/// that very moment.
pub fn spread(at_most: Duration, at_least: Duration, chance: f64) -> Duration {
    if at_most == at_least {
        return at_most;
    }
    at_least.max(full_jitter(at_most, chance))
}
