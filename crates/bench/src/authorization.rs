//! The whole of authorization in a kernel with nothing around it: token recognised, tool found, arguments validated,
//! activation, policies. The token and the decision are remembered, as they are for every call but the first.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use async_trait::async_trait;
use contract::envelope::InvokeRequest;
use contract::error::Refusal;
use contract::ids::TraceId;
use kernel::registry::Registry;
use kernel::{
    AccessControl, AccessParts, AccessSettings, ActivationWish, Identity, IdentitySettings, IncomingCall,
    IsolationPolicy, Kernel, KernelOptions, KernelParts, LedgerService, Recorder, ResourceEnvelope, TokenIssuer,
};
use policy::{BearerSecret, PolicyOverrides, SigningKey, TokenMinter};
use ports::actor::Actor;
use ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::key_vault::{KeyVault, KeyVaultError};
use ports::observer::NoObserver;
use ports::offerings::NothingOffered;
use serde_json::{Value, json};
use shared_state::MemoryBus;
use store::memory::MemoryStore;
use tokio_util::sync::CancellationToken;

const ADMIN: &str = "bench-admin";

/// Median time of one authorization; `measure` times a closure.
pub(super) fn remembered(
    token: &str,
    call: &Value,
    schema: &Value,
    policies: String,
    now_ms: i64,
    measure: impl Fn(&mut dyn FnMut()) -> f64,
) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let kernel = runtime.block_on(built(schema, policies, now_ms))?;
    let request: InvokeRequest = serde_json::from_value(call.clone())?;
    let explain = || {
        let credential = Some(BearerSecret(token));
        let arrival = IncomingCall {
            credential,
            source: None,
            request: request.clone(),
            trace: None,
            parent_left: None,
            audience: None,
            cancellation: CancellationToken::new(),
        };
        runtime.block_on(kernel.explain(arrival))
    };
    let first = explain().map_err(|refusal| said(&refusal))?;
    ensure!(first.refusal.is_none(), "the typical call is refused: {:?}", first.refusal);
    ensure!(first.policies == ["reports"], "not the policy that was meant: {:?}", first.policies);
    Ok(measure(&mut || drop(explain())))
}

async fn built(schema: &Value, policies: String, now_ms: i64) -> Result<Kernel> {
    let clock: Arc<dyn Clock> = Arc::new(Still(now_ms));
    let store = Arc::new(MemoryStore::new());
    let registry =
        Registry::open(Arc::clone(&store) as _, Arc::clone(&store) as _, Arc::clone(&clock), Arc::new(NoObserver))
            .await?;
    let books = LedgerService::new(Arc::clone(&store) as _, Arc::clone(&clock), &Nobody, Arc::new(NoObserver));
    let access = AccessControl::open(AccessParts {
        store,
        bus: Arc::new(MemoryBus::default()),
        engine: None,
        did_resolver: None,
        clock: Arc::clone(&clock),
        observer: Arc::new(NoObserver),
        settings: AccessSettings::default(),
    })
    .await?;
    let key = SigningKey::from_seed(&[7; 32]);
    let identity = Identity::new(
        ADMIN,
        vec![key.verifying_key()],
        IdentitySettings::local(Arc::clone(&clock)),
        Arc::new(NoObserver),
    )?;
    let (recorder, _writer) = Recorder::start(Arc::new(Nobody), Arc::clone(&clock), Arc::new(NoObserver));
    let parts = KernelParts {
        registry,
        identity,
        access,
        mint: TokenIssuer::new(key, TokenMinter::default(), Arc::new(Nobody)),
        recorder,
        books,
        executors: vec![Arc::new(executors::BuiltinExecutor::new(Arc::clone(&clock), None))],
        isolation: IsolationPolicy::default(),
        envelope: ResourceEnvelope::default(),
        offerings: Arc::new(NothingOffered),
        clock,
        entropy: Arc::new(Nobody),
        observer: Arc::new(NoObserver),
        redactor: Arc::new(ports::redactor::WithholdingRedactor),
    };
    let kernel = Kernel::new(parts, KernelOptions::default());
    let admin = Actor { credential: Some(BearerSecret(ADMIN)), source: None, trace_id: TraceId::from_bytes([1; 16]) };
    let manifest = json!({
        "tool_id": "send_report", "namespace": "demo", "version": "1.2.3", "name": "Send report",
        "description": "Sends a report.", "provider": "Bench", "protocol": "native", "side_effect_policy": "pure",
        "timeout_class": "standard", "parameters": schema, "result_schema": { "type": "object" },
        "required_permissions": ["network:https://api.example.com"],
        "execution": { "type": "builtin", "handler": "none" },
    });
    kernel.publish(admin, manifest).await.map_err(|refusal| said(&refusal))?;
    let activation = ActivationWish {
        tenant: None,
        agent: Some("bench-agent".parse()?),
        tool: "demo.*".parse()?,
        enabled: true,
        overrides: PolicyOverrides::default(),
        replaces: kernel::ReplacedActivation::default(),
    };
    kernel.put_activations(admin, vec![activation]).await.map_err(|refusal| said(&refusal))?;
    kernel.put_policies(admin, None, policies).await.map_err(|refusal| said(&refusal))?;
    Ok(kernel)
}

fn said(refusal: &Refusal) -> anyhow::Error {
    anyhow!("{}: {}", refusal.code, refusal.message)
}

/// Time stands still.
#[derive(Debug)]
struct Still(i64);

impl Clock for Still {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0)
    }
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

/// Hears everything and keeps nothing.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl AuditSink for Nobody {
    async fn write(&self, _: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        Ok(())
    }
}

#[async_trait]
impl KeyVault for Nobody {
    async fn replace(&self, _: &SigningKey) -> Result<(), KeyVaultError> {
        Ok(())
    }
}

impl Entropy for Nobody {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}
