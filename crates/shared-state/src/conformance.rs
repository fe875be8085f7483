//! What every adapter of the shared state must do, as tests. (STYLE: one suite per port)
//!
//! An adapter's test crate says how to open it and names the suites; the list of cases lives here, so none can be left out:
//!
//! ```text
//! mod breakers { gantry_shared_state::breakers_suite!(super::open); }
//! mod limits   { gantry_shared_state::limits_suite!(super::open); }
//! mod values   { gantry_shared_state::values_suite!(super::open); }
//! ```
//!
//! `open` is an `async fn() -> impl StateAdapter` that gives a fresh, empty state each time.

pub mod breakers;
pub mod limits;
pub mod values;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::shared_state::SharedState;

/// A shared state under test.
#[async_trait]
pub trait StateAdapter: Send + Sync {
    /// The state, as one replica sees it.
    fn state(&self) -> Arc<dyn SharedState>;
    /// The same state, as another replica sees it.
    fn other(&self) -> Arc<dyn SharedState>;
    /// Lets time pass for the state. One whose time is a server's may set it forward, or wait. The cases allow for a second
    /// of real time beside what they let pass.
    async fn pass(&self, span: Duration);
}

/// Makes one test of each case, on a runtime with real threads.
#[doc(hidden)]
#[macro_export]
macro_rules! shared_state_cases {
    ($open:path, $suite:ident, [$($case:ident),+ $(,)?]) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                $crate::conformance::$suite::$case($open().await).await;
            }
        )+
    };
}
