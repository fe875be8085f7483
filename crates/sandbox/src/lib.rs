//! Linux isolation of a program nobody trusts: namespaces, a root of its own, seccomp, Landlock, control groups,
//! accounting. Usable on its own.
//!
//! ```no_run
//! # async fn example() -> Result<(), gantry_sandbox::SpawnError> {
//! use gantry_sandbox::{MountAccess, LauncherCommand, Sandbox, SandboxSpec};
//! // `main` calls `gantry_sandbox::serve_launcher()` when its first argument is `launcher`.
//! let sandbox = Sandbox::new(LauncherCommand::own_executable("launcher"), 16);
//! let spec = SandboxSpec::new(["python3", "main.py"]).mount("/srv/tools/stats", "/tool", MountAccess::Read);
//! let mut child = sandbox.spawn(spec).await?;
//! let ended = child.wait().await;
//! println!("{:?} after {:?} of CPU", ended.exit, ended.usage.cpu);
//! # Ok(()) }
//! ```
//!
//! [`SandboxSpec`] says what the program may have, [`Sandbox::spawn`] gives a [`SandboxChild`], and [`offers`] says what this machine
//! can do and what is missing. What is demanded is given or refused; it is never quietly made less.

mod cgroup;
pub mod child;
pub mod egress;
pub mod error;
mod inside;
mod launcher;
pub mod oci;
pub mod offer;
mod process_tree;
pub mod sandbox;
pub mod spec;
mod system;
mod wire;

pub use child::{ProgramExit, ProgramUsage, SandboxChild, SandboxEnd};
pub use error::{BuildStep, SpawnError, StepFailure};
pub use launcher::serve_launcher;
pub use offer::{CONTROL_GROUPS, MechanismOffer, MechanismState, offers};
pub use sandbox::{LauncherCommand, SANDBOXES_MAX, Sandbox};
pub use spec::{
    DirectPlaces, MountAccess, OwnFile, PATH, PROXY_PORT, SYSTEM, SandboxLimits, SandboxMount, SandboxNetwork,
    SandboxSpec, WallBuilder,
};
