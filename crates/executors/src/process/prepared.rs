//! Everything one call of a process tool needs, worked out before anything is started.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use ports::executor::ToolCall;
use ports::secret_source::SecretValue;
use sandbox::egress::EgressGate;
use sandbox::{DirectPlaces, MountAccess, OwnFile, PROXY_PORT, SandboxNetwork, SandboxSpec};

use super::scrub::SecretScrubber;
use super::{PYTHON_PACKAGES, PYTHON_PATH, tool_dir};
use crate::confinement::ToolConfinement;
use crate::sandbox_provider::ContainerSetup;

/// Where declared credentials lie inside, one file each.
const SECRETS_DIR: &str = "/run/secrets";
/// The variables by which programs find a proxy.
const PROXY_VARIABLES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// A sandbox to be, and what goes with it.
#[derive(Debug)]
pub(crate) struct PreparedSandbox {
    pub(crate) spec: SandboxSpec,
    pub(crate) gate: Option<Arc<EgressGate>>,
    pub(crate) scrubber: Arc<SecretScrubber>,
    /// The runtime around it, if our own sandbox is not enough or not meant.
    pub(crate) container: Option<ContainerSetup>,
}

impl PreparedSandbox {
    /// What the manifest declares, for a program that is nowhere yet: [`in_folder`](Self::in_folder), or in an image.
    pub(crate) async fn for_call(
        confinement: &ToolConfinement,
        call: &ToolCall,
        command: &[String],
        env: &BTreeMap<String, String>,
    ) -> Result<Self, Refusal> {
        let permissions = call.tool.permissions()?;
        let mut spec = SandboxSpec::new(command.iter().cloned());
        spec.system = confinement.system();
        spec.mounts = confinement.mounts(permissions)?;
        spec.limits = confinement.limits(call);

        let gate = confinement.gate(call, permissions)?;
        if let Some(gate) = &gate {
            open_network(&mut spec, gate.policy().direct_places());
        }

        let secrets = confinement.secrets(call, permissions).await?;
        if !secrets.is_empty() {
            lay_out_secrets(&mut spec, secrets.iter());
        }
        spec.env.extend(env.iter().map(|(name, value)| (name.clone(), value.clone())));
        Ok(Self { spec, gate, scrubber: Arc::new(secrets.scrubber()), container: None })
    }

    /// The program stands in the tool's folder, or in the system.
    pub(crate) async fn in_folder(
        mut self,
        confinement: &ToolConfinement,
        call: &ToolCall,
        home: &Path,
    ) -> Result<Self, Refusal> {
        for system in &self.spec.system {
            confinement.without_private(system, "a system directory")?;
        }
        // Links in the way to the folder are the operator's; a mount follows none.
        let home = tokio::fs::canonicalize(home).await.map_err(|error| no_folder(call, error))?;
        confinement.without_private(&home, "the tool's folder")?;
        let has_packages = tokio::fs::metadata(home.join(PYTHON_PACKAGES)).await.is_ok_and(|found| found.is_dir());
        if has_packages {
            let inside = tool_dir().join(PYTHON_PACKAGES).display().to_string();
            self.spec.env.entry(PYTHON_PATH.to_owned()).or_insert(inside);
        }
        self.spec = self.spec.mount(home, tool_dir(), MountAccess::Read);
        self.spec.cwd = tool_dir().to_owned();
        Ok(self)
    }

    /// Behind the walls of a container runtime.
    pub(crate) fn behind(mut self, container: Option<ContainerSetup>) -> Self {
        self.container = container;
        self
    }

    /// A digest of all that the process is made from: another one must not serve in its place.
    pub(super) fn digest(&self) -> Result<Digest, Refusal> {
        let container = self.container.as_ref().map(|container| format!("{container:?}"));
        serde_json::to_vec(&(&self.spec, container))
            .map(|bytes| Digest::of_bytes(&bytes))
            .map_err(|_| Refusal::new(ErrorCode::E3405, "the sandbox of the tool cannot be described").retryable(false))
    }
}

/// A network whose only way out is the gate's proxy, and how programs find it: by the variables, or by opening connections as if
/// there were none.
pub(crate) fn open_network(spec: &mut SandboxSpec, direct: DirectPlaces) {
    spec.network = SandboxNetwork::Proxied;
    spec.direct = direct;
    // Never SOCKS, though it is spoken there: httpx refuses to start if a variable names it and its extra package is missing.
    let address = format!("http://127.0.0.1:{PROXY_PORT}");
    spec.env.extend(PROXY_VARIABLES.map(|name| (name.to_owned(), address.clone())));
    // Node looks at the variables above only if it is told to.
    spec.env.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
}

/// Declared credentials as files, and how programs find them.
pub(crate) fn lay_out_secrets<'s>(spec: &mut SandboxSpec, secrets: impl Iterator<Item = (&'s str, &'s SecretValue)>) {
    spec.env.insert("GANTRY_SECRETS_DIR".to_owned(), SECRETS_DIR.to_owned());
    spec.files.extend(
        secrets.map(|(name, secret)| OwnFile {
            path: Path::new(SECRETS_DIR).join(name),
            contents: secret.expose().to_vec(),
        }),
    );
}

fn no_folder(call: &ToolCall, error: std::io::Error) -> Refusal {
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, error = &error as &dyn std::error::Error, "the tool's folder cannot be found");
    Refusal::new(ErrorCode::E3405, "the tool's folder cannot be found any more")
        .hint("let the operator bring the folder back, or unload the tool")
        .caused_by(error)
        .retryable(false)
}
