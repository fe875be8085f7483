//! The second process of a sandbox: made ahead of time, stripped of everything, and then the program.
//!
//! It gives up its identity and its capabilities and takes the system call filter on before there is an order, because all
//! that takes longer than the start of a small program. From then on it can do no more than the program could. When the
//! order comes, it needs Landlock, which depends on what is declared, its working directory and its streams; then it is
//! the program.
//!
//! Invariants
//! - PROGRAM-1: what can fail is told before the program runs; that the line closes without a word means that it runs.
//! - PROGRAM-2: nothing of the launcher or the first process is left in the program: all other descriptors close with
//!   `execve`, and files of its own (secrets) never come here.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::seccomp::FilterProgram as Filter;
use super::{identity, landlock, limits};
use crate::error::{BuildStep, StepFailure};
use crate::spec::SandboxSpec;
use crate::system::{self, CloneSide};
use crate::wire::{self, LaunchOrder, MESSAGE_BYTES_MAX};

/// Longest word of a second process: why it failed.
const WORD_BYTES_MAX: usize = 4096;

/// A second process that has no order yet, as the first one sees it.
pub(super) struct Waiting {
    line: OwnedFd,
    pid: i32,
    /// The user namespace it has made, if it was root.
    user: Option<OwnedFd>,
}

/// What a second process needs to get ready.
pub(super) struct Second<'f> {
    pub(super) filter: &'f Filter,
    /// Bounds that no control group keeps.
    pub(super) limits_by_process: bool,
    /// It is root, and has to give that up.
    pub(super) privileged: bool,
}

impl Second<'_> {
    /// Makes a second process and waits until it is ready. The working directory is the new root. `proc` is the machine's.
    pub(super) fn prepare(&self, proc: OwnedFd) -> Result<Waiting, StepFailure> {
        let (line, theirs) = wire::pair().map_err(|error| StepFailure::new(BuildStep::Program, error, "a socket"))?;
        match system::clone(0, None).map_err(|error| StepFailure::new(BuildStep::Program, error, "making a process"))? {
            CloneSide::Child => {
                drop(line);
                self.live(&theirs, proc)
            }
            CloneSide::Parent { pid, pidfd } => {
                drop((theirs, pidfd, proc));
                match hear(&line)? {
                    Some(Ok(())) => {}
                    Some(Err(failure)) => return Err(failure),
                    None => return Err(StepFailure::refused(BuildStep::Program, "the program's process died")),
                }
                let user = self.privileged.then(|| namespace_of(pid)).transpose()?;
                Ok(Waiting { line, pid, user })
            }
        }
    }

    // ------------------------------------------------------------------------------------------ in the second process

    fn live(&self, line: &OwnedFd, proc: OwnedFd) -> ! {
        // A name is for people who look at processes, and nothing depends on it.
        let _ = rustix::thread::set_name(c"gantry-waiting");
        let stripped = self.strip(proc);
        let failed = stripped.is_err();
        if wire::send(line.as_fd(), &stripped, &[]).is_err() || failed {
            system::leave(127);
        }
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (spec, streams) = loop {
            match wire::receive::<LaunchOrder>(line, &mut buffer) {
                Ok(Some((order, fds))) => break (order.spec, fds),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => system::leave(0),
            }
        };
        drop(buffer);
        let failure = match self.ready(&spec, streams) {
            Ok(execution) => execution.go(BuildStep::Program),
            Err(failure) => failure,
        };
        // Without a first process there is nobody to tell, and this one is about to be ended with it.
        let _ = wire::send(line.as_fd(), &ProgramReport::Err(failure), &[]);
        system::leave(127)
    }

    /// Everything that needs no order.
    fn strip(&self, proc: OwnedFd) -> ProgramReport {
        if self.privileged {
            identity::become_nobody(proc.as_fd())?;
        }
        drop(proc);
        identity::drop_privileges()?;
        // Until it is the program nobody looks into it; `execve` opens it again.
        identity::close_to_others()
            .map_err(|error| StepFailure::new(BuildStep::Privileges, error, "closing itself"))?;
        system::forget_signals();
        self.filter.apply()
    }

    /// Everything that does.
    fn ready(&self, spec: &SandboxSpec, streams: Vec<OwnedFd>) -> Result<Execution, StepFailure> {
        take_streams(streams)?;
        limits(u64::from(spec.limits.open_files), spec, self.limits_by_process)?;
        rustix::process::chdir(&spec.cwd)
            .map_err(|error| StepFailure::new(BuildStep::WorkingDirectory, error, spec.cwd.display().to_string()))?;
        let execution = Execution::of(&spec.command, &spec.env)?;
        landlock::apply(spec)?;
        Ok(execution)
    }
}

impl Waiting {
    /// The user namespace it has made, if it was root.
    pub(super) fn user_namespace(&self) -> Option<BorrowedFd<'_>> {
        self.user.as_ref().map(|fd| fd.as_fd())
    }

    /// Lets it become the program, and waits until it is one. Gives its process number.
    pub(super) fn start(self, spec: SandboxSpec, streams: &[OwnedFd; 3]) -> Result<i32, StepFailure> {
        let order = LaunchOrder { spec: SandboxSpec { files: Vec::new(), ..spec } };
        wire::send(self.line.as_fd(), &order, &streams.each_ref().map(|fd| fd.as_fd()))
            .map_err(|error| StepFailure::new(BuildStep::Program, error, "telling the program's process"))?;
        match hear(&self.line)? {
            // PROGRAM-1.
            None => Ok(self.pid),
            Some(Ok(())) => Err(StepFailure::refused(BuildStep::Program, "the program's process is confused")),
            Some(Err(failure)) => Err(failure),
        }
    }
}

type ProgramReport = Result<(), StepFailure>;

fn hear(line: &OwnedFd) -> Result<Option<ProgramReport>, StepFailure> {
    let mut buffer = [0; WORD_BYTES_MAX];
    loop {
        return match wire::receive::<ProgramReport>(line, &mut buffer) {
            Ok(word) => Ok(word.map(|(told, _)| told)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // It died with our word unread.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(StepFailure::new(BuildStep::Program, error, "hearing the program's process")),
        };
    }
}

fn namespace_of(pid: i32) -> Result<OwnedFd, StepFailure> {
    // Of the sandbox's own /proc, in which it has this number.
    rustix::fs::open(format!("proc/{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| StepFailure::new(BuildStep::Identity, error, "finding the user namespace"))
}

fn take_streams(streams: Vec<OwnedFd>) -> Result<(), StepFailure> {
    let [stdin, stdout, stderr] = <[OwnedFd; 3]>::try_from(streams)
        .map_err(|_| StepFailure::refused(BuildStep::Program, "the program has no streams"))?;
    rustix::stdio::dup2_stdin(&stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(&stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(&stderr))
        .map_err(|error| StepFailure::new(BuildStep::Program, error, "its streams"))
}

/// What `execve` is given.
pub(super) struct Execution {
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Execution {
    pub(super) fn of(command: &[String], env: &BTreeMap<String, String>) -> Result<Self, StepFailure> {
        let text =
            |text: String| CString::new(text).map_err(|_| StepFailure::refused(BuildStep::Program, "a zero byte"));
        let name = command.first().ok_or_else(|| StepFailure::refused(BuildStep::Program, "no program is named"))?;
        let candidates = if name.contains('/') {
            vec![PathBuf::from(name)]
        } else {
            let path = env.get("PATH").map_or(crate::spec::PATH, String::as_str);
            path.split(':').map(|dir| Path::new(dir).join(name)).collect()
        };
        Ok(Self {
            candidates: candidates
                .into_iter()
                .map(|path| text(path.display().to_string()))
                .collect::<Result<_, _>>()?,
            arguments: command.iter().map(|argument| text(argument.clone())).collect::<Result<_, _>>()?,
            environment: env.iter().map(|(name, value)| text(format!("{name}={value}"))).collect::<Result<_, _>>()?,
        })
    }

    /// Never comes back, unless it failed.
    pub(super) fn go(self, step: BuildStep) -> StepFailure {
        let mut error = std::io::Error::from_raw_os_error(libc::ENOENT);
        for program in &self.candidates {
            match system::execute(program, &self.arguments, &self.environment) {
                missing if missing.raw_os_error() == Some(libc::ENOENT) => {}
                other => error = other,
            }
        }
        let name = self.arguments.first().map(|name| name.to_string_lossy().into_owned());
        StepFailure::new(step, error, name.unwrap_or_default())
    }
}
