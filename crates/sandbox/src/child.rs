//! A running sandbox as its owner sees it: three streams, a way to end it, and what it used.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use crate::error::{SpawnError, Step, StepFailure};
use crate::sandbox::Link;
use crate::system;
use crate::wire::{self, EndOfProgram, GroupUsage, MESSAGE_BYTES_MAX, Question, Word};

/// A program in its sandbox. Dropping it ends everything inside at once.
#[derive(Debug)]
pub struct Child {
    /// Taken by whoever talks to the program.
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
    /// The listener on the program's own loopback, if it has a network.
    pub proxy: Option<tokio::net::TcpListener>,
    line: Line,
    process: OwnedFd,
    ended: Option<EndOfProgram>,
    _held: Held,
}

/// What a child keeps for as long as it lives: its place among those that may, and the launcher.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) _slot: Option<tokio::sync::OwnedSemaphorePermit>,
    pub(crate) _link: Arc<Link>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It was ended before it could end by itself: by [`Child::kill`], or because its first process or the launcher died.
    Ended,
}

/// What a program used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub cpu: Duration,
    pub memory_peak_bytes: u64,
    /// Processes the kernel ended for want of memory.
    pub oom_kills: u64,
    /// Processes or threads it was not allowed to start.
    pub pids_refused: u64,
}

/// The end of a sandbox: nothing of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub exit: Exit,
    pub usage: Usage,
    /// It had filled its scratch space.
    pub scratch_full: bool,
}

impl Child {
    pub(crate) async fn born(
        control: OwnedFd,
        [stdin, stdout, stderr]: [OwnedFd; 3],
        held: Held,
    ) -> Result<Self, SpawnError> {
        let mut line = Line::new(control).map_err(SpawnError::System)?;
        let mut first_words = FirstWords::default();
        let process = loop {
            match line.hear().await {
                Ok(Some((word, fds))) => {
                    if let Some(process) = first_words.heard(word, fds) {
                        break process;
                    }
                }
                Ok(None) | Err(_) => {
                    return Err(first_words.failure.map_or(SpawnError::LauncherDied, SpawnError::Step));
                }
            }
        };
        // From here on dropping the child ends the process.
        let mut child = Self {
            stdin: Some(pipe::Sender::from_owned_fd(stdin).map_err(SpawnError::System)?),
            stdout: Some(pipe::Receiver::from_owned_fd(stdout).map_err(SpawnError::System)?),
            stderr: Some(pipe::Receiver::from_owned_fd(stderr).map_err(SpawnError::System)?),
            proxy: None,
            line,
            process,
            ended: first_words.ended,
            _held: held,
        };
        if let Some(failure) = first_words.failure {
            // Not before it is gone: the caller may look at what is left.
            let _ = child.wait().await;
            return Err(SpawnError::Step(failure));
        }
        child.proxy = first_words.listener.map(listener).transpose().map_err(SpawnError::System)?;
        Ok(child)
    }

    /// Ends everything inside, at once and whatever it ignores. [`wait`](Self::wait) tells when it is gone.
    pub fn kill(&self) {
        // The usual failure is that it is gone already.
        let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Its number on this machine, for those who look after processes; `None` once it is gone.
    pub fn pid(&self) -> Option<u32> {
        let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.process.as_raw_fd())).ok()?;
        facts.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
    }

    /// Waits until nothing of the sandbox is left.
    pub async fn wait(&mut self) -> Ended {
        loop {
            match self.line.hear().await {
                Ok(Some((Word::Ended(end), _))) => self.ended = Some(end),
                Ok(Some((Word::Gone(usage), _))) => return self.summary(Some(usage)),
                Ok(Some(_)) => {}
                // The launcher died, and the kernel ended the sandbox with it.
                Ok(None) | Err(_) => return self.summary(None),
            }
        }
    }

    /// What was used until now; the peak of memory counts anew from here, where the kernel can. For programs that serve
    /// several calls.
    pub async fn usage_so_far(&mut self) -> io::Result<Usage> {
        self.line.ask(Question::UsageSoFar).await?;
        loop {
            match self.line.hear().await? {
                Some((Word::Usage(usage), _)) => return Ok(self.usage(Some(usage))),
                Some((Word::Ended(end), _)) => self.ended = Some(end),
                Some((Word::Gone(usage), _)) => return Ok(self.usage(Some(usage))),
                Some(_) => {}
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    fn summary(&self, group: Option<GroupUsage>) -> Ended {
        let exit = match self.ended {
            Some(EndOfProgram { code: Some(code), .. }) => Exit::Code(code),
            Some(EndOfProgram { signal: Some(signal), .. }) => Exit::Signal(signal),
            Some(_) | None => Exit::Ended,
        };
        Ended { exit, usage: self.usage(group), scratch_full: self.ended.is_some_and(|end| end.scratch_full) }
    }

    /// The group's figures, and the parent's where there is no group.
    fn usage(&self, group: Option<GroupUsage>) -> Usage {
        let group = group.unwrap_or_default();
        let cpu = group.cpu_micros.or_else(|| self.ended.map(|end| end.cpu_micros)).unwrap_or(0);
        let memory = group.memory_peak_bytes.or_else(|| self.ended.map(|end| end.memory_peak_bytes)).unwrap_or(0);
        Usage {
            cpu: Duration::from_micros(cpu),
            memory_peak_bytes: memory,
            oom_kills: group.oom_kills,
            pids_refused: group.pids_refused,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What is heard until a program is known to run, or not to. The launcher and the first process both speak, and neither
/// waits for the other.
#[derive(Debug, Default)]
struct FirstWords {
    process: Option<OwnedFd>,
    started: bool,
    listener: Option<OwnedFd>,
    failure: Option<StepFailure>,
    ended: Option<EndOfProgram>,
}

impl FirstWords {
    /// Takes one word. The process, once it is known to be and whether its program runs.
    fn heard(&mut self, word: Word, fds: Vec<OwnedFd>) -> Option<OwnedFd> {
        match word {
            Word::Born => self.process = fds.into_iter().next(),
            Word::Started => (self.started, self.listener) = (true, fds.into_iter().next()),
            Word::Failed(failure) => self.failure = Some(failure),
            Word::Ended(end) => self.ended = Some(end),
            // The launcher says so last: it died on the way, and only want of memory does that.
            Word::Gone(_) if !self.started && self.failure.is_none() => {
                self.failure = Some(StepFailure::new(
                    Step::ControlGroup,
                    io::Error::from_raw_os_error(libc::ENOMEM),
                    "the first process was ended",
                ));
            }
            Word::Gone(_) | Word::Usage(_) => {}
        }
        if self.started || self.failure.is_some() { self.process.take() } else { None }
    }
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

    async fn hear(&mut self) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
        // Words are short; only an order is long.
        const WORD_BYTES_MAX: usize = 8 << 10;
        const { assert!(WORD_BYTES_MAX < MESSAGE_BYTES_MAX) };
        self.socket
            .async_io(tokio::io::Interest::READABLE, |socket| {
                let mut buffer = [0; WORD_BYTES_MAX];
                wire::receive::<Word>(socket, &mut buffer)
            })
            .await
    }

    async fn ask(&self, question: Question) -> io::Result<()> {
        self.socket.async_io(tokio::io::Interest::WRITABLE, |socket| wire::send(socket.as_fd(), &question, &[])).await
    }
}
