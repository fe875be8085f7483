//! WASM tools: real components in real folders, called as the kernel calls them.
//!
//! Components come from three places: written here as text ([`text`]), a probe that is built from Rust and tries things
//! ([`probe`], source in `testdata/wasm/probe`), and the examples of the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation, Manifest, ManifestFormat, ResourceLimits, SideEffectPolicy};
use gantry_executors::{OperatorReach, ToolConfinement, ToolDirectories, WasmConfig, WasmExecutor};
use ports::executor::{Executor, ToolOutput};
use ports::secret_source::{SecretError, SecretSource, SecretValue};
use ports::tool_version::ToolVersion;
use sandbox::egress::SystemResolver;
use serde_json::{Value, json};

use crate::calls::{call, version_of, version_of_tenant};

mod checkpoints;
mod load;
mod outgoing_requests;
mod probe;
mod text;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tools");

/// An executor and the folders it looks into.
struct WasmHarness {
    homes: ToolDirectories,
    executor: WasmExecutor,
}

/// Has one secret, for the home tenant.
#[derive(Debug)]
struct OneSecret;

#[async_trait]
impl SecretSource for OneSecret {
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError> {
        let known = tenant.is_home() && name == "api_key";
        known.then(|| SecretValue::new("\"hunter2\"")).flatten().ok_or(SecretError::Missing)
    }
}

impl WasmHarness {
    fn new(config: WasmConfig) -> Self {
        Self::within(OperatorReach::default(), config)
    }

    fn within(reach: OperatorReach, config: WasmConfig) -> Self {
        let homes = ToolDirectories::default();
        let confinement = ToolConfinement::new(reach, Arc::new(OneSecret), Arc::new(SystemResolver));
        let executor = WasmExecutor::open(config, homes.clone(), confinement).unwrap();
        Self { homes, executor }
    }

    /// A tool whose component is this file of this folder.
    fn tool(&self, folder: &Path, component: &str, permissions: &[String]) -> Arc<ToolVersion> {
        // Folders are kept by id and version, so each tool of a test has a version of its own.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut manifest = example("slug");
        manifest.version = format!("1.0.{}", NUMBER.fetch_add(1, Ordering::Relaxed)).parse().unwrap();
        manifest.execution = Some(Execution::Wasm { component: component.into(), env: BTreeMap::new() });
        manifest.required_permissions = permissions.to_vec();
        if permissions.iter().any(|permission| permission.starts_with("filesystem:write:")) {
            // A tool that may write is not pure.
            manifest.side_effect_policy = SideEffectPolicy::Idempotent;
        }
        manifest.resource_limits = Some(ResourceLimits { memory: "32Mi".into(), ..ResourceLimits::default() });
        let tool = version_of(manifest);
        self.homes.set(&tool.id, &tool.version, tool.digest, folder.to_owned());
        tool
    }

    async fn call(&self, tool: &Arc<ToolVersion>, parameters: Value) -> Result<ToolOutput, Refusal> {
        self.executor.execute(call(tool, parameters)).await.map_err(|error| error.refusal)
    }
}

/// One engine for all tests that do not look at the engine: components are compiled once.
static HARNESS: LazyLock<WasmHarness> = LazyLock::new(|| WasmHarness::new(WasmConfig::default()));

fn example(name: &str) -> Manifest {
    let text = std::fs::read_to_string(Path::new(EXAMPLES).join(name).join("tool.toml")).unwrap();
    Manifest::read(&text, ManifestFormat::Toml).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn the_javascript_example_makes_slugs() {
    let tool = version_of(example("slug"));
    HARNESS.homes.set(&tool.id, &tool.version, tool.digest, Path::new(EXAMPLES).join("slug"));
    HARNESS.executor.ready(&tool, tool.manifest.execution.as_ref().unwrap(), Isolation::Process).unwrap();
    // The first call may have to wait for the compiler, which this test does not measure.
    HARNESS.executor.load(&Path::new(EXAMPLES).join("slug"), "slug.wasm").await.unwrap();
    let output = HARNESS.call(&tool, json!({ "text": "Crème brûlée, twice!" })).await.unwrap();
    assert_eq!(output.value, json!({ "slug": "creme-brulee-twice" }));
    assert!(output.usage.memory_peak_mb > 0);
    let short = HARNESS.call(&tool, json!({ "text": "Crème brûlée, twice!", "length_max": 6 })).await.unwrap();
    assert_eq!(short.value, json!({ "slug": "creme" }));
    let refusal = HARNESS.call(&tool, json!({ "text": "…" })).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3301, "{refusal}");
    assert!(refusal.message.contains("no letter or digit"), "{}", refusal.message);
}

#[tokio::test]
async fn the_rust_example_reads_what_it_declares() {
    let (folder, data) = (Path::new(EXAMPLES).join("checksum"), tempfile::tempdir().unwrap());
    std::fs::write(data.path().join("file"), "123456789").unwrap();
    let path = data.path().to_str().unwrap();
    let tool = HARNESS.tool(&folder, "checksum.wasm", &[format!("filesystem:read:{path}")]);
    let output = HARNESS.call(&tool, json!({ "path": format!("{path}/file") })).await.unwrap();
    assert_eq!(output.value, json!({ "crc32": "cbf43926", "bytes": 9 }));
    let refusal = HARNESS.call(&tool, json!({ "path": "/etc/passwd" })).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3401);
    assert!(!format!("{refusal:?}").contains("passwd"), "what a tool says on stderr is not for callers");
    assert_eq!(example("checksum").required_permissions, ["filesystem:read:/usr/share/doc"]);
}

#[tokio::test]
async fn another_tenants_tool_of_the_same_name_does_not_run_what_is_in_the_folder() {
    let ours = HARNESS.tool(&Path::new(EXAMPLES).join("checksum"), "checksum.wasm", &[]);
    let theirs = version_of_tenant("acme".parse().unwrap(), (*ours.manifest).clone());
    assert_eq!((&ours.id, &ours.version), (&theirs.id, &theirs.version));
    assert_eq!(HARNESS.call(&theirs, json!({})).await.unwrap_err().code, ErrorCode::E3108);
    let binding = theirs.manifest.execution.as_ref().unwrap();
    assert_eq!(HARNESS.executor.ready(&theirs, binding, Isolation::Process).unwrap_err().code, ErrorCode::E3108);
    let refusal = HARNESS.executor.ready(&ours, binding, Isolation::Gvisor).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3405, "less isolation than demanded is never given");
    HARNESS.homes.forget(&ours.id, &ours.version);
    assert_eq!(HARNESS.call(&ours, json!({})).await.unwrap_err().code, ErrorCode::E3108);
}
