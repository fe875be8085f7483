//! The owner's side: starts the launcher, sends it orders, starts it again if it dies.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

use crate::child::{ChildResources, SandboxChild};
use crate::error::SpawnError;
use crate::spec::SandboxSpec;
use crate::system;
use crate::wire::{self, LaunchOrder, MESSAGE_BYTES_MAX};

/// Sandboxes that may live at once, unless it is set otherwise. More wait.
pub const SANDBOXES_MAX: usize = 256;

/// How the launcher is started: a program that calls [`serve_launcher`](crate::serve_launcher) when it gets these
/// arguments.
#[derive(Debug, Clone)]
pub struct LauncherCommand {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

impl LauncherCommand {
    /// This executable itself, with one argument.
    pub fn own_executable(argument: &str) -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![argument.into()] }
    }
}

/// Makes sandboxes. Cheap to clone; all clones share one launcher, which ends with the last of them
/// and of their children.
#[derive(Debug, Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    launch: LauncherCommand,
    room: Arc<Semaphore>,
    /// There from the first use on.
    link: Mutex<Option<Arc<LauncherLink>>>,
    /// Did the launcher fail when a sandbox was last wanted?
    failed: AtomicBool,
}

/// A connection to a living launcher.
#[derive(Debug)]
pub(crate) struct LauncherLink {
    socket: AsyncFd<OwnedFd>,
    process: Mutex<std::process::Child>,
}

impl Sandbox {
    /// With room for `most` sandboxes at once. Nothing is started before the first is wanted.
    pub fn new(launch: LauncherCommand, most: usize) -> Self {
        let (room, link) = (Arc::new(Semaphore::new(most.max(1))), Mutex::default());
        Self { inner: Arc::new(Inner { launch, room, link, failed: AtomicBool::new(false) }) }
    }

    /// Starts a program in a sandbox of its own. Comes back when it runs, or with the step that failed.
    ///
    /// If as many live as may, this waits for room; the caller bounds that wait. Dropping the future leaves nothing.
    pub async fn spawn(&self, spec: SandboxSpec) -> Result<SandboxChild, SpawnError> {
        self.spawn_noting(spec, || {}).await
    }

    /// The same, and says so when the wait for room is over: before it nothing has begun.
    pub async fn spawn_noting(
        &self,
        spec: SandboxSpec,
        begins: impl FnOnce() + Send,
    ) -> Result<SandboxChild, SpawnError> {
        let started = self.start(spec, begins).await;
        let failed = match &started {
            Ok(_) => Some(false),
            Err(SpawnError::NoLauncher(_) | SpawnError::NotOrdered(_) | SpawnError::LauncherDied) => Some(true),
            Err(SpawnError::Step(failure)) if failure.step.is_of_machine() => Some(true),
            // That program could not be started. Others may.
            Err(SpawnError::Step(_) | SpawnError::Unusable(_) | SpawnError::System(_)) => None,
        };
        if let Some(failed) = failed {
            self.inner.failed.store(failed, Ordering::Relaxed);
        }
        started
    }

    async fn start(&self, spec: SandboxSpec, begins: impl FnOnce() + Send) -> Result<SandboxChild, SpawnError> {
        let slot = Arc::clone(&self.inner.room).acquire_owned().await.ok();
        let order = serde_json::to_vec(&LaunchOrder { spec })
            .map_err(|_| SpawnError::Unusable("it has a path that is no text"))?;
        if order.len() > MESSAGE_BYTES_MAX {
            return Err(SpawnError::Unusable("it is too long"));
        }
        let mut link = self.link()?;
        begins();
        let mut taken = attempt(&link, &order).await;
        if matches!(taken, Err(Attempt::NotTaken)) {
            // Nothing has begun: once more with a new launcher.
            self.forget(&link);
            link = self.link()?;
            taken = attempt(&link, &order).await;
        }
        let (control, streams) = taken.map_err(|failure| match failure {
            Attempt::NotTaken => SpawnError::NotOrdered(io::ErrorKind::BrokenPipe.into()),
            Attempt::Failed(error) => error,
        })?;
        let born = SandboxChild::born(control, streams, ChildResources { _slot: slot, _link: Arc::clone(&link) }).await;
        if matches!(born, Err(SpawnError::LauncherDied)) {
            self.forget(&link);
        }
        born
    }

    /// Can sandboxes be started, as far as was found out when one was last wanted?
    pub fn is_able(&self) -> bool {
        !self.inner.failed.load(Ordering::Relaxed)
    }

    /// Sandboxes that could be started at once now.
    pub fn room(&self) -> usize {
        self.inner.room.available_permits()
    }

    /// The launcher's process, if it has been started: for those who look after processes.
    pub fn launcher(&self) -> Option<u32> {
        let link = self.inner.link.lock_unpoisoned();
        link.as_ref().map(|link| link.process.lock_unpoisoned().id())
    }

    fn link(&self) -> Result<Arc<LauncherLink>, SpawnError> {
        let mut slot = self.inner.link.lock_unpoisoned();
        if let Some(link) = &*slot {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(LauncherLink::start(&self.inner.launch).map_err(SpawnError::NoLauncher)?);
        *slot = Some(Arc::clone(&link));
        Ok(link)
    }

    fn forget(&self, dead: &Arc<LauncherLink>) {
        let mut slot = self.inner.link.lock_unpoisoned();
        if slot.as_ref().is_some_and(|link| Arc::ptr_eq(link, dead)) {
            tracing::warn!("the sandbox launcher ended; another one is started when it is needed");
            *slot = None;
        }
    }
}

enum Attempt {
    NotTaken,
    Failed(SpawnError),
}

/// Sends an order with fresh streams.
async fn attempt(link: &LauncherLink, order: &[u8]) -> Result<(OwnedFd, [OwnedFd; 3]), Attempt> {
    let system = |error: io::Error| Attempt::Failed(SpawnError::NotOrdered(error));
    let (ours, theirs) = wire::pair().map_err(system)?;
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| system(error.into()));
    let ((their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr)) = (pipe()?, pipe()?, pipe()?);
    for fd in [&stdin, &stdout, &stderr] {
        rustix::io::ioctl_fionbio(fd, true).map_err(|error| system(error.into()))?;
    }
    let fds = [theirs.as_fd(), their_stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
    let sent = link.socket.async_io(Interest::WRITABLE, |socket| wire::send_bytes(socket.as_fd(), order, &fds)).await;
    match sent {
        Ok(()) => Ok((ours, [stdin, stdout, stderr])),
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            Err(Attempt::NotTaken)
        }
        Err(error) => Err(system(error)),
    }
}

// ------------------------------------------------------------------------------------------------------------- Link

impl LauncherLink {
    #[expect(clippy::disallowed_methods, reason = "the one process that starts all others has to be started")]
    fn start(launch: &LauncherCommand) -> io::Result<Self> {
        let (ours, theirs) = wire::pair()?;
        let process = Command::new(&launch.program)
            .args(&launch.arguments)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        tracing::debug!(process = process.id(), socket = ours.as_raw_fd(), "the sandbox launcher runs");
        Ok(Self { socket: system::watched(ours)?, process: Mutex::new(process) })
    }
}

impl Drop for LauncherLink {
    fn drop(&mut self) {
        // Closing the socket is what ends it; being waited for is what it is owed. It may have sandboxes to clean up, so
        // the wait is somebody else's: a thread, because a runtime may be gone by now.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let mut process = self.process.lock_unpoisoned();
        if matches!(process.try_wait(), Ok(Some(_))) {
            return;
        }
        let pid = rustix::process::Pid::from_child(&process);
        // Without a thread to be had it is waited for by nobody, and is a zombie until this process ends.
        let _ = std::thread::Builder::new()
            .name("launcher-farewell".to_owned())
            .spawn(move || rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()));
    }
}
