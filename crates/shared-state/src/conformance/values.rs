//! Cases of `SharedValues`. Each takes a fresh state.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::time::Duration;

use ports::shared_state::{KEY_BYTES_MAX, ReplaceMode, ReserveOutcome, SharedStateError, VALUE_BYTES_MAX};

use super::StateAdapter;

/// All cases of `SharedValues` against one adapter.
#[macro_export]
macro_rules! values_suite {
    ($open:path) => {
        $crate::shared_state_cases!(
            $open,
            values,
            [
                a_counter_never_passes_its_ceiling,
                a_settlement_corrects_a_reservation_and_never_goes_under_zero,
                a_counter_that_nobody_touches_is_forgotten,
                concurrent_reservations_fill_the_ceiling_exactly,
                a_value_is_seen_by_every_replica_until_its_time_is_over,
                a_value_that_must_not_be_replaced_is_not,
                of_many_who_put_a_value_first_one_succeeds,
                a_removed_value_is_gone,
                a_value_may_be_any_bytes_but_not_too_many,
                replicas_are_present_as_long_as_they_say_so,
                it_says_how_it_is,
            ]
        );
    };
}

const TTL: Duration = Duration::from_secs(60);

pub async fn a_counter_never_passes_its_ceiling(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    assert_eq!(one.reserve("spent", 60, 100, TTL).await.unwrap(), ReserveOutcome::Within { total: 60 });
    assert_eq!(two.reserve("spent", 41, 100, TTL).await.unwrap(), ReserveOutcome::Over { total: 60 });
    assert_eq!(two.reserve("spent", 40, 100, TTL).await.unwrap(), ReserveOutcome::Within { total: 100 });
    assert_eq!(one.reserve("spent", 1, 100, TTL).await.unwrap(), ReserveOutcome::Over { total: 100 });
    assert_eq!(one.reserve("other", 101, 100, TTL).await.unwrap(), ReserveOutcome::Over { total: 0 });
}

pub async fn a_settlement_corrects_a_reservation_and_never_goes_under_zero(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    one.reserve("spent", 60, 100, TTL).await.unwrap();
    assert_eq!(two.settle("spent", 60, 10, TTL).await.unwrap(), 10);
    assert_eq!(one.settle("spent", 0, 500, TTL).await.unwrap(), 510);
    assert_eq!(two.reserve("spent", 1, 100, TTL).await.unwrap(), ReserveOutcome::Over { total: 510 });
    assert_eq!(one.settle("spent", 600, 0, TTL).await.unwrap(), 0);
}

pub async fn a_counter_that_nobody_touches_is_forgotten(adapter: impl StateAdapter) {
    let state = adapter.state();
    state.reserve("spent", 60, 100, TTL).await.unwrap();
    adapter.pass(TTL / 2).await;
    state.reserve("spent", 1, 100, TTL).await.unwrap();
    adapter.pass(TTL / 2 + Duration::from_secs(10)).await;
    assert_eq!(state.reserve("spent", 1, 100, TTL).await.unwrap(), ReserveOutcome::Within { total: 62 });
    adapter.pass(TTL).await;
    assert_eq!(state.reserve("spent", 1, 100, TTL).await.unwrap(), ReserveOutcome::Within { total: 1 });
}

pub async fn concurrent_reservations_fill_the_ceiling_exactly(adapter: impl StateAdapter) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let state = if task % 2 == 0 { adapter.state() } else { adapter.other() };
        tasks.spawn(async move {
            let mut got = 0_u32;
            for _ in 0..20 {
                got += u32::from(matches!(
                    state.reserve("spent", 1, 150, TTL).await.unwrap(),
                    ReserveOutcome::Within { .. }
                ));
            }
            got
        });
    }
    let mut got = 0;
    while let Some(done) = tasks.join_next().await {
        got += done.unwrap();
    }
    assert_eq!(got, 150);
}

pub async fn a_value_is_seen_by_every_replica_until_its_time_is_over(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    assert_eq!(two.get("checkpoint:1").await.unwrap(), None);
    assert!(one.put("checkpoint:1", b"one", TTL, ReplaceMode::Always).await.unwrap());
    assert_eq!(two.get("checkpoint:1").await.unwrap().as_deref(), Some(&b"one"[..]));
    assert!(two.put("checkpoint:1", b"two", TTL, ReplaceMode::Always).await.unwrap());
    assert_eq!(one.get("checkpoint:1").await.unwrap().as_deref(), Some(&b"two"[..]));
    adapter.pass(TTL - Duration::from_secs(10)).await;
    assert!(one.get("checkpoint:1").await.unwrap().is_some());
    adapter.pass(Duration::from_secs(10)).await;
    assert_eq!(one.get("checkpoint:1").await.unwrap(), None);
}

pub async fn a_value_that_must_not_be_replaced_is_not(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    assert!(one.put("key", b"first", TTL, ReplaceMode::Never).await.unwrap());
    assert!(!two.put("key", b"second", TTL, ReplaceMode::Never).await.unwrap());
    assert_eq!(two.get("key").await.unwrap().as_deref(), Some(&b"first"[..]));
    adapter.pass(TTL).await;
    assert!(two.put("key", b"third", TTL, ReplaceMode::Never).await.unwrap());
}

pub async fn of_many_who_put_a_value_first_one_succeeds(adapter: impl StateAdapter) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32_u8 {
        let state = if task % 2 == 0 { adapter.state() } else { adapter.other() };
        tasks.spawn(async move { (state.put("key", &[task], TTL, ReplaceMode::Never).await.unwrap(), task) });
    }
    let mut won = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (first, task) = done.unwrap();
        won.extend(first.then_some(task));
    }
    assert_eq!(won.len(), 1);
    assert_eq!(adapter.state().get("key").await.unwrap(), Some(won));
}

pub async fn a_removed_value_is_gone(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    assert!(!one.remove("key").await.unwrap());
    one.put("key", b"value", TTL, ReplaceMode::Always).await.unwrap();
    assert!(two.remove("key").await.unwrap());
    assert!(!one.remove("key").await.unwrap());
    assert_eq!(one.get("key").await.unwrap(), None);
}

pub async fn a_value_may_be_any_bytes_but_not_too_many(adapter: impl StateAdapter) {
    let state = adapter.state();
    let bytes: Vec<u8> = (0..=255).cycle().take(VALUE_BYTES_MAX).collect();
    assert!(state.put("bytes", &bytes, TTL, ReplaceMode::Always).await.unwrap());
    assert_eq!(state.get("bytes").await.unwrap(), Some(bytes));
    assert!(state.put("none", b"", TTL, ReplaceMode::Always).await.unwrap());
    assert_eq!(state.get("none").await.unwrap(), Some(Vec::new()));
    let large = vec![0; VALUE_BYTES_MAX + 1];
    assert!(matches!(state.put("large", &large, TTL, ReplaceMode::Always).await, Err(SharedStateError::TooLarge)));
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    assert!(matches!(state.get(&long).await, Err(SharedStateError::TooLarge)));
}

pub async fn replicas_are_present_as_long_as_they_say_so(adapter: impl StateAdapter) {
    let (one, two) = (adapter.state(), adapter.other());
    let present = async || {
        let present = adapter.state().present().await.unwrap();
        present.into_iter().map(|one| (one.replica, one.word)).collect::<Vec<_>>()
    };
    assert_eq!(present().await, []);
    one.announce("r-1", "10.0.0.1:7300", TTL).await.unwrap();
    two.announce("r-2", "10.0.0.2:7300", TTL).await.unwrap();
    adapter.pass(TTL / 2).await;
    two.announce("r-2", "10.0.0.2:7300 draining", TTL).await.unwrap();
    let first = ("r-1".to_owned(), "10.0.0.1:7300".to_owned());
    let second = ("r-2".to_owned(), "10.0.0.2:7300 draining".to_owned());
    assert_eq!(present().await, [first, second.clone()]);
    adapter.pass(TTL / 2).await;
    assert_eq!(present().await, [second]);
    two.announce("r-2", "", Duration::ZERO).await.unwrap();
    assert_eq!(present().await, []);
}

pub async fn it_says_how_it_is(adapter: impl StateAdapter) {
    let health = adapter.state().health().await;
    assert_eq!(health.trouble, None);
    assert!(!health.kind.is_empty());
}
