//! Cases of `RateLimits`. Each takes a fresh state.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::time::Duration;

use ports::resilience::{QuotaOutcome, RateQuota};
use ports::shared_state::{AllTaken, KEY_BYTES_MAX, KeyedQuota, LIMITS_AT_ONCE_MAX, SharedStateError};

use super::StateAdapter;

/// All cases of `RateLimits` against one adapter.
#[macro_export]
macro_rules! limits_suite {
    ($open:path) => {
        $crate::shared_state_cases!(
            $open,
            limits,
            [
                a_quota_is_shared_by_every_replica,
                what_is_refused_can_be_had_after_the_wait,
                several_are_taken_together_or_not_at_all,
                the_longest_wait_of_those_that_refuse_is_told,
                more_than_the_burst_is_never_given,
                no_limits_allow_everything,
                the_same_key_twice_is_taken_from_twice,
                looking_takes_nothing,
                too_much_at_once_is_refused,
                concurrent_takers_get_exactly_the_quota,
            ]
        );
    };
}

fn limit(key: &str, quota: RateQuota) -> KeyedQuota<'_> {
    KeyedQuota { key, quota }
}

fn per_hour(count: u32) -> RateQuota {
    RateQuota::new(count, Duration::from_hours(1)).unwrap()
}

fn is_allowed(taken: AllTaken) -> bool {
    matches!(taken, AllTaken::Allowed { .. })
}

pub async fn a_quota_is_shared_by_every_replica(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    let hourly = limit("calls:a", per_hour(3));
    for (state, left) in [(&one, 2), (&two, 1), (&one, 0)] {
        let taken = state.take(&[hourly], 1).await.unwrap();
        assert!(matches!(taken, AllTaken::Allowed { remaining, .. } if remaining == left), "{taken:?}");
    }
    for state in [&one, &two] {
        assert!(matches!(state.take(&[hourly], 1).await.unwrap(), AllTaken::Refused { which: 0, .. }));
    }
    assert!(is_allowed(one.take(&[limit("calls:b", per_hour(3))], 1).await.unwrap()));
}

pub async fn what_is_refused_can_be_had_after_the_wait(adapter: impl StateAdapter) {
    let state = adapter.state();
    let limit = limit("calls", RateQuota::new(2, Duration::from_secs(40)).unwrap());
    assert!(is_allowed(state.take(&[limit], 2).await.unwrap()));
    let AllTaken::Refused { retry_after: Some(wait), .. } = state.take(&[limit], 1).await.unwrap() else {
        assert_eq!("allowed", "refused");
        return;
    };
    assert!(wait > Duration::from_secs(18) && wait <= Duration::from_secs(20), "{wait:?}");
    adapter.pass(Duration::from_secs(15)).await;
    assert!(!is_allowed(state.take(&[limit], 1).await.unwrap()));
    adapter.pass(Duration::from_secs(5)).await;
    assert!(is_allowed(state.take(&[limit], 1).await.unwrap()));
    // Everything is there again when everything was waited for, and no more than everything.
    adapter.pass(Duration::from_secs(400)).await;
    assert!(is_allowed(state.take(&[limit], 2).await.unwrap()));
    assert!(!is_allowed(state.take(&[limit], 1).await.unwrap()));
}

pub async fn several_are_taken_together_or_not_at_all(adapter: impl StateAdapter) {
    let state = adapter.state();
    let (wide, narrow) = (limit("wide", per_hour(10)), limit("narrow", per_hour(2)));
    for _ in 0..2 {
        assert!(is_allowed(state.take(&[wide, narrow], 1).await.unwrap()));
    }
    for _ in 0..5 {
        let taken = state.take(&[wide, narrow], 1).await.unwrap();
        assert!(matches!(taken, AllTaken::Refused { which: 1, retry_after: Some(_) }), "{taken:?}");
    }
    // The wide one has lost two, not seven.
    let taken = state.take(&[wide], 1).await.unwrap();
    assert!(matches!(taken, AllTaken::Allowed { remaining: 7, .. }), "{taken:?}");
}

pub async fn the_longest_wait_of_those_that_refuse_is_told(adapter: impl StateAdapter) {
    let state = adapter.state();
    let minute = limit("minute", RateQuota::new(1, Duration::from_secs(60)).unwrap());
    let hour = limit("hour", per_hour(1));
    assert!(is_allowed(state.take(&[minute, hour], 1).await.unwrap()));
    let AllTaken::Refused { which: 1, retry_after: Some(wait) } = state.take(&[minute, hour], 1).await.unwrap() else {
        assert_eq!("another answer", "refused by the second");
        return;
    };
    assert!(wait > Duration::from_secs(3_500) && wait <= Duration::from_hours(1), "{wait:?}");
}

pub async fn more_than_the_burst_is_never_given(adapter: impl StateAdapter) {
    let state = adapter.state();
    let limit = limit("calls", per_hour(3));
    let taken = state.take(&[limit], 4).await.unwrap();
    assert_eq!(taken, AllTaken::Refused { which: 0, retry_after: None });
    assert!(is_allowed(state.take(&[limit], 3).await.unwrap()));
}

pub async fn no_limits_allow_everything(adapter: impl StateAdapter) {
    assert!(is_allowed(adapter.state().take(&[], 1_000).await.unwrap()));
}

pub async fn the_same_key_twice_is_taken_from_twice(adapter: impl StateAdapter) {
    let state = adapter.state();
    let limit = limit("calls", per_hour(3));
    assert!(is_allowed(state.take(&[limit, limit], 1).await.unwrap()));
    assert!(!is_allowed(state.take(&[limit, limit], 1).await.unwrap()));
    assert!(is_allowed(state.take(&[limit], 1).await.unwrap()));
}

pub async fn looking_takes_nothing(adapter: impl StateAdapter) {
    let state = adapter.state();
    let limit = limit("calls", per_hour(1));
    for _ in 0..5 {
        assert!(matches!(state.peek(limit).await.unwrap(), QuotaOutcome::Allowed { remaining: 0, .. }));
    }
    assert!(is_allowed(state.take(&[limit], 1).await.unwrap()));
    assert!(matches!(state.peek(limit).await.unwrap(), QuotaOutcome::Refused { retry_after: Some(_) }));
}

pub async fn too_much_at_once_is_refused(adapter: impl StateAdapter) {
    let state = adapter.state();
    let many = [limit("calls", per_hour(1_000)); LIMITS_AT_ONCE_MAX + 1];
    assert!(matches!(state.take(&many, 1).await, Err(SharedStateError::TooLarge)));
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    assert!(matches!(state.take(&[limit(&long, per_hour(1))], 1).await, Err(SharedStateError::TooLarge)));
}

pub async fn concurrent_takers_get_exactly_the_quota(adapter: impl StateAdapter) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let state = if task % 2 == 0 { adapter.state() } else { adapter.other() };
        tasks.spawn(async move {
            let mut got = 0_u32;
            for _ in 0..20 {
                let limits = [limit("one", per_hour(100)), limit("two", per_hour(150))];
                // In both orders, so that whoever locks them has to have an order of its own.
                let limits = if task % 4 < 2 { limits } else { [limits[1], limits[0]] };
                got += u32::from(is_allowed(state.take(&limits, 1).await.unwrap()));
            }
            got
        });
    }
    let mut got = 0;
    while let Some(done) = tasks.join_next().await {
        got += done.unwrap();
    }
    assert_eq!(got, 100);
}
