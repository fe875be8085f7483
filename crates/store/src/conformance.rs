//! What every adapter of the storage ports must do, as tests. (STYLE: one suite per port)
//!
//! An adapter's test crate says how to open it and names the suite; the list of cases lives here, so none can be left out:
//!
//! ```text
//! mod registry { gantry_store::registry_suite!(super::open); }
//! mod search   { gantry_store::search_suite!(super::open); }
//! mod access   { gantry_store::access_suite!(super::open); }
//! mod upstreams { gantry_store::upstreams_suite!(super::open); }
//! mod ledger   { gantry_store::ledger_suite!(super::open); }
//! mod jobs     { gantry_store::jobs_suite!(super::open); }
//! mod checkpoints { gantry_store::checkpoints_suite!(super::open); }
//! mod webhooks { gantry_store::webhooks_suite!(super::open); }
//! mod usage    { gantry_store::usage_suite!(super::open); }
//! mod vectors  { gantry_store::vectors_suite!(super::open); }
//! mod archive  { gantry_store::archive_suite!(super::open_archive); }
//! mod heads    { gantry_store::log_heads_suite!(super::open_heads); }
//! ```
//!
//! `open` is an `async fn() -> impl Adapter` that gives a fresh, empty store each time.
//! `open_archive` gives an archive alone: only stores that many instances share have one.

pub mod access;
pub mod archive;
pub mod checkpoints;
pub mod jobs;
pub mod ledger;
pub mod log_heads;
pub mod registry;
mod samples;
pub mod search;
mod stepped_clock;
pub mod upstreams;
pub mod usage;
pub mod vectors;
pub mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;
use kernel::ports::access_store::AccessStore;
use kernel::ports::checkpoint_store::CheckpointStore;
use kernel::ports::health_store::HealthStore;
use kernel::ports::job_store::JobStore;
use kernel::ports::ledger::Ledger;
use kernel::ports::registry_store::RegistryStore;
use kernel::ports::tool_search::ToolSearch;
use kernel::ports::upstream_store::UpstreamStore;
use kernel::ports::usage_store::UsageStore;
use kernel::ports::vector_store::VectorStore;
use kernel::ports::webhook_store::WebhookStore;
use kernel::ports::workflow_runs::WorkflowRuns;

pub use stepped_clock::SteppedClock;

pub use samples::{deprecated, new_version, new_version_of, removed, sample_manifest, sunset};

/// What a store offers to the registry.
pub trait AnyStore: RegistryStore + ToolSearch + 'static {}
impl<T: RegistryStore + ToolSearch + 'static> AnyStore for T {}

/// A store under test.
#[async_trait]
pub trait Adapter: Send {
    /// The store.
    fn store(&self) -> Arc<dyn AnyStore>;
    /// The same store as what keeps access. Apart, because both sides have a `load`.
    fn access(&self) -> Arc<dyn AccessStore>;
    /// The same store as what keeps servers, apart for the same reason.
    fn upstreams(&self) -> Arc<dyn UpstreamStore>;
    /// The same store as what keeps the ledger.
    fn ledger(&self) -> Arc<dyn Ledger>;
    /// What the store measures spans by.
    fn clock(&self) -> Arc<SteppedClock>;
    /// The same store as what keeps webhooks.
    fn webhooks(&self) -> Arc<dyn WebhookStore>;
    /// The same store as what keeps runs of workflows.
    fn runs(&self) -> Arc<dyn WorkflowRuns>;
    /// The same store as what keeps jobs.
    fn jobs(&self) -> Arc<dyn JobStore>;
    /// The same store as what keeps checkpoints.
    fn checkpoints(&self) -> Arc<dyn CheckpointStore>;
    /// The same store as what keeps use.
    fn usage(&self) -> Arc<dyn UsageStore>;
    /// The same store as what keeps the health of tools.
    fn health(&self) -> Arc<dyn HealthStore>;
    /// The same store as what keeps vectors.
    fn vectors(&self) -> Arc<dyn VectorStore>;
    /// Ends the store as a crash of nothing but this process would, and opens it again. A store that keeps nothing stays.
    async fn reopen(&mut self);
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
