//! A container image in the tool's own folder (`type = "oci"`), under gVisor or runc, in simple mode: parameters as JSON
//! on stdin, the result as JSON on stdout, a non-zero exit is an error, stderr is the log (DESIGN §3).
//!
//! `image` names a folder beside the manifest: a root directory, a bundle (`config.json` and `rootfs/`), or an OCI image
//! layout (`oci-layout`, `index.json`, `blobs/`), optionally with `@sha256:…` to say which manifest. Nothing is ever
//! fetched: a reference to a registry is refused with what to do instead.
//!
//! Invariants
//! - CONT-1: the demanded isolation or more is given, or the call is refused (E3405). `process` takes runc or crun, or
//!   gVisor where there is neither; `gvisor` takes gVisor only; `microvm` is not to be had.
//! - CONT-2: of an image only files, and what to start, are used. Its user, capabilities, mounts and devices are not: the
//!   policy is ours.
//! - CONT-3: the tool has nothing of the machine and no network; [`specification`] grants limits only.
//!
//! Not here: permissions of the manifest (`confinement`); deadlines (the kernel drops the future, and the container ends).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::json::{self, JsonLimits};
use contract::manifest::{Execution, Isolation};
use contract::version::Version;
use kernel::ports::executor::{Executor, ToolCall, ToolOutput, Usage};
use kernel::registry::ToolVersion;
use sandbox::oci::{ContainerError, Kind, Root, Runtime};
use sandbox::{Ended, Exit, Limits, Sandbox, SpawnError, Spec, Step};
use serde_json::Value;

use self::conversation::Said;
use self::image::{Image, ImageError, Images, Reference};

mod conversation;
pub mod image;
mod layer;
mod layout;

/// Bytes a tool may write to stdout (VALID-013).
pub const STDOUT_BYTES_MAX: usize = 1 << 20;

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct OciConfig {
    /// Where unpacked images are kept; the server's own.
    pub cache: PathBuf,
    /// Programs in other places than the usual.
    pub runsc: Option<PathBuf>,
    pub runc: Option<PathBuf>,
}

/// Runs tools of type `oci`.
#[derive(Debug)]
pub struct OciExecutor {
    sandbox: Sandbox,
    runsc: Option<Runtime>,
    /// Or crun, where there is no runc.
    runc: Option<Runtime>,
    images: Images,
    /// The folder of each loaded version, by id and written version.
    homes: RwLock<HashMap<(ToolId, String), PathBuf>>,
}

impl OciExecutor {
    /// Looks for runtimes; starts none.
    pub fn new(sandbox: Sandbox, config: OciConfig) -> Self {
        let found = |kind, configured: Option<PathBuf>| match configured {
            Some(program) => Some(Runtime::at(kind, program)),
            None => Runtime::find(kind),
        };
        Self {
            sandbox,
            runsc: found(Kind::Runsc, config.runsc),
            runc: found(Kind::Runc, config.runc).or_else(|| Runtime::find(Kind::Crun)),
            images: Images::in_dir(config.cache),
            homes: RwLock::default(),
        }
    }

    /// Says where a version's folder is; its image is looked for there.
    pub fn set_home(&self, tool: &ToolId, version: &Version, home: PathBuf) {
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        homes.insert((tool.clone(), version.to_string()), home);
    }

    /// Forgets a version's folder; calls that are running keep it.
    pub fn forget_home(&self, tool: &ToolId, version: &Version) {
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        homes.remove(&(tool.clone(), version.to_string()));
    }

    fn home(&self, tool: &ToolVersion) -> Result<PathBuf, Refusal> {
        let homes = self.homes.read().unwrap_or_else(PoisonError::into_inner);
        // Folders belong to the home tenant: another tenant's tool of the same name must not run what is in them.
        let home = homes.get(&(tool.id.clone(), tool.version.to_string())).filter(|_| tool.tenant.is_home());
        home.cloned().ok_or_else(|| {
            Refusal::new(ErrorCode::E3108, format!("the folder of `{}` {} is not loaded", tool.id, tool.version))
                .hint("start the server with `--tools DIR`, where DIR contains the tool's folder")
                .retryable(false)
        })
    }

    /// CONT-1.
    fn runtime(&self, isolation: Isolation) -> Result<&Runtime, Refusal> {
        let missing = |message: &str, hint: &str| Refusal::new(ErrorCode::E3405, message).hint(hint).retryable(false);
        match isolation {
            Isolation::Process => self.runc.as_ref().or(self.runsc.as_ref()).ok_or_else(|| {
                missing("no container runtime is installed on this server", "install runc or crun, or runsc (gVisor)")
            }),
            Isolation::Gvisor => self.runsc.as_ref().ok_or_else(|| {
                missing(
                    "the isolation `gvisor` is not to be had: runsc is not installed on this server",
                    "install runsc (gVisor)",
                )
            }),
            Isolation::Microvm => Err(missing(
                "the isolation `microvm` is not to be had: it needs KVM and a virtual machine monitor (Firecracker), which this server does not use",
                "use a server that has it; less isolation than demanded is never given",
            )),
        }
    }
}

#[async_trait]
impl Executor for OciExecutor {
    fn kind(&self) -> &'static str {
        "oci"
    }

    fn ready(&self, tool: &ToolVersion, binding: &Execution) -> Result<(), Refusal> {
        let Execution::Oci { image, isolation, .. } = binding else { return Err(unbound()) };
        self.runtime(*isolation)?;
        Reference::parse(image).map_err(|error| unusable_image(&error))?;
        self.home(tool).map(drop)
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let Some(Execution::Oci { image, command, isolation }) = &call.tool.manifest.execution else {
            return Err(unbound());
        };
        let runtime = self.runtime(*isolation)?;
        let reference = Reference::parse(image).map_err(|error| unusable_image(&error))?;
        let home = self.home(&call.tool)?;
        let image = self.images.open(&home, &reference).await.map_err(|error| {
            tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, cause = ?error, "the tool's image cannot be used");
            unusable_image(&error)
        })?;
        let spec = specification(&call, command, &image)?;
        let root = Root::Directory(image.root.clone());
        let child = runtime.spawn(&self.sandbox, spec, root).await.map_err(|error| not_started(&call, &error))?;
        let input = call.parameters.to_string().into_bytes();
        let (said, ended) = conversation::talk(child, input, STDOUT_BYTES_MAX).await.map_err(|error| {
            tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, "the tool was stopped");
            broken(&error)
        })?;
        log(&call, &said, &ended);
        Ok(ToolOutput { value: judged(&said, &ended)?, usage: usage(&ended) })
    }
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a container image").retryable(false)
}

/// CONT-3: the command and its limits. The tool's own rights are the sandbox's defaults: none.
fn specification(call: &ToolCall, command: &[String], image: &Image) -> Result<Spec, Refusal> {
    let command = if command.is_empty() { image.command.clone() } else { command.to_vec() };
    if command.first().is_none_or(String::is_empty) {
        return Err(Refusal::new(ErrorCode::E3401, "neither the manifest nor the image says what to start")
            .hint("name a program in `execution.command`")
            .retryable(false));
    }
    let mut spec = Spec::new(command);
    spec.env.extend(image.env.clone());
    spec.system.clear();
    spec.cwd = image.cwd.clone();
    spec.limits = limits(call);
    Ok(spec)
}

/// BC-1: what the manifest allows, and the caller at most lowers.
fn limits(call: &ToolCall) -> Limits {
    let declared = call.tool.manifest.resource_limits.clone().unwrap_or_default();
    let defaults = Limits::default();
    let lowered = |declared: Option<u64>, asked: Option<u32>, default: u64| {
        let declared = declared.unwrap_or(default);
        asked.map_or(declared, |asked| declared.min(u64::from(asked)))
    };
    let mebibytes = |count: u64| count.saturating_mul(1 << 20);
    Limits {
        cpu_millicores: lowered(declared.cpu_millicores(), call.limits.cpu_millicore_limit, defaults.cpu_millicores),
        memory_bytes: mebibytes(lowered(declared.memory_mb(), call.limits.memory_mb_limit, 512)),
        scratch_bytes: declared.ephemeral_storage_mb().map_or(defaults.scratch_bytes, mebibytes),
        ..defaults
    }
}

// ---------------------------------------------------------------------------------------------------------- verdicts

/// The result, or what the end of the container means.
fn judged(said: &Said, ended: &Ended) -> Result<Value, Refusal> {
    let log = "look at the server's log for what the tool wrote to stderr";
    if ended.exit != Exit::Code(0) {
        if ended.usage.oom_kills > 0 {
            return Err(Refusal::new(ErrorCode::E3403, "the tool used more memory than it may")
                .hint("raise `resource_limits.memory` in the manifest, or give the tool less to do"));
        }
        if ended.usage.pids_refused > 0 {
            return Err(Refusal::new(ErrorCode::E3407, "the tool started more processes than it may"));
        }
        if ended.scratch_full {
            return Err(Refusal::new(ErrorCode::E3407, "the tool filled its scratch space")
                .hint("raise `resource_limits.ephemeral_storage` in the manifest, or let the tool write less"));
        }
    }
    match ended.exit {
        Exit::Code(0) => {}
        Exit::Code(code) => {
            return Err(failed(format!("the tool failed with exit code {code}"))
                .details(serde_json::json!({ "exit_code": code })));
        }
        Exit::Signal(signal) => {
            return Err(Refusal::new(ErrorCode::E3404, format!("the tool was ended by signal {signal}")).hint(log));
        }
        Exit::Ended => return Err(Refusal::new(ErrorCode::E3404, "the tool's container ended unexpectedly").hint(log)),
    }
    if said.stdout.iter().all(u8::is_ascii_whitespace) {
        return Err(failed("the tool gave no result: it must write JSON to stdout"));
    }
    let limits = JsonLimits { bytes_max: STDOUT_BYTES_MAX, ..JsonLimits::default() };
    json::read(&said.stdout, &limits).map_err(|_| failed("the tool's result is not acceptable JSON"))
}

fn failed(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3401, message)
        .hint("look at the server's log for what the tool wrote to stderr")
        .retryable(false)
}

/// With the runtime's own use in it: what keeps a tool apart is part of what it costs.
fn usage(ended: &Ended) -> Usage {
    let cpu = u64::try_from(ended.usage.cpu.as_millis()).unwrap_or(u64::MAX);
    Usage {
        // A thousandth of a core for a second is a millisecond of a core.
        cpu_millicore_seconds: cpu,
        memory_peak_mb: ended.usage.memory_peak_bytes.div_ceil(1 << 20),
        ..Usage::default()
    }
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

fn not_started(call: &ToolCall, error: &ContainerError) -> Refusal {
    let (reason, step) = match error {
        ContainerError::Unusable(unusable) => (unusable.reason.as_str(), None),
        ContainerError::Spawn(SpawnError::Step(failure)) => (failure.detail.as_str(), Some(failure.step)),
        ContainerError::Spawn(_) => ("", None),
    };
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, reason, "the tool's container did not start");
    match step {
        Some(Step::Program | Step::WorkingDirectory) => {
            Refusal::new(ErrorCode::E3401, "the tool's program could not be started")
                .hint("check that `execution.command` names a program in the image that everybody may execute")
                .retryable(false)
        }
        _ => Refusal::new(ErrorCode::E3405, error.to_string())
            .hint("`gantry doctor` says which isolation this machine offers and what is missing"),
    }
}

fn broken(error: &conversation::Broken) -> Refusal {
    match error {
        conversation::Broken::TooMuchOutput { limit } => {
            Refusal::new(ErrorCode::E3407, format!("the tool's result is larger than {limit} bytes"))
                .hint("let the tool return less, for example a page or a reference")
        }
        conversation::Broken::Io(_) => Refusal::new(ErrorCode::E3404, "the connection to the tool broke"),
    }
}

/// The tool's own words are for the log of the operator, never for the caller.
fn log(call: &ToolCall, said: &Said, ended: &Ended) {
    let lines = said.last_lines();
    if ended.exit != Exit::Code(0) {
        tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, exit = ?ended.exit, stderr = %lines, "the tool failed");
    } else if !lines.is_empty() {
        tracing::debug!(tool = %call.tool.id, invocation = %call.invocation_id, stderr = %lines, "the tool wrote to its log");
    }
}
