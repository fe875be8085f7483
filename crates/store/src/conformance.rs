//! What every adapter of the storage ports must do, as tests. (STYLE: one suite per port)
//!
//! An adapter's test crate says how to open it, and takes all suites at once; the list of suites and the lists of their cases
//! live here, so none can be left out:
//!
//! ```text
//! gantry_store::every_suite!(suites, crate::open);
//! mod archive { gantry_store::archive_suite!(super::open_archive); }
//! mod heads   { gantry_store::log_heads_suite!(super::open_heads); }
//! mod texts   { gantry_store::sealed_texts_suite!(crate::open); }
//! ```
//!
//! `open` is an `async fn() -> impl StoreAdapter` that gives a fresh, empty store each time.
//! `open_archive` and `open_heads` give these alone: only stores that many instances share have them. Only stores that keep
//! something have texts to be sealed.

pub mod access;
pub mod archive;
pub mod checkpoints;
pub mod jobs;
pub mod ledger;
pub mod log_heads;
pub mod registry;
mod samples;
pub mod sealed_texts;
pub mod search;
mod stepped_clock;
pub mod upstreams;
pub mod usage;
pub mod vectors;
pub mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;
use ports::access_store::AccessStore;
use ports::checkpoint_store::CheckpointStore;
use ports::health_store::HealthStore;
use ports::job_store::JobStore;
use ports::ledger::Ledger;
use ports::registry_store::RegistryStore;
use ports::tool_search::ToolSearch;
use ports::upstream_store::UpstreamStore;
use ports::usage_store::UsageStore;
use ports::vector_store::VectorStore;
use ports::version_use::VersionUseStore;
use ports::webhook_store::WebhookStore;
use ports::workflow_runs::WorkflowRuns;

pub use stepped_clock::SteppedClock;

pub use samples::{
    deprecated, new_version, new_version_of, removed, sample_intent, sample_job, sample_manifest, sunset,
};

/// What a store offers to the registry.
pub trait AnyStore: RegistryStore + ToolSearch + 'static {}
impl<T: RegistryStore + ToolSearch + 'static> AnyStore for T {}

/// What a store offers in all: every port that every store has.
pub trait WholeStore:
    AnyStore
    + AccessStore
    + UpstreamStore
    + Ledger
    + WebhookStore
    + WorkflowRuns
    + JobStore
    + CheckpointStore
    + UsageStore
    + HealthStore
    + VectorStore
    + VersionUseStore
{
}
impl<T> WholeStore for T where
    T: AnyStore
        + AccessStore
        + UpstreamStore
        + Ledger
        + WebhookStore
        + WorkflowRuns
        + JobStore
        + CheckpointStore
        + UsageStore
        + HealthStore
        + VectorStore
        + VersionUseStore
{
}

/// A method for each port that hands the store out as it.
macro_rules! as_ports {
    ($($(#[$doc:meta])* $name:ident: $port:ident,)+) => {
        $(
            $(#[$doc])*
            fn $name(&self) -> Arc<dyn $port> {
                Arc::<Self::Store>::clone(self.whole())
            }
        )+
    };
}

/// A store under test: an adapter says what it is, by what it measures spans and how it is opened again. The same store is
/// handed out as each of its ports, apart, because several have a `load`.
#[async_trait]
pub trait StoreAdapter: Send {
    /// What is tested.
    type Store: WholeStore;
    /// It.
    fn whole(&self) -> &Arc<Self::Store>;
    /// What the store measures spans by.
    fn clock(&self) -> Arc<SteppedClock>;
    /// Ends the store as a crash of nothing but this process would, and opens it again. A store that keeps nothing stays.
    async fn reopen(&mut self);

    as_ports! {
        /// As what keeps tools and finds them.
        store: AnyStore,
        /// As what keeps access.
        access: AccessStore,
        /// As what keeps servers.
        upstreams: UpstreamStore,
        /// As what keeps the ledger.
        ledger: Ledger,
        /// As what keeps webhooks.
        webhooks: WebhookStore,
        /// As what keeps runs of workflows.
        runs: WorkflowRuns,
        /// As what keeps jobs.
        jobs: JobStore,
        /// As what keeps checkpoints.
        checkpoints: CheckpointStore,
        /// As what keeps use.
        usage: UsageStore,
        /// As what keeps the health of tools.
        health: HealthStore,
        /// As what counts calls of versions that end.
        version_use: VersionUseStore,
        /// As what keeps vectors.
        vectors: VectorStore,
    }
}

/// Every suite that every store must pass, in a module `$name`, against what `$open` gives.
#[macro_export]
macro_rules! every_suite {
    ($name:ident, $open:path) => {
        mod $name {
            $crate::conformance_suites!($open, [access: access_suite, checkpoints: checkpoints_suite, jobs: jobs_suite, ledger: ledger_suite, registry: registry_suite, search: search_suite, upstreams: upstreams_suite, usage: usage_suite, vectors: vectors_suite, webhooks: webhooks_suite]);
        }
    };
}

/// A module for each suite.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_suites {
    ($open:path, [$($name:ident: $suite:ident),+ $(,)?]) => {
        $(
            mod $name {
                $crate::$suite!($open);
            }
        )+
    };
}

/// Makes one test of each case, on a runtime with real threads.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($open:path, $suite:ident, [$($case:ident),+ $(,)?]) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                $crate::conformance::$suite::$case($open().await).await;
            }
        )+
    };
}
