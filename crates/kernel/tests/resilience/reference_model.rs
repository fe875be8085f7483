//! The breaker against a model that keeps every call for ever and works everything out anew each time.
//!
//! The model shares no code and no representation with the machine: it has a list of what happened, and reads the answer
//! off it.

use ports::resilience::{
    Breaker, BreakerAdmission, BreakerMode, BreakerPermit, BreakerSettings, BreakerVerdict, HalfOpenRule, ManualMove,
    OpenWait, PermittedOutcome, SettingsDraft, WindowKind,
};
use proptest::prelude::*;

const START: u64 = 1_790_000_000_000;
const LEASE: u64 = 3_000;

/// What somebody does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Pass(u64),
    Ask,
    /// Ends the n-th call that is under way, modulo their number.
    End(usize, BreakerVerdict, u64),
    Release(usize),
    Shift(ManualMove),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let verdict = prop_oneof![
        4 => Just(BreakerVerdict::Failed),
        4 => Just(BreakerVerdict::Succeeded),
        1 => Just(BreakerVerdict::Ignored),
    ];
    let by_hand = prop_oneof![
        Just(ManualMove::Open { for_ms: None }),
        Just(ManualMove::Open { for_ms: Some(700) }),
        Just(ManualMove::ForceOpen),
        Just(ManualMove::HalfOpen),
        Just(ManualMove::Close),
        Just(ManualMove::Disable),
        Just(ManualMove::MetricsOnly),
        Just(ManualMove::Reset),
    ];
    let act = prop_oneof![
        4 => (0_u64..2_500).prop_map(Act::Pass),
        10 => Just(Act::Ask),
        10 => (0_usize..8, verdict, 0_u64..200).prop_map(|(which, verdict, took)| Act::End(which, verdict, took)),
        1 => (0_usize..8).prop_map(Act::Release),
        1 => by_hand.prop_map(Act::Shift),
    ];
    proptest::collection::vec(act, 1..120)
}

fn drafts() -> impl Strategy<Value = SettingsDraft> {
    let trips = (
        prop_oneof![Just(Some(0)), (1_i64..5).prop_map(Some)],
        prop_oneof![Just(None), (10.0_f64..100.0).prop_map(Some)],
        prop_oneof![Just(None), (10.0_f64..100.0).prop_map(Some)],
        1_i64..6,
        any::<bool>(),
        1_i64..6,
    );
    let half_open = (1_i64..5, 0_i64..4, prop_oneof![Just(0_i64), 500_i64..4_000], any::<bool>());
    let canary = prop_oneof![Just(None), (1_i64..=100).prop_map(Some)];
    (trips, half_open, (canary, 1_i64..50)).prop_map(
        |((failures, failed, slow, minimum, by_time, size), (places, successes, bound, backoff), (share, step))| {
            // Something has to open it.
            let failures = if failures == Some(0) && failed.is_none() && slow.is_none() { Some(2) } else { failures };
            SettingsDraft {
                failure_threshold: failures,
                failure_percent: failed,
                slow_percent: slow,
                slow_after_ms: Some(100),
                minimum_calls: Some(minimum),
                window_seconds: by_time.then_some(size),
                // A threshold beyond the window is refused.
                window_calls: (!by_time).then_some(size.max(failures.unwrap_or(0))),
                open_ms: (!backoff).then_some(1_500),
                open_backoff_first_ms: backoff.then_some(1_000),
                open_backoff_factor: backoff.then_some(2.0),
                half_open_max_calls: Some(places),
                success_threshold: Some(successes),
                half_open_max_ms: Some(bound),
                canary_percent: share,
                canary_step_percent: Some(step),
                ..SettingsDraft::default()
            }
        },
    )
}

/// A finished call that counted.
#[derive(Debug, Clone, Copy)]
struct Past {
    at: u64,
    failed: bool,
    slow: bool,
}

/// A probe under way.
#[derive(Debug, Clone, Copy)]
struct Probe {
    name: u64,
    until: u64,
}

#[derive(Debug)]
struct Model {
    settings: BreakerSettings,
    mode: BreakerMode,
    since: u64,
    open_until: u64,
    /// How often the mode has changed.
    changes: u64,
    opened_in_a_row: u32,
    /// Of this mode only.
    past: Vec<Past>,
    probes: Vec<Probe>,
    names: u64,
    /// The share at the time of everybody who has asked while it is half-open, and whether they were let through.
    asked: Vec<(u32, bool)>,
}

/// A call under way as the model knows it: in which of its modes it began, and which probe it is.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    change: u64,
    probe: Option<u64>,
}

impl Model {
    fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            mode: BreakerMode::Closed,
            since: START,
            open_until: 0,
            changes: 0,
            opened_in_a_row: 0,
            past: Vec::new(),
            probes: Vec::new(),
            names: 0,
            asked: Vec::new(),
        }
    }

    fn go(&mut self, to: BreakerMode, now: u64) {
        self.mode = to;
        self.since = now;
        self.changes += 1;
        self.past.clear();
        self.probes.clear();
        self.asked.clear();
        if matches!(to, BreakerMode::Closed | BreakerMode::Disabled | BreakerMode::MetricsOnly) {
            self.opened_in_a_row = 0;
        }
    }

    fn open(&mut self, now: u64, wait: Option<u64>) {
        let usual = match self.settings.open_wait {
            OpenWait::Fixed { ms } => ms,
            OpenWait::Exponential { first_ms, .. } => first_ms << self.opened_in_a_row.min(20),
        };
        self.go(BreakerMode::Open, now);
        self.opened_in_a_row += 1;
        self.open_until = now + wait.unwrap_or(usual);
    }

    fn time(&mut self, now: u64) {
        self.probes.retain(|probe| probe.until > now);
        let bound = self.settings.half_open_max_ms;
        if self.mode == BreakerMode::HalfOpen && bound.is_some_and(|bound| now - self.since >= bound) {
            self.open(now, None);
        }
    }

    fn ask(&mut self, now: u64) -> Option<Ticket> {
        self.time(now);
        if self.mode == BreakerMode::Open && now >= self.open_until {
            self.go(BreakerMode::HalfOpen, now);
        }
        match self.mode {
            BreakerMode::Open | BreakerMode::ForcedOpen => None,
            BreakerMode::HalfOpen => {
                let places = usize::try_from(self.settings.half_open_max_calls).unwrap();
                let judged = if self.settings.half_open_rule == HalfOpenRule::Rates { self.past.len() } else { 0 };
                let turn = self.settings.canary.is_none_or(|canary| {
                    let good = u32::try_from(self.past.iter().filter(|past| !past.failed).count()).unwrap();
                    let share = (canary.first_percent + canary.step_percent * good).min(100);
                    self.asked.push((share, false));
                    self.is_next()
                });
                if !turn || self.probes.len() + judged >= places {
                    return None;
                }
                if let Some(last) = self.asked.last_mut() {
                    last.1 = true;
                }
                self.names += 1;
                self.probes.push(Probe { name: self.names, until: now + LEASE });
                Some(Ticket { change: self.changes, probe: Some(self.names) })
            }
            _ => Some(Ticket { change: self.changes, probe: None }),
        }
    }

    /// Whether the last who asked is let through by the share: everybody adds theirs to what is there, and a call costs a
    /// hundred. What nobody could use is worth less than two calls.
    fn is_next(&self) -> bool {
        let first = self.asked[0].0;
        let mut purse = 100 - first;
        for (place, (share, through)) in self.asked.iter().enumerate() {
            purse = (purse + share).min(199);
            if place + 1 == self.asked.len() {
                return purse >= 100;
            }
            if *through {
                purse -= 100;
            }
        }
        false
    }

    /// Whether the ticket still means something; its place is free afterwards.
    fn hand_in(&mut self, ticket: Ticket) -> bool {
        if ticket.change != self.changes {
            return false;
        }
        match ticket.probe {
            None => true,
            Some(name) => {
                let known = self.probes.iter().any(|probe| probe.name == name);
                self.probes.retain(|probe| probe.name != name);
                known
            }
        }
    }

    fn end(&mut self, ticket: Ticket, verdict: BreakerVerdict, took: u64, now: u64) {
        self.time(now);
        if !self.hand_in(ticket) || verdict == BreakerVerdict::Ignored || self.mode == BreakerMode::Disabled {
            return;
        }
        self.past.push(Past { at: now, failed: verdict == BreakerVerdict::Failed, slow: took > 100 });
        let (calls, failed, slow) = self.sums(now);
        let rate = |part: usize| part as f64 * 100.0 / calls as f64;
        let rates = |least: usize| {
            calls >= least
                && (self.settings.failure_percent.is_some_and(|most| rate(failed) >= most)
                    || self.settings.slow_percent.is_some_and(|most| rate(slow) >= most))
        };
        match self.mode {
            BreakerMode::Closed => {
                let counted = verdict == BreakerVerdict::Failed
                    && self.settings.failure_threshold.is_some_and(|most| failed >= usize::try_from(most).unwrap());
                let least = match self.settings.window {
                    WindowKind::Count { calls } => calls.min(self.settings.minimum_calls),
                    WindowKind::Time { .. } => self.settings.minimum_calls,
                };
                if counted || rates(usize::try_from(least).unwrap()) {
                    self.open(now, None);
                }
            }
            BreakerMode::HalfOpen => match self.settings.half_open_rule {
                HalfOpenRule::Rates => {
                    if calls < usize::try_from(self.settings.half_open_max_calls).unwrap() {
                    } else if rates(1) {
                        self.open(now, None);
                    } else {
                        self.go(BreakerMode::Closed, now);
                    }
                }
                HalfOpenRule::OneFailure { success_threshold } => {
                    let bad = verdict == BreakerVerdict::Failed || (took > 100 && self.settings.slow_percent.is_some());
                    if bad {
                        self.open(now, None);
                    } else if calls - failed >= usize::try_from(success_threshold).unwrap() {
                        self.go(BreakerMode::Closed, now);
                    }
                }
            },
            _ => {}
        }
    }

    /// Calls, failures and slow ones that count now.
    fn sums(&self, now: u64) -> (usize, usize, usize) {
        let counting: Vec<&Past> = match (self.mode, self.settings.window) {
            (BreakerMode::HalfOpen, _) => self.past.iter().collect(),
            (_, WindowKind::Count { calls }) => self.past.iter().rev().take(usize::try_from(calls).unwrap()).collect(),
            (_, WindowKind::Time { seconds }) => {
                self.past.iter().filter(|past| past.at / 1_000 + u64::from(seconds) > now / 1_000).collect()
            }
        };
        let failed = counting.iter().filter(|past| past.failed).count();
        (counting.len(), failed, counting.iter().filter(|past| past.slow).count())
    }

    fn shift(&mut self, by_hand: ManualMove, now: u64) -> bool {
        self.time(now);
        let to = match by_hand {
            ManualMove::Open { .. } | ManualMove::OpenUntil { .. } => BreakerMode::Open,
            ManualMove::ForceOpen => BreakerMode::ForcedOpen,
            ManualMove::HalfOpen => BreakerMode::HalfOpen,
            ManualMove::Close | ManualMove::Reset => BreakerMode::Closed,
            ManualMove::Disable => BreakerMode::Disabled,
            ManualMove::MetricsOnly => BreakerMode::MetricsOnly,
        };
        if self.mode == BreakerMode::Closed && to == BreakerMode::HalfOpen {
            return false;
        }
        let first = match self.settings.open_wait {
            OpenWait::Fixed { ms } | OpenWait::Exponential { first_ms: ms, .. } => ms,
        };
        if by_hand == ManualMove::Reset {
            self.past.clear();
        }
        if let ManualMove::Open { for_ms } = by_hand {
            if self.mode == to {
                self.open_until = now + for_ms.unwrap_or(first);
            } else {
                self.open(now, Some(for_ms.unwrap_or(first)));
            }
        } else if self.mode != to {
            self.go(to, now);
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_breaker_does_what_the_model_does(draft in drafts(), acts in acts()) {
        let settings = draft.checked().unwrap();
        let (mut breaker, mut model) = (Breaker::new(START), Model::new(settings.clone()));
        let mut under_way: Vec<(BreakerPermit, Ticket)> = Vec::new();
        let mut now = START;
        for act in acts {
            match act {
                Act::Pass(ms) => now += ms,
                Act::Ask => {
                    let admission = breaker.acquire(&settings, LEASE, now).admission;
                    match (admission, model.ask(now)) {
                        (BreakerAdmission::Permitted(permit), Some(ticket)) => under_way.push((permit, ticket)),
                        (BreakerAdmission::Refused { .. }, None) => {}
                        (machine, model) => prop_assert!(false, "{:?} against {:?}", machine, model),
                    }
                }
                Act::End(which, verdict, took) if !under_way.is_empty() => {
                    let (permit, ticket) = under_way.swap_remove(which % under_way.len());
                    let outcome = PermittedOutcome { duration_ms: Some(took), ..PermittedOutcome::of(verdict) };
                    breaker.record(&settings, permit, outcome, now);
                    model.end(ticket, verdict, took, now);
                }
                Act::Release(which) if !under_way.is_empty() => {
                    let (permit, ticket) = under_way.swap_remove(which % under_way.len());
                    breaker.release(&settings, permit, now);
                    model.time(now);
                    model.hand_in(ticket);
                }
                Act::Shift(by_hand) => {
                    let machine = breaker.shift(&settings, by_hand, now).is_ok();
                    prop_assert_eq!(machine, model.shift(by_hand, now));
                }
                Act::End(..) | Act::Release(_) => {}
            }
            prop_assert_eq!(breaker.mode(), model.mode);
            let look = breaker.snapshot(&settings, now);
            prop_assert_eq!(usize::try_from(look.probes).unwrap(), model.probes.len());
            if matches!(model.mode, BreakerMode::Closed | BreakerMode::MetricsOnly | BreakerMode::HalfOpen) {
                let (calls, failed, slow) = model.sums(now);
                let sums = [look.totals.calls, look.totals.failed, look.totals.slow];
                prop_assert_eq!(sums.map(|sum| usize::try_from(sum).unwrap()), [calls, failed, slow]);
            }
            if model.mode == BreakerMode::Open {
                prop_assert_eq!(look.until_ms, Some(model.open_until));
            }
            // State that was written down and read is the same state.
            let kept = serde_json::to_string(&breaker).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Breaker>(&kept).unwrap(), &breaker);
        }
    }
}
