//! What became of breakers, kept for whoever looks into an outage afterwards. (RES-011, ANALYT-001)
//!
//! The shared state remembers a few transitions of each breaker and may lose them; here they are written down. Every replica
//! hears of every transition and writes it, so writing the same one again changes nothing: a transition is named by its
//! breaker, its moment and the epoch that began with it.
//!
//! Not here: hearing of them and how long they are kept (`resilience::following`).

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use contract::ids::TenantId;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;
use crate::shared_state::{BreakerKey, BreakerTransition};

/// Most transitions of one page.
pub const HISTORY_PAGE_MAX: usize = 1_000;

/// A place in the history: that of one transition, the newest first.
///
/// Written `moment-epoch-breaker`, to be handed back as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPlace {
    pub at_ms: u64,
    pub epoch: u64,
    /// The name of the breaker, as it is written.
    pub breaker: String,
}

/// Not a place in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the `next` of a page before")]
pub struct HistoryPlaceError;

impl HistoryPlace {
    /// That of this transition.
    pub fn of(transition: &BreakerTransition) -> Self {
        let BreakerTransition { key, change } = transition;
        Self { at_ms: change.at_ms, epoch: change.epoch, breaker: key.to_string() }
    }
}

impl fmt::Display for HistoryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.at_ms, self.epoch, self.breaker)
    }
}

impl FromStr for HistoryPlace {
    type Err = HistoryPlaceError;

    fn from_str(text: &str) -> Result<Self, HistoryPlaceError> {
        let mut parts = text.splitn(3, '-');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (at_ms, epoch) = number().zip(number()).ok_or(HistoryPlaceError)?;
        let key: BreakerKey = parts.next().and_then(|name| name.parse().ok()).ok_or(HistoryPlaceError)?;
        Ok(Self { at_ms, epoch, breaker: key.to_string() })
    }
}

/// Which transitions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistoryQuery {
    /// Of this tenant's tools; absent: of all.
    pub tenant: Option<TenantId>,
    /// Of this breaker; of one without an endpoint: of every endpoint of its service.
    pub of: Option<BreakerKey>,
    /// Those before this place.
    pub before: Option<HistoryPlace>,
    /// At most [`HISTORY_PAGE_MAX`].
    pub limit: usize,
}

/// Keeps transitions of breakers.
#[async_trait]
pub trait BreakerHistory: Send + Sync + fmt::Debug {
    /// Writes them down, all or none. Those that are there already stay as they are.
    async fn keep_transitions(&self, transitions: &[BreakerTransition]) -> Result<(), StoreError>;

    /// The transitions asked for, the newest first.
    async fn kept_transitions(&self, query: &HistoryQuery) -> Result<Vec<BreakerTransition>, StoreError>;

    /// Forgets those before a moment, at most so many, the oldest first. Answers how many.
    async fn forget_transitions(&self, before: UnixMillis, most: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_as_what_was_written_and_nothing_else_is_one() {
        let place = HistoryPlace { at_ms: 12, epoch: 34, breaker: "acme/mail-out@a-b".to_owned() };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "1", "1-2", "1-2-", "x-2-mail", "1--mail", "-1-2-mail", "1-2-a%zz"] {
            assert_eq!(text.parse::<HistoryPlace>(), Err(HistoryPlaceError), "{text}");
        }
    }
}
