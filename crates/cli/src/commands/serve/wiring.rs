//! Putting the rooms of the house together: which adapter stands behind which port.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::TenantId;
use executors::{BuiltinExecutor, ModelClient, ProcessExecutor, ProcessPolicy};
use kernel::ports::clock::Clock;
use kernel::ports::entropy::{Entropy, new_trace_id};
use kernel::ports::executor::Executor;
use kernel::ports::observer::Observer;
use kernel::ports::registry_store::RegistryStore;
use kernel::ports::tool_search::ToolSearch;
use kernel::registry::Registry;
use kernel::{Actor, Identity, Kernel, KernelParts, Recorder, RecorderHandle};
use policy::{Authenticator, BearerSecret, SigningKey};
use store::sqlite::{Options, SqliteStore};
use telemetry::Metrics;

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::machine::{OsEntropy, SystemClock};
use crate::tool_folders::loading::Loader;

/// What the kernel is built from.
pub(super) struct House {
    pub(super) store: Arc<SqliteStore>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<SystemClock>,
    entropy: Arc<OsEntropy>,
    admin_token: String,
    /// Where the signing key is read again, because it is not `Clone`.
    signing_pem: String,
    audit_dir: PathBuf,
}

/// Opens everything on disk, or says what is wrong. Makes keys at the first start.
pub(super) fn build(context: &Context, config: &Config) -> Result<House, Failure> {
    let data_dir = context.data_dir();
    data_dir.create()?;
    let entropy = OsEntropy::open()?;
    let store = SqliteStore::open(&config.store.file(data_dir.path()), &Options::default())
        .map_err(|error| Failure::new(error.to_string()))?;
    let admin = data_dir.admin_token_or_new(&entropy)?;
    let key = data_dir.signing_key_or_new(&entropy)?;
    for warning in [admin.warning, key.warning].into_iter().flatten() {
        tracing::warn!("{warning}");
    }
    Ok(House {
        store: Arc::new(store),
        metrics: Arc::new(Metrics::new()),
        clock: Arc::new(SystemClock::start()),
        entropy: Arc::new(entropy),
        admin_token: admin.value,
        signing_pem: key.value.to_pem().map_err(|error| Failure::new(error.to_string()))?,
        audit_dir: config.audit.dir(data_dir.path()),
    })
}

impl House {
    /// Builds the kernel on it, and what loads tools into the kernel.
    pub(super) async fn open(&self, config: &Config) -> Result<(Arc<Kernel>, RecorderHandle, Loader), Failure> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let observer = Arc::clone(&self.metrics) as Arc<dyn Observer>;
        let log = audit::FileLog::open(&self.audit_dir).map_err(|error| Failure::new(error.to_string()))?;
        let (recorder, handle) = Recorder::start(Arc::new(log), Arc::clone(&clock), Arc::clone(&observer));
        let registry = Registry::open(
            Arc::clone(&self.store) as Arc<dyn RegistryStore>,
            Arc::clone(&self.store) as Arc<dyn ToolSearch>,
            Arc::clone(&clock),
            Arc::clone(&observer),
        )
        .await
        .map_err(|error| Failure::new(error.to_string()).hint("`gantry doctor` looks at the data directory"))?;
        let processes = Arc::new(ProcessExecutor::new(if config.process.unsandboxed {
            ProcessPolicy::Unsandboxed
        } else {
            ProcessPolicy::Refuse
        }));
        let kernel = Arc::new(Kernel::new(KernelParts {
            registry,
            identity: self.identity()?,
            signing_key: self.signing_key()?,
            recorder,
            executors: executors(config, &clock, &processes)?,
            clock,
            entropy: Arc::clone(&self.entropy) as Arc<dyn Entropy>,
            observer,
        }));
        let loader = Loader {
            kernel: Arc::clone(&kernel),
            processes,
            admin_token: self.admin_token.clone(),
            dirs: config.tools.dirs.clone(),
            homes: HashMap::new(),
            said: HashMap::new(),
        };
        Ok((kernel, handle, loader))
    }

    fn identity(&self) -> Result<Identity, Failure> {
        let authenticator = Authenticator::new(&self.admin_token, vec![self.signing_key()?.verifying_key()])
            .map_err(|error| Failure::new(error.to_string()))?;
        Ok(Identity::new(authenticator))
    }

    fn signing_key(&self) -> Result<SigningKey, Failure> {
        SigningKey::from_pem(&self.signing_pem).map_err(|error| Failure::new(error.to_string()))
    }
}

fn executors(
    config: &Config,
    clock: &Arc<dyn Clock>,
    processes: &Arc<ProcessExecutor>,
) -> Result<Vec<Arc<dyn Executor>>, Failure> {
    let model = match &config.model {
        Some(model) => ModelClient::from_config(model).map_err(|error| Failure::new(error.to_string()))?,
        None => None,
    };
    let builtin = BuiltinExecutor::new(Arc::clone(clock), model);
    Ok(vec![Arc::new(builtin), Arc::clone(processes) as Arc<dyn Executor>])
}

/// Publishes the built-in tools that are not there yet; answers how many there are.
pub(super) async fn register_builtins(kernel: &Kernel, house: &House) -> Result<usize, Failure> {
    let manifests =
        executors::builtin::manifests().map_err(|error| Failure::new(format!("built-in tools: {error}")))?;
    for manifest in &manifests {
        let known = manifest.id().ok().and_then(|id| {
            let snapshot = kernel.registry().snapshot();
            snapshot.tool(&TenantId::home(), &id)?.version(&manifest.version).map(|version| version.digest)
        });
        if known == Some(manifest.digest()) {
            continue;
        }
        let actor =
            Actor { credential: Some(BearerSecret(&house.admin_token)), trace_id: new_trace_id(kernel.entropy()) };
        let document = serde_json::to_value(manifest).unwrap_or_default();
        match kernel.publish(actor, document).await {
            Ok(_) => {}
            // After an upgrade that forgot to raise a version: published versions never change, so the old one stays.
            Err(refusal) if refusal.code == ErrorCode::E3103 => tracing::warn!(
                tool = manifest.tool_id,
                version = %manifest.version,
                "this release has other content for a built-in tool that is already published under the same version; \
                 the published one stays in force",
            ),
            Err(refusal) => {
                return Err(
                    Failure::from(refusal).hint("the built-in tools could not be registered; see `gantry doctor`")
                );
            }
        }
    }
    Ok(manifests.len())
}
