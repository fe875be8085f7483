//! The ledger while the server runs: this process says that it lives, calls of processes that do not any more are settled,
//! and what is past its window is forgotten.
//!
//! Not here: what is settled how (`kernel`'s recovery).

use std::sync::Arc;
use std::time::Duration;

use kernel::Kernel;
use ports::clock::Clock;
use tokio::task::JoinHandle;

use crate::failure::CommandFailure;

/// How often calls of processes that are gone are looked for.
const RECOVER_EVERY: Duration = Duration::from_secs(10);
/// How many rounds of that pass between two times of forgetting.
const ROUNDS_PER_PRUNING: u32 = 60;
/// How many calls are forgotten in one go; between two goes others write.
const FORGET_AT_ONCE: usize = 500;

/// Takes this process's place in the ledger and settles what the one before left behind. Before the doors open.
pub(super) async fn begin(kernel: &Kernel) -> Result<(), CommandFailure> {
    let failed = |error: ports::registry_store::StoreError| {
        CommandFailure::new(error.to_string()).hint("`gantry doctor` looks at the data directory")
    };
    kernel.books().renew().await.map_err(failed)?;
    let recovered = kernel.recover().await.map_err(failed)?;
    if recovered.indeterminate > 0 {
        tracing::warn!(
            calls = recovered.indeterminate,
            "nobody knows whether these calls had their effect: `gantry jobs unknown` shows them"
        );
    }
    if recovered.set_free > 0 {
        tracing::info!(calls = recovered.set_free, "interrupted calls can be made again");
    }
    Ok(())
}

/// Goes on until it is aborted.
pub(super) fn keep(kernel: &Arc<Kernel>, clock: Arc<dyn Clock>) -> Vec<JoinHandle<()>> {
    let (living, settling) = (Arc::clone(kernel), Arc::clone(kernel));
    vec![
        tokio::spawn(async move { living.books().keep_alive().await }),
        tokio::spawn(async move {
            for round in 1_u32.. {
                clock.sleep(RECOVER_EVERY).await;
                if let Err(error) = settling.recover().await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "interrupted calls were not looked for");
                }
                if round % ROUNDS_PER_PRUNING == 0 {
                    forget(&settling).await;
                }
            }
        }),
    ]
}

async fn forget(kernel: &Kernel) {
    loop {
        match kernel.books().prune(FORGET_AT_ONCE).await {
            Ok(forgotten) if forgotten < FORGET_AT_ONCE => return,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "calls past their window were not forgotten");
                return;
            }
        }
    }
}
