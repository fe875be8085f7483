//! How jobs are done: every bound and wait of them has its name here.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::manifest::Manifest;
use fair_places::shares;
use ports::job_store::{QueueBounds, TakeRules};

/// Shortest window in which an idempotency key means the same call.
const DEDUPE_WINDOW_MIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsSettings {
    /// Jobs that this process does at once.
    pub concurrency: usize,
    /// Running jobs of one tenant, in all processes.
    pub running_per_tenant: u32,
    /// How much may wait.
    pub bounds: QueueBounds,
    /// The largest payload of one job.
    pub payload_bytes_max: usize,
    /// How often a job that may be repeated is started, unless its tool says otherwise.
    pub attempts_max: u32,
    /// The pause before the second attempt is up to this long, and doubles with each.
    pub backoff_first: Duration,
    pub backoff_max: Duration,
    /// For how long the caller's word holds: a job that has not begun by then is not begun.
    pub max_age: Duration,
    /// How long this process may be silent before its jobs are given to others.
    pub lease: Duration,
    /// Is no other process working on the same store? Then the jobs of former processes are taken over at once.
    pub alone: bool,
    /// How often the queue is looked at without being told.
    pub poll: Duration,
    /// How long running jobs have to end at shutdown.
    pub drain: Duration,
    /// For how long ended jobs are kept, and those that somebody should look at.
    pub retention: Duration,
    pub dead_retention: Duration,
    /// How long a caller is kept waiting before its call goes on in the background.
    pub promote_after: Duration,
    /// Calls that go on in the background at once.
    pub promoted_max: usize,
}

impl Default for JobsSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            concurrency: 16,
            running_per_tenant: 8,
            bounds: QueueBounds { per_flow: 10_000, per_tenant: 20_000, total: 200_000 },
            payload_bytes_max: 4 * 1024 * 1024,
            attempts_max: 3,
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
            max_age: DAY,
            lease: Duration::from_secs(30),
            alone: true,
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            retention: DAY * 7,
            dead_retention: DAY * 30,
            promote_after: Duration::from_secs(20),
            promoted_max: 256,
        }
    }
}

impl JobsSettings {
    /// Of the jobs of one tenant, so many may be of one agent, or deliveries to one address; the rest is left to others.
    pub(super) fn running_per_flow(&self) -> u32 {
        match self.running_per_tenant {
            most @ 0..=1 => most,
            most => most - (most / 4).max(1),
        }
    }

    /// What may be taken when so many of the permits are free, in steps, the widest first. Some permits are kept for agents and addresses that have few jobs running, the last ones for tenants that
    /// have few, and the very last for one that has none. So however many jobs of one of them run, and however long, others
    /// go on.
    pub(super) fn steps(&self, free: usize) -> impl Iterator<Item = TakeRules> {
        let (of_tenant, of_flow) = shares(self.concurrency);
        let for_tenants = self.concurrency.saturating_sub(of_tenant).min(free);
        let last = for_tenants.min(1);
        let for_flows = of_tenant.saturating_sub(of_flow).min(free - for_tenants);
        let few = |kept: usize| u32::saturating_from(kept).max(1);
        let (tenant, flow) = (self.running_per_tenant, self.running_per_flow());
        let steps = [
            (free - for_tenants - for_flows, tenant, flow),
            (for_flows, tenant, flow.min(few(of_tenant.saturating_sub(of_flow)))),
            (for_tenants - last, tenant.min(few(self.concurrency.saturating_sub(of_tenant))), flow),
            (last, tenant.min(1), flow.min(1)),
        ];
        steps.into_iter().filter(|(most, ..)| *most > 0).map(|(most, running_per_tenant, running_per_flow)| TakeRules {
            most,
            running_per_tenant,
            running_per_flow,
        })
    }
}

/// For how long a key of this tool means the same call: twice what a call can take, and a day at least.
pub(super) fn dedupe_window(manifest: &Manifest) -> Duration {
    DEDUPE_WINDOW_MIN.max(Duration::from_millis(manifest.timeout_max_ms()) * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(concurrency: usize, free: usize) -> Vec<(usize, u32, u32)> {
        let settings = JobsSettings { concurrency, running_per_tenant: 8, ..JobsSettings::default() };
        settings.steps(free).map(|step| (step.most, step.running_per_tenant, step.running_per_flow)).collect()
    }

    #[test]
    fn the_last_hands_are_for_those_who_have_little() {
        assert_eq!(steps(8, 8), [(5, 8, 6), (1, 8, 1), (1, 2, 6), (1, 1, 1)]);
        assert_eq!(steps(8, 3), [(1, 8, 1), (1, 2, 6), (1, 1, 1)]);
        assert_eq!(steps(8, 2), [(1, 2, 6), (1, 1, 1)]);
        assert_eq!(steps(8, 1), [(1, 1, 1)]);
        assert_eq!(steps(2, 2), [(1, 8, 6), (1, 1, 1)]);
        assert_eq!(steps(1, 1), [(1, 8, 6)], "one permit is everybody's in turn");
        assert_eq!(steps(8, 0), []);
    }

    #[test]
    fn one_agent_leaves_some_of_its_tenants_jobs_to_others() {
        let most =
            |running_per_tenant| JobsSettings { running_per_tenant, ..JobsSettings::default() }.running_per_flow();
        assert_eq!([1, 2, 3, 8].map(most), [1, 1, 2, 6]);
    }
}
