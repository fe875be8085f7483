//! Breakers in Redis: each step is `scripts/breaker.lua`, which is the machine of `ports::resilience::breaker`. (RES-001…011)
//!
//! A breaker is five keys with one hash tag, `cb:{tenant:service:endpoint}:state`, `:calls`, `:seconds`, `:probes` and
//! `:history`. The names of all breakers are in a list of its own that is only good for listing: it lies on another node of a
//! cluster, so it is written beside the step and not in it, by every replica once for each breaker and connection.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use futures_util::future::try_join_all;
use ports::resilience::window::WindowTotals;
use ports::resilience::{
    BreakerAdmission, BreakerMode, BreakerPermit, BreakerSettings, BreakerSnapshot, BreakerVerdict, IllegalMove,
    ManualMove, PermittedOutcome, WindowKind,
};
use ports::shared_state::{
    BreakerKey, BreakerQuery, BreakerReport, BreakerTransition, INSPECTED_MAX, PastTransition, SharedBreakers,
    SharedStateError,
};
use tokio::sync::broadcast;

use super::link::{LinkState, RedisTrouble};
use super::{RedisState, millis, unavailable};

/// Names in the list of breakers; the longest unused go first.
const LISTED_MAX: usize = 16_384;
/// Breakers that are looked at at once.
const LOOKED_AT_ONCE: usize = 64;
/// The largest number that scripts compute with exactly.
pub(super) const EXACT_MAX: u64 = 9_007_199_254_740_991;

/// The breakers that this replica has put into the list on this connection.
#[derive(Debug, Default)]
pub(super) struct Listed(Mutex<(u64, HashSet<BreakerKey>)>);

impl Listed {
    fn knows(&self, key: &BreakerKey, connection: u64) -> bool {
        let mut listed = self.0.lock_unpoisoned();
        if listed.0 != connection {
            // The server may have forgotten everything in between.
            *listed = (connection, HashSet::new());
        }
        listed.1.contains(key)
    }

    fn note(&self, key: &BreakerKey, connection: u64) {
        let mut listed = self.0.lock_unpoisoned();
        if listed.1.len() >= LISTED_MAX {
            listed.1.clear();
        }
        if listed.0 == connection {
            listed.1.insert(key.clone());
        }
    }
}

#[async_trait]
impl SharedBreakers for RedisState {
    async fn acquire(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        lease: Duration,
    ) -> Result<BreakerAdmission, SharedStateError> {
        let answer = self.step(key, "acquire", Some(settings), &[millis(lease).to_string()]).await?;
        admission(&answer).ok_or_else(garbled)
    }

    async fn record(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
        outcome: PermittedOutcome,
    ) -> Result<(), SharedStateError> {
        let verdict = match outcome.verdict {
            BreakerVerdict::Succeeded => "succeeded",
            BreakerVerdict::Failed => "failed",
            BreakerVerdict::Ignored => "ignored",
        };
        let [epoch, slot, at_ms] = permitted(permit);
        let (seconds, slow_after) = only_failures(settings);
        let arguments = [
            epoch,
            slot,
            at_ms,
            verdict.to_owned(),
            optional(outcome.duration_ms),
            optional(outcome.open_for_ms),
            seconds,
            slow_after,
            outcome.guest.map_or_else(String::new, |guest| guest.number().to_string()),
        ];
        self.step(key, "record", Some(settings), &arguments).await.map(drop)
    }

    async fn release(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
    ) -> Result<(), SharedStateError> {
        self.step(key, "release", Some(settings), &permitted(permit)).await.map(drop)
    }

    async fn shift(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        by_hand: ManualMove,
    ) -> Result<Result<BreakerReport, IllegalMove>, SharedStateError> {
        let (word, number) = match by_hand {
            ManualMove::Open { for_ms } => ("open", optional(for_ms)),
            ManualMove::OpenUntil { at_ms } => ("open_until", optional(Some(at_ms))),
            ManualMove::ForceOpen => ("force_open", String::new()),
            ManualMove::HalfOpen => ("half_open", String::new()),
            ManualMove::Close => ("close", String::new()),
            ManualMove::Disable => ("disable", String::new()),
            ManualMove::MetricsOnly => ("metrics_only", String::new()),
            ManualMove::Reset => ("reset", String::new()),
        };
        let answer = self.step(key, "shift", Some(settings), &[word.to_owned(), number]).await?;
        match answer.as_slice() {
            [word, from, to] if word == "illegal" => {
                let illegal = mode(from).zip(mode(to)).map(|(from, to)| IllegalMove { from, to });
                illegal.map(Err).ok_or_else(garbled)
            }
            _ => report(key, &answer).map(Ok).ok_or_else(garbled),
        }
    }

    async fn inspect(&self, query: &BreakerQuery) -> Result<Vec<BreakerReport>, SharedStateError> {
        let mut listing = self.clock.begin(&self.scripts.index);
        listing.key(self.names.breaker_index()).arg("list");
        let names: Vec<String> = self.link.run(&listing).await.map_err(unavailable)?;
        let wanted = |key: &BreakerKey| {
            query.tenant.as_ref().is_none_or(|tenant| tenant == key.tenant())
                && query.service.as_ref().is_none_or(|service| service == key.service())
                && query.after.as_ref().is_none_or(|after| key > after)
        };
        let mut keys: Vec<BreakerKey> =
            names.iter().filter_map(|name| name.parse().ok()).filter(|key| wanted(key)).collect();
        keys.sort_unstable();
        let most = query.limit.min(INSPECTED_MAX);
        let mut reports = Vec::new();
        for some in keys.chunks(LOOKED_AT_ONCE) {
            if reports.len() >= most {
                break;
            }
            let looked = try_join_all(some.iter().map(|key| self.look_at(key))).await?;
            reports.extend(looked.into_iter().flatten());
        }
        reports.truncate(most);
        Ok(reports)
    }

    fn transitions(&self) -> broadcast::Receiver<BreakerTransition> {
        self.transitions.subscribe()
    }
}

impl RedisState {
    async fn step(
        &self,
        key: &BreakerKey,
        what: &str,
        settings: Option<&BreakerSettings>,
        arguments: &[String],
    ) -> Result<Vec<String>, SharedStateError> {
        let parts = [key.tenant().as_str(), key.service(), key.endpoint()];
        let settings = match settings {
            Some(settings) => serde_json::to_string(settings).map_err(|_| SharedStateError::TooLarge)?,
            None => String::new(),
        };
        let mut step = self.clock.begin(&self.scripts.breaker);
        for leaf in ["state", "calls", "seconds", "probes", "history"] {
            step.key(self.names.key("cb", &parts, leaf));
        }
        step.arg(what).arg(settings).arg(key.to_string());
        step.arg(self.names.breaker_changes()).arg(self.names.breaker_words()).arg(arguments);
        let answer = self.link.run(&step).await.map_err(unavailable)?;
        self.list(key).await;
        Ok(answer)
    }

    /// Puts a breaker into the list, if this replica has not done so. What fails is done again by the next step.
    async fn list(&self, key: &BreakerKey) {
        let LinkState::Up { connection } = self.link.standing() else { return };
        if self.listed.knows(key, connection) {
            return;
        }
        let mut adding = self.clock.begin(&self.scripts.index);
        adding.key(self.names.breaker_index()).arg("add").arg(key.to_string()).arg(LISTED_MAX);
        if self.link.run::<Vec<String>>(&adding).await.is_ok() {
            self.listed.note(key, connection);
        }
    }

    /// One breaker, or `None` if it was forgotten; then it is in the list no more.
    async fn look_at(&self, key: &BreakerKey) -> Result<Option<BreakerReport>, SharedStateError> {
        let answer = self.step(key, "inspect", None, &[]).await?;
        if answer.first().is_some_and(|word| word == "none") {
            let mut removing = self.clock.begin(&self.scripts.index);
            removing.key(self.names.breaker_index()).arg("remove").arg(key.to_string());
            self.link.run::<Vec<String>>(&removing).await.map_err(unavailable)?;
            return Ok(None);
        }
        report(key, &answer).map(Some).ok_or_else(garbled)
    }
}

// ------------------------------------------------------------------------------------------------- to and from scripts

fn permitted(permit: BreakerPermit) -> [String; 3] {
    [permit.epoch.to_string(), permit.slot.map_or_else(String::new, |slot| slot.to_string()), permit.at_ms.to_string()]
}

/// A number that a script can compute with, or nothing.
fn optional(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.min(EXACT_MAX / 4).to_string())
}

/// What the script needs to count a success without reading the settings: the window and when a call is slow. Nothing where
/// a share of calls decides, because then a success may, too.
fn only_failures(settings: &BreakerSettings) -> (String, String) {
    match settings.window {
        WindowKind::Time { seconds } if settings.failure_percent.is_none() && settings.slow_percent.is_none() => {
            (seconds.to_string(), settings.slow_after_ms.to_string())
        }
        WindowKind::Time { .. } | WindowKind::Count { .. } => (String::new(), String::new()),
    }
}

fn mode(word: &str) -> Option<BreakerMode> {
    BreakerMode::ALL.into_iter().find(|mode| mode.as_str() == word)
}

fn admission(answer: &[String]) -> Option<BreakerAdmission> {
    match answer {
        [word, epoch, slot, at_ms] if word == "permitted" => Some(BreakerAdmission::Permitted(BreakerPermit {
            epoch: epoch.parse().ok()?,
            slot: if slot.is_empty() { None } else { Some(slot.parse().ok()?) },
            at_ms: at_ms.parse().ok()?,
        })),
        [word, now, retry] if word == "refused" => Some(BreakerAdmission::Refused {
            mode: mode(now)?,
            retry_after_ms: if retry.is_empty() { None } else { Some(retry.parse().ok()?) },
        }),
        _ => None,
    }
}

fn report(key: &BreakerKey, answer: &[String]) -> Option<BreakerReport> {
    let [
        word,
        now,
        since,
        until,
        calls,
        failed,
        slow,
        slow_failed,
        duration,
        refused,
        probes,
        canary,
        opened_by,
        settings,
        history @ ..,
    ] = answer
    else {
        return None;
    };
    if word != "report" {
        return None;
    }
    let settings: BreakerSettings = serde_json::from_str(settings).ok()?;
    let mode = mode(now)?;
    let totals = WindowTotals {
        calls: calls.parse().ok()?,
        failed: failed.parse().ok()?,
        slow: slow.parse().ok()?,
        slow_failed: slow_failed.parse().ok()?,
        duration_ms: duration.parse().ok()?,
    };
    let needed = if mode == BreakerMode::HalfOpen { settings.half_open_max_calls } else { settings.calls_needed() };
    let enough = totals.calls >= needed && totals.calls > 0;
    let snapshot = BreakerSnapshot {
        mode,
        since_ms: since.parse().ok()?,
        until_ms: if until.is_empty() { None } else { Some(until.parse().ok()?) },
        totals,
        failure_percent: enough.then(|| totals.failure_percent()),
        slow_percent: enough.then(|| totals.slow_percent()),
        refused: refused.parse().ok()?,
        probes: probes.parse().ok()?,
        canary_percent: if canary.is_empty() { None } else { Some(canary.parse().ok()?) },
        opened_by: if opened_by.is_empty() { None } else { Some(serde_json::from_str(opened_by).ok()?) },
    };
    let history: Vec<PastTransition> = history.iter().filter_map(|past| serde_json::from_str(past).ok()).collect();
    Some(BreakerReport { key: key.clone(), settings, snapshot, history })
}

fn garbled() -> SharedStateError {
    unavailable(RedisTrouble::Garbled)
}
