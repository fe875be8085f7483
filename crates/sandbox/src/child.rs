//! A running sandbox as its owner sees it: three streams, a way to end it, and what it used.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use crate::egress::ProxySockets;
use crate::error::{BuildStep, SpawnError, StepFailure};
use crate::sandbox::LauncherLink;
use crate::system;
use crate::wire::{self, EndOfProgram, FreezeState, GroupUsage, LauncherMessage, LauncherRequest, MESSAGE_BYTES_MAX};

/// A program in its sandbox. Dropping it ends everything inside at once.
#[derive(Debug)]
pub struct SandboxChild {
    /// Taken by whoever talks to the program.
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
    /// The sockets on the program's own loopback, if it has a network.
    pub sockets: Option<ProxySockets>,
    line: Line,
    process: OwnedFd,
    ended: Option<EndOfProgram>,
    /// Whether it may stand still.
    frozen: bool,
    _held: ChildResources,
}

/// How often a sandbox that is to stand still is looked at, how often without a pause (asking takes as long as most need), and
/// the pause between two later looks.
const FREEZE_LOOKS_MAX: u32 = 24;
const FREEZE_LOOKS_AT_ONCE: u32 = 8;
const FREEZE_PAUSE: Duration = Duration::from_millis(1);

/// What a child keeps for as long as it lives: its place among those that may, and the launcher.
#[derive(Debug)]
pub(crate) struct ChildResources {
    pub(crate) _slot: Option<tokio::sync::OwnedSemaphorePermit>,
    pub(crate) _link: Arc<LauncherLink>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramExit {
    Code(i32),
    Signal(i32),
    /// It was ended before it could end by itself: by [`SandboxChild::kill`], or because its first process or the launcher died.
    Ended,
}

/// What a program used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramUsage {
    pub cpu: Duration,
    pub memory_peak_bytes: u64,
    /// Processes the kernel ended for want of memory.
    pub oom_kills: u64,
    /// Times that it was ended because it could not be held to its share of the processor.
    pub cpu_overruns: u64,
    /// Processes or threads it was not allowed to start.
    pub pids_refused: u64,
}

/// The end of a sandbox: no process of it is left, and what it used has been counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxEnd {
    pub exit: ProgramExit,
    pub usage: ProgramUsage,
    /// It had filled its scratch space.
    pub scratch_full: bool,
}

impl SandboxChild {
    pub(crate) async fn born(
        control: OwnedFd,
        [stdin, stdout, stderr]: [OwnedFd; 3],
        held: ChildResources,
    ) -> Result<Self, SpawnError> {
        let mut line = Line::new(control).map_err(SpawnError::System)?;
        let mut failure = None;
        let (process, sockets) = loop {
            match line.hear().await {
                Ok(Some((LauncherMessage::Started, fds))) => {
                    let mut fds = fds.into_iter();
                    // Without it the program could not be ended: closing the line ends it.
                    break (fds.next().ok_or(SpawnError::LauncherDied)?, fds);
                }
                // Not before it is gone: the caller may look at what is left.
                Ok(Some((LauncherMessage::Failed(step), _))) => failure = Some(step),
                Ok(Some((LauncherMessage::Gone { .. }, _))) => {
                    return Err(SpawnError::Step(failure.unwrap_or_else(died_on_the_way)));
                }
                Ok(Some((LauncherMessage::Usage(_) | LauncherMessage::Stillness(_), _))) => {}
                Ok(None) | Err(_) => return Err(failure.map_or(SpawnError::LauncherDied, SpawnError::Step)),
            }
        };
        // From here on dropping the child ends the process.
        let mut child = Self {
            stdin: Some(pipe::Sender::from_owned_fd(stdin).map_err(SpawnError::System)?),
            stdout: Some(pipe::Receiver::from_owned_fd(stdout).map_err(SpawnError::System)?),
            stderr: Some(pipe::Receiver::from_owned_fd(stderr).map_err(SpawnError::System)?),
            sockets: None,
            line,
            process,
            ended: None,
            frozen: false,
            _held: held,
        };
        child.sockets = network_sockets(sockets).map_err(SpawnError::System)?;
        Ok(child)
    }

    /// Ends everything inside, at once and whatever it ignores. [`wait`](Self::wait) tells when it is gone.
    pub fn kill(&self) {
        // The usual failure is that it is gone already.
        let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
        if self.frozen {
            // Where a frozen process does not die. If the launcher cannot be told it is gone, and its successor does it.
            let _ = wire::send(self.line.socket.get_ref().as_fd(), &LauncherRequest::Thaw, &[]);
        }
    }

    /// Its number on this machine, for those who look after processes; `None` once it is gone.
    pub fn pid(&self) -> Option<u32> {
        let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.process.as_raw_fd())).ok()?;
        facts.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
    }

    /// Waits until no process of the sandbox is left.
    pub async fn wait(&mut self) -> SandboxEnd {
        loop {
            match self.line.hear().await {
                Ok(Some((LauncherMessage::Gone { usage, end }, _))) => {
                    self.ended = end;
                    return self.summary(Some(usage));
                }
                Ok(Some(_)) => {}
                // The launcher died, and the kernel ended the sandbox with it.
                Ok(None) | Err(_) => return self.summary(None),
            }
        }
    }

    /// What was used until now; the peak of memory counts anew from here, where the kernel can. For programs that serve
    /// several calls.
    pub async fn usage_so_far(&mut self) -> io::Result<ProgramUsage> {
        self.line.ask(LauncherRequest::UsageSoFar).await?;
        loop {
            match self.line.hear().await? {
                Some((LauncherMessage::Usage(usage), _)) => return Ok(self.usage(Some(usage))),
                Some((LauncherMessage::Gone { usage, end }, _)) => {
                    self.ended = end;
                    return Ok(self.usage(Some(usage)));
                }
                Some(_) => {}
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Lets everything inside stand still until [`thaw`](Self::thaw). False: that cannot be had on this machine, or the
    /// specification was not [`freezable`](crate::SandboxSpec::freezable), or something did not come to rest in time; then it
    /// runs on, and is better ended.
    ///
    /// Not by stopping signals: whoever is stopped can have asked the kernel beforehand to be continued (a timer whose
    /// signal is SIGCONT), so only a control group keeps what is promised here.
    ///
    /// # Errors
    /// The launcher is gone, and the sandbox with it.
    pub async fn freeze(&mut self) -> io::Result<bool> {
        self.frozen = true;
        for look in 1..=FREEZE_LOOKS_MAX {
            match self.stillness(LauncherRequest::Freeze).await? {
                FreezeState::Frozen => return Ok(true),
                FreezeState::Running => break,
                FreezeState::Stopping if look < FREEZE_LOOKS_AT_ONCE => {}
                FreezeState::Stopping => tokio::time::sleep(FREEZE_PAUSE).await,
            }
        }
        self.thaw().await.map(|()| false)
    }

    /// Lets it run on.
    ///
    /// # Errors
    /// The launcher is gone, and the sandbox with it.
    pub async fn thaw(&mut self) -> io::Result<()> {
        self.stillness(LauncherRequest::Thaw).await?;
        self.frozen = false;
        Ok(())
    }

    async fn stillness(&mut self, question: LauncherRequest) -> io::Result<FreezeState> {
        self.line.ask(question).await?;
        loop {
            match self.line.hear().await? {
                Some((LauncherMessage::Stillness(stillness), _)) => return Ok(stillness),
                Some((LauncherMessage::Gone { end, .. }, _)) => {
                    self.ended = end;
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                None => return Err(io::ErrorKind::BrokenPipe.into()),
                Some(_) => {}
            }
        }
    }

    fn summary(&self, group: Option<GroupUsage>) -> SandboxEnd {
        let exit = match self.ended {
            Some(EndOfProgram { code: Some(code), .. }) => ProgramExit::Code(code),
            Some(EndOfProgram { signal: Some(signal), .. }) => ProgramExit::Signal(signal),
            Some(_) | None => ProgramExit::Ended,
        };
        SandboxEnd { exit, usage: self.usage(group), scratch_full: self.ended.is_some_and(|end| end.scratch_full) }
    }

    /// The group's figures, and the parent's where there is no group.
    fn usage(&self, group: Option<GroupUsage>) -> ProgramUsage {
        let group = group.unwrap_or_default();
        let cpu = group.cpu_micros.or_else(|| self.ended.map(|end| end.cpu_micros)).unwrap_or(0);
        let memory = group.memory_peak_bytes.or_else(|| self.ended.map(|end| end.memory_peak_bytes)).unwrap_or(0);
        ProgramUsage {
            cpu: Duration::from_micros(cpu),
            memory_peak_bytes: memory,
            oom_kills: group.oom_kills,
            cpu_overruns: group.cpu_overruns,
            pids_refused: group.pids_refused,
        }
    }
}

impl Drop for SandboxChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// It said nothing, and only want of memory does that.
fn died_on_the_way() -> StepFailure {
    let no_memory = io::Error::from_raw_os_error(libc::ENOMEM);
    StepFailure::new(BuildStep::ControlGroup, no_memory, "the first process was ended")
}

/// In the order in which the first process makes them.
fn network_sockets(mut fds: impl Iterator<Item = OwnedFd>) -> io::Result<Option<ProxySockets>> {
    let (Some(proxy), Some(names)) = (fds.next(), fds.next()) else { return Ok(None) };
    let names = std::net::UdpSocket::from(names);
    names.set_nonblocking(true)?;
    Ok(Some(ProxySockets {
        proxy: listener(proxy)?,
        names: Some(tokio::net::UdpSocket::from_std(names)?),
        direct: fds.map(listener).collect::<io::Result<_>>()?,
    }))
}

fn listener(fd: OwnedFd) -> io::Result<tokio::net::TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

// ------------------------------------------------------------------------------------------------------------- Line

/// Our end of a child's control socket.
#[derive(Debug)]
struct Line {
    socket: AsyncFd<OwnedFd>,
}

impl Line {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: system::watched(socket)? })
    }

    async fn hear(&mut self) -> io::Result<Option<(LauncherMessage, Vec<OwnedFd>)>> {
        // Words are short; only an order is long.
        const WORD_BYTES_MAX: usize = 8 << 10;
        const { assert!(WORD_BYTES_MAX < MESSAGE_BYTES_MAX) };
        self.socket
            .async_io(tokio::io::Interest::READABLE, |socket| {
                let mut buffer = [0; WORD_BYTES_MAX];
                wire::receive::<LauncherMessage>(socket, &mut buffer)
            })
            .await
    }

    async fn ask(&self, question: LauncherRequest) -> io::Result<()> {
        self.socket.async_io(tokio::io::Interest::WRITABLE, |socket| wire::send(socket.as_fd(), &question, &[])).await
    }
}
