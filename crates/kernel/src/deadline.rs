//! How long a call may take: the smallest of everything that has a say (DESIGN §8.17, X-09, LIFE-025).

use std::time::Duration;

use contract::manifest::Manifest;

/// No synchronous call takes longer, whatever its manifest says (LIFE-026).
pub const SYNC_MAX: Duration = Duration::from_secs(900);

/// Everybody besides the manifest who has a say about a call's time. `None` says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimeLimits {
    /// The caller's own wish: the only one that may go beyond the manifest's default, up to its ceiling.
    pub(crate) asked: Option<Duration>,
    /// The least that overrides and obligations demand. It shortens and never lengthens.
    pub(crate) conditions: Option<Duration>,
    /// What is left of the token.
    pub(crate) token_left: Option<Duration>,
    /// What is left of the call that made this one.
    pub(crate) parent_left: Option<Duration>,
    /// [`SYNC_MAX`], where somebody waits on a line.
    pub(crate) sync_max: Option<Duration>,
}

/// The time a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeAllowed {
    pub(crate) usual: Duration,
    /// As long as its tool reports progress. A caller that says how long has said it.
    pub(crate) most: Duration,
}

/// The time a call has, or `None` if there is none left before it begins.
pub(crate) fn time_allowed(manifest: &Manifest, limits: TimeLimits) -> Option<TimeAllowed> {
    let default = Duration::from_millis(manifest.timeout_default_ms());
    let ceiling = Duration::from_millis(manifest.timeout_max_ms());
    let TimeLimits { asked: _, conditions, token_left, parent_left, sync_max } = limits;
    let others = [conditions, token_left, parent_left, sync_max];
    let within = |wished: Duration| others.into_iter().flatten().fold(wished.min(ceiling), Duration::min);
    let allowed =
        TimeAllowed { usual: within(limits.asked.unwrap_or(default)), most: within(limits.asked.unwrap_or(ceiling)) };
    (!allowed.usual.is_zero()).then_some(allowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn manifest(default_s: u64) -> Manifest {
        let document = json!({
            "tool_id": "greet", "version": "1.0.0", "name": "Greeter", "description": "Greets somebody by name.",
            "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "long_running",
            "timeout_default": default_s, "parameters": { "type": "object" }, "result_schema": {},
        });
        Manifest::from_value(document).unwrap()
    }

    fn span() -> impl Strategy<Value = Option<Duration>> {
        prop::option::of((0_u64..1_000_000).prop_map(Duration::from_millis))
    }

    fn limits() -> impl Strategy<Value = TimeLimits> {
        (span(), span(), span(), span(), span()).prop_map(|(asked, conditions, token_left, parent_left, sync_max)| {
            TimeLimits { asked, conditions, token_left, parent_left, sync_max }
        })
    }

    #[test]
    fn a_condition_of_fifteen_seconds_does_not_lengthen_a_call_of_one() {
        let conditions = Some(Duration::from_secs(15));
        let allowed = time_allowed(&manifest(1), TimeLimits { conditions, ..TimeLimits::default() }).unwrap();
        assert_eq!(allowed.usual, Duration::from_secs(1));
        assert_eq!(allowed.most, Duration::from_secs(15), "of which progress gives at most what the condition allows");
    }

    proptest! {
        /// Whoever says something, the call takes no longer than if it had said nothing, and no longer than it said. The
        /// caller's own wish alone may lengthen, and never beyond the manifest's ceiling.
        #[test]
        fn nobody_but_the_caller_lengthens_a_call(default_s in 1_u64..300, limits in limits()) {
            let manifest = manifest(default_s);
            let of = |limits| time_allowed(&manifest, limits).map_or(Duration::ZERO, |allowed| allowed.usual);
            let allowed = of(limits);
            let silent = [
                TimeLimits { conditions: None, ..limits },
                TimeLimits { token_left: None, ..limits },
                TimeLimits { parent_left: None, ..limits },
                TimeLimits { sync_max: None, ..limits },
            ];
            for without in silent {
                prop_assert!(allowed <= of(without), "{limits:?}");
            }
            let TimeLimits { asked, conditions, token_left, parent_left, sync_max } = limits;
            for said in [asked, conditions, token_left, parent_left, sync_max].into_iter().flatten() {
                prop_assert!(allowed <= said, "{limits:?}");
            }
            prop_assert!(allowed <= Duration::from_millis(manifest.timeout_max_ms()));
            if asked.is_none() {
                prop_assert!(allowed <= Duration::from_secs(default_s), "{limits:?}");
            }
            // Progress lengthens, and not beyond anybody's word.
            if let Some(TimeAllowed { usual, most }) = time_allowed(&manifest, limits) {
                prop_assert!(usual <= most && most <= Duration::from_millis(manifest.timeout_max_ms()), "{limits:?}");
                for said in [asked, conditions, token_left, parent_left, sync_max].into_iter().flatten() {
                    prop_assert!(most <= said, "{limits:?}");
                }
            }
        }
    }
}
