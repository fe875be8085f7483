//! When a server that went away is started again, and when it is given up (MCP-008, MCP-014, DESIGN §8.14). Pure.
//!
//! ```text
//!            lasted min_uptime                   more than max_restarts in a row
//!   ┌──────────────────────────┐        ┌─────────────────────────────────────────┐
//!   ▼                          │        │                                         ▼
//! failures = 0 ──ended soon──▶ failures + 1 ──▶ pause, start again        unavailable: a probe now and then
//! ```
//!
//! Invariants
//! - RST-1: without a server that lasts there are at most `max_restarts` restarts before it is given up.
//! - RST-2: a pause is never above its bound, never below half of what the number of failures asks for, and never none.
//! - RST-3: only a server that has lasted `min_uptime` is forgiven; that one start succeeded is not enough.

use std::time::Duration;

use base::backoff::{doubled, half_jitter};

/// The bounds of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartBounds {
    /// Restarts in a row of a server that does not last.
    pub(crate) restarts_max: u32,
    /// A server that ends sooner has failed to start.
    pub(crate) uptime_min: Duration,
    pub(crate) pause_first: Duration,
    pub(crate) pause_max: Duration,
    /// Between two probes of a server that was given up.
    pub(crate) probe_every: Duration,
}

/// What to do about a server that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// Start it after a pause.
    Again { pause: Duration },
    /// It is unavailable; see after a pause whether it is back.
    GiveUp { probe: Duration },
}

/// How often a server has failed in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RestartCount {
    failures: u32,
}

impl RestartCount {
    /// It did not start, or ended after `uptime`. `random` is spread over all numbers.
    pub(crate) fn ended(&mut self, uptime: Option<Duration>, bounds: &RestartBounds, random: u32) -> RestartDecision {
        // RST-3.
        if uptime.is_some_and(|uptime| uptime >= bounds.uptime_min) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures > bounds.restarts_max {
            return RestartDecision::GiveUp { probe: spread(bounds.probe_every, random) };
        }
        let pause = doubled(bounds.pause_first, self.failures.saturating_sub(1), bounds.pause_max);
        RestartDecision::Again { pause: spread(pause, random) }
    }

    /// Somebody has asked for it to be tried anew.
    pub(crate) fn forgive(&mut self) {
        self.failures = 0;
    }
}

/// Between half of a span and the whole, so that servers that went down together do not come back together.
fn spread(span: Duration, random: u32) -> Duration {
    half_jitter(span, f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bounds() -> impl Strategy<Value = RestartBounds> {
        (0u32..20, 1u64..100, 1u64..1_000, 1u64..60_000, 1u64..100_000).prop_map(
            |(restarts_max, uptime, first, max, probe)| RestartBounds {
                restarts_max,
                uptime_min: Duration::from_secs(uptime),
                pause_first: Duration::from_millis(first),
                pause_max: Duration::from_millis(first.max(max)),
                probe_every: Duration::from_millis(probe),
            },
        )
    }

    /// Ends of a server: it did not start, or lasted so many seconds.
    fn ends() -> impl Strategy<Value = Vec<(Option<u64>, u32)>> {
        prop::collection::vec((prop::option::of(0u64..200), any::<u32>()), 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn without_a_server_that_lasts_there_are_so_many_restarts_and_no_more(bounds in bounds(), ends in ends()) {
            let mut restarts = RestartCount::default();
            let mut in_a_row = 0;
            for (uptime, random) in ends {
                let uptime = uptime.map(Duration::from_secs);
                if uptime.is_some_and(|uptime| uptime >= bounds.uptime_min) {
                    in_a_row = 0;
                }
                match restarts.ended(uptime, &bounds, random) {
                    RestartDecision::Again { .. } => {
                        in_a_row += 1;
                        prop_assert!(in_a_row <= bounds.restarts_max);
                    }
                    RestartDecision::GiveUp { probe } => {
                        prop_assert_eq!(in_a_row, bounds.restarts_max, "not before all restarts are used up");
                        prop_assert!(probe <= bounds.probe_every && probe >= bounds.probe_every / 2);
                    }
                }
            }
        }

        #[test]
        fn pauses_grow_within_their_bounds(bounds in bounds(), random in any::<u32>()) {
            let mut restarts = RestartCount::default();
            let mut least = Duration::ZERO;
            for n in 0..bounds.restarts_max {
                let RestartDecision::Again { pause } = restarts.ended(None, &bounds, random) else { panic!("given up too early") };
                let asked = bounds.pause_first.saturating_mul(2u32.saturating_pow(n)).min(bounds.pause_max);
                prop_assert!(pause <= asked && pause >= asked / 2 && !pause.is_zero());
                prop_assert!(pause >= least, "the same chance never gives a shorter pause after more failures");
                least = pause;
            }
        }

        #[test]
        fn whoever_is_forgiven_begins_anew(bounds in bounds(), ends in ends(), random in any::<u32>()) {
            let mut restarts = RestartCount::default();
            for (uptime, random) in ends {
                restarts.ended(uptime.map(Duration::from_secs), &bounds, random);
            }
            restarts.forgive();
            prop_assert_eq!(
                restarts.ended(None, &bounds, random),
                RestartCount::default().ended(None, &bounds, random)
            );
        }
    }
}
