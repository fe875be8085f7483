//! Redis 7 behind the ports of shared state: one server that every replica talks to. A cluster is refused.
//!
//! ```text
//!  ports ─▶ an operation = one script (`scripts/*.lua`) ─▶ `link` ─▶ one connection, RESP3, many operations at once
//!  bus   ◀─ words of the channels ◀───────────────────────────┘
//! ```
//!
//! Every operation is one script, so nothing comes between its steps, and it takes the time from the server's clock, so
//! replicas whose clocks differ agree. The keys of one operation have one hash tag and lie on one node of a cluster.
//!
//! Invariants
//! - REDIS-1: an operation ends within [`RedisSettings::operation_timeout`], whatever the server does. While the server is
//!   known to be away, operations fail at once.
//! - REDIS-2: an operation is sent once. One that timed out may have been carried out; what it took is given back by time
//!   (leases, windows), never by sending it again.
//! - REDIS-3: the URL with its password is in no message, no log line and no `Debug`.
//!
//! Not here: what is done while Redis is away (`falling_back`), the rules of breakers and limits (`kernel::resilience`).

mod breakers;
mod bus;
mod limits;
mod link;
mod look;
mod names;
mod scripts;
mod values;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Client, IntoConnectionInfo as _, ProtocolVersion};
use ports::shared_state::{BreakerTransition, KEY_BYTES_MAX, SharedStateError};
use tokio::sync::broadcast;

use breakers::Listed;
pub use bus::RedisBus;
use link::Link;
pub use link::{LinkState, RedisTrouble};
pub use look::{NotUsable, SeenServer, look};
use names::Names;
use scripts::{Scripts, StepClock};

/// The longest namespace. It is in every key.
const NAMESPACE_CHARACTERS_MAX: usize = 64;
/// The shortest and longest wait for an operation or a connection that can be configured.
const TIMEOUT_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(30);

/// Transitions of breakers that may wait for a slow listener.
const TRANSITIONS_WAITING_MAX: usize = 256;
/// The longest life of anything that has one: longer ones are cut to it.
const LIFE_MAX: Duration = Duration::from_hours(24 * 366);

/// How to reach Redis, and how long to wait for it.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user[:password]@]host[:port][/database]`, or `rediss://…` for TLS.
    pub url: String,
    /// Put before every key and channel, so that several installations can use one server. Empty for one alone.
    pub namespace: String,
    /// The name of this replica, other than those of all others.
    pub replica: String,
    /// For a connection to be made, the greeting included. Nobody waits for it but the link.
    pub connect_timeout: Duration,
    /// For one operation. A call may wait that long once; afterwards the server counts as away.
    pub operation_timeout: Duration,
}

impl RedisSettings {
    /// With the waits that suit a server in the same data centre.
    pub fn new(url: impl Into<String>, replica: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            namespace: String::new(),
            replica: replica.into(),
            connect_timeout: Duration::from_secs(1),
            operation_timeout: Duration::from_millis(100),
        }
    }

    /// What is wrong with them, if anything.
    pub fn check(&self) -> Result<(), RedisSettingsError> {
        self.client()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.namespace.len() > NAMESPACE_CHARACTERS_MAX || !self.namespace.chars().all(plain) {
            return Err(RedisSettingsError::Namespace);
        }
        if self.replica.is_empty() || self.replica.len() > NAMESPACE_CHARACTERS_MAX || !self.replica.chars().all(plain)
        {
            return Err(RedisSettingsError::Replica);
        }
        if [self.connect_timeout, self.operation_timeout].iter().any(|span| !TIMEOUT_RANGE.contains(span)) {
            return Err(RedisSettingsError::Timeout);
        }
        Ok(())
    }

    /// The address for people: without user and password.
    pub fn shown(&self) -> String {
        let scheme = if self.url.starts_with("rediss:") { "rediss" } else { "redis" };
        match self.url.as_str().into_connection_info() {
            Ok(info) => format!("{scheme}://{}/{}", info.addr(), info.redis_settings().db()),
            Err(_) => format!("{scheme}://"),
        }
    }

    fn client(&self) -> Result<Client, RedisSettingsError> {
        // The library's own words may repeat the URL.
        let info = self.url.as_str().into_connection_info().map_err(|_| RedisSettingsError::Url)?;
        // Words of channels come on the connection of the operations, which only the newer protocol can do.
        let greeting = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Client::open(info.set_redis_settings(greeting)).map_err(|_| RedisSettingsError::Url)
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why settings cannot be used. The URL is not repeated: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedisSettingsError {
    /// Not an address of a Redis server.
    #[error("must be redis://[user:password@]host[:port][/database], or rediss:// for TLS")]
    Url,
    /// Characters that do not belong into keys.
    #[error("the namespace may have {NAMESPACE_CHARACTERS_MAX} letters, digits, dots, dashes and underscores")]
    Namespace,
    /// The same for the name of the replica.
    #[error("the name of a replica has 1 to {NAMESPACE_CHARACTERS_MAX} letters, digits, dots, dashes and underscores")]
    Replica,
    /// Too short to be kept, or too long to be useful.
    #[error("waits for Redis must be between 5 ms and 30 s")]
    Timeout,
}

/// Redis as one replica uses it. Ends its connection when dropped.
#[derive(Debug)]
pub struct RedisState {
    link: Arc<Link>,
    names: Arc<Names>,
    bus: Arc<RedisBus>,
    scripts: Scripts,
    clock: StepClock,
    listed: Listed,
    transitions: broadcast::Sender<BreakerTransition>,
}

impl RedisState {
    /// Begins to connect and to listen, and does not wait for either: a server that is away at the start is the same as one
    /// that goes away later. Must be called inside a runtime.
    pub fn open(settings: &RedisSettings) -> Result<Self, RedisSettingsError> {
        settings.check()?;
        let names = Arc::new(Names::new(&settings.namespace));
        let (link, heard) = Link::open(settings.client()?, settings, names.channels(), names.look(&settings.replica));
        let link = Arc::new(link);
        let transitions = broadcast::Sender::new(TRANSITIONS_WAITING_MAX);
        let bus =
            RedisBus::listen(Arc::clone(&link), heard, Arc::clone(&names), &settings.replica, transitions.clone());
        Ok(Self {
            link,
            names,
            bus: Arc::new(bus),
            scripts: Scripts::default(),
            clock: StepClock::default(),
            listed: Listed::default(),
            transitions,
        })
    }

    /// Holds the time of every step at so many microseconds since the Unix epoch; zero lets it run by the server's clock.
    /// Must not lie before the server's time, by which the server itself throws keys away.
    #[cfg(feature = "conformance")]
    pub fn hold_clock(&self, micros: u64) {
        self.clock.hold(micros);
    }

    /// The change bus over the same connection.
    pub fn bus(&self) -> Arc<RedisBus> {
        Arc::clone(&self.bus)
    }

    /// Is it there?
    pub fn standing(&self) -> LinkState {
        self.link.standing()
    }

    /// Waits until the server is there. Never ends if it stays away: whoever waits bounds it.
    pub async fn ready(&self) {
        self.link.ready().await;
    }

    /// How it stands after the first attempt to connect. Takes no longer than that may: a server that is away then may come.
    pub async fn settled(&self) -> LinkState {
        self.link.settled().await
    }

    /// Waits until the server is known to be away.
    pub async fn away(&self) {
        self.link.away().await;
    }
}

/// A span in milliseconds, as scripts count them.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.min(LIFE_MAX).as_millis()).unwrap_or(0)
}

/// Names are bounded before they are sent.
fn fits(key: &str) -> Result<(), SharedStateError> {
    if key.len() > KEY_BYTES_MAX { Err(SharedStateError::TooLarge) } else { Ok(()) }
}

fn unavailable(trouble: RedisTrouble) -> SharedStateError {
    match trouble {
        RedisTrouble::Full => SharedStateError::Full,
        other => SharedStateError::Unavailable(Box::new(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_without_repeating_the_url() {
        let with = |change: fn(&mut RedisSettings)| {
            let mut settings = RedisSettings::new("redis://user:hunter2@127.0.0.1:1/0", "r-1");
            change(&mut settings);
            settings
        };
        type Case = (fn(&mut RedisSettings), Result<(), RedisSettingsError>);
        let cases: [Case; 9] = [
            (|_| {}, Ok(())),
            (|s| s.url = "rediss://host".into(), Ok(())),
            (|s| s.url = "http://user:hunter2@host".into(), Err(RedisSettingsError::Url)),
            (|s| s.url = "redis://user:hunter2@host:port".into(), Err(RedisSettingsError::Url)),
            (|s| s.url = String::new(), Err(RedisSettingsError::Url)),
            (|s| s.namespace = "a{b}".into(), Err(RedisSettingsError::Namespace)),
            (|s| s.replica = String::new(), Err(RedisSettingsError::Replica)),
            (|s| s.replica = "two words".into(), Err(RedisSettingsError::Replica)),
            (|s| s.operation_timeout = Duration::ZERO, Err(RedisSettingsError::Timeout)),
        ];
        for (change, expected) in cases {
            let settings = with(change);
            let got = settings.check();
            assert_eq!(got, expected, "{settings:?}");
            let said =
                format!("{settings:?} {got:?} {}", got.map_or_else(|error| error.to_string(), |()| String::new()));
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
