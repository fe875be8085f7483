//! Manifests, lifecycle records, calls and jobs for the cases.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::time::Duration;

use contract::canonical;
use contract::ids::{InvocationId, TenantId, TraceId};
use contract::manifest::{LifecycleState, Manifest, SideEffectPolicy};
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::job_store::{JobKey, JobPriority, NewJob, QueueBounds};
use ports::ledger::{IdempotencyKey, Intent, OwnerId};
use ports::lifecycle::{Lifecycle, LifecycleNotice};
use ports::registry_store::StoredVersion;
use serde_json::json;
use uuid::Uuid;

/// When all samples are published.
const PUBLISHED_AT: UnixMillis = UnixMillis(1_790_000_000_123);

/// A small manifest; `tool` is the canonical id.
pub fn sample_manifest(tool: &str, version: &str, name: &str, description: &str) -> Manifest {
    let (namespace, local) = tool.split_once('.').map_or((None, tool), |(namespace, local)| (Some(namespace), local));
    let mut manifest = json!({
        "tool_id": local, "version": version, "name": name, "description": description,
        "provider": "Suite", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object", "properties": {} }, "result_schema": { "type": "object" },
    });
    if let (Some(namespace), Some(members)) = (namespace, manifest.as_object_mut()) {
        members.insert("namespace".to_owned(), json!(namespace));
    }
    serde_json::from_value(manifest).expect("the sample is a manifest")
}

/// The manifest as a version of the home tenant about to be published, active.
pub fn new_version(manifest: Manifest) -> StoredVersion {
    StoredVersion {
        tenant: TenantId::home(),
        tool: manifest.id().expect("the sample has an id"),
        version: manifest.version.clone(),
        digest: manifest.digest(),
        manifest,
        lifecycle: Lifecycle::default(),
        published_at: PUBLISHED_AT,
        published_by: "did:key:zSuite".parse().expect("the sample has a subject"),
    }
}

/// The same as a version of another tenant.
pub fn new_version_of(tenant: &str, manifest: Manifest) -> StoredVersion {
    StoredVersion { tenant: tenant.parse().expect("the sample has a tenant"), ..new_version(manifest) }
}

/// Deprecated with a whole notice.
pub fn deprecated() -> Lifecycle {
    let later = |days: u64| PUBLISHED_AT.plus(Duration::from_secs(days * 86_400));
    Lifecycle {
        recorded: LifecycleState::Deprecated,
        notice: Some(LifecycleNotice {
            deprecated_at: later(1),
            sunset_at: later(91),
            removal_at: later(181),
            successor: Some("demo.next_one".to_owned()),
            migration_guide: Some("https://example.com/guide?a=1&b=ü".to_owned()),
        }),
    }
}

/// Sunset, with the notice of [`deprecated`].
pub fn sunset() -> Lifecycle {
    Lifecycle { recorded: LifecycleState::Sunset, ..deprecated() }
}

/// Removed without ever having been deprecated.
pub fn removed() -> Lifecycle {
    Lifecycle { recorded: LifecycleState::Removed, notice: None }
}

/// A call of the tenant `acme` with effects, under the key if there is one, whose window is a minute.
pub fn sample_intent(number: u128, key: Option<&str>, owner: OwnerId) -> Intent {
    Intent {
        invocation: InvocationId(Uuid::from_u128(number)),
        trace: TraceId::from_bytes([7; 16]),
        tenant: "acme".parse().expect("the sample has a tenant"),
        caller: "did:key:z6Mk".parse().expect("the sample has a caller"),
        tool: "bank.transfer".parse().expect("the sample has a tool"),
        version: Version::parse("1.2.3").expect("the sample has a version"),
        effects: SideEffectPolicy::Compensatable,
        key: key.map(|key| IdempotencyKey { scope: "session".into(), key: key.into() }),
        parameters: canonical::digest(&json!({ "amount": 5 })),
        window: Duration::from_secs(60),
        owner,
        queued_act: None,
    }
}

/// A job of the tenant that waits at once, within wide bounds.
pub fn sample_job(tenant: &str, number: u128) -> NewJob {
    let payload = json!({ "number": number.to_string() });
    NewJob {
        key: JobKey {
            tenant: tenant.parse().expect("the sample has a tenant"),
            id: InvocationId(Uuid::from_u128(number)),
        },
        kind: "tool_call".into(),
        label: "demo.echo".into(),
        owner: "agent-1".parse().expect("the sample has an owner"),
        flow: "agent-1".into(),
        digest: canonical::digest(&payload),
        payload,
        priority: JobPriority::near(5),
        delay: Duration::ZERO,
        attempts_max: 3,
        dedupe: None,
        bounds: QueueBounds { per_flow: 1_000, per_tenant: 1_000, total: 10_000 },
        act: None,
    }
}
