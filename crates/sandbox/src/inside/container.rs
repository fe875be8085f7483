//! The program of a first process that is a container runtime: it runs with the machine's root and identity, because it
//! builds the walls itself.
//!
//! Nothing but the namespaces is prepared ahead of time: what a runtime is told depends on the order throughout.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::Signal;

use super::program::Execution;
use super::{Ready, Started, bundle, fixed_limits, limits, network_sockets, root};
use crate::error::{BuildStep, StepFailure};
use crate::spec::{SandboxSpec, WallBuilder};
use crate::system::{self, CloneSide};

/// Descriptors of a runtime itself: it holds some for the program's. The program's own limit is in its configuration.
const RUNTIME_OPEN_FILES: u64 = 4096;

/// Before the order.
pub(super) fn wait(proc: OwnedFd) -> Result<Ready, StepFailure> {
    drop(proc);
    root::private_mounts()?;
    root::proc_for_runtime()?;
    Ok(Ready::Runtime)
}

/// Builds the bundle and lets the runtime run it.
pub(super) fn start(
    spec: &SandboxSpec,
    streams: [OwnedFd; 3],
    limits_by_process: bool,
    privileged: bool,
) -> Result<Started, StepFailure> {
    let WallBuilder::Runtime(container) = &spec.confinement else {
        return Err(StepFailure::refused(BuildStep::Runtime, "no runtime is named"));
    };
    let program = |error: rustix::io::Errno| StepFailure::new(BuildStep::Program, error, "its streams");
    let [stdin, stdout, stderr] = streams;
    rustix::stdio::dup2_stdin(&stdin).map_err(program)?;
    rustix::stdio::dup2_stdout(&stdout).map_err(program)?;
    rustix::stdio::dup2_stderr(&stderr).map_err(program)?;
    drop((stdin, stdout, stderr));
    let sockets = network_sockets(spec)?;
    fixed_limits()?;
    let open_files = u64::from(crate::oci::group_limits(spec).open_files).saturating_add(RUNTIME_OPEN_FILES);
    limits(open_files, spec, limits_by_process)?;
    let bundle = bundle::build(spec, container, !privileged, limits_by_process)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "in the first process"))?;
    // The directory of the program is the runtime's to enter.
    rustix::process::chdir(Path::new("/"))
        .map_err(|error| StepFailure::new(BuildStep::WorkingDirectory, error, "entering the root"))?;
    let execution = Execution::of(&bundle.command, &bundle.env)?;
    let main = run(execution)?;
    let ended = bundle.started(main)?;
    for stream in 0..3 {
        // The runtime has its own; what is held here would keep the pipes open.
        system::close(stream);
    }
    Ok(Started { main, sockets, bundle: Some(bundle), ended, mounts: None })
}

/// Starts the runtime and waits until it is one. Gives its process number.
fn run(execution: Execution) -> Result<i32, StepFailure> {
    let failed = |error: rustix::io::Errno| StepFailure::new(BuildStep::Program, error, "");
    let (told, tells) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
    match system::clone(0, None).map_err(|error| StepFailure::new(BuildStep::Program, error, "making a process"))? {
        CloneSide::Child => {
            drop(told);
            system::forget_signals();
            let failure = execution.go(BuildStep::Runtime);
            let text = serde_json::to_vec(&failure).unwrap_or_default();
            // If the parent is gone, so is whoever would be told; the status says that it failed.
            let _ = rustix::io::write(&tells, &text);
            system::leave(127)
        }
        CloneSide::Parent { pid, pidfd } => {
            drop((tells, pidfd));
            let mut text = vec![0; 4096];
            // Closed without a word by `execve`.
            let count = rustix::io::retry_on_intr(|| rustix::io::read(&told, &mut *text)).map_err(failed)?;
            match text.get(..count) {
                None | Some([]) => Ok(pid),
                Some(text) => Err(serde_json::from_slice(text)
                    .unwrap_or_else(|_| StepFailure::refused(BuildStep::Program, "the program's process died"))),
            }
        }
    }
}
