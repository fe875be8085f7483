//! One process: the real kernel with its ledger, its queue and its workers, behind a wire; and a tool whose every end is
//! chance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use gantry_jobs::{AcceptedCall, JobQueue, JobQueueParts, Jobs, JobsParts, JobsSettings, Workers};
use kernel::phases::Returned;
use kernel::registry::Registry;
use kernel::{
    AccessControl, AccessParts, AccessSettings, FailedCall, Identity, IdentitySettings, IncomingCall, IsolationPolicy,
    Kernel, KernelOptions, KernelParts, LedgerService, Recorder, ResourceEnvelope, TokenIssuer,
};
use policy::{BearerSecret, SigningKey, TokenMinter};
use ports::actor::Actor;
use ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::executor::{ExecutionReach, Executor, ExecutorError, ToolCall, ToolOutput};
use ports::key_vault::{KeyVault, KeyVaultError};
use ports::observer::NoObserver;
use ports::offerings::NothingOffered;
use serde_json::{Value, json};
use shared_state::MemoryBus;
use tokio_util::sync::CancellationToken;

use crate::wire::{Life, Wire};
use crate::world::{Act, World};

pub(crate) const ADMIN: &str = "the-admin-secret";
/// How often calls of dead processes are looked for.
const RECOVER_EVERY: Duration = Duration::from_secs(10);
/// How often a queue is looked at by those whom nobody has told. Every second, as out of the box, is work in which nothing happens.
const POLL: Duration = Duration::from_secs(4);
/// A tool works up to so many milliseconds before its effect, and as many after.
const WORK: u64 = 400;
/// The tools, and what they do when they are repeated.
pub(crate) const TOOLS: [(&str, &str); 3] =
    [("pay", "compensatable"), ("guess", "unclassified"), ("set_it", "idempotent")];

/// A process.
pub(crate) struct Process {
    pub(crate) life: Arc<Life>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) jobs: Arc<Jobs>,
}

#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl AuditSink for Nobody {
    async fn write(&self, _: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        Ok(())
    }
}

#[async_trait::async_trait]
impl KeyVault for Nobody {
    async fn replace(&self, _: &SigningKey) -> Result<(), KeyVaultError> {
        Ok(())
    }
}

/// Ids that no other process of the history makes.
#[derive(Debug)]
struct Ids(u64, AtomicU64);

impl Entropy for Ids {
    fn fill(&self, bytes: &mut [u8]) {
        let number = (u128::from(self.0) << 64) | u128::from(self.1.fetch_add(1, Ordering::SeqCst));
        for (byte, source) in bytes.iter_mut().rev().zip(number.to_le_bytes().into_iter().chain(std::iter::repeat(0))) {
            *byte = source;
        }
    }
}

/// A tool that has its effect at some moment, or not, and says so, or not.
#[derive(Debug)]
struct ChanceTool(Arc<Life>);

#[async_trait::async_trait]
impl Executor for ChanceTool {
    fn kind(&self) -> &'static str {
        "builtin"
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        let life = &self.0;
        let fails = |code, reach| Err(ExecutorError::new(Refusal::new(code, "by chance"), reach));
        let lucky = life.calm.is_cancelled();
        life.takes(life.dice.millis(WORK)).await;
        match if lucky { 99 } else { life.dice.below(100) } {
            0..3 => return fails(ErrorCode::E3405, ExecutionReach::NotSent),
            3..5 => return fails(ErrorCode::E3504, ExecutionReach::Refused),
            5..9 => return fails(ErrorCode::E3401, ExecutionReach::Answered),
            9..12 => return fails(ErrorCode::E3404, ExecutionReach::MayHaveRun),
            _ => {}
        }
        let number = call.parameters.get("number").and_then(Value::as_u64).unwrap_or_default();
        let tool = TOOLS.iter().map(|(tool, _)| *tool).find(|tool| call.tool.id.as_str() == *tool).unwrap_or_default();
        let serial = life.world.happens(Act { tool, number });
        life.takes(life.dice.millis(WORK)).await;
        match if lucky { 99 } else { life.dice.below(100) } {
            0..3 => fails(ErrorCode::E3404, ExecutionReach::MayHaveRun),
            // The code says nothing about it.
            3..5 => fails(ErrorCode::E3502, ExecutionReach::MayHaveRun),
            5..8 => std::future::pending().await,
            _ => Ok(ToolOutput::of(json!({ "serial": serial }))),
        }
    }
}

pub(crate) fn admin() -> Actor<'static> {
    let trace_id = contract::ids::TraceId::from_bytes([1; 16]);
    Actor { credential: Some(BearerSecret(ADMIN)), source: None, trace_id }
}

impl Process {
    /// Starts one, as `gantry serve` does: recovery first, then the doors, the workers and the heartbeat.
    pub(crate) async fn start(number: u64, life: Arc<Life>) -> Self {
        let world: &Arc<World> = &life.world;
        let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
        let entropy = Arc::new(Ids(number, AtomicU64::new(1)));
        let store = &world.store;
        let wire = Arc::new(Wire(Arc::clone(&life)));
        let registry =
            Registry::open(Arc::clone(store) as _, Arc::clone(store) as _, Arc::clone(&clock), Arc::new(NoObserver));
        let access = AccessControl::open(AccessParts {
            store: Arc::clone(store) as _,
            bus: Arc::new(MemoryBus::default()),
            engine: None,
            did_resolver: None,
            clock: Arc::clone(&clock),
            observer: Arc::new(NoObserver),
            settings: AccessSettings::default(),
        });
        let key = SigningKey::from_seed(&[5; 32]);
        let settings = IdentitySettings::local(Arc::clone(&clock));
        let identity = Identity::new(ADMIN, vec![key.verifying_key()], settings, Arc::new(NoObserver)).unwrap();
        let (recorder, _writer) = Recorder::start(Arc::new(Nobody), Arc::clone(&clock), Arc::new(NoObserver));
        let parts = KernelParts {
            registry: registry.await.unwrap(),
            identity,
            access: access.await.unwrap(),
            mint: TokenIssuer::new(key, TokenMinter::default(), Arc::new(Nobody)),
            recorder,
            books: LedgerService::new(Arc::clone(&wire) as _, Arc::clone(&clock), &*entropy, Arc::new(NoObserver)),
            executors: vec![Arc::new(ChanceTool(Arc::clone(&life)))],
            isolation: IsolationPolicy::default(),
            envelope: ResourceEnvelope::default(),
            offerings: Arc::new(NothingOffered),
            clock: Arc::clone(&clock),
            entropy: Arc::clone(&entropy) as _,
            observer: Arc::new(NoObserver),
            redactor: Arc::new(ports::redactor::WithholdingRedactor),
        };
        let options = KernelOptions { jobs: Some(Arc::clone(&wire) as _), ..KernelOptions::default() };
        let kernel = Arc::new(Kernel::new(parts, options));
        let settings = JobsSettings { alone: false, poll: POLL, ..JobsSettings::default() };
        let queue = JobQueue::new(JobQueueParts { store: wire, clock, entropy, settings });
        // A store that fails at the start is tried again, as whoever starts the server would.
        let jobs = loop {
            let (kernel, queue) = (Arc::clone(&kernel), Arc::clone(&queue));
            match Jobs::open(JobsParts { kernel, queue, handlers: Vec::new(), webhooks: None }).await {
                Ok(jobs) => break jobs,
                Err(_) => world.clock.sleep(Duration::from_millis(100)).await,
            }
        };
        let process = Self { life, kernel, jobs };
        process.keep();
        process
    }

    fn keep(&self) {
        let (living, settling) = (Arc::clone(&self.kernel), Arc::clone(&self.kernel));
        let clock = Arc::clone(&self.life.world.clock);
        tokio::spawn(async move { living.books().keep_alive().await });
        tokio::spawn(async move {
            loop {
                // What fails now is looked for again.
                let _ = settling.recover().await;
                clock.sleep(RECOVER_EVERY).await;
            }
        });
        tokio::spawn(Workers::new(Arc::clone(&self.jobs)).run(self.life.dead.clone()));
    }

    /// Publishes the tools, once in a history.
    pub(crate) async fn publish(&self) {
        // The one that others name first.
        for (tool, policy) in TOOLS.into_iter().rev() {
            let mut manifest = json!({
                "tool_id": tool, "version": "1.0.0", "name": tool, "description": "Does one thing, by chance.",
                "provider": "Test", "protocol": "custom", "side_effect_policy": policy, "timeout_class": "standard",
                "side_effects": [{ "resource": "r", "op": "CREATE", "scope": "s" }], "idempotency": {},
                "parameters": { "type": "object", "properties": { "number": { "type": "integer" } }, "required": ["number"] },
                "result_schema": { "type": "object" }, "execution": { "type": "builtin", "handler": tool },
            });
            if policy == "compensatable" {
                manifest["compensation_tool_id"] = json!("set_it");
            }
            self.kernel.publish(admin(), manifest).await.unwrap();
        }
    }

    fn arrival(act: Act, background: bool) -> IncomingCall<'static> {
        let request = json!({ "tool_id": act.tool, "parameters": { "number": act.number },
            "execution_options": { "idempotency_key": format!("{}-{}", act.tool, act.number), "async_mode": background } });
        IncomingCall {
            credential: Some(BearerSecret(ADMIN)),
            source: None,
            request: serde_json::from_value(request).unwrap(),
            trace: None,
            parent_left: None,
            audience: None,
            cancellation: CancellationToken::new(),
        }
    }

    /// Makes the call; nothing if the process dies over it.
    pub(crate) async fn call(&self, act: Act) -> Option<Result<Returned, Box<FailedCall>>> {
        let (kernel, dead) = (Arc::clone(&self.kernel), self.life.dead.clone());
        // Carried to its end, also when the caller has gone away, as the doors do.
        let mut carried = tokio::spawn(async move { kernel.invoke(Self::arrival(act, false)).await });
        tokio::select! {
            biased;
            () = dead.cancelled() => None,
            answer = &mut carried => answer.ok(),
        }
    }

    /// Submits the call as a job.
    pub(crate) async fn submit(&self, act: Act) -> Option<Result<AcceptedCall, Box<FailedCall>>> {
        tokio::select! {
            biased;
            () = self.life.dead.cancelled() => None,
            answer = self.jobs.submit(Self::arrival(act, true)) => Some(answer),
        }
    }
}
