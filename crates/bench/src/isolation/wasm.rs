//! Components of the repository: compiled once, loaded from the compiled cache, instantiated.
//!
//! A load is measured on copies of the file, each of which the executor has never seen while its compiled form is on
//! disk: what a restart finds. It includes reading the file and its digest. An instantiation is what every call pays.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use contract::error::Refusal;
use executors::{OperatorReach, ToolConfinement, ToolDirectories, WasmConfig, WasmExecutor};
use ports::secret_source::NoSecrets;
use sandbox::egress::SystemResolver;
use serde::Serialize;

use super::{Scale, Times};
use crate::repository;

/// Folder and file, the smallest first, and what each was written in.
const COMPONENTS: [(&str, &str, &str); 3] = [
    ("examples/tools/checksum", "checksum.wasm", "Rust"),
    ("testdata/wasm", "probe.wasm", "Rust"),
    ("examples/tools/slug", "slug.wasm", "JavaScript"),
];

/// What one component costs.
#[derive(Serialize)]
pub(super) struct Component {
    pub(super) name: &'static str,
    pub(super) language: &'static str,
    /// Which world it implements.
    pub(super) world: &'static str,
    pub(super) kib: u64,
    pub(super) compile_ms: f64,
    pub(super) load: Times,
    pub(super) instantiate: Times,
}

/// All components.
pub(super) async fn measure(scale: &Scale) -> Result<Vec<Component>> {
    let folder = tempfile::Builder::new().prefix("gantry-bench-").tempdir().context("no temporary folder")?;
    let cache = folder.path().join("cache");
    let config = WasmConfig { cache_dir: Some(cache.clone()), ..WasmConfig::default() };
    let confinement = ToolConfinement::new(OperatorReach::default(), Arc::new(NoSecrets), Arc::new(SystemResolver));
    let executor = WasmExecutor::open(config, ToolDirectories::default(), confinement)?;
    let mut table = Vec::new();
    for (home, name, language) in COMPONENTS {
        let source = repository::root().join(home);
        let kib = std::fs::metadata(source.join(name)).with_context(|| format!("`{name}` is missing"))?.len() >> 10;
        let (compiled, loaded) = load(&executor, &source, name).await?;
        ensure!(std::fs::read_dir(&cache)?.count() > table.len(), "what was compiled is not in the cache");
        let mut loads = Vec::with_capacity(scale.loads);
        for number in 0..scale.loads {
            let copy = folder.path().join(format!("{home}/{number}"));
            std::fs::create_dir_all(&copy)?;
            std::fs::copy(source.join(name), copy.join(name))?;
            loads.push(load(&executor, &copy, name).await?.0);
        }
        let mut instances = Vec::with_capacity(scale.instances);
        for _ in 0..scale.instances {
            let start = Instant::now();
            executor.instantiate(&loaded).await.map_err(|refusal| said(&refusal))?;
            instances.push(start.elapsed());
        }
        table.push(Component {
            name,
            language,
            world: loaded.world(),
            kib,
            compile_ms: compiled.as_secs_f64() * 1e3,
            load: Times::of(&loads)?,
            instantiate: Times::of(&instances)?,
        });
    }
    Ok(table)
}

async fn load(
    executor: &WasmExecutor,
    folder: &Path,
    name: &str,
) -> Result<(Duration, Arc<executors::wasm::LoadedComponent>)> {
    let start = Instant::now();
    let loaded = executor.load(folder, name).await.map_err(|refusal| said(&refusal))?;
    Ok((start.elapsed(), loaded))
}

fn said(refusal: &Refusal) -> anyhow::Error {
    anyhow!("{}: {}", refusal.code, refusal.message)
}
