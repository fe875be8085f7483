//! Shared state whose server can go away: what can be done by one replica alone is done so, everything else is refused. (RES-020)
//!
//! | use | while the shared state is away |
//! |---|---|
//! | breakers | this replica's own, which remember what was last heard to be open; both are what is listed |
//! | rate limits | this replica's own, with its share of every quota |
//! | changes of breakers by hand, counters, values, presence | refused: they are for all replicas or for none |
//!
//! Each operation asks the shared state first, so its return is noticed by the next one. That costs nothing while it is away:
//! an adapter that knows its server to be gone says so at once.
//!
//! Invariants
//! - FALLBACK-1: a permit goes back to whoever gave it. Those of this replica are marked ([`OWN`]).
//! - FALLBACK-2: nothing is counted twice as fallen back, and every step that was answered by this replica alone is counted.
//! - BACK-3: while the shared state is away, all replicas together let through no more than the quota in its period, as long
//!   as there are no more of them than [`FallbackSettings::replicas`]. Two exceptions: what was taken before is not known, and
//!   each has at least one at once, also of a quota that is smaller than the number of replicas.
//!
//! Not here: how a server is known to be away (`redis::link`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use ports::clock::Clock;
use ports::observer::Observer;
use ports::resilience::window::WindowTotals;
use ports::resilience::{
    BreakerAdmission, BreakerMode, BreakerPermit, BreakerReason, BreakerSettings, BreakerSnapshot, IllegalMove,
    ManualMove, PermittedOutcome, QuotaOutcome, RateQuota,
};
use ports::shared_state::{
    AllTaken, BreakerKey, BreakerQuery, BreakerReport, BreakerTransition, INSPECTED_MAX, KeyedQuota, PastTransition,
    PresentReplica, RateLimits, ReplaceMode, ReserveOutcome, SharedBreakers, SharedHealth, SharedState,
    SharedStateError, SharedValues,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use crate::MemoryState;

/// In the epoch of permits that this replica gave by itself. No server counts so far.
const OWN: u64 = 1 << 62;
/// Breakers that are remembered to be open. When there are more, those of the longest ago are not remembered.
const REMEMBERED_MAX: usize = 4_096;
/// How long a breaker counts as open that was only heard to have opened, by its transition, which says no wait.
const HEARD_OPEN_FOR: Duration = Duration::from_secs(5);
/// Transitions that may wait for a slow listener.
const TRANSITIONS_WAITING_MAX: usize = 256;

/// How a replica behaves by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackSettings {
    /// Among how many replicas a quota is shared out. At least as many as there are.
    pub replicas: u32,
}

impl Default for FallbackSettings {
    fn default() -> Self {
        Self { replicas: 4 }
    }
}

/// The shared state, and this replica's own for when that is away.
#[derive(Debug)]
pub struct FallingBack {
    shared: Arc<dyn SharedState>,
    own: Arc<MemoryState>,
    open: Arc<Remembered>,
    observer: Arc<dyn Observer>,
    settings: FallbackSettings,
    transitions: broadcast::Sender<BreakerTransition>,
    ear: JoinHandle<()>,
}

impl FallingBack {
    /// Must be called inside a runtime.
    pub fn new(
        shared: Arc<dyn SharedState>,
        settings: FallbackSettings,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let own = Arc::new(MemoryState::observed(Arc::clone(&clock), Arc::clone(&observer)));
        let open = Arc::new(Remembered { clock, open: Mutex::default() });
        let transitions = broadcast::Sender::new(TRANSITIONS_WAITING_MAX);
        let ear = listen(shared.transitions(), own.transitions(), Arc::clone(&open), transitions.clone());
        Self { shared, own, open, observer, settings, transitions, ear: tokio::spawn(ear) }
    }

    /// Is this a reason to go on alone? What is too large is so everywhere.
    fn falls_back(&self, error: &SharedStateError, what: &'static str) -> bool {
        let away = match error {
            SharedStateError::Unavailable(_) | SharedStateError::Full => true,
            SharedStateError::TooLarge => false,
        };
        if away {
            self.observer.shared_state_fell_back(what);
        }
        away
    }

    async fn acquire_alone(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        lease: Duration,
    ) -> Result<BreakerAdmission, SharedStateError> {
        if let Some(refused) = self.open.refusal(key) {
            return Ok(refused);
        }
        Ok(match self.own.acquire(key, settings, lease).await? {
            BreakerAdmission::Permitted(permit) => {
                BreakerAdmission::Permitted(BreakerPermit { epoch: permit.epoch | OWN, ..permit })
            }
            refused @ BreakerAdmission::Refused { .. } => refused,
        })
    }

    /// What is in force here: this replica's own breakers, and those that are remembered to be open.
    async fn inspect_alone(&self, query: &BreakerQuery) -> Result<Vec<BreakerReport>, SharedStateError> {
        let own = self.own.inspect(query).await?;
        let mut reports: BTreeMap<BreakerKey, BreakerReport> =
            own.into_iter().map(|report| (report.key.clone(), report)).collect();
        for (key, stand) in self.open.in_force(query) {
            let report = reports.entry(key.clone()).or_insert_with(|| BreakerReport {
                key,
                settings: BreakerSettings::default(),
                snapshot: nothing_counted(),
                history: Vec::new(),
            });
            let snapshot = &mut report.snapshot;
            (snapshot.mode, snapshot.since_ms) = (stand.mode, stand.since_ms);
            (snapshot.until_ms, snapshot.opened_by) = (stand.until_ms, stand.reason);
        }
        Ok(reports.into_values().take(query.limit.min(INSPECTED_MAX)).collect())
    }

    /// BACK-3.
    fn share(&self, quota: RateQuota, count: u32) -> RateQuota {
        let replicas = self.settings.replicas.max(1);
        let mut share = quota;
        share.interval_us = quota.interval_us.saturating_mul(u64::from(replicas));
        // A share of less than is asked for at once would refuse for ever; it comes at its slower pace instead.
        share.burst = (quota.burst / replicas).max(count.min(quota.burst)).max(1);
        share
    }
}

impl Drop for FallingBack {
    fn drop(&mut self) {
        self.ear.abort();
    }
}

#[async_trait]
impl SharedBreakers for FallingBack {
    async fn acquire(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        lease: Duration,
    ) -> Result<BreakerAdmission, SharedStateError> {
        match self.shared.acquire(key, settings, lease).await {
            Ok(admission) => {
                self.open.note(key, &admission);
                Ok(admission)
            }
            Err(error) if self.falls_back(&error, "breaker") => self.acquire_alone(key, settings, lease).await,
            Err(error) => Err(error),
        }
    }

    async fn record(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
        outcome: PermittedOutcome,
    ) -> Result<(), SharedStateError> {
        if let Some(own) = own(permit) {
            return self.own.record(key, settings, own, outcome).await;
        }
        match self.shared.record(key, settings, permit, outcome).await {
            Err(error) if self.falls_back(&error, "breaker") => {
                // The permit cannot go back, its lease ends it. What the call came to is worth knowing here at least.
                if let BreakerAdmission::Permitted(permit) = self.own.acquire(key, settings, Duration::ZERO).await? {
                    self.own.record(key, settings, permit, outcome).await?;
                }
                Ok(())
            }
            done => done,
        }
    }

    async fn release(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
    ) -> Result<(), SharedStateError> {
        if let Some(own) = own(permit) {
            return self.own.release(key, settings, own).await;
        }
        match self.shared.release(key, settings, permit).await {
            Err(error) if self.falls_back(&error, "breaker") => Ok(()),
            done => done,
        }
    }

    async fn shift(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        by_hand: ManualMove,
    ) -> Result<Result<BreakerReport, IllegalMove>, SharedStateError> {
        // What somebody wants to be so must be so for all replicas.
        self.shared.shift(key, settings, by_hand).await
    }

    async fn inspect(&self, query: &BreakerQuery) -> Result<Vec<BreakerReport>, SharedStateError> {
        match self.shared.inspect(query).await {
            Err(error) if self.falls_back(&error, "breaker") => self.inspect_alone(query).await,
            looked => looked,
        }
    }

    fn transitions(&self) -> broadcast::Receiver<BreakerTransition> {
        self.transitions.subscribe()
    }
}

#[async_trait]
impl RateLimits for FallingBack {
    async fn take(&self, limits: &[KeyedQuota<'_>], count: u32) -> Result<AllTaken, SharedStateError> {
        match self.shared.take(limits, count).await {
            Err(error) if self.falls_back(&error, "limit") => {
                let shares: Vec<KeyedQuota<'_>> = limits
                    .iter()
                    .map(|limit| KeyedQuota { key: limit.key, quota: self.share(limit.quota, count) })
                    .collect();
                self.own.take(&shares, count).await
            }
            taken => taken,
        }
    }

    async fn peek(&self, limit: KeyedQuota<'_>) -> Result<QuotaOutcome, SharedStateError> {
        match self.shared.peek(limit).await {
            Err(error) if self.falls_back(&error, "limit") => {
                self.own.peek(KeyedQuota { key: limit.key, quota: self.share(limit.quota, 1) }).await
            }
            peeked => peeked,
        }
    }
}

#[async_trait]
impl SharedValues for FallingBack {
    async fn reserve(
        &self,
        key: &str,
        amount: i64,
        ceiling: i64,
        ttl: Duration,
    ) -> Result<ReserveOutcome, SharedStateError> {
        self.shared.reserve(key, amount, ceiling, ttl).await
    }

    async fn settle(&self, key: &str, reserved: i64, actual: i64, ttl: Duration) -> Result<i64, SharedStateError> {
        self.shared.settle(key, reserved, actual, ttl).await
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
        replace: ReplaceMode,
    ) -> Result<bool, SharedStateError> {
        self.shared.put(key, value, ttl, replace).await
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStateError> {
        self.shared.get(key).await
    }

    async fn remove(&self, key: &str) -> Result<bool, SharedStateError> {
        self.shared.remove(key).await
    }

    async fn announce(&self, replica: &str, word: &str, ttl: Duration) -> Result<(), SharedStateError> {
        self.shared.announce(replica, word, ttl).await
    }

    async fn present(&self) -> Result<Vec<PresentReplica>, SharedStateError> {
        self.shared.present().await
    }

    async fn health(&self) -> SharedHealth {
        self.shared.health().await
    }
}

/// The permit without the mark, if it has it. FALLBACK-1.
fn own(permit: BreakerPermit) -> Option<BreakerPermit> {
    (permit.epoch & OWN != 0).then_some(BreakerPermit { epoch: permit.epoch & !OWN, ..permit })
}

/// Hands on what is heard from either side, and remembers what it says of the shared side.
async fn listen(
    mut shared: broadcast::Receiver<BreakerTransition>,
    mut own: broadcast::Receiver<BreakerTransition>,
    open: Arc<Remembered>,
    told: broadcast::Sender<BreakerTransition>,
) {
    loop {
        let heard = tokio::select! {
            heard = shared.recv() => heard.inspect(|transition| open.hear(transition)),
            heard = own.recv() => heard,
        };
        match heard {
            // An error means that nobody listens.
            Ok(transition) => drop(told.send(transition)),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "transitions of breakers came too fast to be handed on");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

// ------------------------------------------------------------------------------------------------------- what was open

/// Breakers of the shared state that were open when they were last heard of.
#[derive(Debug)]
struct Remembered {
    clock: Arc<dyn Clock>,
    open: Mutex<HashMap<BreakerKey, Opened>>,
}

/// What was heard of one.
#[derive(Debug, Clone, Copy)]
struct Opened {
    /// By the monotonic clock; `None` if only somebody can close it.
    until: Option<Duration>,
    /// By the wall clock.
    since_ms: u64,
    reason: Option<BreakerReason>,
}

/// How one stands that is in force, by the wall clock.
struct Stand {
    mode: BreakerMode,
    since_ms: u64,
    until_ms: Option<u64>,
    reason: Option<BreakerReason>,
}

/// Of a breaker of which nothing is known but how it stands.
fn nothing_counted() -> BreakerSnapshot {
    BreakerSnapshot {
        mode: BreakerMode::Open,
        since_ms: 0,
        until_ms: None,
        totals: WindowTotals::default(),
        failure_percent: None,
        slow_percent: None,
        refused: 0,
        probes: 0,
        canary_percent: None,
        opened_by: None,
    }
}

impl Remembered {
    fn lock(&self) -> MutexGuard<'_, HashMap<BreakerKey, Opened>> {
        self.open.lock_unpoisoned()
    }

    /// What the shared state has answered.
    fn note(&self, key: &BreakerKey, admission: &BreakerAdmission) {
        match *admission {
            BreakerAdmission::Refused { mode: BreakerMode::ForcedOpen, .. } => self.remember(key, None, None),
            BreakerAdmission::Refused { mode: BreakerMode::Open, retry_after_ms } => {
                self.remember(key, Some(retry_after_ms.map_or(HEARD_OPEN_FOR, Duration::from_millis)), None);
            }
            BreakerAdmission::Refused { .. } | BreakerAdmission::Permitted(_) => self.forget(key),
        }
    }

    /// What another replica has made of it.
    fn hear(&self, transition: &BreakerTransition) {
        match transition.change.to {
            BreakerMode::ForcedOpen => self.remember(&transition.key, None, Some(transition.change)),
            BreakerMode::Open => self.remember(&transition.key, Some(HEARD_OPEN_FOR), Some(transition.change)),
            BreakerMode::Closed | BreakerMode::HalfOpen | BreakerMode::Disabled | BreakerMode::MetricsOnly => {
                self.forget(&transition.key);
            }
        }
    }

    fn remember(&self, key: &BreakerKey, span: Option<Duration>, change: Option<PastTransition>) {
        let now = self.clock.monotonic();
        let mut open = self.lock();
        let known = open.get(key).copied();
        // An answer says how long still, not since when and why: that was heard before, or begins now.
        let since_ms = change.map(|change| change.at_ms).or_else(|| known.map(|known| known.since_ms));
        let reason = change.map(|change| change.reason).or_else(|| known.and_then(|known| known.reason));
        let opened = Opened {
            until: span.map(|span| now.saturating_add(span)),
            since_ms: since_ms.unwrap_or_else(|| self.wall_ms()),
            reason: reason.or_else(|| span.is_none().then_some(BreakerReason::Manual)),
        };
        if open.len() >= REMEMBERED_MAX && !open.contains_key(key) {
            open.retain(|_, opened| opened.until.is_none_or(|until| until > now));
            if open.len() >= REMEMBERED_MAX {
                return;
            }
        }
        open.insert(key.clone(), opened);
    }

    fn forget(&self, key: &BreakerKey) {
        let mut open = self.lock();
        if !open.is_empty() {
            open.remove(key);
        }
    }

    fn wall_ms(&self) -> u64 {
        u64::saturating_from(self.clock.now().0)
    }

    /// Those that refuse calls at this moment and are asked about.
    fn in_force(&self, query: &BreakerQuery) -> Vec<(BreakerKey, Stand)> {
        let (now, wall_ms) = (self.clock.monotonic(), self.wall_ms());
        let asked = |key: &BreakerKey| {
            query.tenant.as_ref().is_none_or(|tenant| tenant == key.tenant())
                && query.service.as_ref().is_none_or(|service| service == key.service())
                && query.after.as_ref().is_none_or(|after| key > after)
        };
        let open = self.lock();
        let in_force = open.iter().filter(|(key, _)| asked(key)).filter_map(|(key, opened)| {
            let left = match opened.until {
                None => None,
                Some(until) => Some(until.checked_sub(now).filter(|left| !left.is_zero())?),
            };
            let until_ms = left.map(|left| wall_ms.saturating_add(u64::saturating_from(left.as_millis())));
            let mode = if left.is_none() { BreakerMode::ForcedOpen } else { BreakerMode::Open };
            Some((key.clone(), Stand { mode, since_ms: opened.since_ms, until_ms, reason: opened.reason }))
        });
        in_force.collect()
    }

    /// The answer to somebody who asks while nobody else can be asked.
    fn refusal(&self, key: &BreakerKey) -> Option<BreakerAdmission> {
        let until = self.lock().get(key)?.until;
        let Some(until) = until else {
            return Some(BreakerAdmission::Refused { mode: BreakerMode::ForcedOpen, retry_after_ms: None });
        };
        let left = until.checked_sub(self.clock.monotonic()).filter(|left| !left.is_zero())?;
        let retry_after_ms = Some(u64::saturating_from(left.as_millis()).max(1));
        Some(BreakerAdmission::Refused { mode: BreakerMode::Open, retry_after_ms })
    }
}
