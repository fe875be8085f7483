//! Hearing what becomes of breakers, whichever replica brought it about: telling whoever watches, and writing it down.
//! (RES-011)
//!
//! Every replica writes down what it hears, and the store keeps each transition once. What could not be written, or was not
//! heard, is found again in what the shared state remembers of each breaker: at the start, after words were lost, and some
//! time after the store has failed. What is older than the operator wants is forgotten now and then.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use ports::breaker_history::BreakerHistory;
use ports::clock::{Clock, UnixMillis};
use ports::resilience::BreakerMode;
use ports::shared_state::{BreakerKey, BreakerQuery, BreakerTransition, INSPECTED_MAX};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::service::Resilience;

/// Transitions that are written at once.
const KEPT_AT_ONCE: usize = 256;
/// How long after a failure writing is tried again.
const KEEP_AGAIN: Duration = Duration::from_secs(5);
/// How often old transitions are forgotten.
const FORGET_EVERY: Duration = Duration::from_hours(1);
/// How many are forgotten by one statement, and by how many statements in a row.
const FORGOTTEN_AT_ONCE: usize = 1_000;
const FORGETTING_STATEMENTS_MAX: usize = 100;

/// Where transitions are written down, and how long they stay.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) store: Arc<dyn BreakerHistory>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) kept: Duration,
}

type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Resilience {
    /// Tells of every transition from now on. Never ends by itself while the shared state lives; whoever starts it ends it.
    pub async fn follow(&self) {
        let mut heard = self.breakers.transitions();
        // What other replicas have brought about before this one was there.
        let mut owed = !self.tell_all().await;
        self.forget_old().await;
        let mut pause = self.pause(owed);
        loop {
            tokio::select! {
                told = heard.recv() => {
                    let owed_before = owed;
                    match told {
                        Ok(transition) => {
                            let mut batch = vec![transition];
                            while batch.len() < KEPT_AT_ONCE {
                                match heard.try_recv() {
                                    Ok(transition) => batch.push(transition),
                                    Err(TryRecvError::Lagged(_)) => owed = true,
                                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                                }
                            }
                            for transition in &batch {
                                self.tell(&transition.key, transition.change.from, transition.change.to);
                            }
                            owed |= !self.keep(&batch).await;
                        }
                        Err(RecvError::Lagged(_)) => owed = !self.tell_all().await,
                        Err(RecvError::Closed) => return,
                    }
                    if owed && !owed_before {
                        pause = self.pause(owed);
                    }
                }
                () = &mut pause => {
                    if owed {
                        owed = !self.tell_all().await;
                    } else {
                        self.forget_old().await;
                    }
                    pause = self.pause(owed);
                }
            }
        }
    }

    fn pause(&self, owed: bool) -> Pause {
        match &self.archive {
            Some(archive) => archive.clock.sleep(if owed { KEEP_AGAIN } else { FORGET_EVERY }),
            None => Box::pin(std::future::pending()),
        }
    }

    /// How everything stands, and what is remembered of it. `false`: not all of it could be written down.
    async fn tell_all(&self) -> bool {
        let query = BreakerQuery { limit: INSPECTED_MAX, ..BreakerQuery::default() };
        let reports = match self.breakers.inspect(&query).await {
            Ok(reports) => reports,
            Err(error) => {
                tracing::warn!(%error, "how breakers stand could not be asked");
                return false;
            }
        };
        let mut remembered = Vec::new();
        for report in reports {
            self.observer.breaker_changed(&report.key, report.snapshot.mode, report.snapshot.mode);
            let key = report.key;
            remembered.extend(report.history.into_iter().map(|change| BreakerTransition { key: key.clone(), change }));
        }
        self.keep(&remembered).await
    }

    /// Writes transitions down, if they are to be. `false`: that did not succeed.
    async fn keep(&self, transitions: &[BreakerTransition]) -> bool {
        let Some(archive) = &self.archive else { return true };
        let oldest = u64::saturating_from(archive.oldest().0);
        let wanted: Vec<BreakerTransition> =
            transitions.iter().filter(|transition| transition.change.at_ms >= oldest).cloned().collect();
        for some in wanted.chunks(KEPT_AT_ONCE) {
            if let Err(error) = archive.store.keep_transitions(some).await {
                tracing::warn!(%error, "what became of breakers could not be written down; that is tried again");
                return false;
            }
        }
        true
    }

    async fn forget_old(&self) {
        let Some(archive) = &self.archive else { return };
        for _ in 0..FORGETTING_STATEMENTS_MAX {
            match archive.store.forget_transitions(archive.oldest(), FORGOTTEN_AT_ONCE).await {
                Ok(forgotten) if forgotten > 0 => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, "old transitions of breakers could not be forgotten");
                    return;
                }
            }
        }
    }

    fn tell(&self, key: &BreakerKey, from: BreakerMode, to: BreakerMode) {
        let (old, new) = (from.as_str(), to.as_str());
        match to {
            BreakerMode::Open | BreakerMode::ForcedOpen => {
                tracing::warn!(breaker = %key, from = old, to = new, "breaker_state_changed");
            }
            BreakerMode::Closed | BreakerMode::HalfOpen | BreakerMode::Disabled | BreakerMode::MetricsOnly => {
                tracing::info!(breaker = %key, from = old, to = new, "breaker_state_changed");
            }
        }
        self.observer.breaker_changed(key, from, to);
    }
}

impl Archive {
    /// What is before this is not kept.
    fn oldest(&self) -> UnixMillis {
        let span = i64::saturating_from(self.kept.as_millis());
        UnixMillis(self.clock.now().0.saturating_sub(span))
    }
}
