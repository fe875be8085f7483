//! What every test here needs: a clock that stands still, and calls of a manifest.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::canonical::Digest;
use contract::envelope::CallLimits;
use contract::manifest::{Execution, Isolation, Manifest};
use kernel::ResourceEnvelope;
use ports::clock::{Clock, UnixMillis};
use ports::executor::{CallTrace, ToolCall};
use ports::lifecycle::Lifecycle;
use ports::registry_store::StoredVersion;
use ports::tool_companion::SilentCompanion;
use ports::tool_version::ToolVersion;
use serde_json::Value;

/// Stands at 2026-03-01T12:30:45.678Z.
#[derive(Debug)]
pub(crate) struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_772_368_245_678)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sleep(&self, _span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

/// A published version of a manifest.
pub(crate) fn version_of(manifest: Manifest) -> Arc<ToolVersion> {
    version_of_tenant(contract::ids::TenantId::home(), manifest)
}

/// The same, published by somebody else.
pub(crate) fn version_of_tenant(tenant: contract::ids::TenantId, manifest: Manifest) -> Arc<ToolVersion> {
    Arc::new(ToolVersion::new(StoredVersion {
        tenant,
        tool: manifest.id().unwrap(),
        version: manifest.version.clone(),
        manifest,
        digest: Digest::of_bytes(b"test"),
        lifecycle: Lifecycle::default(),
        published_at: UnixMillis(0),
        published_by: "admin".parse().unwrap(),
    }))
}

/// A call with time enough.
pub(crate) fn call(tool: &Arc<ToolVersion>, parameters: Value) -> ToolCall {
    ToolCall {
        endpoint: 0,
        invocation_id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
        trace_id: contract::ids::TraceId::from_bytes([1; 16]),
        trace: CallTrace::unrecorded(contract::ids::TraceId::from_bytes([1; 16])),
        tool: Arc::clone(tool),
        parameters: Arc::new(parameters),
        tenant: "local".parse().unwrap(),
        subject: "admin".parse().unwrap(),
        user: None,
        agent: "admin".parse().unwrap(),
        // Time enough also for a component that is still being compiled, by an unoptimised compiler on a busy machine.
        time_left: Duration::from_secs(300),
        deadline: None,
        limits: ResourceEnvelope::default()
            .resolve(tool.manifest.resource_limits.as_ref(), &CallLimits::default())
            .unwrap(),
        isolation: tool.manifest.execution.as_ref().map_or_else(Isolation::default, Execution::isolation_asked),
        companion: SilentCompanion::new(),
        resume: None,
        dispatch: Arc::default(),
        usage_at_end: Arc::default(),
        program_log: Arc::default(),
        idempotency_key: "key-of-the-act".into(),
    }
}
