//! Container runtimes (`runsc` for gVisor, `runc`, `crun`): the same [`SandboxSpec`] with other walls.
//!
//! ```text
//! launcher ── clone ──▶ first process: pid, mount, net, ipc, uts namespaces, our control group        (as ever)
//!                        │ builds the bundle in a tmpfs that only this mount namespace has
//!                        ├── runsc run ──▶ gofer, sentry ──▶ the program, 65534, no capability, read-only root
//!                        │ waits for the container to run, or reads in the runtime's log why it does not
//!                        └ waits, tells the end, leaves: runtime, sentry, gofer and program end with it
//! ```
//!
//! Why inside our own namespaces and not beside them: whatever a runtime leaves (state, mounts, a sentry whose parent
//! died) is gone with the first process; the limits of the group hold for the runtime and the program together; and a
//! killed server cleans up by being dead. Why a bundle that exists only there: own files are secrets and never reach a
//! disk, nothing has to be removed, and declared paths are opened by us without following symbolic links (ROOT-2)
//! before the runtime sees them under a name that nobody else can change.
//!
//! Invariants
//! - OCI-1: the policy of a `SandboxSpec` is carried by [`config`] whole, or the start is refused. There is no member of it that
//!   a runtime silently does without.
//! - OCI-2: a runtime is used only after it has once started and ended a program on this machine ([`OciRuntime::proved`]).
//! - OCI-3: what a runtime uses itself is counted as the program's. The limits of the group are those of the `SandboxSpec` and a
//!   named allowance ([`RuntimeKind::pids_allowance`], [`RuntimeKind::memory_allowance_bytes`]).
//!
//! As an ordinary user only `runsc` works (`--rootless`), and only without writable mounts: files made by 65534 inside
//! cannot be given to 65534 outside. That is refused, not worked around. `crun` wants a control group layout of one version;
//! in the view of it that a runtime has here, there is one.
//!
//! ```no_run
//! # async fn example(sandbox: gantry_sandbox::Sandbox) -> Result<(), gantry_sandbox::oci::ContainerError> {
//! use gantry_sandbox::{SandboxSpec, oci::{RuntimeKind, ContainerRoot, OciRuntime}};
//! let Some(gvisor) = OciRuntime::find(RuntimeKind::Runsc) else { return Ok(()) };
//! let mut child = gvisor.spawn(&sandbox, SandboxSpec::new(["python3", "main.py"]), ContainerRoot::HostSystem).await?;
//! println!("{:?}", child.wait().await.exit);
//! # Ok(()) }
//! ```
//!
//! Not here: images and their layers (`executors::oci`); building the bundle (`inside::bundle`).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::sync::OnceCell;

use crate::child::{ProgramExit, SandboxChild};
use crate::error::SpawnError;
use crate::sandbox::Sandbox;
use crate::spec::{SandboxLimits, SandboxSpec, WallBuilder};

pub mod config;
mod filter;
pub(crate) mod verdict;

/// Which runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RuntimeKind {
    /// gVisor: a kernel of its own between the program and the machine's.
    Runsc,
    /// Namespaces and seccomp, by the reference implementation.
    Runc,
    Crun,
}

/// What the program sees as its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerRoot {
    /// The system directories of the [`SandboxSpec`], as in a process sandbox.
    HostSystem,
    /// The directories in this one, read-only, but for `/proc`, `/sys`, `/dev`, `/tmp` and `/run`, which are ours.
    /// Nothing is ever written to it.
    Directory(PathBuf),
}

/// How gVisor catches system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GvisorPlatform {
    /// Releases since [`SYSTRAP_SINCE`].
    Systrap,
    Ptrace,
}

/// A runtime and a root: what the launcher has to know to build a container instead of a process sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciContainer {
    pub kind: RuntimeKind,
    pub program: PathBuf,
    /// Of gVisor only.
    pub platform: GvisorPlatform,
    pub root: ContainerRoot,
}

/// Why a runtime cannot be used on this machine. The reason is for operators: it may name paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` cannot be used on this machine", .kind.name())]
pub struct UnusableRuntime {
    pub kind: RuntimeKind,
    /// What the runtime or the system said.
    pub reason: String,
}

/// Why [`OciRuntime::spawn`] gave no child.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// It never works here.
    #[error(transparent)]
    Unusable(#[from] UnusableRuntime),
    /// This one did not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// An installed runtime. Cheap to clone; all clones share what was found out about it.
#[derive(Debug, Clone)]
pub struct OciRuntime {
    kind: RuntimeKind,
    program: PathBuf,
    proof: Arc<OnceCell<RuntimeProof>>,
}

/// What is known of a runtime that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeProof {
    /// In its own words, for example `release-20221219.0`.
    pub version: String,
    pub platform: GvisorPlatform,
}

/// Where runtimes are looked for.
pub const RUNTIME_DIRS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/gvisor/bin"];

/// The first gVisor release (a date) that has the platform `systrap` as its default. Older ones know only `ptrace` and
/// `kvm`; `ptrace` was given up later.
pub const SYSTRAP_SINCE: u32 = 20_230_501;

/// Longest time the proof of a runtime may take. A loaded machine starts gVisor in a second or two.
const PROOF_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of `--version` that are looked at.
const VERSION_BYTES_MAX: u64 = 4096;
/// CPU for the proof, in thousandths of a core: it is ours and should be quick.
const PROOF_MILLICORES: u64 = 2000;

// -------------------------------------------------------------------------------------------------------------- Kind

impl RuntimeKind {
    /// The name of its program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runsc => "runsc",
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }

    /// Processes and threads of the runtime itself, added to [`SandboxLimits::pids`] for the group: a runtime written in Go has
    /// a dozen threads per process, and gVisor has three processes, and one per address space of the program besides.
    pub const fn pids_allowance(self) -> u32 {
        match self {
            Self::Runsc => 192,
            Self::Runc => 48,
            Self::Crun => 8,
        }
    }

    /// Memory of the runtime itself, added to [`SandboxLimits::memory_bytes`] for the group: gVisor's three processes have some
    /// 65 MB at rest, and `runc` copies itself into memory before it starts anything.
    pub const fn memory_allowance_bytes(self) -> u64 {
        match self {
            Self::Runsc => 96 << 20,
            Self::Runc => 32 << 20,
            Self::Crun => 8 << 20,
        }
    }
}

/// OCI-3: what the control group of a sandbox is to allow.
pub(crate) fn group_limits(spec: &SandboxSpec) -> SandboxLimits {
    match &spec.confinement {
        WallBuilder::Full => spec.limits,
        WallBuilder::Runtime(container) => SandboxLimits {
            memory_bytes: spec.limits.memory_bytes.saturating_add(container.kind.memory_allowance_bytes()),
            pids: spec.limits.pids.saturating_add(container.kind.pids_allowance()),
            ..spec.limits
        },
    }
}

// ----------------------------------------------------------------------------------------------------------- Runtime

impl OciRuntime {
    /// The one that is installed, if one is. Does not start it.
    pub fn find(kind: RuntimeKind) -> Option<Self> {
        let candidates = RUNTIME_DIRS.iter().map(|dir| Path::new(dir).join(kind.name()));
        let program = candidates
            .into_iter()
            .find(|path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())?;
        Some(Self::at(kind, program))
    }

    /// One that is configured.
    pub fn at(kind: RuntimeKind, program: impl Into<PathBuf>) -> Self {
        Self { kind, program: program.into(), proof: Arc::default() }
    }

    pub fn kind(&self) -> RuntimeKind {
        self.kind
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// OCI-2: its version, once it has run a program to the end here; why it does not, otherwise.
    ///
    /// That it works is found out once, by whoever asks first, and remembered. That it does not is found out again by the
    /// next who asks: the reason may be a busy machine.
    pub async fn proved(&self, sandbox: &Sandbox) -> Result<&RuntimeProof, UnusableRuntime> {
        self.proof
            .get_or_try_init(|| async {
                tokio::time::timeout(PROOF_TIME_MAX, self.prove(sandbox))
                    .await
                    .unwrap_or_else(|_| Err(format!("it did not start a program within {PROOF_TIME_MAX:?}")))
            })
            .await
            .map_err(|reason| UnusableRuntime { kind: self.kind, reason })
    }

    /// Starts a program in a container of its own. As [`Sandbox::spawn`]: comes back when it runs, or with the step that
    /// failed.
    pub async fn spawn(
        &self,
        sandbox: &Sandbox,
        spec: SandboxSpec,
        root: ContainerRoot,
    ) -> Result<SandboxChild, ContainerError> {
        self.spawn_noting(sandbox, spec, root, || {}).await
    }

    /// The same, as [`Sandbox::spawn_noting`].
    pub async fn spawn_noting(
        &self,
        sandbox: &Sandbox,
        spec: SandboxSpec,
        root: ContainerRoot,
        begins: impl FnOnce() + Send,
    ) -> Result<SandboxChild, ContainerError> {
        let platform = self.proved(sandbox).await?.platform;
        Ok(sandbox.spawn_noting(self.around(spec, platform, root), begins).await?)
    }

    fn around(&self, spec: SandboxSpec, platform: GvisorPlatform, root: ContainerRoot) -> SandboxSpec {
        let container = OciContainer { kind: self.kind, program: self.program.clone(), platform, root };
        SandboxSpec { confinement: WallBuilder::Runtime(container), ..spec }
    }

    async fn prove(&self, sandbox: &Sandbox) -> Result<RuntimeProof, String> {
        let version = self.version().await?;
        let platform = platform_of(&version);
        let mut trial = SandboxSpec::new(["true"]);
        trial.limits.cpu_millicores = PROOF_MILLICORES;
        let mut child = sandbox
            .spawn(self.around(trial, platform, ContainerRoot::HostSystem))
            .await
            .map_err(|error| in_full(&error))?;
        match child.wait().await.exit {
            ProgramExit::Code(0) => Ok(RuntimeProof { version, platform }),
            other => Err(format!("a program that does nothing ended with {other:?}")),
        }
    }

    /// What it calls itself. Asked without a sandbox: it is trusted with our own rights a moment later, and gVisor does
    /// not even tell its version without a `/proc` of the machine's.
    async fn version(&self) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("it cannot be started: {error}");
        let mut process = tokio::process::Command::new(&self.program)
            .arg("--version")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let mut said = Vec::new();
        if let Some(stdout) = process.stdout.take() {
            stdout.take(VERSION_BYTES_MAX).read_to_end(&mut said).await.map_err(failed)?;
        }
        let status = process.wait().await.map_err(failed)?;
        let said = String::from_utf8_lossy(&said);
        let version =
            said.lines().next().and_then(|line| line.split_once("version ")).map(|(_, version)| version.trim());
        version.map(str::to_owned).ok_or_else(|| format!("it does not tell its version ({status})"))
    }
}

/// With what is for operators.
fn in_full(error: &SpawnError) -> String {
    match error {
        SpawnError::Step(failure) if !failure.detail.is_empty() => format!("{error} ({})", failure.detail),
        other => other.to_string(),
    }
}

/// A gVisor version contains its date; one that does not was built by hand, and is probably new.
fn platform_of(version: &str) -> GvisorPlatform {
    let date = version.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8);
    match date.and_then(|digits| digits.parse::<u32>().ok()) {
        Some(date) if date < SYSTRAP_SINCE => GvisorPlatform::Ptrace,
        _ => GvisorPlatform::Systrap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_in_a_version_decides_how_system_calls_are_caught() {
        for (version, platform) in [
            ("0.0~20221219.0", GvisorPlatform::Ptrace),
            ("release-20230417.0", GvisorPlatform::Ptrace),
            ("release-20230501.0", GvisorPlatform::Systrap),
            ("release-20260105.0-12-gdeadbeef", GvisorPlatform::Systrap),
            ("VERSION_MISSING", GvisorPlatform::Systrap),
        ] {
            assert_eq!(platform_of(version), platform, "{version}");
        }
    }

    #[test]
    fn a_group_allows_what_the_specification_does_and_the_allowance() {
        let runtime = OciRuntime::at(RuntimeKind::Runsc, "/usr/bin/runsc");
        let plain = SandboxSpec::new(["true"]);
        assert_eq!(group_limits(&plain), plain.limits);
        let contained = runtime.around(plain.clone(), GvisorPlatform::Ptrace, ContainerRoot::HostSystem);
        let limits = group_limits(&contained);
        assert_eq!(limits.pids, plain.limits.pids + RuntimeKind::Runsc.pids_allowance());
        assert_eq!(limits.memory_bytes, plain.limits.memory_bytes + RuntimeKind::Runsc.memory_allowance_bytes());
        assert_eq!(limits.cpu_millicores, plain.limits.cpu_millicores);
    }
}
