//! What the end of a sandbox means: memory, processes, disk, crash, or the tool's own failure, told apart (EXEC-012).

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use ports::executor::{ExecutionReach, ExecutorError, ResourceUsage, ToolCall};
use sandbox::oci::ContainerError;
use sandbox::{BuildStep, SandboxEnd, SpawnError, StepFailure};

use super::output::ProcessExit;

/// The program did not start, or nobody can say whether it did.
pub(super) fn not_started(call: &ToolCall, error: &ContainerError) -> ExecutorError {
    ExecutorError::new(why_not_started(call, error), reach_of_start(error))
}

/// Can a program have begun of which the sandbox says this?
fn reach_of_start(error: &ContainerError) -> ExecutionReach {
    match error {
        ContainerError::Unusable(_) => ExecutionReach::NotSent,
        ContainerError::Spawn(error) => match error {
            SpawnError::Step(_) | SpawnError::Unusable(_) => ExecutionReach::NotSent,
            SpawnError::NoLauncher(_) | SpawnError::NotOrdered(_) => ExecutionReach::NotSent,
            // The order was given, and whoever was to carry it out does not answer.
            SpawnError::LauncherDied | SpawnError::System(_) => ExecutionReach::MayHaveRun,
        },
    }
}

/// What is said about a call if memory ran out meanwhile: that ends whatever the tool was at, also if something of it could
/// still say how it went. What was never told of the call has not begun with it.
pub(super) fn reach_under(end: &SandboxEnd, said: ExecutionReach) -> ExecutionReach {
    match said {
        ExecutionReach::NotSent => said,
        _ if end.usage.oom_kills > 0 => ExecutionReach::MayHaveRun,
        _ => said,
    }
}

fn why_not_started(call: &ToolCall, error: &ContainerError) -> Refusal {
    let error = match error {
        ContainerError::Spawn(error) => error,
        ContainerError::Unusable(unusable) => {
            tracing::error!(tool = %call.tool.id, invocation = %call.invocation_id, %unusable, reason = %unusable.reason, "the tool was not started");
            return Refusal::new(ErrorCode::E3405, unusable.to_string())
                .hint("`gantry doctor` says which isolation this machine offers and what is missing")
                .retryable(false);
        }
    };
    match error {
        SpawnError::Step(failure) => {
            tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, detail = %failure.detail, "the tool was not started");
            failed_step(call, failure)
        }
        SpawnError::Unusable(_) => {
            tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, "the tool was not started");
            Refusal::new(ErrorCode::E3405, format!("what the tool is to be started with cannot be handed over: {error}"))
                .hint("shorten `execution.command` and `execution.env`, declare fewer paths, or hand large values over as files in the tool's folder: all of it together, credentials included, may have about 100 KiB")
                .retryable(false)
        }
        SpawnError::LauncherDied | SpawnError::NoLauncher(_) | SpawnError::NotOrdered(_) | SpawnError::System(_) => {
            tracing::error!(tool = %call.tool.id, invocation = %call.invocation_id, error = ?error, "the tool was not started");
            // It may have begun: what has effects must not be repeated blindly.
            Refusal::new(ErrorCode::E3405, error.to_string())
                .hint("look at the server's log; `gantry doctor` says what this machine offers")
                .retryable(call.tool.manifest.side_effect_policy.is_safe_to_retry())
        }
    }
}

fn failed_step(call: &ToolCall, failure: &StepFailure) -> Refusal {
    match failure.step {
        // The tool's own fault: its command names nothing that can run.
        BuildStep::Program => Refusal::new(ErrorCode::E3401, "the tool's program could not be started")
            .hint(match failure.errno {
                libc_errno::ENOENT => "`execution.command` names a program, or a script an interpreter, that is neither installed in /usr nor in the tool's folder",
                libc_errno::E2BIG => "an argument or a variable of `execution.env` is longer than the system takes (128 KiB): hand it over as a file in the tool's folder",
                libc_errno::EACCES => "the file that `execution.command` names is not executable: `chmod +x` it",
                _ => "check that `execution.command` names a program that is installed or stands in the tool's folder",
            })
            .retryable(false),
        BuildStep::WorkingDirectory => Refusal::new(ErrorCode::E3405, "the tool's folder cannot be entered by the sandbox")
            .hint("make the folder readable for everybody (`chmod -R o+rX`): tools run as nobody")
            .retryable(false),
        BuildStep::Mount => {
            let permissions = call.tool.permissions().ok();
            let mut declared = permissions.into_iter().flat_map(|all| all.read.iter().chain(&all.write));
            // What the system did not refuse is told behind the path.
            let names = |path: &str| failure.detail.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            let what = declared.find(|path| names(path));
            let what = what.map_or_else(|| "the tool's folder".to_owned(), |path| format!("`{path}`, which the tool declares,"));
            let why = match failure.errno {
                0 => "it is neither a file nor a directory".to_owned(),
                _ => failure.reason(),
            };
            Refusal::new(ErrorCode::E3405, format!("{what} cannot be given to it: {why}"))
                .hint(match failure.errno {
                    0 => "declare a regular file or a directory: pipes, sockets and devices lead to somebody, so they are given to no tool",
                    libc_errno::ELOOP => "a symbolic link stands in the path: declare where it leads",
                    _ => "let the operator make the path available on this server",
                })
                .retryable(false)
        }
        BuildStep::ControlGroup if failure.errno == libc_errno::ENOMEM => too_little_memory(call),
        _ => Refusal::new(
            ErrorCode::E3405,
            format!("the sandbox could not be made: {} failed: {}", failure.step.what(), failure.reason()),
        )
        .hint("`gantry doctor` says what this machine offers and what is missing"),
    }
}

/// Error numbers by their names; the same on every Linux.
mod libc_errno {
    pub(super) const ENOENT: i32 = 2;
    pub(super) const E2BIG: i32 = 7;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EACCES: i32 = 13;
    pub(super) const ELOOP: i32 = 40;
}

/// Why a program that did not end well did not, if a limit was the reason.
pub(super) fn limit_hit(call: &ToolCall, ended: &SandboxEnd) -> Option<Refusal> {
    if ended.usage.oom_kills > 0 {
        return Some(too_little_memory(call));
    }
    if ended.usage.cpu_overruns > 0 {
        let allowed = call.limits.cpu_millicores;
        return Some(
            Refusal::new(ErrorCode::E3407, format!("the tool could not be held to its {allowed} thousandths of a core"))
                .hint("a tool must not continue processes that were stopped; or run the server where it can use control groups: `gantry doctor` says how")
                .retryable(false),
        );
    }
    if ended.usage.pids_refused > 0 {
        return Some(
            Refusal::new(ErrorCode::E3407, "the tool started more processes and threads than it may")
                .hint("let the tool use fewer at once, or the operator raise `[sandbox] pids`")
                .retryable(false),
        );
    }
    if ended.scratch_full {
        return Some(
            Refusal::new(ErrorCode::E3407, "the tool filled its scratch space")
                .hint("raise `resource_limits.ephemeral_storage` (and `memory`: scratch lies there) in the manifest")
                .retryable(false),
        );
    }
    None
}

fn too_little_memory(call: &ToolCall) -> Refusal {
    let allowed = call.limits.memory_mb;
    Refusal::new(ErrorCode::E3403, format!("the tool needed more than the {allowed} MB of memory it may have"))
        .hint("raise `resource_limits.memory` in the manifest, or `memory_mb_limit` of the call, or give the tool less work")
        .retryable(false)
}

/// The end as the judgement of output knows it.
pub(super) fn exit(ended: &SandboxEnd) -> ProcessExit {
    match ended.exit {
        sandbox::ProgramExit::Code(code) => ProcessExit::Code(code),
        sandbox::ProgramExit::Signal(signal) => ProcessExit::Signal(signal),
        // Nobody here ended it: then the kernel did, with the first process of the sandbox.
        sandbox::ProgramExit::Ended => ProcessExit::Signal(9),
    }
}

pub(super) fn usage(used: sandbox::ProgramUsage) -> ResourceUsage {
    ResourceUsage {
        cpu_millicore_seconds: millis(used.cpu),
        memory_peak_mb: used.memory_peak_bytes.div_ceil(1 << 20),
        ..ResourceUsage::default()
    }
}

/// A thousandth of a core for a second is a millisecond of one core.
pub(super) fn millis(cpu: Duration) -> u64 {
    u64::saturating_from(cpu.as_millis())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_start_that_failed_says_whether_the_program_can_have_begun() {
        use ExecutionReach::{MayHaveRun, NotSent};
        let io = || io::Error::from(io::ErrorKind::BrokenPipe);
        let step = |step| SpawnError::Step(StepFailure { step, errno: libc_errno::ENOENT, detail: String::new() });
        for (error, reach) in [
            (step(BuildStep::Program), NotSent),
            (step(BuildStep::Mount), NotSent),
            (step(BuildStep::ControlGroup), NotSent),
            (SpawnError::Unusable("too large"), NotSent),
            (SpawnError::NoLauncher(io()), NotSent),
            (SpawnError::NotOrdered(io()), NotSent),
            (SpawnError::LauncherDied, MayHaveRun),
            (SpawnError::System(io()), MayHaveRun),
        ] {
            let error = ContainerError::Spawn(error);
            assert_eq!(reach_of_start(&error), reach, "{error:?}");
        }
    }

    #[test]
    fn memory_that_ran_out_leaves_open_what_was_done_whatever_was_said() {
        let end = |oom_kills| SandboxEnd {
            exit: sandbox::ProgramExit::Code(0),
            usage: sandbox::ProgramUsage { oom_kills, ..sandbox::ProgramUsage::default() },
            scratch_full: false,
        };
        for said in ExecutionReach::ALL {
            assert_eq!(reach_under(&end(0), said), said);
            let open = if said == ExecutionReach::NotSent { said } else { ExecutionReach::MayHaveRun };
            assert_eq!(reach_under(&end(1), said), open, "{said:?}");
        }
    }

    #[test]
    fn an_end_by_itself_is_an_answer_and_one_by_a_signal_is_none() {
        for (exit, reach) in [
            (ProcessExit::Code(0), ExecutionReach::Answered),
            (ProcessExit::Code(3), ExecutionReach::Answered),
            (ProcessExit::Signal(9), ExecutionReach::MayHaveRun),
        ] {
            assert_eq!(exit.reach(), reach, "{exit:?}");
        }
    }
}
