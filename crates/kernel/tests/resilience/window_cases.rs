//! W1…W9: what a window counts.

use std::sync::{Arc, Mutex};

use ports::resilience::window::{CallWindow, CountedCall, WindowTotals};
use ports::resilience::{SettingsDraft, WindowKind};

const BY_COUNT: WindowKind = WindowKind::Count { calls: 5 };
const BY_TIME: WindowKind = WindowKind::Time { seconds: 5 };
const NOW: u64 = 1_790_000_000_000;

fn call(duration_ms: u64, failed: bool, slow: bool) -> CountedCall {
    CountedCall { failed, slow, duration_ms }
}

fn totals(kind: WindowKind, calls: &[CountedCall]) -> WindowTotals {
    let mut window = CallWindow::default();
    calls.iter().for_each(|call| window.record(kind, *call, NOW));
    window.totals(kind, NOW)
}

#[test]
fn w1_a_new_window_is_all_zero_with_rate_0() {
    for kind in [BY_COUNT, BY_TIME] {
        let totals = totals(kind, &[]);
        assert_eq!(totals, WindowTotals::default());
        assert_eq!((totals.failure_percent(), totals.slow_percent(), totals.average_ms()), (0.0, 0.0, 0));
    }
}

#[test]
fn w2_one_success_of_100_ms_is_the_average_with_rate_0() {
    for kind in [BY_COUNT, BY_TIME] {
        let totals = totals(kind, &[call(100, false, false)]);
        assert_eq!((totals.calls, totals.succeeded(), totals.average_ms()), (1, 1, 100));
        assert!(totals.failure_percent() == 0.0);
    }
}

#[test]
fn w3_one_error_is_a_rate_of_100() {
    for kind in [BY_COUNT, BY_TIME] {
        let totals = totals(kind, &[call(100, true, false)]);
        assert_eq!((totals.calls, totals.failed), (1, 1));
        assert!(totals.failure_percent() == 100.0);
    }
}

#[test]
fn w4_slow_calls_are_counted_both_ways() {
    for kind in [BY_COUNT, BY_TIME] {
        let totals = totals(
            kind,
            &[
                call(10_000, false, true),
                call(10_000, true, true),
                call(100, false, false),
                call(100, false, false),
                call(100, false, false),
            ],
        );
        assert_eq!((totals.calls, totals.succeeded(), totals.failed), (5, 4, 1));
        assert_eq!((totals.slow, totals.slow_failed, totals.slow - totals.slow_failed), (2, 1, 1));
        assert_eq!((totals.average_ms(), totals.slow_percent()), (4_060, 40.0));
    }
}

#[test]
fn w5_one_call_more_than_the_size_drops_the_oldest_out_of_every_total() {
    let mut calls = vec![call(10_000, true, true)];
    calls.extend([call(100, false, false); 4]);
    assert_eq!(totals(BY_COUNT, &calls).failed, 1);
    calls.push(call(200, false, false));
    let totals = totals(BY_COUNT, &calls);
    assert_eq!(totals, WindowTotals { calls: 5, failed: 0, slow: 0, slow_failed: 0, duration_ms: 600 });
}

#[test]
fn w6_two_calls_100_ms_apart_are_both_counted_in_one_second() {
    let mut window = CallWindow::default();
    window.record(BY_TIME, call(1, false, false), NOW);
    window.record(BY_TIME, call(1, true, false), NOW + 100);
    assert_eq!(window.totals(BY_TIME, NOW + 100).calls, 2);
    // One sum for that second, however many calls it has.
    let kept = serde_json::to_value(&window).unwrap();
    assert_eq!(kept["seconds"].as_array().unwrap().len(), 1);
}

#[test]
fn w7_old_seconds_drop_out_one_by_one_as_the_clock_moves() {
    let mut window = CallWindow::default();
    for second in 0..5 {
        window.record(BY_TIME, call(1, second % 2 == 0, false), NOW + second * 1_000);
    }
    assert_eq!(window.totals(BY_TIME, NOW + 4_999).calls, 5);
    for (later, left) in [(5_000, 4), (6_500, 3), (7_000, 2), (8_000, 1), (9_000, 0), (60_000, 0)] {
        assert_eq!(window.totals(BY_TIME, NOW + later).calls, left, "{later}");
    }
}

#[test]
fn w8_the_minimum_is_cut_to_the_size_of_a_count_window_and_kept_by_a_time_window() {
    let minimum = Some(50);
    let by_count = SettingsDraft { minimum_calls: minimum, window_calls: Some(5), ..SettingsDraft::default() };
    assert_eq!(by_count.checked().unwrap().calls_needed(), 5);
    let by_time = SettingsDraft { minimum_calls: minimum, window_seconds: Some(5), ..SettingsDraft::default() };
    assert_eq!(by_time.checked().unwrap().calls_needed(), 50);
}

#[test]
fn w9_concurrent_records_are_all_counted() {
    const THREADS: u32 = 8;
    const EACH: u32 = 2_000;
    for kind in [WindowKind::Count { calls: 1_000_000 }, BY_TIME] {
        let window = Arc::new(Mutex::new(CallWindow::default()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let window = Arc::clone(&window);
                scope.spawn(move || {
                    for n in 0..EACH {
                        window.lock().unwrap().record(kind, call(2, (thread + n) % 4 == 0, n % 2 == 0), NOW);
                    }
                });
            }
        });
        let totals = window.lock().unwrap().totals(kind, NOW);
        assert_eq!((totals.calls, totals.failed), (THREADS * EACH, THREADS * EACH / 4));
        assert_eq!((totals.slow, totals.duration_ms), (THREADS * EACH / 2, u64::from(THREADS * EACH) * 2));
    }
}

#[test]
fn a_clock_that_goes_back_loses_no_call() {
    let mut window = CallWindow::default();
    window.record(BY_TIME, call(1, true, false), NOW);
    window.record(BY_TIME, call(1, true, false), NOW - 3_000);
    assert_eq!(window.totals(BY_TIME, NOW).failed, 2);
    assert_eq!(window.totals(BY_TIME, NOW + 5_000).failed, 0);
}
