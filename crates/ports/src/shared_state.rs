//! State that all replicas see at once and that may be lost: breakers, rate limits, counters, small values, presence. (DESIGN §4,
//! RES-001…020)
//!
//! Three traits, one per concern, and [`SharedState`] for whoever offers all of them. The rules are those of
//! [`crate::resilience`]; an adapter keeps the state and makes every method *one atomic step*: two replicas never both make
//! the same transition, and no step is seen half done (RES-008).
//!
//! Time is the adapter's: a server's own clock where there is a server, so that replicas whose clocks differ agree. Spans go
//! in and come out, and instants come out in milliseconds since the Unix epoch; no caller hands its own time in.
//!
//! Who bounds the wait: the adapter, with a limit of its own well under a second. It answers [`SharedStateError`] then, and
//! callers refuse (DESIGN §6.1). An adapter that can do less without its server (a breaker for this replica alone) does that
//! itself and says so by [`SharedValues::health`]; callers do not know the difference.
//!
//! Not here: what must survive (`store`), the change bus (`change_bus`).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::TenantId;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::resilience::{
    BreakerAdmission, BreakerEvent, BreakerMode, BreakerPermit, BreakerReason, BreakerSettings, BreakerSnapshot,
    IllegalMove, ManualMove, PermittedOutcome, QuotaOutcome, RateQuota,
};

/// Transitions that are kept of each breaker, newest first.
pub const HISTORY_MAX: usize = 32;
/// Most breakers that one look answers with.
pub const INSPECTED_MAX: usize = 1_000;
/// Most limits that are taken in one step.
pub const LIMITS_AT_ONCE_MAX: usize = 16;
/// Longest key of a limit, counter or value, in bytes.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Largest value.
pub const VALUE_BYTES_MAX: usize = 256 * 1024;

/// Why the shared state did not answer. Nothing is known of whether the step was made.
#[derive(Debug, thiserror::Error)]
pub enum SharedStateError {
    /// It cannot be reached, or not in time.
    #[error("the shared state cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is full.
    #[error("the shared state has no room")]
    Full,
    /// More was handed in than it takes: [`KEY_BYTES_MAX`], [`VALUE_BYTES_MAX`], [`LIMITS_AT_ONCE_MAX`].
    #[error("too large for the shared state")]
    TooLarge,
}

// ---------------------------------------------------------------------------------------------------------- breakers

/// Which breaker: one for each endpoint of a service (RES-001), apart for each tenant whose tools call it, because one
/// tenant's manifest must not be able to close a service to another.
///
/// Written `service`, `service@endpoint`, and `tenant/service@endpoint` for every tenant but the home one. What would be
/// mistaken for one of those signs is written as `%` and two digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakerKey {
    tenant: TenantId,
    service: Arc<str>,
    endpoint: Arc<str>,
}

/// Longest name of a service or endpoint, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Not the name of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a breaker is written `service`, `service@endpoint` or `tenant/service@endpoint`")]
pub struct BreakerKeyError;

impl BreakerKey {
    /// Of an endpoint of a service; an empty endpoint stands for all of it.
    pub fn new(tenant: TenantId, service: &str, endpoint: &str) -> Result<Self, BreakerKeyError> {
        if service.is_empty() || service.len() > NAME_BYTES_MAX || endpoint.len() > NAME_BYTES_MAX {
            return Err(BreakerKeyError);
        }
        Ok(Self { tenant, service: service.into(), endpoint: endpoint.into() })
    }

    /// The breaker that a tenant has for itself: of its own tools, and of its calls to those of others, for the same end of
    /// the same service.
    #[must_use]
    pub fn of_tenant(&self, tenant: &TenantId) -> Self {
        Self { tenant: tenant.clone(), service: Arc::clone(&self.service), endpoint: Arc::clone(&self.endpoint) }
    }

    /// Whose tools.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The service, as the manifests name it.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The endpoint; empty: all of it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl fmt::Display for BreakerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tenant.is_home() {
            write_escaped(f, self.tenant.as_str())?;
            f.write_str("/")?;
        }
        write_escaped(f, &self.service)?;
        if !self.endpoint.is_empty() {
            f.write_str("@")?;
            write_escaped(f, &self.endpoint)?;
        }
        Ok(())
    }
}

impl FromStr for BreakerKey {
    type Err = BreakerKeyError;

    fn from_str(text: &str) -> Result<Self, BreakerKeyError> {
        let (tenant, rest) = match text.split_once('/') {
            None => (TenantId::home(), text),
            Some((tenant, rest)) => (unescaped(tenant)?.parse().map_err(|_| BreakerKeyError)?, rest),
        };
        let (service, endpoint) = rest.split_once('@').unwrap_or((rest, ""));
        Self::new(tenant, &unescaped(service)?, &unescaped(endpoint)?)
    }
}

/// Everything that separates, that a terminal acts on, or that a channel's message is cut at.
fn is_special(byte: u8) -> bool {
    matches!(byte, b'%' | b'/' | b'@' | b'>' | b' ' | b'{' | b'}') || byte.is_ascii_control()
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    use fmt::Write as _;
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) if is_special(byte) => write!(f, "%{byte:02X}")?,
            _ => f.write_char(character)?,
        }
    }
    Ok(())
}

fn unescaped(text: &str) -> Result<String, BreakerKeyError> {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or(BreakerKeyError)?;
        let byte = u8::from_str_radix(digits, 16).ok().filter(|byte| is_special(*byte)).ok_or(BreakerKeyError)?;
        plain.push(char::from(byte));
        plain.push_str(rest);
    }
    Ok(plain)
}

/// A change of state of one breaker, as every replica hears of it.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerTransition {
    pub key: BreakerKey,
    pub change: PastTransition,
}

/// A change of state, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PastTransition {
    pub at_ms: u64,
    pub from: BreakerMode,
    pub to: BreakerMode,
    pub reason: BreakerReason,
    /// The epoch of the breaker that began with it; zero in what an older release has kept. With the breaker and the moment
    /// it names a transition, whichever replica tells of it.
    #[serde(default)]
    pub epoch: u64,
}

impl PastTransition {
    /// The transition among what came of a step, if this is one.
    pub fn of(event: &BreakerEvent) -> Option<Self> {
        match *event {
            BreakerEvent::Transition { at_ms, from, to, reason, epoch } => {
                Some(Self { at_ms, from, to, reason, epoch })
            }
            BreakerEvent::Exceeded(_) => None,
        }
    }
}

/// A breaker and what became of it before.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerReport {
    pub key: BreakerKey,
    pub settings: BreakerSettings,
    pub snapshot: BreakerSnapshot,
    /// Newest first, at most [`HISTORY_MAX`].
    pub history: Vec<PastTransition>,
}

/// Which breakers are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BreakerQuery {
    /// Of this tenant's tools; absent: of all.
    pub tenant: Option<TenantId>,
    pub service: Option<String>,
    /// Those after this one, in the order of their keys.
    pub after: Option<BreakerKey>,
    /// At most [`INSPECTED_MAX`].
    pub limit: usize,
}

/// Breakers that all replicas share.
///
/// A breaker is made by the first step that names it. Its settings come with every step, because they belong to the tools
/// that are called; those of the last step are what [`SharedBreakers::inspect`] judges by. One that is closed and has nothing in
/// its window may be forgotten at any time.
#[async_trait]
pub trait SharedBreakers: Send + Sync + fmt::Debug {
    /// Asks for leave to call. A permit of a half-open breaker is a place that is held for at most `lease`; every permit is
    /// given back by `record` or `release`.
    async fn acquire(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        lease: Duration,
    ) -> Result<BreakerAdmission, SharedStateError>;

    /// The permitted call has ended thus. A permit of an epoch that is over, or whose lease is, changes nothing.
    async fn record(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
        outcome: PermittedOutcome,
    ) -> Result<(), SharedStateError>;

    /// The permitted call was not made, or says nothing about the service.
    async fn release(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
    ) -> Result<(), SharedStateError>;

    /// Changes a breaker by hand; one that is not there is made first. Answers how it stands afterwards.
    async fn shift(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        by_hand: ManualMove,
    ) -> Result<Result<BreakerReport, IllegalMove>, SharedStateError>;

    /// How breakers stand, in the order of their keys. What time has brought is made up for first, so that a breaker with
    /// automatic half-open has changed when its wait is over, whether it was called or not. Atomic for each breaker, not for
    /// all of them.
    async fn inspect(&self, query: &BreakerQuery) -> Result<Vec<BreakerReport>, SharedStateError>;

    /// Hears of every transition from now on, whichever replica made it, this one included, each once. A listener that is
    /// too slow is told by the channel (`Lagged`) and asks [`SharedBreakers::inspect`].
    fn transitions(&self) -> broadcast::Receiver<BreakerTransition>;
}

// ------------------------------------------------------------------------------------------------------- rate limits

/// One limit to take from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedQuota<'a> {
    /// What is limited, for example `tool_rate:acme:did:key:…:demo.search:hour`. At most [`KEY_BYTES_MAX`].
    pub key: &'a str,
    pub quota: RateQuota,
}

/// What came of taking from several limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllTaken {
    /// From every one of them; of the limit with the fewest left, so many are left, and all of them after `reset`.
    Allowed { remaining: u32, reset: Duration },
    /// From none of them. Of those that refused, the one with the longest wait, by its place in the list.
    Refused { which: usize, retry_after: Option<Duration> },
}

/// Limits that all replicas share. Untouched ones cost nothing and are forgotten when everything is there again.
#[async_trait]
pub trait RateLimits: Send + Sync + fmt::Debug {
    /// Takes `count` from every limit, or from none: one step, whatever their number. No limits: allowed. The same key twice
    /// is taken from twice.
    async fn take(&self, limits: &[KeyedQuota<'_>], count: u32) -> Result<AllTaken, SharedStateError>;

    /// What `take` of one would answer, taking nothing.
    async fn peek(&self, limit: KeyedQuota<'_>) -> Result<QuotaOutcome, SharedStateError>;
}

// ------------------------------------------------------------------------------------- counters, values and presence

/// What came of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// Counted; this is the sum with it.
    Within { total: i64 },
    /// Not counted, because it would have been more than the ceiling; this is the sum without it.
    Over { total: i64 },
}

/// Whether a value is to replace another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceMode {
    Always,
    /// Only if there is none.
    Never,
}

/// A replica that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentReplica {
    /// Its name, unique among those that run.
    pub replica: String,
    /// What it says about itself: an address, a version. Small.
    pub word: String,
    /// When it was announced last.
    pub seen_ms: u64,
}

/// How the shared state is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedHealth {
    /// What it is: `memory`, `redis`.
    pub kind: &'static str,
    /// All replicas share it. `false`: this one is by itself, because that is how it was set up or because the server is lost.
    pub shared: bool,
    /// What is amiss, in a few words for the operator; absent: nothing.
    pub trouble: Option<String>,
}

/// Counters, small values and presence.
#[async_trait]
pub trait SharedValues: Send + Sync + fmt::Debug {
    /// Adds `amount` to a counter unless that would make more than `ceiling`. A counter begins at zero, and is forgotten
    /// `ttl` after it was touched last.
    async fn reserve(
        &self,
        key: &str,
        amount: i64,
        ceiling: i64,
        ttl: Duration,
    ) -> Result<ReserveOutcome, SharedStateError>;

    /// What was reserved turned out to be something else: adds the difference, whatever the ceiling, never under zero.
    /// Answers the sum.
    async fn settle(&self, key: &str, reserved: i64, actual: i64, ttl: Duration) -> Result<i64, SharedStateError>;

    /// Keeps a value for `ttl`. `false`: there was one, and it stays.
    async fn put(&self, key: &str, value: &[u8], ttl: Duration, replace: ReplaceMode)
    -> Result<bool, SharedStateError>;

    /// The value, if there is one. Values may be forgotten early for want of room.
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStateError>;

    /// Forgets a value. `false`: there was none.
    async fn remove(&self, key: &str) -> Result<bool, SharedStateError>;

    /// This replica is there for the next `ttl`. A `ttl` of zero: it leaves.
    async fn announce(&self, replica: &str, word: &str, ttl: Duration) -> Result<(), SharedStateError>;

    /// Those that are there, by name.
    async fn present(&self) -> Result<Vec<PresentReplica>, SharedStateError>;

    /// How it is. Answers without waiting long, and never an error: not to be reached is an answer.
    async fn health(&self) -> SharedHealth;
}

/// All of it.
pub trait SharedState: SharedBreakers + RateLimits + SharedValues + 'static {}
impl<T: SharedBreakers + RateLimits + SharedValues + 'static> SharedState for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_breaker_reads_back_as_what_it_names() {
        for (tenant, service, endpoint, written) in [
            ("local", "sendgrid", "", "sendgrid"),
            ("local", "sendgrid", "api.sendgrid.com:443", "sendgrid@api.sendgrid.com:443"),
            ("acme", "mail", "", "acme/mail"),
            ("acme", "a/b@c", "x>y z", "acme/a%2Fb%40c@x%3Ey%20z"),
            ("local", "100%", "", "100%25"),
            ("local", "büro", "{0}", "büro@%7B0%7D"),
        ] {
            let key = BreakerKey::new(tenant.parse().unwrap(), service, endpoint).unwrap();
            assert_eq!(key.to_string(), written);
            assert_eq!(written.parse(), Ok(key));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", "@x", "a/", "a%", "a%2", "a%41", "a%zz", "/a"] {
            assert_eq!(text.parse::<BreakerKey>(), Err(BreakerKeyError), "{text}");
        }
        assert_eq!(BreakerKey::new(TenantId::home(), &"x".repeat(256), ""), Err(BreakerKeyError));
    }
}
