//! The circuit breaker: a machine that stops asking a service that does not answer. (RES-001…010, DESIGN §8.11)
//!
//! ```text
//!                 failures or rates reached
//!     closed ───────────────────────────────▶ open ◀─┐
//!        ▲                                     │     │ one failure (or the rates), or its time is up
//!        │ enough successes                    │ wait over, next call
//!        └──────────────── half-open ◀─────────┘
//!                              └─────────────────────┘
//! ```
//!
//! and by hand: *forced open*, *disabled* (nothing is counted), *metrics only* (counted, never opened).
//!
//! Invariants
//! - BRK-1: every change of state begins a new epoch, and a result counts only in the epoch of its permit. What was begun
//!   before the breaker opened says nothing about the service after it.
//! - BRK-2: a half-open breaker has no more permits out than it may have. A permit has a lease, so that a probe that never
//!   comes back cannot keep it half-open for ever (RES-009, X-15).
//! - BRK-4: where a share is set, a half-open breaker lets through that share of those who ask and never more; every success
//!   raises it by a step (RES-006). Who is let through is counted out, not thrown dice for: the same events, the same answers.
//! - BRK-5: no guest opens it alone. A guest is another tenant than the one whose tool it is; of its failures and slow calls so
//!   few count in a window that they reach no bound without those of others, and a half-open breaker is opened by failing
//!   probes of two guests, not of one (decision 0077).
//! - BRK-3: a step is a function of state, settings, event and time. Nothing happens between steps; what time brings is
//!   made up for at the next one.
//!
//! Not here: the numbers, such as how long it stays open and whether that grows (`settings`), atomicity (the adapters), what counts
//! as a failure and the breaker that a guest has for itself (`outcome` and `service` of `kernel::resilience`).

mod messages;

use std::collections::BTreeMap;

use base::SaturatingFrom as _;
use serde::{Deserialize, Serialize};

use super::settings::{BreakerSettings, HalfOpenRule, WindowKind};
use super::window::{CallWindow, CountedCall, WindowTotals};

pub use messages::{
    AcquireOutcome, BreakerAdmission, BreakerEvent, BreakerMode, BreakerPermit, BreakerReason, BreakerSnapshot,
    BreakerVerdict, ExceededThreshold, GuestTag, IllegalMove, ManualMove, PermittedOutcome,
};

/// When somebody who met a full half-open breaker may ask again: its probes need a moment.
const FULL_RETRY_MS: u64 = 1_000;

/// One call, in percent of it.
const WHOLE_CALL: u32 = 100;
/// Most that is saved up while all places are taken: never two calls at once.
const CREDIT_MAX: u32 = 2 * WHOLE_CALL - 1;

/// What one guest has brought in a span of the window's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct GuestShare {
    since_ms: u64,
    since_call: u64,
    bad: u32,
}

/// A place of a half-open breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    id: u64,
    expires_ms: u64,
}

/// The state of one breaker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breaker {
    mode: BreakerMode,
    epoch: u64,
    since_ms: u64,
    until_ms: Option<u64>,
    /// Openings since it was closed last.
    openings: u32,
    window: CallWindow,
    slots: Vec<Slot>,
    next_slot: u64,
    /// Results of this half-open epoch.
    probed: WindowTotals,
    /// What those who asked in this half-open epoch have saved up, in percent of a call (BRK-4); absent: nobody has asked.
    #[serde(default)]
    credit: Option<u32>,
    refused: u64,
    told_failures: bool,
    told_slow: bool,
    opened_by: Option<BreakerReason>,
    /// What guests have brought (BRK-5), whatever became of the breaker since.
    #[serde(default)]
    guests: BTreeMap<GuestTag, GuestShare>,
    /// Calls that a window by count has counted.
    #[serde(default)]
    counted: u64,
    /// The guest whose probe failed first in this half-open epoch.
    #[serde(default)]
    probe_failed_by: Option<GuestTag>,
}

impl Breaker {
    /// One that nobody has used.
    pub fn new(now_ms: u64) -> Self {
        Self {
            mode: BreakerMode::Closed,
            // Not from one: what was permitted by one that is forgotten must not count for the one that takes its name, and
            // what is written down of both must not be mistaken for each other.
            epoch: now_ms,
            since_ms: now_ms,
            until_ms: None,
            openings: 0,
            window: CallWindow::default(),
            slots: Vec::new(),
            next_slot: 1,
            probed: WindowTotals::default(),
            credit: None,
            refused: 0,
            told_failures: false,
            told_slow: false,
            opened_by: None,
            guests: BTreeMap::new(),
            counted: 0,
            probe_failed_by: None,
        }
    }

    /// In which state it is, as of the last step.
    pub fn mode(&self) -> BreakerMode {
        self.mode
    }

    /// The epoch, which every change of state raises (BRK-1).
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Nobody would miss it: closed, with nothing in its window and nothing out.
    pub fn is_idle(&mut self, settings: &BreakerSettings, now_ms: u64) -> bool {
        self.mode == BreakerMode::Closed && self.window.totals(settings.window, now_ms).calls == 0
    }

    /// Somebody wants to call, and needs no longer than `lease_ms` for it.
    pub fn acquire(&mut self, settings: &BreakerSettings, lease_ms: u64, now_ms: u64) -> AcquireOutcome {
        let mut events = self.tick(settings, now_ms);
        if self.mode == BreakerMode::Open && self.until_ms.is_none_or(|until| now_ms >= until) {
            events.push(self.enter(BreakerMode::HalfOpen, BreakerReason::WaitOver, now_ms));
        }
        let admission = match self.mode {
            BreakerMode::Closed | BreakerMode::Disabled | BreakerMode::MetricsOnly => {
                BreakerAdmission::Permitted(BreakerPermit { epoch: self.epoch, slot: None, at_ms: now_ms })
            }
            BreakerMode::HalfOpen => self.probe(settings, lease_ms, now_ms),
            BreakerMode::Open => self.refuse(self.until_ms.map(|until| until.saturating_sub(now_ms).max(1))),
            BreakerMode::ForcedOpen => self.refuse(None),
        };
        AcquireOutcome { admission, events }
    }

    /// A permitted call has ended.
    pub fn record(
        &mut self,
        settings: &BreakerSettings,
        permit: BreakerPermit,
        outcome: PermittedOutcome,
        now_ms: u64,
    ) -> Vec<BreakerEvent> {
        let mut events = self.tick(settings, now_ms);
        if !self.redeem(permit) || outcome.verdict == BreakerVerdict::Ignored {
            return events;
        }
        let duration_ms = outcome.duration_ms.unwrap_or_else(|| now_ms.saturating_sub(permit.at_ms));
        let call = CountedCall {
            failed: outcome.verdict == BreakerVerdict::Failed,
            slow: duration_ms > settings.slow_after_ms,
            duration_ms,
        };
        if let Some(guest) = outcome.guest
            && (call.failed || (call.slow && settings.slow_percent.is_some()))
            && !self.weighs(settings, guest, now_ms)
        {
            return events;
        }
        let judged = match self.mode {
            BreakerMode::Closed | BreakerMode::MetricsOnly => self.count(settings, call, now_ms, &mut events),
            BreakerMode::HalfOpen => self.count_probe(settings, call, &mut events),
            BreakerMode::Disabled => return events,
            BreakerMode::Open | BreakerMode::ForcedOpen => None,
        };
        let may_ask = self.mode != BreakerMode::MetricsOnly && outcome.guest.is_none();
        let asked = outcome.open_for_ms.filter(|_| may_ask);
        match (asked, judged) {
            (Some(wait_ms), _) => events.push(self.open(wait_ms, BreakerReason::Asked, now_ms)),
            (None, Some(Judgement::Open(reason))) => {
                let wait_ms = settings.open_wait.ms(self.openings.saturating_add(1));
                events.push(self.open(wait_ms, reason, now_ms));
            }
            (None, Some(Judgement::Close)) => {
                events.push(self.enter(BreakerMode::Closed, BreakerReason::Recovered, now_ms))
            }
            (None, None) => {}
        }
        events
    }

    /// A permitted call was not made after all.
    pub fn release(&mut self, settings: &BreakerSettings, permit: BreakerPermit, now_ms: u64) -> Vec<BreakerEvent> {
        let events = self.tick(settings, now_ms);
        self.redeem(permit);
        events
    }

    /// Makes up for what time has brought.
    pub fn tick(&mut self, settings: &BreakerSettings, now_ms: u64) -> Vec<BreakerEvent> {
        let mut events = Vec::new();
        self.slots.retain(|slot| slot.expires_ms > now_ms);
        if self.mode == BreakerMode::HalfOpen
            && settings.half_open_max_ms.is_some_and(|most| now_ms >= self.since_ms.saturating_add(most))
        {
            let wait_ms = settings.open_wait.ms(self.openings.saturating_add(1));
            events.push(self.open(wait_ms, BreakerReason::HalfOpenTooLong, now_ms));
        }
        events
    }

    /// Somebody changes it by hand. To be made what it is already changes nothing, except that a reset begins anew and an
    /// open one can be given another wait.
    pub fn shift(
        &mut self,
        settings: &BreakerSettings,
        by_hand: ManualMove,
        now_ms: u64,
    ) -> Result<Vec<BreakerEvent>, IllegalMove> {
        let mut events = self.tick(settings, now_ms);
        let from = self.mode;
        let to = match by_hand {
            ManualMove::Open { .. } | ManualMove::OpenUntil { .. } => BreakerMode::Open,
            ManualMove::ForceOpen => BreakerMode::ForcedOpen,
            ManualMove::HalfOpen => BreakerMode::HalfOpen,
            ManualMove::Close | ManualMove::Reset => BreakerMode::Closed,
            ManualMove::Disable => BreakerMode::Disabled,
            ManualMove::MetricsOnly => BreakerMode::MetricsOnly,
        };
        if from == BreakerMode::Closed && to == BreakerMode::HalfOpen {
            return Err(IllegalMove { from, to });
        }
        let until_ms = match by_hand {
            ManualMove::OpenUntil { at_ms } => Some(at_ms),
            ManualMove::Open { for_ms } => {
                Some(now_ms.saturating_add(for_ms.unwrap_or_else(|| settings.open_wait.ms(1))))
            }
            _ => None,
        };
        if by_hand == ManualMove::Reset {
            self.window.clear();
            self.refused = 0;
        }
        if from != to {
            let wait_ms = until_ms.map_or(0, |until| until.saturating_sub(now_ms));
            events.push(match to {
                BreakerMode::Open => self.open(wait_ms, BreakerReason::Manual, now_ms),
                _ => self.enter(to, BreakerReason::Manual, now_ms),
            });
        } else if until_ms.is_some() {
            self.until_ms = until_ms;
        }
        Ok(events)
    }

    /// How it stands.
    pub fn snapshot(&mut self, settings: &BreakerSettings, now_ms: u64) -> BreakerSnapshot {
        let (totals, needed) = if self.mode == BreakerMode::HalfOpen {
            (self.probed, settings.half_open_max_calls)
        } else {
            (self.window.totals(settings.window, now_ms), settings.calls_needed())
        };
        let enough = totals.calls >= needed && totals.calls > 0;
        BreakerSnapshot {
            mode: self.mode,
            since_ms: self.since_ms,
            until_ms: self.until_ms,
            totals,
            failure_percent: enough.then(|| totals.failure_percent()),
            slow_percent: enough.then(|| totals.slow_percent()),
            refused: self.refused,
            probes: u32::saturating_from(self.slots.len()),
            canary_percent: self.share(settings).filter(|_| self.mode == BreakerMode::HalfOpen),
            opened_by: self.opened_by,
        }
    }

    // ---- parts of a step

    fn refuse(&mut self, retry_after_ms: Option<u64>) -> BreakerAdmission {
        self.refused = self.refused.saturating_add(1);
        BreakerAdmission::Refused { mode: self.mode, retry_after_ms }
    }

    /// The share that is let through now (BRK-4).
    fn share(&self, settings: &BreakerSettings) -> Option<u32> {
        settings.canary.map(|canary| canary.after(self.probed.succeeded()))
    }

    /// BRK-2: one of the places, if one is free.
    fn probe(&mut self, settings: &BreakerSettings, lease_ms: u64, now_ms: u64) -> BreakerAdmission {
        let out = u32::saturating_from(self.slots.len());
        let used = match settings.half_open_rule {
            HalfOpenRule::OneFailure { .. } => out,
            HalfOpenRule::Rates => out.saturating_add(self.probed.calls),
        };
        if let Some(share) = self.share(settings) {
            // The first is let through; afterwards everybody who asks adds the share, and a whole call is given out.
            let saved = self.credit.unwrap_or_else(|| WHOLE_CALL.saturating_sub(share)).saturating_add(share);
            self.credit = Some(saved.min(CREDIT_MAX));
        }
        let saved_up = settings.canary.is_none() || self.credit.is_some_and(|credit| credit >= WHOLE_CALL);
        if used >= settings.half_open_max_calls || !saved_up {
            return self.refuse(Some(FULL_RETRY_MS));
        }
        self.credit = self.credit.map(|credit| credit.saturating_sub(WHOLE_CALL));
        let id = self.next_slot;
        self.next_slot = self.next_slot.wrapping_add(1);
        self.slots.push(Slot { id, expires_ms: now_ms.saturating_add(lease_ms.max(1)) });
        BreakerAdmission::Permitted(BreakerPermit { epoch: self.epoch, slot: Some(id), at_ms: now_ms })
    }

    /// Takes a permit back. `false`: it is of another epoch, or its lease is over, and what it brings does not count (BRK-1).
    fn redeem(&mut self, permit: BreakerPermit) -> bool {
        if permit.epoch != self.epoch {
            return false;
        }
        let Some(id) = permit.slot else { return true };
        let before = self.slots.len();
        self.slots.retain(|slot| slot.id != id);
        self.slots.len() < before
    }

    /// BRK-5: does it count that this guest's call failed, or was slow?
    fn weighs(&mut self, settings: &BreakerSettings, guest: GuestTag, now_ms: u64) -> bool {
        match self.mode {
            BreakerMode::Closed | BreakerMode::MetricsOnly => {
                let share = self.guests.entry(guest).or_default();
                let is_over = match settings.window {
                    WindowKind::Time { seconds } => {
                        now_ms.saturating_sub(share.since_ms) >= u64::from(seconds).saturating_mul(1000)
                    }
                    WindowKind::Count { calls } => self.counted.saturating_sub(share.since_call) >= u64::from(calls),
                };
                if is_over || share.bad == 0 {
                    *share = GuestShare { since_ms: now_ms, since_call: self.counted, bad: 0 };
                }
                let weighs = settings.is_under_bounds(share.bad.saturating_add(1));
                share.bad = share.bad.saturating_add(u32::from(weighs));
                weighs
            }
            BreakerMode::HalfOpen => *self.probe_failed_by.get_or_insert(guest) != guest,
            BreakerMode::Open | BreakerMode::ForcedOpen | BreakerMode::Disabled => true,
        }
    }

    /// Counts a call of a closed breaker, and tells what it leads to.
    fn count(
        &mut self,
        settings: &BreakerSettings,
        call: CountedCall,
        now_ms: u64,
        events: &mut Vec<BreakerEvent>,
    ) -> Option<Judgement> {
        self.window.record(settings.window, call, now_ms);
        if matches!(settings.window, WindowKind::Count { .. }) {
            self.counted = self.counted.saturating_add(1);
        }
        let totals = self.window.totals(settings.window, now_ms);
        let reached = settings.failure_threshold.filter(|most| call.failed && totals.failed >= *most);
        let failures = reached
            .map(|_| ExceededThreshold::Failures(totals.failed))
            .or_else(|| failures_over(settings, &totals, settings.calls_needed()));
        let slow = slow_over(settings, &totals, settings.calls_needed());
        self.tell(failures, slow, events);
        let worst = failures.or(slow)?;
        (self.mode == BreakerMode::Closed).then_some(Judgement::Open(BreakerReason::Exceeded(worst)))
    }

    /// Counts the result of a probe, and tells what it leads to.
    fn count_probe(
        &mut self,
        settings: &BreakerSettings,
        call: CountedCall,
        events: &mut Vec<BreakerEvent>,
    ) -> Option<Judgement> {
        self.probed.add(call);
        let probed = self.probed;
        match settings.half_open_rule {
            HalfOpenRule::OneFailure { success_threshold } => {
                if call.failed || (call.slow && settings.slow_percent.is_some()) {
                    Some(Judgement::Open(BreakerReason::ProbeFailed))
                } else {
                    (probed.succeeded() >= success_threshold).then_some(Judgement::Close)
                }
            }
            HalfOpenRule::Rates => {
                if probed.calls < settings.half_open_max_calls {
                    return None;
                }
                let failures = failures_over(settings, &probed, 1);
                let slow = slow_over(settings, &probed, 1);
                self.tell(failures, slow, events);
                let judgement = failures.or(slow).map(|worst| Judgement::Open(BreakerReason::Exceeded(worst)));
                Some(judgement.unwrap_or(Judgement::Close))
            }
        }
    }

    /// One event for each bound, until the counters begin anew.
    fn tell(
        &mut self,
        failures: Option<ExceededThreshold>,
        slow: Option<ExceededThreshold>,
        events: &mut Vec<BreakerEvent>,
    ) {
        for (reached, told) in [(failures, &mut self.told_failures), (slow, &mut self.told_slow)] {
            if let Some(reached) = reached
                && !*told
            {
                *told = true;
                events.push(BreakerEvent::Exceeded(reached));
            }
        }
    }

    fn open(&mut self, wait_ms: u64, reason: BreakerReason, now_ms: u64) -> BreakerEvent {
        let event = self.enter(BreakerMode::Open, reason, now_ms);
        self.openings = self.openings.saturating_add(1);
        self.until_ms = Some(now_ms.saturating_add(wait_ms));
        event
    }

    /// BRK-1: a new state is a new epoch. An open breaker keeps its window to be looked at; every other begins anew.
    fn enter(&mut self, to: BreakerMode, reason: BreakerReason, now_ms: u64) -> BreakerEvent {
        let from = self.mode;
        self.mode = to;
        self.epoch = self.epoch.saturating_add(1);
        self.since_ms = now_ms;
        self.until_ms = None;
        self.slots.clear();
        self.told_failures = false;
        self.told_slow = false;
        match to {
            BreakerMode::Open | BreakerMode::ForcedOpen => self.opened_by = Some(reason),
            BreakerMode::HalfOpen => {
                self.window.clear();
                self.probed = WindowTotals::default();
                self.credit = None;
                self.probe_failed_by = None;
            }
            BreakerMode::Closed | BreakerMode::Disabled | BreakerMode::MetricsOnly => {
                self.window.clear();
                self.openings = 0;
                self.opened_by = None;
            }
        }
        BreakerEvent::Transition { at_ms: now_ms, from, to, reason, epoch: self.epoch }
    }
}

/// What a result leads to.
enum Judgement {
    Open(BreakerReason),
    Close,
}

fn failures_over(settings: &BreakerSettings, totals: &WindowTotals, needed: u32) -> Option<ExceededThreshold> {
    let percent = totals.failure_percent();
    let over = settings.failure_percent.is_some_and(|most| totals.calls >= needed && percent >= most);
    over.then_some(ExceededThreshold::FailurePercent(percent))
}

fn slow_over(settings: &BreakerSettings, totals: &WindowTotals, needed: u32) -> Option<ExceededThreshold> {
    let percent = totals.slow_percent();
    let over = settings.slow_percent.is_some_and(|most| totals.calls >= needed && percent >= most);
    over.then_some(ExceededThreshold::SlowPercent(percent))
}
