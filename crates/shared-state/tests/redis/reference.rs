//! Breakers and limits in Redis against the machines of the kernel: the same events, the same answers, step by step.
//!
//! The time of every step is held still and moved by the test, so both sides see the very same instants.

use std::time::Duration;

use gantry_shared_state::RedisState;
use ports::resilience::{
    Breaker, BreakerAdmission, BreakerEvent, BreakerPermit, BreakerSettings, BreakerVerdict, GuestTag, ManualMove,
    PermittedOutcome, QuotaOutcome, RateQuota, SettingsDraft, limiter,
};
use ports::shared_state::{
    AllTaken, BreakerKey, BreakerQuery, HISTORY_MAX, KeyedQuota, PastTransition, RateLimits as _, SharedBreakers as _,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Runtime;

use crate::server::{replica, shared, unique};

/// Sequences of events for each kind of settings.
const CASES: u32 = 100;

#[derive(Debug, Clone)]
enum Event {
    Pass {
        ms: u64,
    },
    Acquire {
        lease_ms: u64,
    },
    Record {
        which: usize,
        verdict: BreakerVerdict,
        duration_ms: Option<u64>,
        open_for_ms: Option<u64>,
        guest: Option<u8>,
    },
    Release {
        which: usize,
    },
    Shift(Hand),
}

/// A change by hand, with instants as spans from now.
#[derive(Debug, Clone, Copy)]
enum Hand {
    Plain(ManualMove),
    OpenIn { ms: u64 },
}

fn settings() -> impl Strategy<Value = BreakerSettings> {
    let what = (1_i64..7, prop::option::of(1_u32..=100), prop::option::of(1_u32..=100), 1_i64..6, any::<bool>());
    let window = prop_oneof![(1_i64..6).prop_map(|n| (Some(n), None)), (1_i64..6).prop_map(|n| (None, Some(n)))];
    let wait = prop_oneof![Just(None), Just(Some(1.0)), Just(Some(1.5)), Just(Some(2.0)), Just(Some(3.25))];
    let half = (1_i64..4, 0_i64..4, prop_oneof![Just(None), (500_i64..5_000).prop_map(Some)]);
    let canary = (prop_oneof![Just(None), (1_i64..=100).prop_map(Some)], 1_i64..50);
    (what, window, wait, half, canary).prop_map(|(what, (window_seconds, window_calls), factor, half, canary)| {
        let (threshold, failure, slow, minimum, by_share) = what;
        let (calls, successes, half_open_max_ms) = half;
        let draft = SettingsDraft {
            failure_threshold: Some(if by_share && (failure.is_some() || slow.is_some()) { 0 } else { threshold }),
            failure_percent: failure.map(f64::from),
            slow_percent: slow.map(f64::from),
            slow_after_ms: Some(1_000),
            minimum_calls: Some(minimum),
            window_seconds,
            // A threshold beyond the window is refused.
            window_calls: window_calls.map(|calls| calls.max(threshold)),
            open_ms: if factor.is_none() { Some(3_000) } else { None },
            open_backoff_first_ms: Some(1_000),
            open_backoff_factor: factor,
            open_backoff_max_ms: Some(20_000),
            half_open_max_calls: Some(calls),
            success_threshold: Some(successes),
            canary_percent: canary.0,
            canary_step_percent: Some(canary.1),
            half_open_max_ms,
        };
        draft.checked().unwrap()
    })
}

fn event() -> impl Strategy<Value = Event> {
    let verdict = prop_oneof![4 => Just(BreakerVerdict::Failed), 4 => Just(BreakerVerdict::Succeeded), 1 => Just(BreakerVerdict::Ignored)];
    let duration = prop_oneof![1 => Just(None), 3 => (0_u64..2_500).prop_map(Some)];
    let open_for = prop_oneof![12 => Just(None), 1 => (1_u64..4_000).prop_map(Some)];
    let guest = prop_oneof![2 => Just(None), 3 => (0_u8..3).prop_map(Some)];
    let hand = prop_oneof![
        Just(Hand::Plain(ManualMove::Open { for_ms: None })),
        (0_u64..5_000).prop_map(|ms| Hand::Plain(ManualMove::Open { for_ms: Some(ms) })),
        (0_u64..5_000).prop_map(|ms| Hand::OpenIn { ms }),
        Just(Hand::Plain(ManualMove::ForceOpen)),
        Just(Hand::Plain(ManualMove::HalfOpen)),
        Just(Hand::Plain(ManualMove::Close)),
        Just(Hand::Plain(ManualMove::Disable)),
        Just(Hand::Plain(ManualMove::MetricsOnly)),
        Just(Hand::Plain(ManualMove::Reset)),
    ];
    prop_oneof![
        4 => prop_oneof![0_u64..50, 900_u64..1_100, 2_900_u64..3_100, 0_u64..9_000].prop_map(|ms| Event::Pass { ms }),
        8 => (1_u64..4_000).prop_map(|lease_ms| Event::Acquire { lease_ms }),
        8 => (any::<usize>(), verdict, duration, open_for, guest).prop_map(
            |(which, verdict, duration_ms, open_for_ms, guest)| {
                Event::Record { which, verdict, duration_ms, open_for_ms, guest }
            }
        ),
        1 => any::<usize>().prop_map(|which| Event::Release { which }),
        1 => hand.prop_map(Event::Shift),
    ]
}

/// Both sides of one breaker.
struct Pair<'a> {
    redis: &'a RedisState,
    key: BreakerKey,
    settings: BreakerSettings,
    machine: Breaker,
    history: Vec<PastTransition>,
    now_ms: u64,
    /// Permits of both, the machine's first. They stay: a permit may be shown twice, or much too late.
    permits: Vec<(BreakerPermit, BreakerPermit)>,
}

impl Pair<'_> {
    fn hear(&mut self, events: &[BreakerEvent]) {
        for change in events.iter().filter_map(PastTransition::of) {
            self.history.insert(0, change);
        }
        self.history.truncate(HISTORY_MAX);
    }

    async fn step(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match *event {
            Event::Pass { ms } => {
                self.now_ms += ms;
                self.redis.hold_clock(self.now_ms * 1_000);
            }
            Event::Acquire { lease_ms } => {
                let expected = self.machine.acquire(&self.settings, lease_ms, self.now_ms);
                self.hear(&expected.events);
                let got = self.redis.acquire(&self.key, &self.settings, Duration::from_millis(lease_ms)).await.unwrap();
                match (expected.admission, got) {
                    (BreakerAdmission::Permitted(one), BreakerAdmission::Permitted(other)) => {
                        prop_assert_eq!((one.slot, one.at_ms), (other.slot, other.at_ms));
                        self.permits.push((one, other));
                    }
                    (one, other) => prop_assert_eq!(one, other),
                }
            }
            Event::Record { which, verdict, duration_ms, open_for_ms, guest } => {
                let Some((one, other)) = self.permit(which) else { return Ok(()) };
                let outcome = PermittedOutcome { verdict, duration_ms, open_for_ms, guest: guest.map(GuestTag::of) };
                let events = self.machine.record(&self.settings, one, outcome, self.now_ms);
                self.hear(&events);
                self.redis.record(&self.key, &self.settings, other, outcome).await.unwrap();
            }
            Event::Release { which } => {
                let Some((one, other)) = self.permit(which) else { return Ok(()) };
                let events = self.machine.release(&self.settings, one, self.now_ms);
                self.hear(&events);
                self.redis.release(&self.key, &self.settings, other).await.unwrap();
            }
            Event::Shift(hand) => {
                let by_hand = match hand {
                    Hand::Plain(by_hand) => by_hand,
                    Hand::OpenIn { ms } => ManualMove::OpenUntil { at_ms: self.now_ms + ms },
                };
                // What time has brought is kept, whether the change itself is possible or not.
                let events = self.machine.tick(&self.settings, self.now_ms);
                self.hear(&events);
                let expected = self.machine.shift(&self.settings, by_hand, self.now_ms);
                let got = self.redis.shift(&self.key, &self.settings, by_hand).await.unwrap();
                prop_assert_eq!(expected.as_ref().err(), got.as_ref().err());
                self.hear(&expected.unwrap_or_default());
            }
        }
        self.compare().await
    }

    fn permit(&self, which: usize) -> Option<(BreakerPermit, BreakerPermit)> {
        self.permits.get(which.checked_rem(self.permits.len())?).copied()
    }

    async fn compare(&mut self) -> Result<(), TestCaseError> {
        let events = self.machine.tick(&self.settings, self.now_ms);
        self.hear(&events);
        let query = BreakerQuery { service: Some(self.key.service().to_owned()), limit: 2, ..BreakerQuery::default() };
        let reports = self.redis.inspect(&query).await.unwrap();
        let [report] = reports.as_slice() else {
            // Nobody has asked for it yet.
            prop_assert!(reports.is_empty() && self.permits.is_empty());
            return Ok(());
        };
        prop_assert_eq!(&report.settings, &self.settings);
        prop_assert_eq!(&report.snapshot, &self.machine.snapshot(&self.settings, self.now_ms));
        prop_assert_eq!(&report.history, &self.history);
        Ok(())
    }
}

#[test]
fn a_breaker_in_redis_does_what_the_machine_does() {
    let runtime = Runtime::new().unwrap();
    let redis = runtime.block_on(replica(shared(), &unique("reference")));
    let start_ms = shared().time_us() / 1_000 + 3_600_000;
    let mut runner = TestRunner::new(Config { cases: CASES, max_shrink_iters: 500, ..Config::default() });
    let cases = (settings(), prop::collection::vec(event(), 1..60));
    let outcome = runner.run(&cases, |(settings, events)| {
        runtime.block_on(async {
            redis.hold_clock(start_ms * 1_000);
            let key = BreakerKey::new("acme".parse().unwrap(), &unique("service"), "").unwrap();
            let mut pair = Pair {
                redis: &redis,
                key: key.clone(),
                machine: Breaker::new(start_ms),
                settings: settings.clone(),
                history: Vec::new(),
                now_ms: start_ms,
                permits: Vec::new(),
            };
            // Made by the first step that names it, so let that be now.
            pair.step(&Event::Acquire { lease_ms: 1_000 }).await?;
            for event in &events {
                pair.step(event).await?;
            }
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn limits_in_redis_do_what_the_algorithm_does() {
    let runtime = Runtime::new().unwrap();
    let redis = runtime.block_on(replica(shared(), &unique("limits")));
    let start_us = shared().time_us() + 3_600_000_000;
    let mut runner = TestRunner::new(Config { cases: CASES, max_shrink_iters: 500, ..Config::default() });
    let quotas = prop::collection::vec((1_u32..20, 1_u64..10, 1_u32..20), 1..5);
    let steps = prop::collection::vec((0_u64..900_000, 1_u32..4, prop::collection::vec(0_usize..5, 1..5)), 1..40);
    let outcome = runner.run(&(quotas, steps), |(quotas, steps)| {
        runtime.block_on(async {
            let quotas: Vec<RateQuota> = quotas
                .iter()
                .map(|(limit, seconds, burst)| {
                    RateQuota::with_burst(*limit, Duration::from_secs(*seconds), *burst).unwrap()
                })
                .collect();
            let names: Vec<String> = quotas.iter().map(|_| unique("tool_rate:acme:{did}:key")).collect();
            let (mut stands, mut now_us) = (vec![0; quotas.len()], start_us);
            for (pause, count, which) in steps {
                now_us += pause;
                redis.hold_clock(now_us);
                let which: Vec<usize> = which.into_iter().map(|n| n % quotas.len()).collect();
                let limits: Vec<KeyedQuota<'_>> =
                    which.iter().map(|n| KeyedQuota { key: &names[*n], quota: quotas[*n] }).collect();
                let (next, expected) = all_taken(&stands, &quotas, &which, count, now_us);
                prop_assert_eq!(redis.take(&limits, count).await.unwrap(), expected);
                stands = next;
                let first = which[0];
                let (_, peeked) = limiter::take(stands[first], quotas[first], 1, now_us);
                prop_assert_eq!(redis.peek(limits[0]).await.unwrap(), peeked);
            }
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// Several limits by the algorithm for one.
fn all_taken(stands: &[u64], quotas: &[RateQuota], which: &[usize], count: u32, now_us: u64) -> (Vec<u64>, AllTaken) {
    let mut next = stands.to_vec();
    let (mut fewest, mut refused) = (None::<(u32, Duration)>, None::<(usize, Option<Duration>)>);
    for (place, n) in which.iter().enumerate() {
        let (stand, taken) = limiter::take(next[*n], quotas[*n], count, now_us);
        next[*n] = stand;
        match taken {
            QuotaOutcome::Allowed { remaining, reset } if fewest.is_none_or(|(least, _)| remaining < least) => {
                fewest = Some((remaining, reset));
            }
            QuotaOutcome::Allowed { .. } => {}
            QuotaOutcome::Refused { retry_after } => {
                let wait = |wait: Option<Duration>| wait.unwrap_or(Duration::MAX);
                if refused.is_none_or(|(_, longest)| wait(retry_after) > wait(longest)) {
                    refused = Some((place, retry_after));
                }
            }
        }
    }
    match (refused, fewest) {
        (Some((which, retry_after)), _) => (stands.to_vec(), AllTaken::Refused { which, retry_after }),
        (None, Some((remaining, reset))) => (next, AllTaken::Allowed { remaining, reset }),
        (None, None) => (next, AllTaken::Allowed { remaining: u32::MAX, reset: Duration::ZERO }),
    }
}
