//! `[shared_state]`: fast state that all replicas share: breakers, limits, counters, and word of changes.
//!
//! In memory it is this server's own. With Redis it is everybody's, and this server's own while Redis is away
//! (`docs/shared-state.md`).

use std::fmt;
use std::time::Duration;

use ::shared_state::{FallbackSettings, RedisSettings, RedisSettingsError};
use base::SaturatingFrom as _;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// This server's own.
const MEMORY: &str = "memory:";
/// Each start is another replica; the name comes with it.
const REPLICA: &str = "to-be-named";

/// Fast state that all replicas share: breakers, limits, counters, and word of changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.3"))]
pub(crate) struct SharedStateKeys {
    /// `memory:` for one server, `redis://[user:password@]host[:port][/database]` for several, `rediss://…` with TLS. Redis
    /// 7, with `maxmemory-policy noeviction`.
    #[schemars(extend("x-since" = "0.1"))]
    pub(super) url: String,
    /// Put before every key and channel in Redis. Installations that use one Redis need one each, also with databases of
    /// their own: channels know no databases.
    pub(super) namespace: String,
    /// Milliseconds for a connection to Redis to be made. No call waits for it.
    #[schemars(range(min = 5, max = 30_000))]
    pub(super) connect_timeout_ms: u64,
    /// Milliseconds for one operation on Redis. After one that takes longer, Redis counts as away until it answers again.
    #[schemars(range(min = 5, max = 30_000))]
    pub(super) operation_timeout_ms: u64,
    /// While Redis is away, each server gives this part of every rate limit: a quarter for `4`. At least as many as there
    /// are servers, and together they give no more than the limit.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) fallback_replicas: u32,
}

impl Default for SharedStateKeys {
    fn default() -> Self {
        let usual = RedisSettings::new(MEMORY, REPLICA);
        let millis = |time: Duration| u64::saturating_from(time.as_millis());
        Self {
            url: MEMORY.to_owned(),
            namespace: usual.namespace,
            connect_timeout_ms: millis(usual.connect_timeout),
            operation_timeout_ms: millis(usual.operation_timeout),
            fallback_replicas: FallbackSettings::default().replicas,
        }
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

impl ConfigSection for SharedStateKeys {
    const NAME: &'static str = "shared_state";
    type Checked = SharedStateSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> SharedStateSection {
        // Messages do not repeat the URL: it may hold a password.
        let url = self.url.as_str();
        if matches!(url, "" | MEMORY) {
            return SharedStateSection::Memory;
        }
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            problems.at("url", "must be memory: or redis://host[:port]");
            return SharedStateSection::Memory;
        }
        let redis = RedisSettings {
            namespace: self.namespace,
            connect_timeout: Duration::from_millis(self.connect_timeout_ms),
            operation_timeout: Duration::from_millis(self.operation_timeout_ms),
            ..RedisSettings::new(url, REPLICA)
        };
        if let Err(error) = redis.check() {
            let key = match error {
                RedisSettingsError::Namespace => "namespace",
                RedisSettingsError::Timeout => "operation_timeout_ms",
                RedisSettingsError::Url | RedisSettingsError::Replica => "url",
            };
            problems.at(key, error.to_string());
            return SharedStateSection::Memory;
        }
        SharedStateSection::Redis(RedisSection {
            settings: redis,
            fallback: FallbackSettings { replicas: self.fallback_replicas },
        })
    }
}
