//! Manifests and lifecycle records for the cases.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::time::Duration;

use contract::ids::TenantId;
use contract::manifest::{LifecycleState, Manifest};
use ports::clock::UnixMillis;
use ports::lifecycle::{Lifecycle, LifecycleNotice};
use ports::registry_store::StoredVersion;
use serde_json::json;

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
