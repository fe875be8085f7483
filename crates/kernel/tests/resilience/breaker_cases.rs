//! C1…C26, C28, C31: the breaker, stepped by hand.
//!
//! The setting, unless a case says otherwise: failures 50 %, slow 50 % over 4 s, 4 calls half-open judged by their rates,
//! half-open at most 1 s, window 20 s by time, 5 calls minimum, open for 5 s.

use ports::resilience::{
    Breaker, BreakerAdmission, BreakerEvent, BreakerMode, BreakerPermit, BreakerReason, BreakerSettings,
    BreakerSnapshot, BreakerVerdict, ExceededThreshold, GuestTag, IllegalMove, ManualMove, PermittedOutcome,
    SettingsDraft,
};

use proptest::prelude::*;

const START: u64 = 1_790_000_000_000;
const LEASE: u64 = 600_000;

fn draft() -> SettingsDraft {
    SettingsDraft {
        failure_threshold: Some(0),
        failure_percent: Some(50.0),
        slow_percent: Some(50.0),
        slow_after_ms: Some(4_000),
        minimum_calls: Some(5),
        window_seconds: Some(20),
        open_ms: Some(5_000),
        half_open_max_calls: Some(4),
        success_threshold: Some(0),
        half_open_max_ms: Some(1_000),
        ..SettingsDraft::default()
    }
}

/// A breaker, its clock, and what it has told.
struct Bench {
    settings: BreakerSettings,
    breaker: Breaker,
    now: u64,
    events: Vec<BreakerEvent>,
}

impl Bench {
    fn new(draft: &SettingsDraft) -> Self {
        let settings = draft.checked().unwrap();
        Self { breaker: Breaker::new(START), settings, now: START, events: Vec::new() }
    }

    fn usual() -> Self {
        Self::new(&draft())
    }

    /// Without a bound on half-open time.
    fn patient() -> Self {
        Self::new(&SettingsDraft { half_open_max_ms: None, ..draft() })
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
    }

    fn ask(&mut self) -> Option<BreakerPermit> {
        let acquired = self.breaker.acquire(&self.settings, LEASE, self.now);
        self.events.extend(acquired.events);
        match acquired.admission {
            BreakerAdmission::Permitted(permit) => Some(permit),
            BreakerAdmission::Refused { .. } => None,
        }
    }

    fn end(&mut self, permit: BreakerPermit, outcome: PermittedOutcome) {
        let events = self.breaker.record(&self.settings, permit, outcome, self.now);
        self.events.extend(events);
    }

    fn call(&mut self, verdict: BreakerVerdict) {
        let permit = self.ask().expect("the breaker refuses");
        self.end(permit, PermittedOutcome::of(verdict));
    }

    fn calls(&mut self, verdict: BreakerVerdict, times: u32) {
        (0..times).for_each(|_| self.call(verdict));
    }

    /// A call of a guest, if it is let through.
    fn guest(&mut self, number: u8, verdict: BreakerVerdict) {
        if let Some(permit) = self.ask() {
            self.end(permit, PermittedOutcome { guest: Some(GuestTag::of(number)), ..PermittedOutcome::of(verdict) });
        }
    }

    fn slow_call(&mut self, verdict: BreakerVerdict) {
        let permit = self.ask().expect("the breaker refuses");
        self.end(permit, PermittedOutcome { duration_ms: Some(5_000), ..PermittedOutcome::of(verdict) });
    }

    fn shift(&mut self, by_hand: ManualMove) {
        let events = self.breaker.shift(&self.settings, by_hand, self.now).unwrap();
        self.events.extend(events);
    }

    fn tick(&mut self) {
        let events = self.breaker.tick(&self.settings, self.now);
        self.events.extend(events);
    }

    fn look(&mut self) -> BreakerSnapshot {
        self.breaker.snapshot(&self.settings, self.now)
    }

    fn mode(&self) -> BreakerMode {
        self.breaker.mode()
    }

    /// Open, its wait over, and half-open without a permit out.
    fn half_open(mut self) -> Self {
        self.shift(ManualMove::Open { for_ms: None });
        self.shift(ManualMove::HalfOpen);
        self.events.clear();
        self
    }

    fn exceeded(&self) -> Vec<ExceededThreshold> {
        let told = |event: &BreakerEvent| match event {
            BreakerEvent::Exceeded(what) => Some(*what),
            BreakerEvent::Transition { .. } => None,
        };
        self.events.iter().filter_map(told).collect()
    }

    fn transitions(&self) -> Vec<(BreakerMode, BreakerMode)> {
        let told = |event: &BreakerEvent| match event {
            BreakerEvent::Transition { from, to, .. } => Some((*from, *to)),
            BreakerEvent::Exceeded(_) => None,
        };
        self.events.iter().filter_map(told).collect()
    }
}

#[test]
fn c1_a_call_while_open_is_refused_and_counted() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::Open { for_ms: None });
    assert!(bench.ask().is_none());
    assert_eq!(bench.look().refused, 1);
}

#[test]
fn c2_forced_open_has_no_end() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::ForceOpen);
    assert!(bench.ask().is_none());
    bench.pass(6_000);
    assert!(bench.ask().is_none());
    assert_eq!((bench.mode(), bench.look().refused), (BreakerMode::ForcedOpen, 2));
}

#[test]
fn c3_of_six_tries_half_open_four_are_permitted() {
    let mut bench = Bench::usual().half_open();
    let permitted = (0..6).filter(|_| bench.ask().is_some()).count();
    assert_eq!((permitted, bench.look().refused), (4, 2));
}

#[test]
fn c4_a_released_permit_can_be_had_again() {
    let mut bench = Bench::usual().half_open();
    let permits: Vec<BreakerPermit> = (0..4).filter_map(|_| bench.ask()).collect();
    assert!(bench.ask().is_none());
    bench.breaker.release(&bench.settings, permits[0], bench.now);
    assert!(bench.ask().is_some());
    assert!(bench.ask().is_none());
}

#[test]
fn c5_half_open_again_has_new_permits() {
    let mut bench = Bench::usual().half_open();
    let old: Vec<BreakerPermit> = (0..4).filter_map(|_| bench.ask()).collect();
    bench.shift(ManualMove::Open { for_ms: None });
    bench.shift(ManualMove::HalfOpen);
    let new: Vec<BreakerPermit> = (0..6).filter_map(|_| bench.ask()).collect();
    assert_eq!(new.len(), 4);
    // The old ones neither count nor free a place.
    for permit in old {
        bench.end(permit, PermittedOutcome::of(BreakerVerdict::Failed));
    }
    assert_eq!((bench.mode(), bench.look().totals.calls), (BreakerMode::HalfOpen, 0));
    assert!(bench.ask().is_none());
}

#[test]
fn c6_under_the_minimum_the_rate_is_undefined_and_nothing_opens() {
    let mut bench = Bench::usual();
    bench.calls(BreakerVerdict::Failed, 3);
    bench.call(BreakerVerdict::Succeeded);
    let look = bench.look();
    assert_eq!((look.mode, look.failure_percent, look.totals.calls), (BreakerMode::Closed, None, 4));
}

#[test]
fn c7_at_the_minimum_three_failures_of_five_open_it_with_one_event() {
    let mut bench = Bench::usual();
    bench.calls(BreakerVerdict::Failed, 3);
    bench.calls(BreakerVerdict::Succeeded, 2);
    let look = bench.look();
    assert_eq!((look.mode, look.failure_percent), (BreakerMode::Open, Some(60.0)));
    assert_eq!(bench.exceeded(), [ExceededThreshold::FailurePercent(60.0)]);
    assert_eq!(look.opened_by, Some(BreakerReason::Exceeded(ExceededThreshold::FailurePercent(60.0))));
    assert!(bench.ask().is_none());
}

#[test]
fn c8_half_of_six_calls_a_second_apart_counts_as_reached() {
    let mut bench = Bench::usual();
    for verdict in [[BreakerVerdict::Succeeded; 3], [BreakerVerdict::Failed; 3]].concat() {
        assert_eq!(bench.mode(), BreakerMode::Closed);
        bench.call(verdict);
        bench.pass(1_000);
    }
    assert_eq!(bench.mode(), BreakerMode::Open);
    assert_eq!(bench.exceeded(), [ExceededThreshold::FailurePercent(50.0)]);
}

#[test]
fn c9_slow_calls_open_it_whether_they_failed_or_not() {
    let mut bench = Bench::usual();
    bench.calls(BreakerVerdict::Succeeded, 2);
    bench.slow_call(BreakerVerdict::Succeeded);
    bench.slow_call(BreakerVerdict::Failed);
    bench.slow_call(BreakerVerdict::Succeeded);
    let look = bench.look();
    assert_eq!((look.mode, look.slow_percent), (BreakerMode::Open, Some(60.0)));
    assert_eq!(bench.exceeded(), [ExceededThreshold::SlowPercent(60.0)]);
}

#[test]
fn c10_slow_is_measured_by_the_breakers_own_clock() {
    let mut bench = Bench::usual();
    bench.calls(BreakerVerdict::Succeeded, 2);
    let slow: Vec<BreakerPermit> = (0..3).filter_map(|_| bench.ask()).collect();
    bench.pass(5_000);
    for permit in slow {
        bench.end(permit, PermittedOutcome::of(BreakerVerdict::Succeeded));
    }
    let look = bench.look();
    assert_eq!((look.mode, look.slow_percent), (BreakerMode::Open, Some(60.0)));
}

#[test]
fn c11_before_the_wait_is_over_it_stays_open() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::Open { for_ms: None });
    bench.pass(3_000);
    assert!(bench.ask().is_none());
    let refused = bench.breaker.acquire(&bench.settings, LEASE, bench.now).admission;
    assert_eq!(refused, BreakerAdmission::Refused { mode: BreakerMode::Open, retry_after_ms: Some(2_000) });
}

#[test]
fn c12_after_the_wait_the_next_call_is_a_probe_and_counters_begin_anew() {
    let mut bench = Bench::usual();
    bench.calls(BreakerVerdict::Failed, 5);
    bench.pass(6_000);
    assert!(bench.ask().is_some_and(|permit| permit.slot.is_some()));
    let look = bench.look();
    assert_eq!((look.mode, look.totals.calls), (BreakerMode::HalfOpen, 0));
}

#[test]
fn c13_opened_for_two_hours_by_hand_it_is_open_for_two_hours() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::Open { for_ms: Some(7_200_000) });
    bench.pass(3_600_000);
    assert!(bench.ask().is_none());
    bench.pass(3_600_000);
    assert!(bench.ask().is_some());
    assert_eq!(bench.mode(), BreakerMode::HalfOpen);
}

#[test]
fn c14_opened_until_an_instant_it_is_half_open_only_after_it() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::OpenUntil { at_ms: START + 60_000 });
    bench.pass(59_999);
    assert!(bench.ask().is_none());
    bench.pass(1);
    assert!(bench.ask().is_some());
}

#[test]
fn c15_the_wait_grows_by_its_factor_when_it_opens_again_and_shrinks_when_it_closed() {
    let backoff = SettingsDraft {
        open_ms: None,
        open_backoff_first_ms: Some(5_000),
        open_backoff_factor: Some(1.5),
        half_open_max_ms: None,
        ..draft()
    };
    let mut bench = Bench::new(&backoff);
    bench.calls(BreakerVerdict::Failed, 5);
    assert_eq!(bench.look().until_ms, Some(bench.now + 5_000));
    bench.pass(5_000);
    bench.calls(BreakerVerdict::Failed, 4);
    assert_eq!((bench.mode(), bench.look().until_ms), (BreakerMode::Open, Some(bench.now + 7_500)));
    bench.pass(7_499);
    assert!(bench.ask().is_none());
    bench.pass(1);
    bench.calls(BreakerVerdict::Succeeded, 4);
    assert_eq!(bench.mode(), BreakerMode::Closed);
    bench.calls(BreakerVerdict::Failed, 5);
    assert_eq!(bench.look().until_ms, Some(bench.now + 5_000));
}

#[test]
fn c16_three_of_four_probes_failing_open_it() {
    let mut bench = Bench::usual().half_open();
    bench.call(BreakerVerdict::Succeeded);
    bench.calls(BreakerVerdict::Failed, 3);
    assert_eq!(bench.mode(), BreakerMode::Open);
    assert_eq!(bench.exceeded(), [ExceededThreshold::FailurePercent(75.0)]);
}

#[test]
fn c17_three_of_four_probes_slow_open_it() {
    let mut bench = Bench::usual().half_open();
    bench.call(BreakerVerdict::Succeeded);
    (0..3).for_each(|_| bench.slow_call(BreakerVerdict::Succeeded));
    assert_eq!(bench.mode(), BreakerMode::Open);
    assert_eq!(bench.exceeded(), [ExceededThreshold::SlowPercent(75.0)]);
}

#[test]
fn c18_one_of_four_probes_failing_closes_it_with_counters_anew() {
    let mut bench = Bench::usual().half_open();
    bench.call(BreakerVerdict::Failed);
    bench.calls(BreakerVerdict::Succeeded, 3);
    assert_eq!((bench.mode(), bench.look().totals.calls), (BreakerMode::Closed, 0));
    bench.call(BreakerVerdict::Succeeded);
    assert_eq!(bench.look().totals.calls, 1);
}

#[test]
fn c19_an_ignored_error_gives_its_permit_back_and_changes_nothing() {
    let mut bench = Bench::usual().half_open();
    let permits: Vec<BreakerPermit> = (0..4).filter_map(|_| bench.ask()).collect();
    bench.end(permits[0], PermittedOutcome::of(BreakerVerdict::Ignored));
    let look = bench.look();
    assert_eq!((look.mode, look.totals.calls, look.probes), (BreakerMode::HalfOpen, 0, 3));
    assert!(bench.ask().is_some());
}

#[test]
fn c20_after_ignored_errors_the_fourth_success_closes_it() {
    let mut bench = Bench::usual().half_open();
    bench.calls(BreakerVerdict::Ignored, 4);
    for _ in 0..4 {
        assert_eq!(bench.mode(), BreakerMode::HalfOpen);
        bench.call(BreakerVerdict::Succeeded);
    }
    assert_eq!(bench.mode(), BreakerMode::Closed);
}

#[test]
fn c21_half_open_for_too_long_opens() {
    let mut bench = Bench::usual().half_open();
    bench.ask();
    bench.pass(999);
    bench.tick();
    assert_eq!(bench.mode(), BreakerMode::HalfOpen);
    bench.pass(1);
    bench.tick();
    assert_eq!(bench.mode(), BreakerMode::Open);
    assert!(bench.ask().is_none());
}

#[test]
fn c22_closed_to_half_open_by_hand_is_refused() {
    let mut bench = Bench::usual();
    let refused = bench.breaker.shift(&bench.settings, ManualMove::HalfOpen, bench.now);
    assert_eq!(refused, Err(IllegalMove { from: BreakerMode::Closed, to: BreakerMode::HalfOpen }));
    assert_eq!(bench.mode(), BreakerMode::Closed);
}

#[test]
fn c23_a_reset_closes_it_with_all_counters_at_zero() {
    for opened in [true, false] {
        let mut bench = Bench::usual();
        bench.calls(BreakerVerdict::Failed, if opened { 5 } else { 4 });
        if opened {
            assert!(bench.ask().is_none());
        }
        bench.shift(ManualMove::Reset);
        let look = bench.look();
        assert_eq!((look.mode, look.totals.calls, look.refused), (BreakerMode::Closed, 0, 0));
        assert_eq!((look.failure_percent, look.opened_by), (None, None));
    }
}

#[test]
fn c24_disabled_permits_everything_counts_nothing_and_tells_nothing() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::Disable);
    bench.events.clear();
    bench.calls(BreakerVerdict::Failed, 50);
    (0..50).for_each(|_| bench.slow_call(BreakerVerdict::Failed));
    let look = bench.look();
    assert_eq!((look.mode, look.totals.calls, look.refused), (BreakerMode::Disabled, 0, 0));
    assert_eq!(bench.events, []);
}

#[test]
fn c25_metrics_only_permits_everything_counts_tells_each_bound_once_and_never_opens() {
    let mut bench = Bench::usual();
    bench.shift(ManualMove::MetricsOnly);
    bench.events.clear();
    bench.calls(BreakerVerdict::Failed, 10);
    (0..10).for_each(|_| bench.slow_call(BreakerVerdict::Succeeded));
    let look = bench.look();
    assert_eq!((look.mode, look.totals.calls), (BreakerMode::MetricsOnly, 20));
    assert_eq!(bench.exceeded(), [ExceededThreshold::FailurePercent(100.0), ExceededThreshold::SlowPercent(50.0)]);
    assert_eq!(bench.transitions(), []);
}

#[test]
fn c26_any_state_to_metrics_only_is_allowed_and_to_itself_tells_nothing() {
    let moves = [
        ManualMove::Close,
        ManualMove::Open { for_ms: None },
        ManualMove::HalfOpen,
        ManualMove::ForceOpen,
        ManualMove::Disable,
        ManualMove::MetricsOnly,
    ];
    for by_hand in moves {
        let mut bench = Bench::patient();
        if by_hand == ManualMove::HalfOpen {
            bench.shift(ManualMove::ForceOpen);
        }
        bench.shift(by_hand);
        bench.events.clear();
        bench.shift(by_hand);
        assert_eq!(bench.events, [], "{by_hand:?}");
        let from = bench.mode();
        bench.shift(ManualMove::MetricsOnly);
        assert_eq!(bench.mode(), BreakerMode::MetricsOnly);
        let expected = [(from, BreakerMode::MetricsOnly)];
        assert_eq!(bench.transitions(), if by_hand == ManualMove::MetricsOnly { &[][..] } else { &expected[..] });
    }
}

#[test]
fn c28_an_open_one_is_half_open_with_the_first_call_after_its_wait_and_not_before() {
    let mut bench = Bench::patient();
    bench.shift(ManualMove::Open { for_ms: None });
    bench.pass(5_000);
    bench.tick();
    assert_eq!(bench.mode(), BreakerMode::Open);
    assert!(bench.ask().is_some());
    assert_eq!(bench.mode(), BreakerMode::HalfOpen);
}

#[test]
fn c31_a_result_can_open_it_at_once_for_a_time_of_its_own() {
    let mut bench = Bench::usual();
    let permit = bench.ask().unwrap();
    bench.end(permit, PermittedOutcome::of(BreakerVerdict::Succeeded));
    assert_eq!(bench.mode(), BreakerMode::Closed);
    let permit = bench.ask().unwrap();
    let busy = PermittedOutcome { open_for_ms: Some(90_000), ..PermittedOutcome::of(BreakerVerdict::Failed) };
    bench.end(permit, busy);
    assert_eq!((bench.mode(), bench.look().opened_by), (BreakerMode::Open, Some(BreakerReason::Asked)));
    bench.pass(89_999);
    assert!(bench.ask().is_none());
    bench.pass(1);
    assert!(bench.ask().is_some());
}

// -------------------------------------------------------------------- where DESIGN §8.11 decides otherwise: the default

#[test]
fn by_default_five_failures_open_it_one_failed_probe_reopens_and_three_successes_close() {
    let mut bench = Bench::new(&SettingsDraft::default());
    bench.calls(BreakerVerdict::Failed, 4);
    bench.calls(BreakerVerdict::Succeeded, 50);
    assert_eq!(bench.mode(), BreakerMode::Closed);
    bench.call(BreakerVerdict::Failed);
    assert_eq!(bench.mode(), BreakerMode::Open);
    assert_eq!(bench.exceeded(), [ExceededThreshold::Failures(5)]);
    bench.pass(60_000);
    bench.calls(BreakerVerdict::Succeeded, 2);
    bench.call(BreakerVerdict::Failed);
    assert_eq!((bench.mode(), bench.look().opened_by), (BreakerMode::Open, Some(BreakerReason::ProbeFailed)));
    bench.pass(60_000);
    // Successes of the epoch before do not count.
    bench.calls(BreakerVerdict::Succeeded, 2);
    assert_eq!(bench.mode(), BreakerMode::HalfOpen);
    bench.call(BreakerVerdict::Succeeded);
    assert_eq!(bench.mode(), BreakerMode::Closed);
}

#[test]
fn a_probe_that_never_comes_back_loses_its_place() {
    let one_place =
        SettingsDraft { half_open_max_calls: Some(1), success_threshold: Some(5), ..SettingsDraft::default() };
    let mut bench = Bench::new(&one_place).half_open();
    let hung = bench.ask().unwrap();
    assert!(bench.ask().is_none());
    bench.pass(LEASE);
    let fresh = bench.ask().unwrap();
    bench.end(hung, PermittedOutcome::of(BreakerVerdict::Failed));
    assert_eq!(bench.mode(), BreakerMode::HalfOpen);
    bench.end(fresh, PermittedOutcome::of(BreakerVerdict::Succeeded));
    // More successes than places: each result frees its place.
    bench.calls(BreakerVerdict::Succeeded, 4);
    assert_eq!(bench.mode(), BreakerMode::Closed);
}

#[test]
fn a_state_that_was_written_down_goes_on_where_it_was() {
    let mut bench = Bench::usual();
    bench.calls(BreakerVerdict::Failed, 3);
    bench.call(BreakerVerdict::Succeeded);
    let kept = serde_json::to_string(&bench.breaker).unwrap();
    bench.breaker = serde_json::from_str(&kept).unwrap();
    bench.call(BreakerVerdict::Succeeded);
    assert_eq!(bench.mode(), BreakerMode::Open);
}

// ----------------------------------------------------------------------------------------------- BRK-5: no guest alone

#[test]
fn of_one_guest_so_few_failures_count_that_they_open_nothing_without_those_of_others() {
    let mut bench = Bench::new(&SettingsDraft::default());
    (0..100).for_each(|_| bench.guest(1, BreakerVerdict::Failed));
    assert_eq!((bench.mode(), bench.look().totals.failed), (BreakerMode::Closed, 2), "two of five");
    // Into the next span, of which the window sees as much as of the one before.
    bench.pass(59_000);
    (0..100).for_each(|_| bench.guest(1, BreakerVerdict::Failed));
    bench.pass(1_000);
    (0..100).for_each(|_| bench.guest(1, BreakerVerdict::Failed));
    assert_eq!(bench.mode(), BreakerMode::Closed);
    bench.guest(2, BreakerVerdict::Failed);
    bench.guest(2, BreakerVerdict::Failed);
    bench.guest(3, BreakerVerdict::Failed);
    assert_eq!(bench.mode(), BreakerMode::Open, "those of others do");
}

#[test]
fn failures_of_the_owner_count_in_full_beside_those_of_guests() {
    let mut bench = Bench::new(&SettingsDraft::default());
    (0..9).for_each(|_| bench.guest(1, BreakerVerdict::Failed));
    bench.calls(BreakerVerdict::Failed, 2);
    assert_eq!(bench.mode(), BreakerMode::Closed);
    bench.call(BreakerVerdict::Failed);
    assert_eq!(bench.mode(), BreakerMode::Open);
}

#[test]
fn a_failing_probe_of_one_guest_does_not_keep_it_open_and_those_of_two_do() {
    let mut bench = Bench::new(&SettingsDraft::default()).half_open();
    (0..5).for_each(|_| bench.guest(1, BreakerVerdict::Failed));
    assert_eq!(bench.mode(), BreakerMode::HalfOpen);
    bench.guest(2, BreakerVerdict::Failed);
    assert_eq!((bench.mode(), bench.look().opened_by), (BreakerMode::Open, Some(BreakerReason::ProbeFailed)));
    bench.pass(60_000);
    bench.guest(1, BreakerVerdict::Failed);
    (0..3).for_each(|_| bench.guest(2, BreakerVerdict::Succeeded));
    assert_eq!(bench.mode(), BreakerMode::Closed, "whoever failed before the wait has to fail again");
}

#[test]
fn a_guest_cannot_ask_that_everybody_leaves_the_service_alone() {
    let mut bench = Bench::new(&SettingsDraft::default());
    let asking = PermittedOutcome { open_for_ms: Some(90_000), ..PermittedOutcome::of(BreakerVerdict::Failed) };
    let permit = bench.ask().unwrap();
    bench.end(permit, PermittedOutcome { guest: Some(GuestTag::of(1)), ..asking });
    assert_eq!(bench.mode(), BreakerMode::Closed);
}

proptest! {
    /// Whatever one guest does, for as long as it likes and beside an owner for whom all is well, closes the service to nobody.
    #[test]
    fn no_guest_opens_a_breaker_alone(
        threshold in 0_i64..12,
        failure in prop::option::of(1_u32..=100),
        slow in prop::option::of(1_u32..=100),
        window in prop_oneof![(1_i64..8).prop_map(|n| (Some(n), None)), (1_i64..20).prop_map(|n| (None, Some(n)))],
        minimum in 1_i64..20,
        steps in prop::collection::vec((0_u8..6, 0_u64..3_000, any::<bool>()), 1..300),
    ) {
        let threshold = if failure.is_none() && slow.is_none() { threshold.max(1) } else { threshold };
        let mut bench = Bench::new(&SettingsDraft {
            failure_threshold: Some(threshold),
            failure_percent: failure.map(f64::from),
            slow_percent: slow.map(f64::from),
            slow_after_ms: Some(1_000),
            minimum_calls: Some(minimum),
            window_seconds: window.0,
            // A threshold beyond the window is refused.
            window_calls: window.1.map(|calls| calls.max(threshold)),
            ..SettingsDraft::default()
        });
        for (what, pause, slow) in steps {
            bench.pass(pause);
            let permit = bench.ask().expect("it lets everybody through");
            let duration_ms = Some(if slow && what > 0 { 5_000 } else { 10 });
            let (verdict, guest) = match what {
                0 => (BreakerVerdict::Succeeded, None),
                1 => (BreakerVerdict::Succeeded, Some(GuestTag::of(7))),
                _ => (BreakerVerdict::Failed, Some(GuestTag::of(7))),
            };
            bench.end(permit, PermittedOutcome { duration_ms, guest, ..PermittedOutcome::of(verdict) });
            prop_assert_eq!(bench.mode(), BreakerMode::Closed);
        }
    }
}
