//! Cases of `Breakers`. Each takes a fresh state.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold must panic"
)]

use std::sync::Arc;
use std::time::Duration;

use ports::resilience::{
    BreakerAdmission, BreakerMode, BreakerPermit, BreakerReason, BreakerSettings, BreakerVerdict, GuestTag, ManualMove,
    PermittedOutcome, SettingsDraft,
};
use ports::shared_state::{BreakerKey, BreakerQuery, BreakerReport, HISTORY_MAX, SharedState};

use super::StateAdapter;

/// All cases of `Breakers` against one adapter.
#[macro_export]
macro_rules! breakers_suite {
    ($open:path) => {
        $crate::shared_state_cases!(
            $open,
            breakers,
            [
                failures_in_the_window_open_it_for_every_replica,
                an_open_one_refuses_with_the_time_that_is_left,
                half_open_gives_no_more_places_than_it_has_and_closes_after_enough_successes,
                one_failure_of_a_probe_opens_it_again,
                no_guest_opens_it_alone_and_several_do,
                a_place_that_was_given_back_or_whose_lease_is_over_is_free,
                results_of_an_earlier_epoch_do_not_count,
                ignored_results_change_nothing,
                slow_calls_are_timed_by_the_state_itself,
                failures_drop_out_of_the_window,
                a_window_by_count_keeps_the_last_calls,
                an_exponential_wait_grows,
                a_service_that_asks_for_it_is_left_alone_at_once,
                half_open_for_too_long_opens_again,
                every_move_by_hand_does_what_it_says,
                an_illegal_move_changes_nothing,
                transitions_are_heard_once_by_every_replica_and_kept,
                the_history_is_bounded,
                inspection_is_ordered_filtered_and_in_pages,
                breakers_of_different_endpoints_and_tenants_are_apart,
                concurrent_results_are_all_counted,
                concurrent_probes_get_no_more_than_the_places,
                two_replicas_never_make_the_same_transition_twice,
            ]
        );
    };
}

const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(20);

// ---------------------------------------------------------------------------------------------------------- samples

fn key(name: &str) -> BreakerKey {
    name.parse().unwrap()
}

/// Five failures in a minute open it for twenty seconds; four places, two successes.
fn settings() -> BreakerSettings {
    draft().checked().unwrap()
}

fn draft() -> SettingsDraft {
    SettingsDraft {
        failure_threshold: Some(5),
        window_seconds: Some(60),
        open_ms: Some(20_000),
        half_open_max_calls: Some(4),
        success_threshold: Some(2),
        ..SettingsDraft::default()
    }
}

async fn admission(state: &Arc<dyn SharedState>, name: &str, settings: &BreakerSettings) -> BreakerAdmission {
    state.acquire(&key(name), settings, LEASE).await.unwrap()
}

async fn permit(state: &Arc<dyn SharedState>, name: &str, settings: &BreakerSettings) -> BreakerPermit {
    match admission(state, name, settings).await {
        BreakerAdmission::Permitted(permit) => permit,
        BreakerAdmission::Refused { .. } => panic!("{name} refuses"),
    }
}

async fn is_refused(state: &Arc<dyn SharedState>, name: &str, settings: &BreakerSettings) -> bool {
    matches!(admission(state, name, settings).await, BreakerAdmission::Refused { .. })
}

async fn call(state: &Arc<dyn SharedState>, name: &str, settings: &BreakerSettings, verdict: BreakerVerdict) {
    let permit = permit(state, name, settings).await;
    state.record(&key(name), settings, permit, PermittedOutcome::of(verdict)).await.unwrap();
}

async fn fail(state: &Arc<dyn SharedState>, name: &str, settings: &BreakerSettings, times: u32) {
    for _ in 0..times {
        call(state, name, settings, BreakerVerdict::Failed).await;
    }
}

async fn look(state: &Arc<dyn SharedState>, name: &str) -> BreakerReport {
    let all = state.inspect(&BreakerQuery { limit: 100, ..BreakerQuery::default() }).await.unwrap();
    all.into_iter().find(|report| report.key == key(name)).unwrap()
}

async fn mode(state: &Arc<dyn SharedState>, name: &str) -> BreakerMode {
    look(state, name).await.snapshot.mode
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn failures_in_the_window_open_it_for_every_replica(adapter: impl StateAdapter) {
    let (one, two, settings) = (adapter.state(), adapter.other(), settings());
    fail(&one, "mail", &settings, 2).await;
    fail(&two, "mail", &settings, 2).await;
    call(&one, "mail", &settings, BreakerVerdict::Succeeded).await;
    assert_eq!(mode(&two, "mail").await, BreakerMode::Closed);
    fail(&one, "mail", &settings, 1).await;
    assert!(is_refused(&one, "mail", &settings).await && is_refused(&two, "mail", &settings).await);
    let report = look(&two, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.refused), (BreakerMode::Open, 2));
    assert_eq!((report.snapshot.totals.calls, report.snapshot.totals.failed), (6, 5));
    assert_eq!(report.settings, settings);
}

pub async fn an_open_one_refuses_with_the_time_that_is_left(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    fail(&state, "mail", &settings, 5).await;
    adapter.pass(Duration::from_secs(8)).await;
    let BreakerAdmission::Refused { mode, retry_after_ms: Some(wait) } = admission(&state, "mail", &settings).await
    else {
        panic!("it is not open");
    };
    assert_eq!(mode, BreakerMode::Open);
    assert!((10_000..=12_000).contains(&wait), "{wait}");
}

pub async fn half_open_gives_no_more_places_than_it_has_and_closes_after_enough_successes(adapter: impl StateAdapter) {
    let (one, two, settings) = (adapter.state(), adapter.other(), settings());
    fail(&one, "mail", &settings, 5).await;
    adapter.pass(WAIT).await;
    let mut permits = Vec::new();
    for state in [&one, &two, &one, &two] {
        permits.push(permit(state, "mail", &settings).await);
    }
    assert!(is_refused(&one, "mail", &settings).await && is_refused(&two, "mail", &settings).await);
    assert_eq!(look(&one, "mail").await.snapshot.probes, 4);
    one.record(&key("mail"), &settings, permits[0], PermittedOutcome::of(BreakerVerdict::Succeeded)).await.unwrap();
    assert_eq!(mode(&two, "mail").await, BreakerMode::HalfOpen);
    two.record(&key("mail"), &settings, permits[1], PermittedOutcome::of(BreakerVerdict::Succeeded)).await.unwrap();
    let report = look(&one, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.totals.calls), (BreakerMode::Closed, 0));
}

pub async fn one_failure_of_a_probe_opens_it_again(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    fail(&state, "mail", &settings, 5).await;
    adapter.pass(WAIT).await;
    call(&state, "mail", &settings, BreakerVerdict::Succeeded).await;
    call(&state, "mail", &settings, BreakerVerdict::Failed).await;
    assert_eq!(mode(&state, "mail").await, BreakerMode::Open);
    assert!(is_refused(&state, "mail", &settings).await);
}

pub async fn no_guest_opens_it_alone_and_several_do(adapter: impl StateAdapter) {
    let (one, two, settings) = (adapter.state(), adapter.other(), settings());
    let ends = async |state: &Arc<dyn SharedState>, guest: u8, verdict: BreakerVerdict| {
        let permit = permit(state, "mail", &settings).await;
        let outcome = PermittedOutcome { guest: Some(GuestTag::of(guest)), ..PermittedOutcome::of(verdict) };
        state.record(&key("mail"), &settings, permit, outcome).await.unwrap();
    };
    for _ in 0..10 {
        ends(&one, 1, BreakerVerdict::Failed).await;
        ends(&two, 1, BreakerVerdict::Failed).await;
    }
    assert_eq!(mode(&two, "mail").await, BreakerMode::Closed, "the replicas count one guest together");
    assert_eq!(look(&one, "mail").await.snapshot.totals.failed, 2);
    for guest in [2, 2, 3] {
        ends(&one, guest, BreakerVerdict::Failed).await;
    }
    assert_eq!(mode(&two, "mail").await, BreakerMode::Open);
    adapter.pass(WAIT).await;
    for _ in 0..3 {
        ends(&two, 1, BreakerVerdict::Failed).await;
    }
    assert_eq!(mode(&one, "mail").await, BreakerMode::HalfOpen);
    ends(&one, 2, BreakerVerdict::Failed).await;
    assert_eq!(mode(&one, "mail").await, BreakerMode::Open);
}

pub async fn a_place_that_was_given_back_or_whose_lease_is_over_is_free(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    fail(&state, "mail", &settings, 5).await;
    adapter.pass(WAIT).await;
    let first = permit(&state, "mail", &settings).await;
    for _ in 0..3 {
        permit(&state, "mail", &settings).await;
    }
    assert!(is_refused(&state, "mail", &settings).await);
    state.release(&key("mail"), &settings, first).await.unwrap();
    permit(&state, "mail", &settings).await;
    assert!(is_refused(&state, "mail", &settings).await);
    adapter.pass(LEASE).await;
    for _ in 0..4 {
        permit(&state, "mail", &settings).await;
    }
    assert!(is_refused(&state, "mail", &settings).await);
}

pub async fn results_of_an_earlier_epoch_do_not_count(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    let late = permit(&state, "mail", &settings).await;
    fail(&state, "mail", &settings, 5).await;
    adapter.pass(WAIT).await;
    call(&state, "mail", &settings, BreakerVerdict::Succeeded).await;
    for verdict in [BreakerVerdict::Succeeded, BreakerVerdict::Failed] {
        state.record(&key("mail"), &settings, late, PermittedOutcome::of(verdict)).await.unwrap();
        assert_eq!(mode(&state, "mail").await, BreakerMode::HalfOpen);
    }
}

pub async fn ignored_results_change_nothing(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    for _ in 0..10 {
        call(&state, "mail", &settings, BreakerVerdict::Ignored).await;
    }
    let report = look(&state, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.totals.calls), (BreakerMode::Closed, 0));
}

pub async fn slow_calls_are_timed_by_the_state_itself(adapter: impl StateAdapter) {
    let state = adapter.state();
    let wishes = SettingsDraft {
        failure_threshold: Some(0),
        slow_percent: Some(50.0),
        slow_after_ms: Some(10_000),
        minimum_calls: Some(2),
        ..draft()
    };
    let settings = wishes.checked().unwrap();
    call(&state, "mail", &settings, BreakerVerdict::Succeeded).await;
    let slow = permit(&state, "mail", &settings).await;
    adapter.pass(Duration::from_secs(11)).await;
    state.record(&key("mail"), &settings, slow, PermittedOutcome::of(BreakerVerdict::Succeeded)).await.unwrap();
    let report = look(&state, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.slow_percent), (BreakerMode::Open, Some(50.0)));
    assert_eq!(report.snapshot.failure_percent, Some(0.0));
}

pub async fn failures_drop_out_of_the_window(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    fail(&state, "mail", &settings, 4).await;
    adapter.pass(Duration::from_secs(61)).await;
    fail(&state, "mail", &settings, 4).await;
    let report = look(&state, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.totals.failed), (BreakerMode::Closed, 4));
}

pub async fn a_window_by_count_keeps_the_last_calls(adapter: impl StateAdapter) {
    let state = adapter.state();
    let wishes = SettingsDraft {
        failure_threshold: Some(0),
        failure_percent: Some(60.0),
        minimum_calls: Some(50),
        window_seconds: None,
        window_calls: Some(5),
        ..draft()
    };
    let settings = wishes.checked().unwrap();
    fail(&state, "mail", &settings, 2).await;
    for _ in 0..3 {
        call(&state, "mail", &settings, BreakerVerdict::Succeeded).await;
    }
    assert_eq!(look(&state, "mail").await.snapshot.failure_percent, Some(40.0));
    // The two failures drop out; the least number of calls is cut to the size of the window.
    fail(&state, "mail", &settings, 2).await;
    assert_eq!(look(&state, "mail").await.snapshot.failure_percent, Some(40.0));
    fail(&state, "mail", &settings, 1).await;
    assert_eq!(mode(&state, "mail").await, BreakerMode::Open);
}

pub async fn an_exponential_wait_grows(adapter: impl StateAdapter) {
    let state = adapter.state();
    let wishes = SettingsDraft {
        failure_threshold: Some(1),
        open_ms: None,
        open_backoff_first_ms: Some(10_000),
        open_backoff_factor: Some(3.0),
        ..draft()
    };
    let settings = wishes.checked().unwrap();
    fail(&state, "mail", &settings, 1).await;
    adapter.pass(Duration::from_secs(10)).await;
    call(&state, "mail", &settings, BreakerVerdict::Failed).await;
    adapter.pass(Duration::from_secs(25)).await;
    assert!(is_refused(&state, "mail", &settings).await);
    adapter.pass(Duration::from_secs(5)).await;
    permit(&state, "mail", &settings).await;
}

pub async fn a_service_that_asks_for_it_is_left_alone_at_once(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    let asked = permit(&state, "mail", &settings).await;
    let outcome = PermittedOutcome { open_for_ms: Some(100_000), ..PermittedOutcome::of(BreakerVerdict::Failed) };
    state.record(&key("mail"), &settings, asked, outcome).await.unwrap();
    adapter.pass(Duration::from_secs(95)).await;
    assert!(is_refused(&state, "mail", &settings).await);
    assert_eq!(look(&state, "mail").await.history[0].reason, BreakerReason::Asked);
    adapter.pass(Duration::from_secs(5)).await;
    permit(&state, "mail", &settings).await;
}

pub async fn half_open_for_too_long_opens_again(adapter: impl StateAdapter) {
    let state = adapter.state();
    let settings = SettingsDraft { half_open_max_ms: Some(10_000), ..draft() }.checked().unwrap();
    fail(&state, "mail", &settings, 5).await;
    adapter.pass(WAIT).await;
    permit(&state, "mail", &settings).await;
    adapter.pass(Duration::from_secs(10)).await;
    assert!(is_refused(&state, "mail", &settings).await);
    assert_eq!(look(&state, "mail").await.history[0].reason, BreakerReason::HalfOpenTooLong);
}

pub async fn every_move_by_hand_does_what_it_says(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    for (by_hand, expected, refuses) in [
        (ManualMove::ForceOpen, BreakerMode::ForcedOpen, true),
        (ManualMove::HalfOpen, BreakerMode::HalfOpen, false),
        (ManualMove::Disable, BreakerMode::Disabled, false),
        (ManualMove::Open { for_ms: Some(100_000) }, BreakerMode::Open, true),
        (ManualMove::MetricsOnly, BreakerMode::MetricsOnly, false),
        (ManualMove::Close, BreakerMode::Closed, false),
        (ManualMove::Open { for_ms: None }, BreakerMode::Open, true),
        (ManualMove::Reset, BreakerMode::Closed, false),
    ] {
        let report = state.shift(&key("mail"), &settings, by_hand).await.unwrap().unwrap();
        assert_eq!(report.snapshot.mode, expected, "{by_hand:?}");
        assert_eq!((report.history[0].to, report.history[0].reason), (expected, BreakerReason::Manual));
        assert_eq!(is_refused(&adapter.other(), "mail", &settings).await, refuses, "{by_hand:?}");
    }
    // Forced open has no end of its own.
    state.shift(&key("mail"), &settings, ManualMove::ForceOpen).await.unwrap().unwrap();
    adapter.pass(Duration::from_secs(86_400)).await;
    assert!(is_refused(&state, "mail", &settings).await);
    // What is off counts nothing.
    state.shift(&key("mail"), &settings, ManualMove::Disable).await.unwrap().unwrap();
    fail(&state, "mail", &settings, 10).await;
    assert_eq!(look(&state, "mail").await.snapshot.totals.calls, 0);
    state.shift(&key("mail"), &settings, ManualMove::MetricsOnly).await.unwrap().unwrap();
    fail(&state, "mail", &settings, 10).await;
    let report = look(&state, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.totals.failed), (BreakerMode::MetricsOnly, 10));
}

pub async fn an_illegal_move_changes_nothing(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    fail(&state, "mail", &settings, 2).await;
    let illegal = state.shift(&key("mail"), &settings, ManualMove::HalfOpen).await.unwrap().unwrap_err();
    assert_eq!((illegal.from, illegal.to), (BreakerMode::Closed, BreakerMode::HalfOpen));
    let report = look(&state, "mail").await;
    assert_eq!((report.snapshot.mode, report.snapshot.totals.failed), (BreakerMode::Closed, 2));
    assert_eq!(report.history, []);
}

pub async fn transitions_are_heard_once_by_every_replica_and_kept(adapter: impl StateAdapter) {
    let (one, two, settings) = (adapter.state(), adapter.other(), settings());
    let (mut first, mut second) = (one.transitions(), two.transitions());
    fail(&one, "mail@primary", &settings, 5).await;
    adapter.pass(WAIT).await;
    permit(&two, "mail@primary", &settings).await;
    let expected = [(BreakerMode::Closed, BreakerMode::Open), (BreakerMode::Open, BreakerMode::HalfOpen)];
    for heard in [&mut first, &mut second] {
        for change in expected {
            let transition = tokio::time::timeout(Duration::from_secs(30), heard.recv()).await.unwrap().unwrap();
            assert_eq!((transition.change.from, transition.change.to), change);
            assert_eq!(transition.key, key("mail@primary"));
        }
        assert!(heard.try_recv().is_err());
    }
    let kept: Vec<_> = look(&one, "mail@primary").await.history.iter().rev().map(|past| (past.from, past.to)).collect();
    assert_eq!(kept, expected);
}

pub async fn the_history_is_bounded(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    for _ in 0..HISTORY_MAX {
        state.shift(&key("mail"), &settings, ManualMove::ForceOpen).await.unwrap().unwrap();
        state.shift(&key("mail"), &settings, ManualMove::Close).await.unwrap().unwrap();
    }
    let history = look(&state, "mail").await.history;
    assert_eq!(history.len(), HISTORY_MAX);
    assert_eq!((history[0].from, history[0].to), (BreakerMode::ForcedOpen, BreakerMode::Closed));
}

pub async fn inspection_is_ordered_filtered_and_in_pages(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    for name in ["b", "a@2", "acme/a", "a@1", "a"] {
        fail(&state, name, &settings, 1).await;
    }
    let names = |query: BreakerQuery| {
        let state = Arc::clone(&state);
        async move {
            let reports = state.inspect(&query).await.unwrap();
            reports.iter().map(|report| report.key.to_string()).collect::<Vec<_>>()
        }
    };
    let all = BreakerQuery { limit: 100, ..BreakerQuery::default() };
    assert_eq!(names(all.clone()).await, ["acme/a", "a", "a@1", "a@2", "b"]);
    let home = BreakerQuery { tenant: Some(key("a").tenant().clone()), ..all.clone() };
    assert_eq!(names(home).await, ["a", "a@1", "a@2", "b"]);
    assert_eq!(names(BreakerQuery { service: Some("b".into()), ..all.clone() }).await, ["b"]);
    let page = |after: Option<&str>| BreakerQuery { after: after.map(key), limit: 2, ..BreakerQuery::default() };
    assert_eq!(names(page(None)).await, ["acme/a", "a"]);
    assert_eq!(names(page(Some("a"))).await, ["a@1", "a@2"]);
    assert_eq!(names(page(Some("a@2"))).await, ["b"]);
}

pub async fn breakers_of_different_endpoints_and_tenants_are_apart(adapter: impl StateAdapter) {
    let (state, settings) = (adapter.state(), settings());
    fail(&state, "mail@primary", &settings, 5).await;
    assert!(is_refused(&state, "mail@primary", &settings).await);
    for name in ["mail", "mail@second", "acme/mail@primary"] {
        assert!(!is_refused(&state, name, &settings).await, "{name}");
    }
}

pub async fn concurrent_results_are_all_counted(adapter: impl StateAdapter) {
    const EACH: u32 = 25;
    let settings = SettingsDraft { failure_threshold: Some(100_000), ..draft() }.checked().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (state, settings) = (if task % 2 == 0 { adapter.state() } else { adapter.other() }, settings.clone());
        tasks.spawn(async move { fail(&state, "mail", &settings, EACH).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(look(&adapter.state(), "mail").await.snapshot.totals.failed, 8 * EACH);
}

pub async fn concurrent_probes_get_no_more_than_the_places(adapter: impl StateAdapter) {
    let settings = settings();
    fail(&adapter.state(), "mail", &settings, 5).await;
    adapter.pass(WAIT).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let (state, settings) = (if task % 2 == 0 { adapter.state() } else { adapter.other() }, settings.clone());
        tasks.spawn(async move { !is_refused(&state, "mail", &settings).await });
    }
    let mut permitted = 0;
    while let Some(done) = tasks.join_next().await {
        permitted += u32::from(done.unwrap());
    }
    assert_eq!(permitted, 4);
}

pub async fn two_replicas_never_make_the_same_transition_twice(adapter: impl StateAdapter) {
    let settings = settings();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let (state, settings) = (if task % 2 == 0 { adapter.state() } else { adapter.other() }, settings.clone());
        tasks.spawn(async move {
            // Those that come after it has opened are refused, and that is as well.
            if let BreakerAdmission::Permitted(permit) = admission(&state, "mail", &settings).await {
                state
                    .record(&key("mail"), &settings, permit, PermittedOutcome::of(BreakerVerdict::Failed))
                    .await
                    .unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let history = look(&adapter.state(), "mail").await.history;
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].from, history[0].to), (BreakerMode::Closed, BreakerMode::Open));
}
