//! Why a program could not be started, told precisely: which step, and what the system said.
//!
//! Messages name steps and system errors, never paths of the machine: they may reach a caller. What an operator needs
//! besides goes into the `detail`, which is for logs.

use serde::{Deserialize, Serialize};

/// The steps of building a sandbox, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildStep {
    /// The control group with its limits.
    ControlGroup,
    /// New namespaces.
    Namespaces,
    /// The mapping of identities in the user namespace.
    Identity,
    /// Loopback and its sockets.
    Network,
    /// A part of the machine's files that the program was to see.
    Mount,
    /// The root of the program's own.
    Root,
    /// Resource limits of the process.
    ResourceLimits,
    /// Dropping every privilege.
    Privileges,
    Landlock,
    Seccomp,
    /// Its working directory.
    WorkingDirectory,
    /// The container runtime, where one builds the walls.
    Runtime,
    /// Starting the program itself.
    Program,
}

impl BuildStep {
    /// Is it the same for every program, so that where it fails none can be started?
    pub(crate) fn is_of_machine(self) -> bool {
        match self {
            Self::ControlGroup
            | Self::Namespaces
            | Self::Identity
            | Self::Privileges
            | Self::Landlock
            | Self::Seccomp => true,
            Self::Network | Self::Mount | Self::Root | Self::ResourceLimits | Self::WorkingDirectory => false,
            Self::Runtime | Self::Program => false,
        }
    }

    /// What was being done, for a message.
    pub fn what(self) -> &'static str {
        match self {
            Self::ControlGroup => "making the control group",
            Self::Namespaces => "making namespaces",
            Self::Identity => "mapping the identity",
            Self::Network => "preparing the network namespace",
            Self::Mount => "mounting what the program may see",
            Self::Root => "building the root of the sandbox",
            Self::ResourceLimits => "setting resource limits",
            Self::Privileges => "dropping privileges",
            Self::Landlock => "applying Landlock",
            Self::Seccomp => "applying the system call filter",
            Self::WorkingDirectory => "entering the working directory",
            Self::Runtime => "starting the container runtime",
            Self::Program => "starting the program",
        }
    }
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    pub step: BuildStep,
    /// The system's error number; 0 if it was not the system that refused.
    pub errno: i32,
    /// For the log: which path, which controller.
    pub detail: String,
}

impl StepFailure {
    pub(crate) fn new(step: BuildStep, error: impl Into<std::io::Error>, detail: impl Into<String>) -> Self {
        Self { step, errno: error.into().raw_os_error().unwrap_or(0), detail: detail.into() }
    }

    pub(crate) fn refused(step: BuildStep, detail: impl Into<String>) -> Self {
        Self { step, errno: 0, detail: detail.into() }
    }

    /// What the system said.
    pub fn reason(&self) -> String {
        match self.errno {
            0 => "refused".to_owned(),
            errno => std::io::Error::from_raw_os_error(errno).to_string(),
        }
    }
}

/// Why [`Sandbox::spawn`](crate::Sandbox::spawn) gave no child.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A step of building the sandbox failed; the program did not run.
    #[error("{} failed: {}", .0.step.what(), .0.reason())]
    Step(StepFailure),
    /// The specification is larger than a message may be, or makes no sense.
    #[error("the specification of the sandbox cannot be used: {0}")]
    Unusable(&'static str),
    /// The launcher ended while it worked for us. The program may have begun, and was ended with it.
    #[error("the sandbox launcher ended unexpectedly")]
    LauncherDied,
    /// The launcher could not be started.
    #[error("the sandbox launcher cannot be started")]
    NoLauncher(#[source] std::io::Error),
    /// The launcher could not be given the order, so nothing has begun.
    #[error("the sandbox launcher could not be asked")]
    NotOrdered(#[source] std::io::Error),
    /// Descriptors or memory ran out on our side. The program may have begun, and was ended.
    #[error("the system refused what a child needs")]
    System(#[source] std::io::Error),
}
