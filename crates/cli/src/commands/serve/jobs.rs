//! What a server does in the background: its queue of jobs, and the workers that do them.

use std::sync::Arc;

use jobs::{JobQueue, JobQueueParts, Jobs, JobsParts, JobsSettings, Workers};
use kernel::Kernel;
use ports::clock::Clock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::assembly::KernelAssembly;
use super::callbacks::Callbacks;
use crate::config::GantryConfig;
use crate::failure::CommandFailure;
use crate::former_texts;
use crate::sealed_jobs::SealedJobs;

/// The workers, until they are told to stop.
pub(super) struct Background {
    hold: CancellationToken,
    stop: CancellationToken,
    workers: JoinHandle<()>,
    /// Forgets old deliveries.
    keeper: JoinHandle<()>,
    /// Seals what was kept before there was a key.
    sealer: JoinHandle<()>,
}

/// The queue, with seals on what goes into it: there before anything that puts jobs in.
pub(super) struct SealedQueue {
    pub(super) queue: Arc<JobQueue>,
    store: Arc<SealedJobs>,
}

impl SealedQueue {
    pub(super) fn build(assembly: &KernelAssembly, config: &GantryConfig) -> Result<Self, CommandFailure> {
        let store = assembly.jobs()?;
        let queue = JobQueue::new(JobQueueParts {
            store: Arc::clone(&store) as _,
            clock: Arc::clone(&assembly.clock) as Arc<dyn Clock>,
            entropy: assembly.entropy(),
            // In a store that others write too, what they hold is theirs until their lease is over.
            settings: JobsSettings { alone: !assembly.store.is_shared(), ..config.jobs.clone() },
        });
        Ok(Self { queue, store })
    }
}

/// Begins to work as an owner of jobs; nothing is done before [`begin`].
pub(super) async fn open(
    kernel: &Arc<Kernel>,
    queue: &SealedQueue,
    callbacks: &Callbacks,
) -> Result<Arc<Jobs>, CommandFailure> {
    let parts = JobsParts {
        kernel: Arc::clone(kernel),
        queue: Arc::clone(&queue.queue),
        handlers: callbacks.handlers(kernel),
        webhooks: Some(Arc::clone(&callbacks.webhooks)),
    };
    Ok(Jobs::open(parts).await?)
}

/// Sets the workers to work.
pub(super) fn begin(
    assembly: &KernelAssembly,
    SealedQueue { store, .. }: SealedQueue,
    callbacks: Callbacks,
    jobs: Arc<Jobs>,
) -> Result<Background, CommandFailure> {
    let keeper = tokio::spawn(callbacks.keep(Arc::clone(&jobs), Arc::clone(&assembly.clock) as Arc<dyn Clock>));
    let (hold, stop) = (CancellationToken::new(), CancellationToken::new());
    let workers = tokio::spawn(Workers::new(jobs).holding_at(hold.clone()).run(stop.clone()));
    let (texts, seals, file) = (Arc::clone(&assembly.store.texts), assembly.seals()?, assembly.store.file());
    let sealer = tokio::spawn(async move {
        match former_texts::seal_former(&*texts, &seals).await {
            Ok(0) => {}
            Ok(texts) => {
                tracing::info!(
                    texts,
                    "what workflows, webhooks and MCP servers of before have in the store was readable; it is sealed now"
                );
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what workflows, webhooks and MCP servers of before have in the store could not be sealed; the next start \
                 tries again"
            ),
        }
        match store.seal_former().await {
            Ok(0) => {}
            Ok(jobs) => {
                tracing::info!(jobs, "what went into jobs of before was readable in the store; it is sealed now")
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "jobs of before could not be looked through; what is readable is sealed when it is taken"
            ),
        }
        // The log of writes has whole pages, and on them what was in clear until its turn came.
        if let Some(file) = file
            && let Err(error) = file.empty_log().await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the log of the store could not be emptied; it is when the server ends"
            );
        }
    });
    Ok(Background { hold, stop, workers, keeper, sealer })
}

impl Background {
    /// Completes with `signal`, after no more jobs are taken: others begin what waits while the doors here close.
    pub(super) fn held_at<S>(&self, signal: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let hold = self.hold.clone();
        async move {
            signal.await;
            hold.cancel();
        }
    }

    /// Lets what runs come to its end, or hands it back.
    pub(super) async fn end(self) {
        self.keeper.abort();
        self.sealer.abort();
        self.stop.cancel();
        if self.workers.await.is_err() {
            tracing::error!("the workers ended abnormally");
        }
    }
}
