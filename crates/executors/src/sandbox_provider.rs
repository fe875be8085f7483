//! Which walls stand around a program: our own sandbox, or a container runtime inside it, by the isolation that is
//! demanded (EXEC-015, DESIGN §6.1).
//!
//! Invariants
//! - WALL-1: the demanded isolation or more is given, or the call is refused (E3405) with what is missing. `process` is
//!   our own sandbox for a program, and runc or crun (or gVisor where there is neither) for an image; `gvisor` is gVisor
//!   only; `microvm` is not to be had.

use std::path::PathBuf;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::Isolation;
use sandbox::oci::{ContainerError, ContainerRoot, OciRuntime, RuntimeKind};
use sandbox::{Sandbox, SandboxChild, SandboxSpec};

/// What this server can put around programs. Clones share it.
#[derive(Debug, Clone)]
pub struct SandboxProvider {
    sandbox: Sandbox,
    runsc: Option<OciRuntime>,
    /// Or crun, where there is no runc.
    runc: Option<OciRuntime>,
}

/// Runtimes in other places than the usual.
#[derive(Debug, Clone, Default)]
pub struct RuntimePrograms {
    pub runsc: Option<PathBuf>,
    pub runc: Option<PathBuf>,
}

/// A runtime, and what the program sees as its root.
#[derive(Debug, Clone)]
pub(crate) struct ContainerSetup {
    pub(crate) runtime: OciRuntime,
    pub(crate) root: ContainerRoot,
}

impl SandboxProvider {
    /// Looks for runtimes; starts none.
    pub fn new(sandbox: Sandbox, programs: RuntimePrograms) -> Self {
        let found = |kind, configured: Option<PathBuf>| match configured {
            Some(program) => Some(OciRuntime::at(kind, program)),
            None => OciRuntime::find(kind),
        };
        Self {
            sandbox,
            runsc: found(RuntimeKind::Runsc, programs.runsc),
            runc: found(RuntimeKind::Runc, programs.runc).or_else(|| OciRuntime::find(RuntimeKind::Crun)),
        }
    }

    /// Our own sandbox.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// gVisor, if it is installed.
    pub fn gvisor(&self) -> Option<&OciRuntime> {
        self.runsc.as_ref()
    }

    /// What stands around a program of the system; `None` is our own sandbox.
    pub(crate) fn around_program(&self, demand: Isolation) -> Result<Option<ContainerSetup>, Refusal> {
        match demand {
            Isolation::Builtin | Isolation::Process => Ok(None),
            Isolation::Gvisor => {
                let runtime = self.runsc.clone().ok_or_else(no_gvisor)?;
                Ok(Some(ContainerSetup { runtime, root: ContainerRoot::HostSystem }))
            }
            Isolation::Microvm => Err(no_microvm()),
        }
    }

    /// What runs an image.
    pub(crate) fn around_image(&self, demand: Isolation) -> Result<&OciRuntime, Refusal> {
        match demand {
            Isolation::Builtin | Isolation::Process => self.runc.as_ref().or(self.runsc.as_ref()).ok_or_else(|| {
                Refusal::new(ErrorCode::E3405, "no container runtime is installed on this server")
                    .hint("install runc or crun, or runsc (gVisor)")
                    .retryable(false)
            }),
            Isolation::Gvisor => self.runsc.as_ref().ok_or_else(no_gvisor),
            Isolation::Microvm => Err(no_microvm()),
        }
    }

    /// Starts a program behind the walls that were chosen for it.
    /// `begins` is told before anything does.
    pub(crate) async fn spawn(
        &self,
        spec: SandboxSpec,
        container: Option<&ContainerSetup>,
        begins: impl FnOnce() + Send,
    ) -> Result<SandboxChild, ContainerError> {
        match container {
            None => Ok(self.sandbox.spawn_noting(spec, begins).await?),
            Some(ContainerSetup { runtime, root }) => {
                runtime.spawn_noting(&self.sandbox, spec, root.clone(), begins).await
            }
        }
    }
}

fn no_gvisor() -> Refusal {
    Refusal::new(ErrorCode::E3405, "the isolation `gvisor` cannot be given: runsc is not installed on this server")
        .hint("install runsc (gVisor), or use a server that has it; less isolation than demanded is never given")
        .retryable(false)
}

fn no_microvm() -> Refusal {
    Refusal::new(
        ErrorCode::E3405,
        "the isolation `microvm` cannot be given: it needs KVM and a virtual machine monitor, which this server does not use",
    )
    .hint("use a server that has it; less isolation than demanded is never given")
    .retryable(false)
}
