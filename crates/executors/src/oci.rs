//! A container image in the tool's own folder (`type = "oci"`), under gVisor or runc, speaking as a process
//! tool does (DESIGN §3).
//!
//! `image` names a folder beside the manifest: a root directory, a bundle (`config.json` and `rootfs/`), or an OCI image
//! layout (`oci-layout`, `index.json`, `blobs/`), optionally with `@sha256:…` to say which manifest. Nothing is ever
//! fetched: a reference to a registry is refused with what to do instead.
//!
//! Invariants
//! - CONT-1: of an image only files, and what to start, are used. Its user, capabilities, mounts and devices are not: the
//!   policy is ours.
//! - CONT-2: of the machine the tool has what its manifest declares, as a process tool would (`confinement`).
//!
//! Not here: which runtime (`walls`); the conversation (`process`); deadlines (the kernel drops the future, and the
//! container ends).

use std::path::PathBuf;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation, Manifest, ManifestError, ProcessProtocol};
use ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput};
use ports::tool_version::ToolVersion;
use sandbox::oci::ContainerRoot;

use self::image::{ImageCache, ImageError, ImageReference, OciImage};
use crate::confinement::ToolConfinement;
use crate::log_hint;
use crate::process::exchange;
use crate::process::prepared::PreparedSandbox;
use crate::sandbox_provider::{ContainerSetup, SandboxProvider};
use crate::tool_directories::ToolDirectories;

pub mod image;
mod layer;
mod layout;

/// Runs tools of type `oci`.
#[derive(Debug)]
pub struct OciExecutor {
    walls: SandboxProvider,
    homes: ToolDirectories,
    confinement: ToolConfinement,
    images: ImageCache,
}

impl OciExecutor {
    /// For the tools that live in these folders. `cache` is where unpacked images are kept; the server's own.
    pub fn new(walls: SandboxProvider, homes: ToolDirectories, confinement: ToolConfinement, cache: PathBuf) -> Self {
        Self { walls, homes, confinement, images: ImageCache::in_dir(cache) }
    }
}

#[async_trait]
impl Executor for OciExecutor {
    fn kind(&self) -> &'static str {
        "oci"
    }

    fn admits(&self, tenant: &TenantId, manifest: &Manifest) -> Result<(), ManifestError> {
        self.homes.admit(tenant, manifest)
    }

    fn saves(&self, manifest: &Manifest) -> bool {
        matches!(manifest.execution, Some(Execution::Oci { protocol: ProcessProtocol::Session, .. }))
    }

    fn ready(&self, tool: &ToolVersion, binding: &Execution, demand: Isolation) -> Result<(), Refusal> {
        let Execution::Oci { image, .. } = binding else { return Err(unbound()) };
        self.walls.around_image(demand)?;
        ImageReference::parse(image).map_err(|error| unusable_image(&error))?;
        let permissions = tool.permissions()?;
        permissions.read.iter().chain(&permissions.write).try_for_each(|path| self.confinement.admitted(path))?;
        self.homes.of(tool).map(drop)
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        call.dispatch.hold();
        call.program_log.leave(String::new);
        let (protocol, prepared) = self.prepared(&call).await.map_err(ExecutorError::not_sent)?;
        let ended = match protocol {
            ProcessProtocol::Simple => exchange::simply(&self.walls, &call, prepared).await,
            ProcessProtocol::Session => exchange::in_session(&self.walls, &call, prepared, None).await,
        };
        ended.map_err(log_hint::naming(&call.tool.id))
    }
}

impl OciExecutor {
    /// Everything up to the start of the container.
    async fn prepared(&self, call: &ToolCall) -> Result<(ProcessProtocol, PreparedSandbox), Refusal> {
        let Some(Execution::Oci { image, command, protocol, env, .. }) = &call.tool.manifest.execution else {
            return Err(unbound());
        };
        let runtime = self.walls.around_image(call.isolation)?.clone();
        let reference = ImageReference::parse(image).map_err(|error| unusable_image(&error))?;
        let home = self.homes.of(&call.tool)?;
        let image = self.images.open(&home, &reference).await.map_err(|error| {
            tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, cause = ?error, "the tool's image cannot be used");
            unusable_image(&error)
        })?;
        let command = command_of(command, &image)?;
        // The image's own words first: the manifest's and ours go over them.
        let mut prepared = PreparedSandbox::for_call(&self.confinement, call, command, env).await?;
        for (name, value) in &image.env {
            prepared.spec.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        prepared.spec.system.clear();
        prepared.spec.cwd = image.cwd.clone();
        let prepared =
            prepared.behind(Some(ContainerSetup { runtime, root: ContainerRoot::Directory(image.root.clone()) }));
        Ok((*protocol, prepared))
    }
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a container image").retryable(false)
}

fn command_of<'c>(command: &'c [String], image: &'c OciImage) -> Result<&'c [String], Refusal> {
    let command = if command.is_empty() { &image.command } else { command };
    if command.first().is_none_or(String::is_empty) {
        return Err(Refusal::new(ErrorCode::E3401, "neither the manifest nor the image says what to start")
            .hint("name a program in `execution.command`")
            .retryable(false));
    }
    Ok(command)
}

fn unusable_image(error: &ImageError) -> Refusal {
    let refusal = Refusal::new(ErrorCode::E3405, error.to_string()).retryable(false);
    match error {
        ImageError::Registry => refusal.hint(
            "put the image into the tool's folder, for example with `skopeo copy docker://… oci:DIR`, and name that folder",
        ),
        _ => refusal.hint("`image` names a folder beside the manifest: a root directory, a bundle or an OCI image layout"),
    }
}
