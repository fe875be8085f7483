//! `[jobs]`: what is done in the background, how much of it at once, and for how long it is kept. (ASYNC-001, ASYNC-006)

use std::time::Duration;

use jobs::JobsSettings;
use ports::job_store::QueueBounds;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// What is done in the background, how much of it at once, and for how long it is kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct JobsKeys {
    /// Jobs that this server does at once. The others wait: tenants take turns, and within a tenant its agents. A quarter
    /// is kept for tenants that have few jobs running. 0: it takes calls and leaves the jobs, webhooks among them, to other
    /// servers on the same store (`gantry serve --worker-only`).
    #[schemars(range(min = 0, max = 1_024))]
    pub(super) concurrency: usize,
    /// Jobs of one tenant that run at once, in all processes; three quarters of them may be of one agent.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) running_per_tenant: u32,
    /// Jobs of one agent that may wait, and deliveries to one address; but never more than half of `queue_per_tenant`, so
    /// that no agent fills the queue of its tenant. The next one is refused: E3701.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) queue_per_agent: u64,
    /// Jobs of one tenant that may wait. The next one is refused: E3701.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) queue_per_tenant: u64,
    /// Jobs of all tenants that may wait. The next one is refused: E3701.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) queue_total: u64,
    /// The largest job in bytes: a call with its parameters and what is known of its caller.
    #[schemars(range(min = 1_024, max = 67_108_864))]
    pub(super) payload_bytes: usize,
    /// How often a job is tried whose tool is safe to repeat and does not say otherwise (`retry_policy.max_attempts`).
    /// Others are tried once.
    #[schemars(range(min = 1, max = 100))]
    pub(super) attempts: u32,
    /// The longest pause in seconds between two tries. Pauses begin at up to one second, double, and are spread at random.
    #[schemars(range(min = 1, max = 86_400))]
    pub(super) backoff_max_seconds: u64,
    /// Seconds after which a call that has not begun is not begun any more. It counts instead of the token's own end;
    /// revocation and policies are asked again when the call begins.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub(super) max_age_seconds: u64,
    /// Seconds a server may be silent before its jobs are taken over.
    #[schemars(range(min = 3, max = 3_600))]
    pub(super) lease_seconds: u64,
    /// Seconds that running jobs have to end at shutdown. What is left is handed back if its tool is safe to repeat.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) drain_seconds: u64,
    /// Seconds for which ended jobs and their results are kept.
    #[schemars(range(min = 60, max = 31_536_000))]
    pub(super) retention_seconds: u64,
    /// Seconds for which jobs are kept whose every try failed.
    #[schemars(range(min = 60, max = 31_536_000))]
    pub(super) dead_retention_seconds: u64,
    /// Seconds after which a call that its caller waits for goes on in the background: the caller gets 202 and asks later.
    /// `Prefer: wait=N` asks for another span.
    #[schemars(range(min = 1, max = 900))]
    pub(super) promote_after_seconds: u64,
    /// Calls that go on in the background at once, because their callers stopped waiting for them; of one tenant alone
    /// three quarters. The caller of a call that finds no room waits for its end.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) background_calls: usize,
}

impl Default for JobsKeys {
    fn default() -> Self {
        let usual = JobsSettings::default();
        Self {
            concurrency: usual.concurrency,
            running_per_tenant: usual.running_per_tenant,
            queue_per_agent: usual.bounds.per_flow,
            queue_per_tenant: usual.bounds.per_tenant,
            queue_total: usual.bounds.total,
            payload_bytes: usual.payload_bytes_max,
            attempts: usual.attempts_max,
            backoff_max_seconds: usual.backoff_max.as_secs(),
            max_age_seconds: usual.max_age.as_secs(),
            lease_seconds: usual.lease.as_secs(),
            drain_seconds: usual.drain.as_secs(),
            retention_seconds: usual.retention.as_secs(),
            dead_retention_seconds: usual.dead_retention.as_secs(),
            promote_after_seconds: usual.promote_after.as_secs(),
            background_calls: usual.promoted_max,
        }
    }
}

impl ConfigSection for JobsKeys {
    const NAME: &'static str = "jobs";
    type Checked = JobsSettings;

    fn checked(self, _: &mut SectionProblems<'_>) -> JobsSettings {
        let seconds = Duration::from_secs;
        let bounds = QueueBounds {
            per_flow: self.queue_per_agent.min(self.queue_per_tenant.div_ceil(2)),
            per_tenant: self.queue_per_tenant,
            total: self.queue_total,
        };
        JobsSettings {
            concurrency: self.concurrency,
            running_per_tenant: self.running_per_tenant,
            bounds,
            payload_bytes_max: self.payload_bytes,
            attempts_max: self.attempts,
            backoff_max: seconds(self.backoff_max_seconds),
            max_age: seconds(self.max_age_seconds),
            lease: seconds(self.lease_seconds),
            drain: seconds(self.drain_seconds),
            retention: seconds(self.retention_seconds),
            dead_retention: seconds(self.dead_retention_seconds),
            promote_after: seconds(self.promote_after_seconds),
            promoted_max: self.background_calls,
            ..JobsSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn what_is_unset_is_as_the_kernel_has_it() {
        let (read, _) = of_variables::<JobsKeys>(&[]);
        assert_eq!(read, JobsSettings::default());
        assert_eq!(read.max_age, Duration::from_secs(24 * 60 * 60));
    }
}
