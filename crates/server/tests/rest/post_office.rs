//! Webhooks and the signed door behind the stage: receivers answer as they are told, jobs are only collected.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::error::Refusal;
use contract::ids::{InvocationId, TenantId};
use jobs::inbound_jobs::{InboundJobs, InboundParts};
use jobs::webhooks::{WebhookParts, WebhookSettings, Webhooks};
use ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut};
use ports::job_entrance::{EnteringJob, EntranceOutcome, JobEntrance};
use ports::secret_source::{NoSecrets, SecretValue};
use serde_json::Value;
use store::memory::MemoryStore;
use vendor_services::{CallOutParts, CallOutUrls, CallOuts, QstashReceiver};

use crate::stage::{CountingEntropy, HeldClock};

pub(crate) const QSTASH_KEY: &[u8] = b"current";
pub(crate) const SHARED: &str = "shared";
/// Largest body that the signed door takes.
pub(crate) const BYTES_MAX: usize = 2_000;

/// What has to do with calling back.
pub(crate) struct PostOffice {
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) inbound: Arc<InboundJobs>,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) store: Arc<MemoryStore>,
}

/// A receiver with one answer.
#[derive(Debug)]
pub(crate) struct Receiver(pub(crate) Mutex<Result<u16, CallOutError>>);

#[async_trait::async_trait]
impl CallsOut for Receiver {
    fn check(&self, url: &str) -> Result<(), CallOutError> {
        if url.starts_with("https://") { Ok(()) } else { Err(CallOutError::Plaintext) }
    }

    async fn post(&self, _: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        let answer = self.0.lock().unwrap().clone();
        answer.map(|status| CallAnswer { status, body: Vec::new(), took: Duration::from_millis(5), retry_after: None })
    }
}

/// Keeps each key once.
#[derive(Debug, Default)]
pub(crate) struct Queue(pub(crate) Mutex<Vec<EnteringJob>>);

#[async_trait::async_trait]
impl JobEntrance for Queue {
    async fn enter(&self, job: EnteringJob) -> Result<EntranceOutcome, Refusal> {
        let mut jobs = self.0.lock().unwrap();
        let same_key = |known: &&EnteringJob| (&known.key, known.kind) == (&job.key, job.kind);
        if let Some(known) = jobs.iter().find(same_key) {
            return Ok(EntranceOutcome::Known { same: known.payload == job.payload });
        }
        jobs.push(job);
        Ok(EntranceOutcome::New)
    }

    async fn told_end(&self, _: &TenantId, _: InvocationId, _: Result<Value, Refusal>) -> Result<(), Refusal> {
        Ok(())
    }
}

impl PostOffice {
    pub(crate) fn new(clock: &Arc<HeldClock>) -> Self {
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(clock) as _));
        let (receiver, queue) = (Arc::new(Receiver(Mutex::new(Ok(204)))), Arc::new(Queue::default()));
        let webhooks = Arc::new(Webhooks::new(WebhookParts {
            store: Arc::clone(&store) as _,
            calls: Arc::clone(&receiver) as _,
            queue: Arc::clone(&queue) as _,
            secrets: Arc::new(NoSecrets),
            root: SecretValue::new([1; 32]).unwrap(),
            clock: Arc::clone(clock) as _,
            entropy: Arc::new(CountingEntropy::default()),
            settings: WebhookSettings::default(),
        }));
        let calls = CallOuts::new(CallOutParts {
            urls: CallOutUrls { embedding: Some("https://s.example/".into()), ..CallOutUrls::default() },
            secret: SecretValue::new(SHARED),
            calls: Arc::clone(&receiver) as _,
            runs: Arc::clone(&store) as _,
            webhooks: Some(Arc::clone(&webhooks)),
            clock: Arc::clone(clock) as _,
        });
        let inbound = InboundJobs::new(InboundParts {
            verifier: Arc::new(QstashReceiver::new(QSTASH_KEY, None).unwrap()),
            public_url: "https://g.example".into(),
            tenant: TenantId::home(),
            bytes_max: BYTES_MAX,
            store: Arc::clone(&store) as _,
            queue: Arc::clone(&queue) as _,
            services: Arc::new(calls),
            clock: Arc::clone(clock) as _,
        });
        Self { webhooks, inbound: Arc::new(inbound), receiver, queue, store }
    }
}
