//! Whom this server calls by itself: receivers of webhooks, and the services behind the signed door of jobs.
//!
//! Built on the queue, and before the kernel, whose alerts are told by webhooks.

use std::sync::Arc;

use executors::GuardedCalls;
use jobs::inbound_jobs::{InboundJobs, InboundParts};
use jobs::webhooks::{DeliveryJobs, WebhookParts, Webhooks};
use jobs::{JobHandler, JobQueue, Jobs};
use kernel::Kernel;
use ports::call_out::CallsOut;
use ports::clock::Clock;
use sandbox::egress::{EgressBounds, SystemResolver};
use vendor_services::{CallOutParts, CallOuts, InboundHandler, InboundKind};

use super::assembly::KernelAssembly;
use crate::config::GantryConfig;
use crate::failure::CommandFailure;
use crate::secrets_folder::SecretsFolder;

/// What calls out.
pub(super) struct Callbacks {
    pub(super) webhooks: Arc<Webhooks>,
    /// The signed door of jobs, if it is open.
    pub(super) inbound: Option<Arc<InboundJobs>>,
    calls: Arc<CallOuts>,
}

impl Callbacks {
    /// Builds it. Makes the root of webhook secrets at the first start.
    pub(super) fn build(
        assembly: &KernelAssembly,
        config: &GantryConfig,
        queue: &Arc<JobQueue>,
    ) -> Result<Self, CommandFailure> {
        let clock = Arc::clone(&assembly.clock) as Arc<dyn Clock>;
        let section = &config.webhooks;
        let within = |egress: &EgressBounds| -> Arc<dyn CallsOut> {
            Arc::new(GuardedCalls::new(section.opened.clone(), egress, section.times, Arc::new(SystemResolver)))
        };
        // Receivers are named by callers and tenants, services by the operator, whose bounds are for others. (decision 0046)
        let (to_receivers, to_services) = (within(&config.egress.bounds), within(&EgressBounds::default()));
        let data_dir = assembly.data_dir();
        let stored = assembly.webhooks()?;
        let webhooks = Arc::new(Webhooks::new(WebhookParts {
            store: Arc::clone(&stored),
            calls: to_receivers,
            queue: Arc::clone(queue) as _,
            secrets: Arc::new(SecretsFolder::new(config.secrets.dir(data_dir.path()))),
            root: data_dir.webhook_root_or_new(&*assembly.entropy())?,
            clock: Arc::clone(&clock),
            entropy: assembly.entropy(),
            settings: section.settings,
        }));
        let door = config.inbound_jobs.as_ref();
        let calls = Arc::new(CallOuts::new(CallOutParts {
            urls: door.map(|door| door.urls.clone()).unwrap_or_default(),
            secret: door.and_then(|door| door.secret.clone()),
            calls: to_services,
            runs: assembly.runs()?,
            webhooks: Some(Arc::clone(&webhooks)),
            clock: Arc::clone(&clock),
        }));
        let inbound = door.map(|door| {
            Arc::new(InboundJobs::new(InboundParts {
                verifier: Arc::new(door.receiver.clone()),
                public_url: door.public_url.clone(),
                tenant: door.tenant.clone(),
                bytes_max: door.bytes_max,
                store: stored,
                queue: Arc::clone(queue) as _,
                services: Arc::clone(&calls) as _,
                clock,
            }))
        });
        Ok(Self { webhooks, inbound, calls })
    }

    /// What does the jobs that are no calls of tools. All kinds, also when the door is closed: a job that waits from an
    /// earlier start then ends with a word about what is missing.
    pub(super) fn handlers(&self, kernel: &Arc<Kernel>) -> Vec<Arc<dyn JobHandler>> {
        let inbound = InboundKind::ALL.map(|kind| {
            Arc::new(InboundHandler { kind, calls: Arc::clone(&self.calls), kernel: Arc::clone(kernel) })
                as Arc<dyn JobHandler>
        });
        let deliveries: Arc<dyn JobHandler> = Arc::new(DeliveryJobs(Arc::clone(&self.webhooks)));
        std::iter::once(deliveries).chain(inbound).collect()
    }

    /// Forgets old deliveries and runs, now and then. Never ends.
    pub(super) async fn keep(self, jobs: Arc<Jobs>, clock: Arc<dyn Clock>) {
        /// Between two rounds.
        const PAUSE: std::time::Duration = std::time::Duration::from_secs(600);
        jobs.tell_recent_ends().await;
        drop(jobs);
        loop {
            self.webhooks.prune().await;
            self.calls.prune().await;
            clock.sleep(PAUSE).await;
        }
    }
}
