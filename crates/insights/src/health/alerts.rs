//! When somebody should be told, and when it is over. (OBS-007)
//!
//! Every rule gives a *reading*: how much of its threshold is reached. A reading has to stay above 1 for a while before
//! the alert is raised, and below [`CALM`] for a while before it is resolved; in between nothing changes. So an alert is
//! raised once and resolved once, however much the reading trembles.
//!
//! Invariants
//! - ALERT-1: raised and resolved take turns, beginning with raised.
//! - ALERT-2: what cannot be read raises nothing, and resolves what is raised: nobody is hurt by what nobody calls.

use std::time::Duration;

use contract::event_name::EventName;
use contract::ids::{TenantId, ToolId};
use contract::manifest::TimeoutClass;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::health_store::AlertRule;

/// Below this share of the threshold it is calm again.
pub const CALM: f64 = 0.8;

/// What is measured against what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlertReading {
    pub value: f64,
    pub threshold: f64,
}

impl AlertReading {
    /// How much of the threshold is reached.
    fn ratio(self) -> f64 {
        if self.threshold > 0.0 {
            self.value / self.threshold
        } else if self.value > 0.0 {
            f64::INFINITY
        } else {
            0.0
        }
    }
}

/// How long a reading has to stay before anything changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlertHold {
    pub raise_after: Duration,
    pub resolve_after: Duration,
}

/// Where one alert stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlertState {
    /// Nothing is raised; above the threshold since then, if it is.
    Quiet { over_since: Option<Duration> },
    /// Raised; calm since then, if it is.
    Raised { at: UnixMillis, calm_since: Option<Duration> },
}

impl Default for AlertState {
    fn default() -> Self {
        Self::Quiet { over_since: None }
    }
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertChange {
    Raised,
    /// Raised at that time, and over.
    Resolved {
        raised_at: UnixMillis,
    },
}

/// One step: where the alert stands after this reading, and whether that is news.
pub fn next(
    standing: AlertState,
    reading: Option<AlertReading>,
    (now, wall): (Duration, UnixMillis),
    hold: AlertHold,
) -> (AlertState, Option<AlertChange>) {
    let ratio = reading.map(AlertReading::ratio);
    match standing {
        AlertState::Quiet { over_since } => {
            if !ratio.is_some_and(|ratio| ratio > 1.0) {
                return (AlertState::default(), None);
            }
            let since = over_since.unwrap_or(now);
            if now.saturating_sub(since) >= hold.raise_after {
                (AlertState::Raised { at: wall, calm_since: None }, Some(AlertChange::Raised))
            } else {
                (AlertState::Quiet { over_since: Some(since) }, None)
            }
        }
        AlertState::Raised { at, calm_since } => {
            if ratio.is_some_and(|ratio| ratio > CALM) {
                return (AlertState::Raised { at, calm_since: None }, None);
            }
            let since = calm_since.unwrap_or(now);
            if now.saturating_sub(since) >= hold.resolve_after {
                (AlertState::default(), Some(AlertChange::Resolved { raised_at: at }))
            } else {
                (AlertState::Raised { at, calm_since: Some(since) }, None)
            }
        }
    }
}

/// What somebody should do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclassify {
    pub from: TimeoutClass,
    pub to: TimeoutClass,
}

impl Reclassify {
    /// Its name on the wire and in the log (OBS-009).
    pub const NAME: &'static str = EventName::ReclassifyTimeout.as_str();
}

/// An alert, for those who are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    pub rule: AlertRule,
    /// Whose: the tenant of the tool or of the queue.
    pub tenant: TenantId,
    pub tool: Option<(ToolId, Version)>,
    pub raised_at: UnixMillis,
    /// There once it is over.
    pub resolved_at: Option<UnixMillis>,
    /// As it was read last; `None` if nobody calls any more.
    pub reading: Option<AlertReading>,
    pub suggestion: Option<Reclassify>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLD: AlertHold = AlertHold { raise_after: Duration::from_secs(60), resolve_after: Duration::from_secs(300) };

    fn run(readings: impl IntoIterator<Item = Option<f64>>) -> Vec<(u64, AlertChange)> {
        let mut standing = AlertState::default();
        let mut turns = Vec::new();
        for (second, value) in (0_u64..).step_by(15).zip(readings) {
            let reading = value.map(|value| AlertReading { value, threshold: 1.0 });
            let (now, wall) = (Duration::from_secs(second), UnixMillis(i64::try_from(second).unwrap() * 1000));
            let (after, turn) = next(standing, reading, (now, wall), HOLD);
            standing = after;
            turns.extend(turn.map(|turn| (second, turn)));
        }
        turns
    }

    #[test]
    fn it_is_raised_after_a_while_and_resolved_after_another() {
        let readings = [vec![Some(2.0); 10], vec![Some(0.1); 40]].concat();
        let raised_at = UnixMillis(60_000);
        assert_eq!(run(readings), [(60, AlertChange::Raised), (450, AlertChange::Resolved { raised_at })]);
        assert_eq!(run(vec![Some(2.0), Some(2.0), Some(0.9), Some(2.0), Some(2.0)]), [], "never long enough");
    }

    #[test]
    fn trembling_about_the_threshold_raises_once() {
        let trembling = (0..200).map(|n| Some(if n % 3 == 0 { 0.9 } else { 1.1 }));
        let readings: Vec<_> = vec![Some(1.5); 6].into_iter().chain(trembling).collect();
        assert_eq!(run(readings), [(60, AlertChange::Raised)]);
    }

    #[test]
    fn what_nobody_calls_any_more_is_resolved() {
        let turns = run([vec![Some(2.0); 6], vec![None; 30]].concat());
        assert_eq!(turns.len(), 2, "{turns:?}");
        assert_eq!(run(vec![None; 50]), []);
        assert_eq!(AlertReading { value: 1.0, threshold: 0.0 }.ratio(), f64::INFINITY);
    }

    #[test]
    fn every_rule_has_its_name() {
        for rule in AlertRule::ALL {
            assert_eq!(AlertRule::of_word(rule.as_str()), Some(rule));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn raised_and_resolved_take_turns(readings in prop::collection::vec(prop::option::of(0.0_f64..2.0), 0..400)) {
            let turns = run(readings);
            for (number, (_, turn)) in turns.iter().enumerate() {
                prop_assert_eq!(matches!(turn, AlertChange::Raised), number % 2 == 0);
            }
            for pair in turns.windows(2) {
                prop_assert!(pair[1].0 > pair[0].0);
            }
        }
    }
}
