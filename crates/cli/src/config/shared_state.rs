//! `[shared_state]`: fast state that all replicas share: breakers, limits, counters, and word of changes.
//!
//! In memory it is this server's own. With Redis it is everybody's, and this server's own while Redis is away
//! (`docs/shared-state.md`).

use std::fmt;
use std::time::Duration;

use ::shared_state::{FallbackSettings, RedisSettings, RedisSettingsError};
use base::SaturatingFrom as _;

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "shared_state";

/// Which shared state.
pub(crate) const URL: ConfigKey = ConfigKey {
    section: SECTION,
    name: "url",
    kind: KeyKind::Text,
    default: Some("memory:"),
    unset: "",
    doc: "`memory:` for one server, `redis://[user:password@]host[:port][/database]` for several, `rediss://…` with TLS. \
          Redis 7, with `maxmemory-policy noeviction`.",
    since: "0.1",
};

const NAMESPACE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "namespace",
    kind: KeyKind::Text,
    default: Some(""),
    unset: "",
    doc: "Put before every key and channel in Redis. Installations that use one Redis need one each, also with databases of \
          their own: channels know no databases.",
    since: "0.3",
};

const CONNECT_TIMEOUT_MS: ConfigKey = integer(
    "connect_timeout_ms",
    5..=30_000,
    "1000",
    "Milliseconds for a connection to Redis to be made. No call waits for it.",
);
const OPERATION_TIMEOUT_MS: ConfigKey = integer(
    "operation_timeout_ms",
    5..=30_000,
    "100",
    "Milliseconds for one operation on Redis. After one that takes longer, Redis counts as away until it answers again.",
);
const FALLBACK_REPLICAS: ConfigKey = integer(
    "fallback_replicas",
    1..=10_000,
    "4",
    "While Redis is away, each server gives this part of every rate limit: a quarter for `4`. At least as many as there are \
     servers, and together they give no more than the limit.",
);

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] =
    &[&URL, &NAMESPACE, &CONNECT_TIMEOUT_MS, &OPERATION_TIMEOUT_MS, &FALLBACK_REPLICAS];

const fn integer(
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: &'static str,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey {
        section: SECTION,
        name,
        kind: KeyKind::Integer(range),
        default: Some(default),
        unset: "",
        doc,
        since: "0.3",
    }
}

/// The section's values.
#[derive(Debug, Clone)]
pub(crate) enum SharedStateSection {
    /// This server's own.
    Memory,
    /// Everybody's.
    Redis(RedisSection),
}

/// How to reach Redis.
#[derive(Clone)]
pub(crate) struct RedisSection {
    settings: RedisSettings,
    pub(crate) fallback: FallbackSettings,
}

impl RedisSection {
    /// For the replica of this name.
    pub(crate) fn settings(&self, replica: String) -> RedisSettings {
        RedisSettings { replica, ..self.settings.clone() }
    }
}

impl fmt::Debug for RedisSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSection").field("fallback", &self.fallback).finish_non_exhaustive()
    }
}

impl SharedStateSection {
    /// What is wrong is a problem; the section is then in memory, and not used. Messages do not repeat the URL: it may hold
    /// a password.
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        let url = settings.text(&URL).unwrap_or("memory:");
        if url == "memory:" {
            return Self::Memory;
        }
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            problems.push(ConfigProblem::new(URL.title(), "must be memory: or redis://host[:port]"));
            return Self::Memory;
        }
        let redis = RedisSettings {
            namespace: settings.text(&NAMESPACE).unwrap_or_default().to_owned(),
            connect_timeout: Duration::from_millis(settings.integer(&CONNECT_TIMEOUT_MS)),
            operation_timeout: Duration::from_millis(settings.integer(&OPERATION_TIMEOUT_MS)),
            // Each start is another replica; the name comes with it.
            ..RedisSettings::new(url, "to-be-named")
        };
        if let Err(error) = redis.check() {
            let key = match error {
                RedisSettingsError::Namespace => &NAMESPACE,
                RedisSettingsError::Timeout => &OPERATION_TIMEOUT_MS,
                RedisSettingsError::Url | RedisSettingsError::Replica => &URL,
            };
            problems.push(ConfigProblem::new(key.title(), error.to_string()));
            return Self::Memory;
        }
        let replicas = u32::saturating_from(settings.integer(&FALLBACK_REPLICAS));
        Self::Redis(RedisSection { settings: redis, fallback: FallbackSettings { replicas } })
    }
}
