//! How the tools fare: a score per version over the last quarter of an hour, what is usual for it, and alerts. (OBS-007…009)
//!
//! ```text
//!  end of a call ─▶ note(version, ending, time) ─▶ window ─▶ score ─▶ condition
//!                                                     └────▶ baseline
//!  every few seconds ─▶ evaluate ─▶ readings ─▶ alerts::next ─▶ raised · resolved
//! ```
//!
//! Everything is memory of one process and bounded. A call takes one of [`SHARDS`] locks for as long as a few counters
//! need; evaluation takes one after the other.
//!
//! Invariants
//! - HEALTH-1: a call that its caller got wrong, or was not allowed to make, says nothing about the tool.
//! - HEALTH-2: at most [`VERSIONS_MAX`] versions are watched. The one that was called longest ago makes room, unless
//!   something is raised about it.
//!
//! Not here: who is told (`service`), and what a breaker does with the score (RES-013: [`HealthMonitor::score`] is the signal).

pub mod alerts;
mod baseline;
pub mod score;
pub mod window;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::manifest::TimeoutClass;
use ports::clock::UnixMillis;
use ports::health_store::{AlertRule, HealthRecord};
use ports::tool_version::{ToolVersion, VersionKey};

use alerts::{Alert, AlertChange, AlertHold, AlertReading, AlertState, Reclassify, next};
use baseline::Baseline;
use score::{HealthCondition, implied_class};
use window::{HealthCounts, HealthOutcome, HealthWindow, WINDOW};

/// Locks among which versions are spread.
const SHARDS: usize = 16;
/// Versions that are watched at once.
pub const VERSIONS_MAX: usize = 4_096;
const PER_SHARD_MAX: usize = VERSIONS_MAX / SHARDS;
/// A p99 below this is no regression, whatever it was before: nobody waits for it.
const REGRESSION_FLOOR_MS: f64 = 20.0;

/// Thresholds; the reasons for the defaults are in decision 0036.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthSettings {
    /// The share of failed calls that takes the whole penalty for errors.
    pub error_rate_max: f64,
    /// The same for calls that took too long.
    pub timeout_rate_max: f64,
    /// ToolDegraded above this share of failed calls, unless the manifest says otherwise.
    pub alert_error_rate: f64,
    /// TimeoutClassMismatch above this share of calls that took too long, unless the manifest says otherwise.
    pub alert_timeout_rate: f64,
    /// LatencyRegression above so many times the usual p99.
    pub latency_factor: f64,
    /// Calls in the window below which rates say nothing.
    pub calls_min: u64,
    /// How long before an alert is raised and resolved.
    pub hold: AlertHold,
    /// ApprovalQueueBacklog above so many pending approvals, for so long.
    pub approvals_pending_max: u64,
    pub approvals_pending_for: Duration,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            error_rate_max: 0.10,
            timeout_rate_max: 0.05,
            alert_error_rate: 0.05,
            alert_timeout_rate: 0.02,
            latency_factor: 2.0,
            calls_min: 20,
            hold: AlertHold { raise_after: Duration::from_secs(60), resolve_after: Duration::from_secs(300) },
            approvals_pending_max: 50,
            approvals_pending_for: Duration::from_secs(900),
        }
    }
}

/// What is known of a version at a moment.
#[derive(Debug, Clone)]
pub struct HealthReport {
    pub key: VersionKey,
    pub score: Option<f64>,
    pub condition: HealthCondition,
    pub counts: HealthCounts,
    pub baseline_p99_ms: Option<f64>,
    /// What is raised, and since when.
    pub raised: Vec<(AlertRule, UnixMillis)>,
    pub suggestion: Option<Reclassify>,
}

/// What a manifest says about its own health.
#[derive(Debug, Clone, Copy)]
struct Declared {
    class: TimeoutClass,
    error_rate: Option<f64>,
    timeout_rate: Option<f64>,
    baseline_ms: Option<f64>,
}

impl Declared {
    fn of(tool: &ToolVersion) -> Self {
        let observability = tool.manifest.observability.as_ref();
        Self {
            class: tool.manifest.timeout_class,
            error_rate: observability.and_then(|said| said.alert_error_rate),
            timeout_rate: observability.and_then(|said| said.alert_timeout_rate),
            baseline_ms: observability.and_then(|said| said.baseline_p99_ms).map(f64::from),
        }
    }
}

#[derive(Debug, Default)]
struct Watched {
    /// There once it was called: what was recalled from the store has no manifest.
    declared: Option<Declared>,
    window: HealthWindow,
    baseline: Baseline,
    standings: [AlertState; AlertRule::OF_TOOLS.len()],
    last: Duration,
}

/// How a call that was refused so ended for the health of its tool. What could not be read says so by its reason: the code is
/// that of every failure of a tool.
pub fn ending_of_refused(refusal: &Refusal, code: ErrorCode) -> Option<HealthOutcome> {
    match (ending_of(Some(code)), refusal.reason.as_deref()) {
        (Some(HealthOutcome::Failed), Some(RefusalReason::UnreadableAnswer)) => Some(HealthOutcome::Unreadable),
        (ending, _) => ending,
    }
}

/// How a call ended for the health of its tool; `None` if that says nothing about it (HEALTH-1).
pub fn ending_of(code: Option<ErrorCode>) -> Option<HealthOutcome> {
    let Some(code) = code else { return Some(HealthOutcome::Well) };
    match code {
        ErrorCode::E3002 | ErrorCode::E3402 | ErrorCode::E3503 => Some(HealthOutcome::TimedOut),
        ErrorCode::E3303 => Some(HealthOutcome::BrokeItsSchema),
        ErrorCode::E3000
        | ErrorCode::E3401
        | ErrorCode::E3403
        | ErrorCode::E3404
        | ErrorCode::E3405
        | ErrorCode::E3406
        | ErrorCode::E3407
        | ErrorCode::E3411
        | ErrorCode::E3413
        | ErrorCode::E3414
        | ErrorCode::E3502
        | ErrorCode::E3504 => Some(HealthOutcome::Failed),
        _ => None,
    }
}

/// Watches versions.
#[derive(Debug)]
pub struct HealthMonitor {
    shards: [Mutex<HashMap<VersionKey, Watched>>; SHARDS],
    spread: RandomState,
    settings: HealthSettings,
}

impl HealthMonitor {
    /// Watching nothing yet.
    pub fn new(settings: HealthSettings) -> Self {
        Self { shards: Default::default(), spread: RandomState::new(), settings }
    }

    /// The thresholds in force.
    pub fn settings(&self) -> &HealthSettings {
        &self.settings
    }

    /// Goes on from what was kept before a restart.
    pub fn recall(&self, records: Vec<HealthRecord>) {
        for record in records {
            let mut watched = Watched {
                baseline: Baseline::kept(record.baseline_p99_ms, record.baseline_windows),
                ..Watched::default()
            };
            for (rule, at) in record.raised {
                if let Some(standing) = standing_of(&mut watched.standings, rule) {
                    *standing = AlertState::Raised { at, calm_since: None };
                }
            }
            let mut shard = self.shard(&record.key);
            if shard.len() < PER_SHARD_MAX {
                shard.entry(record.key).or_insert(watched);
            }
        }
    }

    /// Counts a call that has ended.
    pub fn note(&self, now: Duration, tool: &ToolVersion, ending: HealthOutcome, took: Duration) {
        let key = VersionKey::of(tool);
        let mut shard = self.shard(&key);
        if !shard.contains_key(&key) && shard.len() >= PER_SHARD_MAX && !make_room(&mut shard) {
            return;
        }
        let watched = shard.entry(key).or_default();
        watched.declared.get_or_insert_with(|| Declared::of(tool));
        watched.window.note(now, ending, took);
        watched.last = now;
    }

    /// The signal for whoever decides by health (RES-013): `None` without calls.
    pub fn score(&self, now: Duration, key: &VersionKey) -> Option<f64> {
        self.of(now, key)?.score
    }

    /// How one version fares; `None` if nothing is known of it.
    pub fn of(&self, now: Duration, key: &VersionKey) -> Option<HealthReport> {
        let shard = self.shard(key);
        shard.get(key).map(|watched| self.report(now, key, watched))
    }

    /// How those fare that are asked for, in no order.
    pub fn reports(&self, now: Duration, wanted: impl Fn(&VersionKey) -> bool) -> Vec<HealthReport> {
        let mut reports = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock_unpoisoned();
            reports.extend(
                shard.iter().filter(|(key, _)| wanted(key)).map(|(key, watched)| self.report(now, key, watched)),
            );
        }
        reports
    }

    /// Learns what is usual and says what is to be told. To be called every few seconds.
    pub fn evaluate(&self, now: Duration, wall: UnixMillis) -> Vec<Alert> {
        let mut news = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock_unpoisoned();
            for (key, watched) in shard.iter_mut() {
                self.evaluate_one(now, wall, key, watched, &mut news);
            }
        }
        news
    }

    /// What is to be kept for the next start.
    pub fn to_keep(&self, now: Duration, wall: UnixMillis) -> Vec<HealthRecord> {
        let mut records = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock_unpoisoned();
            for (key, watched) in shard.iter() {
                let report = self.report(now, key, watched);
                let (baseline_p99_ms, baseline_windows) = watched.baseline.to_keep();
                records.push(HealthRecord {
                    key: key.clone(),
                    score: report.score,
                    calls: report.counts.calls,
                    baseline_p99_ms,
                    baseline_windows,
                    raised: report.raised,
                    at: wall,
                });
            }
        }
        records
    }

    fn shard(&self, key: &VersionKey) -> MutexGuard<'_, HashMap<VersionKey, Watched>> {
        let hash = self.spread.hash_one((&key.tenant, &key.tool));
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        // INVARIANT: the index is below the number of shards.
        let [first, ..] = &self.shards;
        self.shards.get(index).unwrap_or(first).lock_unpoisoned()
    }

    fn report(&self, now: Duration, key: &VersionKey, watched: &Watched) -> HealthReport {
        let counts = watched.window.counts(now);
        let score = watched.declared.and_then(|declared| score::score(&counts, declared.class, &self.settings));
        let raised: Vec<_> = AlertRule::OF_TOOLS.into_iter().zip(watched.standings).filter_map(raised_at).collect();
        let mismatch = raised.iter().any(|(rule, _)| *rule == AlertRule::TimeoutClassMismatch);
        HealthReport {
            key: key.clone(),
            score,
            condition: HealthCondition::of(score),
            baseline_p99_ms: baseline_of(watched),
            suggestion: mismatch.then(|| suggestion(watched, &counts)).flatten(),
            counts,
            raised,
        }
    }

    fn evaluate_one(
        &self,
        now: Duration,
        wall: UnixMillis,
        key: &VersionKey,
        watched: &mut Watched,
        news: &mut Vec<Alert>,
    ) {
        let stale = now.saturating_sub(watched.last) > WINDOW;
        if stale && watched.standings.iter().all(|standing| *standing == AlertState::default()) {
            return;
        }
        let counts = watched.window.counts(now);
        for rule in AlertRule::OF_TOOLS {
            let reading = self.read(rule, watched, &counts);
            // A broken promise is told at once: one such answer is one too many.
            let at_once = matches!(rule, AlertRule::OutputSchemaViolation | AlertRule::OutputCorruption);
            let hold = AlertHold {
                raise_after: if at_once { Duration::ZERO } else { self.settings.hold.raise_after },
                ..self.settings.hold
            };
            let suggestion = (rule == AlertRule::TimeoutClassMismatch).then(|| suggestion(watched, &counts)).flatten();
            let Some(standing) = standing_of(&mut watched.standings, rule) else { continue };
            let (after, turn) = next(*standing, reading, (now, wall), hold);
            *standing = after;
            news.extend(turn.map(|turn| {
                let (raised_at, resolved_at) = times(turn, wall);
                Alert {
                    rule,
                    tenant: key.tenant.clone(),
                    tool: Some((key.tool.clone(), key.version.clone())),
                    raised_at,
                    resolved_at,
                    reading,
                    suggestion,
                }
            }));
        }
        if counts.calls >= self.settings.calls_min
            && let Some(p99) = counts.p99()
        {
            let regressed = standing_of(&mut watched.standings, AlertRule::LatencyRegression)
                .is_some_and(|standing| *standing != AlertState::default());
            watched.baseline.learn(now, p99, regressed);
        }
    }

    fn read(&self, rule: AlertRule, watched: &Watched, counts: &HealthCounts) -> Option<AlertReading> {
        let declared = watched.declared?;
        match rule {
            AlertRule::OutputSchemaViolation => {
                return Some(AlertReading { value: counts.schema_violations as f64, threshold: 0.0 });
            }
            AlertRule::OutputCorruption => {
                return Some(AlertReading { value: counts.unreadable as f64, threshold: 0.0 });
            }
            _ => {}
        }
        if counts.calls < self.settings.calls_min {
            return None;
        }
        match rule {
            AlertRule::ToolDegraded => Some(AlertReading {
                value: counts.error_rate()?,
                threshold: declared.error_rate.unwrap_or(self.settings.alert_error_rate),
            }),
            AlertRule::TimeoutClassMismatch => Some(AlertReading {
                value: counts.timeout_rate()?,
                threshold: declared.timeout_rate.unwrap_or(self.settings.alert_timeout_rate),
            }),
            AlertRule::LatencyRegression => Some(AlertReading {
                value: counts.p99()?.as_secs_f64() * 1e3,
                threshold: (baseline_of(watched)? * self.settings.latency_factor).max(REGRESSION_FLOOR_MS),
            }),
            AlertRule::OutputSchemaViolation | AlertRule::OutputCorruption | AlertRule::ApprovalQueueBacklog => None,
        }
    }
}

/// When it was raised, and when it was over.
pub(crate) fn times(turn: AlertChange, wall: UnixMillis) -> (UnixMillis, Option<UnixMillis>) {
    match turn {
        AlertChange::Raised => (wall, None),
        AlertChange::Resolved { raised_at } => (raised_at, Some(wall)),
    }
}

fn raised_at((rule, standing): (AlertRule, AlertState)) -> Option<(AlertRule, UnixMillis)> {
    match standing {
        AlertState::Raised { at, .. } => Some((rule, at)),
        AlertState::Quiet { .. } => None,
    }
}

fn standing_of(standings: &mut [AlertState; AlertRule::OF_TOOLS.len()], rule: AlertRule) -> Option<&mut AlertState> {
    AlertRule::OF_TOOLS.into_iter().zip(standings).find(|(of, _)| *of == rule).map(|(_, standing)| standing)
}

/// What the manifest says is usual, or what was learned.
fn baseline_of(watched: &Watched) -> Option<f64> {
    watched.declared.and_then(|declared| declared.baseline_ms).or_else(|| watched.baseline.p99_ms())
}

/// Another class, if the calls ask for a larger one than declared.
fn suggestion(watched: &Watched, counts: &HealthCounts) -> Option<Reclassify> {
    let from = watched.declared?.class;
    let to = implied_class(counts)?;
    (to.max_ms() > from.max_ms()).then_some(Reclassify { from, to })
}

/// Lets the version go that was called longest ago and about which nothing is raised.
fn make_room(shard: &mut HashMap<VersionKey, Watched>) -> bool {
    let calm =
        |watched: &Watched| watched.standings.iter().all(|standing| !matches!(standing, AlertState::Raised { .. }));
    let oldest = shard.iter().filter(|(_, watched)| calm(watched)).min_by_key(|(_, watched)| watched.last);
    let oldest = oldest.map(|(key, _)| key.clone());
    oldest.is_some_and(|key| shard.remove(&key).is_some())
}

#[cfg(test)]
pub(crate) mod tests;
