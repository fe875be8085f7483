//! The service: what was counted goes to the store, and what is raised to those who are told.
//!
//! Not here: how a call is counted (`ended_calls`), who may ask (`queries`), what follows from it (`recommendation`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use contract::cost::Prices;
use contract::ids::TenantId;
use ports::clock::Clock;
use ports::entropy::{Entropy, new_token_id};
use ports::event_announcer::EventAnnouncer;
use ports::health_store::{AlertRule, HealthStore};
use ports::registry_store::StoreError;
use ports::usage_store::{Day, UsageBatch, UsageStore};
use ports::version_use::VersionUseStore;

use crate::alert_notice::notice_of;
use crate::deprecation_use::DeprecatedUse;
use crate::health::alerts::{Alert, AlertHold, AlertReading, AlertState, Reclassify, next};
use crate::health::{HealthMonitor, HealthSettings, VERSIONS_MAX, times};
use crate::tally::Tally;

/// How often sums are written: what a crash may lose of them.
pub const FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Rounds of that between two looks at alerts, and between two times of keeping health.
const ROUNDS_PER_LOOK: u32 = 3;
const ROUNDS_PER_KEEPING: u32 = 24;
/// Rounds between two times of forgetting old days: about an hour.
const ROUNDS_PER_PRUNING: u32 = 720;
/// Rows that are forgotten in one go.
const FORGET_AT_ONCE: usize = 1_000;
/// Alerts that wait to be told. Beyond, the oldest of the tenant that has most of them makes room, and is in the log.
const UNTOLD_MAX: usize = 256;
/// Tenants whose approvals are watched.
const QUEUES_MAX: usize = 1_024;

/// What insights need.
#[derive(Debug)]
pub struct InsightParts {
    pub usage: Arc<dyn UsageStore>,
    pub health: Arc<dyn HealthStore>,
    /// Where all instances count calls of versions that end.
    pub version_use: Arc<dyn VersionUseStore>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub thresholds: HealthSettings,
    pub prices: Prices,
    /// Days for which use is kept.
    pub retention_days: u32,
    /// Tells of alerts and events. Without it they are in the log only.
    pub announcer: Option<Arc<dyn EventAnnouncer>>,
}

/// Learns.
#[derive(Debug)]
pub struct Insights {
    pub(crate) health: HealthMonitor,
    pub(crate) tally: Tally,
    pub(crate) deprecated_use: DeprecatedUse,
    pub(crate) parts: InsightParts,
    /// A batch that could not be written yet.
    unwritten: tokio::sync::Mutex<Option<UsageBatch>>,
    untold: Mutex<VecDeque<Alert>>,
    /// Pending approvals by tenant, and where their alert stands.
    queues: Mutex<HashMap<TenantId, (u64, AlertState)>>,
}

impl Insights {
    /// Goes on from what was kept of the health of tools.
    pub async fn open(parts: InsightParts) -> Result<Self, StoreError> {
        let health = HealthMonitor::new(parts.thresholds);
        health.recall(parts.health.health(VERSIONS_MAX).await?);
        Ok(Self {
            health,
            tally: Tally::default(),
            deprecated_use: DeprecatedUse::default(),
            parts,
            unwritten: tokio::sync::Mutex::new(None),
            untold: Mutex::default(),
            queues: Mutex::default(),
        })
    }

    /// How tools fare.
    pub fn health(&self) -> &HealthMonitor {
        &self.health
    }

    /// How many approvals of a tenant are pending. For whoever keeps them, which nobody does in this release: until then no backlog
    /// is ever raised.
    pub fn approvals_pending(&self, tenant: &TenantId, pending: u64) {
        let mut queues = self.queues.lock_unpoisoned();
        if queues.len() < QUEUES_MAX || queues.contains_key(tenant) {
            queues.entry(tenant.clone()).or_default().0 = pending;
        }
    }

    /// Writes what was counted. What cannot be written stays, and is tried again under the same name.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.flush_deprecated_use().await?;
        let mut unwritten = self.unwritten.lock().await;
        // At most two: what was left over, and what has come since.
        for _ in 0..2 {
            let batch = match unwritten.take() {
                Some(batch) => batch,
                None => self.tally.drain(new_token_id(&*self.parts.entropy)),
            };
            if batch.is_empty() {
                return Ok(());
            }
            // Put back before the wait: if this future is dropped, nothing is lost.
            let batch = &*unwritten.insert(batch);
            self.parts.usage.add_usage(batch).await?;
            *unwritten = None;
        }
        Ok(())
    }

    /// Looks at every rule, and tells what has changed.
    pub async fn look(&self) {
        let (now, wall) = (self.parts.clock.monotonic(), self.parts.clock.now());
        let mut news = self.health.evaluate(now, wall);
        news.extend(self.queues_news());
        for alert in &news {
            log(alert);
        }
        {
            let mut untold = self.untold.lock_unpoisoned();
            for alert in news {
                untold.push_back(alert);
                if untold.len() > UNTOLD_MAX {
                    drop_of_the_most(&mut untold);
                    tracing::error!("an alert is not delivered: too many wait; it is in the log above");
                }
            }
        }
        self.tell().await;
    }

    /// Keeps what is known of the health of tools.
    pub async fn keep_health(&self) -> Result<(), StoreError> {
        let records = self.health.to_keep(self.parts.clock.monotonic(), self.parts.clock.now());
        if records.is_empty() { Ok(()) } else { self.parts.health.keep_health(&records).await }
    }

    /// Goes on until it is dropped.
    pub async fn keep(&self) {
        for round in 1_u32.. {
            self.parts.clock.sleep(FLUSH_EVERY).await;
            if let Err(error) = self.flush().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "use was not written; it will be tried again");
            }
            if round % ROUNDS_PER_LOOK == 0 {
                self.look().await;
            }
            if round % ROUNDS_PER_KEEPING == 0
                && let Err(error) = self.keep_health().await
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "the health of tools was not kept");
            }
            if round % ROUNDS_PER_PRUNING == 0 {
                self.forget().await;
            }
        }
    }

    /// Writes everything for the last time.
    pub async fn close(&self) {
        let written = async {
            self.flush().await?;
            self.keep_health().await
        };
        if let Err(error) = written.await {
            tracing::error!(error = &error as &dyn std::error::Error, "the last use was not written");
        }
    }

    async fn forget(&self) {
        let before = Day::of(self.parts.clock.now()).before(i64::from(self.parts.retention_days));
        if let Err(error) = self.parts.usage.prune_usage(before, FORGET_AT_ONCE).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "old use was not forgotten");
        }
    }

    /// Tells the alerts of each tenant in order. A tenant whose alert cannot be told now is told next time, and holds up
    /// nobody else's.
    async fn tell(&self) {
        let waiting = std::mem::take(&mut *self.untold.lock_unpoisoned());
        let Some(announcer) = &self.parts.announcer else { return };
        let mut left = Untold { insights: self, alerts: waiting, kept: VecDeque::new() };
        let mut later: HashSet<TenantId> = HashSet::new();
        while let Some(alert) = left.alerts.front() {
            if !later.contains(&alert.tenant) && announcer.announce_alert(&notice_of(alert)).await.is_err() {
                later.insert(alert.tenant.clone());
            }
            left.next(&later);
        }
    }

    fn queues_news(&self) -> Vec<Alert> {
        let (now, wall) = (self.parts.clock.monotonic(), self.parts.clock.now());
        let thresholds = self.health.settings();
        let hold = AlertHold { raise_after: thresholds.approvals_pending_for, ..thresholds.hold };
        let mut queues = self.queues.lock_unpoisoned();
        let mut news = Vec::new();
        for (tenant, (pending, standing)) in queues.iter_mut() {
            let reading = AlertReading { value: *pending as f64, threshold: thresholds.approvals_pending_max as f64 };
            let (after, turn) = next(*standing, Some(reading), (now, wall), hold);
            *standing = after;
            news.extend(turn.map(|turn| {
                let (raised_at, resolved_at) = times(turn, wall);
                Alert {
                    rule: AlertRule::ApprovalQueueBacklog,
                    tenant: tenant.clone(),
                    tool: None,
                    raised_at,
                    resolved_at,
                    reading: Some(reading),
                    suggestion: None,
                }
            }));
        }
        news
    }
}

/// Alerts of a round of telling. Those that were not told are put back when it ends, also if whoever tells stops half way.
struct Untold<'a> {
    insights: &'a Insights,
    alerts: VecDeque<Alert>,
    kept: VecDeque<Alert>,
}

impl Untold<'_> {
    /// The first was told, or its tenant is told later.
    fn next(&mut self, later: &HashSet<TenantId>) {
        self.kept.extend(self.alerts.pop_front().filter(|alert| later.contains(&alert.tenant)));
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        let mut untold = self.insights.untold.lock_unpoisoned();
        self.kept.append(&mut self.alerts);
        self.kept.append(&mut untold);
        *untold = std::mem::take(&mut self.kept);
    }
}

/// Takes the oldest alert of the tenant that has most of them.
fn drop_of_the_most(untold: &mut VecDeque<Alert>) {
    let mut numbers: HashMap<&TenantId, usize> = HashMap::new();
    for alert in &*untold {
        *numbers.entry(&alert.tenant).or_default() += 1;
    }
    let most = numbers.into_iter().max_by_key(|(tenant, number)| (*number, *tenant)).map(|(tenant, _)| tenant.clone());
    if let Some(oldest) = untold.iter().position(|alert| Some(&alert.tenant) == most.as_ref()) {
        untold.remove(oldest);
    }
}

fn log(alert: &Alert) {
    let (tool, version) = alert.tool.as_ref().map(|(tool, version)| (tool.as_str(), version.to_string())).unzip();
    let (value, threshold) = alert.reading.map(|reading| (reading.value, reading.threshold)).unzip();
    let (tenant, rule, version) = (&alert.tenant, alert.rule.as_str(), version.as_deref());
    if alert.resolved_at.is_some() {
        tracing::info!(alert = rule, %tenant, tool, version, value, threshold, "alert resolved");
        return;
    }
    tracing::warn!(alert = rule, %tenant, tool, version, value, threshold, "alert raised");
    if let Some(Reclassify { from, to }) = alert.suggestion {
        tracing::warn!(tool, version, ?from, ?to, "{}", Reclassify::NAME);
    }
}
