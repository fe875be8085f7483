//! `[jobs]`: what is done in the background, how much of it at once, and for how long it is kept. (ASYNC-001, ASYNC-006)

use std::time::Duration;

use base::SaturatingFrom as _;
use jobs::JobsSettings;
use ports::job_store::QueueBounds;

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

const SECTION: &str = "jobs";

const CONCURRENCY: ConfigKey = key(
    "concurrency",
    0..=1_024,
    "16",
    "Jobs that this server does at once. The others wait: tenants take turns, and within a tenant its agents. A quarter is \
     kept for tenants that have few jobs running. 0: it takes calls and leaves the jobs, \
     webhooks among them, to other servers on the same store (`gantry serve --worker-only`).",
);
const RUNNING_PER_TENANT: ConfigKey = key(
    "running_per_tenant",
    1..=1_024,
    "8",
    "Jobs of one tenant that run at once, in all processes; three quarters of them may be of one agent.",
);
const QUEUE_PER_AGENT: ConfigKey = key(
    "queue_per_agent",
    1..=10_000_000,
    "10000",
    "Jobs of one agent that may wait, and deliveries to one address; but never more than half of `queue_per_tenant`, so that \
     no agent fills the queue of its tenant. The next one is refused: E3701.",
);
const QUEUE_PER_TENANT: ConfigKey = key(
    "queue_per_tenant",
    1..=10_000_000,
    "20000",
    "Jobs of one tenant that may wait. The next one is refused: E3701.",
);
const QUEUE_TOTAL: ConfigKey =
    key("queue_total", 1..=10_000_000, "200000", "Jobs of all tenants that may wait. The next one is refused: E3701.");
const PAYLOAD_BYTES: ConfigKey = key(
    "payload_bytes",
    1_024..=67_108_864,
    "4194304",
    "The largest job in bytes: a call with its parameters and what is known of its caller.",
);
const ATTEMPTS: ConfigKey = key(
    "attempts",
    1..=100,
    "3",
    "How often a job is tried whose tool is safe to repeat and does not say otherwise (`retry_policy.max_attempts`). \
     Others are tried once.",
);
const BACKOFF_MAX_SECONDS: ConfigKey = key(
    "backoff_max_seconds",
    1..=86_400,
    "300",
    "The longest pause in seconds between two tries. Pauses begin at up to one second, double, and are spread at random.",
);
const MAX_AGE_SECONDS: ConfigKey = key(
    "max_age_seconds",
    1..=2_592_000,
    "86400",
    "Seconds after which a call that has not begun is not begun any more. It counts instead of the token's own end; \
     revocation and policies are asked again when the call begins.",
);
const LEASE_SECONDS: ConfigKey =
    key("lease_seconds", 3..=3_600, "30", "Seconds a server may be silent before its jobs are taken over.");
const DRAIN_SECONDS: ConfigKey = key(
    "drain_seconds",
    0..=3_600,
    "10",
    "Seconds that running jobs have to end at shutdown. What is left is handed back if its tool is safe to repeat.",
);
const RETENTION_SECONDS: ConfigKey =
    key("retention_seconds", 60..=31_536_000, "604800", "Seconds for which ended jobs and their results are kept.");
const DEAD_RETENTION_SECONDS: ConfigKey = key(
    "dead_retention_seconds",
    60..=31_536_000,
    "2592000",
    "Seconds for which jobs are kept whose every try failed.",
);
const PROMOTE_AFTER_SECONDS: ConfigKey = key(
    "promote_after_seconds",
    1..=900,
    "20",
    "Seconds after which a call that its caller waits for goes on in the background: the caller gets 202 and asks later. \
     `Prefer: wait=N` asks for another span.",
);
const BACKGROUND_CALLS: ConfigKey = key(
    "background_calls",
    1..=100_000,
    "256",
    "Calls that go on in the background at once, because their callers stopped waiting for them; of one tenant alone three \
     quarters. The caller of a call that finds no room waits for its end.",
);

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &CONCURRENCY,
    &RUNNING_PER_TENANT,
    &QUEUE_PER_AGENT,
    &QUEUE_PER_TENANT,
    &QUEUE_TOTAL,
    &PAYLOAD_BYTES,
    &ATTEMPTS,
    &BACKOFF_MAX_SECONDS,
    &MAX_AGE_SECONDS,
    &LEASE_SECONDS,
    &DRAIN_SECONDS,
    &RETENTION_SECONDS,
    &DEAD_RETENTION_SECONDS,
    &PROMOTE_AFTER_SECONDS,
    &BACKGROUND_CALLS,
];

const fn key(
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
        since: "0.1",
    }
}

/// The section's values.
pub(super) fn read(settings: &EffectiveSettings) -> JobsSettings {
    // INVARIANT: the ranges of the keys fit the types; saturating is what a range beyond them would deserve.
    let small = |key: &ConfigKey| u32::saturating_from(settings.integer(key));
    let size = |key: &ConfigKey| usize::saturating_from(settings.integer(key));
    let seconds = |key: &ConfigKey| Duration::from_secs(settings.integer(key));
    let per_tenant = settings.integer(&QUEUE_PER_TENANT);
    let bounds = QueueBounds {
        per_flow: settings.integer(&QUEUE_PER_AGENT).min(per_tenant.div_ceil(2)),
        per_tenant,
        total: settings.integer(&QUEUE_TOTAL),
    };
    JobsSettings {
        concurrency: size(&CONCURRENCY),
        running_per_tenant: small(&RUNNING_PER_TENANT),
        bounds,
        payload_bytes_max: size(&PAYLOAD_BYTES),
        attempts_max: small(&ATTEMPTS),
        backoff_max: seconds(&BACKOFF_MAX_SECONDS),
        max_age: seconds(&MAX_AGE_SECONDS),
        lease: seconds(&LEASE_SECONDS),
        drain: seconds(&DRAIN_SECONDS),
        retention: seconds(&RETENTION_SECONDS),
        dead_retention: seconds(&DEAD_RETENTION_SECONDS),
        promote_after: seconds(&PROMOTE_AFTER_SECONDS),
        promoted_max: size(&BACKGROUND_CALLS),
        ..JobsSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_kernel() {
        let settings = EffectiveSettings::gather(None, &BTreeMap::new(), Vec::new()).unwrap();
        assert_eq!(read(&settings), JobsSettings::default());
        assert_eq!(read(&settings).max_age, Duration::from_secs(24 * 60 * 60));
    }
}
