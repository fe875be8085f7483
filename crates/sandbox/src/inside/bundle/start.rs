//! Waiting for a container to run, and finding out why it does not.
//!
//! A runtime is one process from the first byte of its configuration to the exit of the program; whether the program ever
//! began is not in its exit status. It is in the files it writes: its state when all is well, its log when it is not.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;

use super::{NAME, OciBundle, failed};
use crate::error::StepFailure;
use crate::oci::{RuntimeKind, verdict};
use crate::system::{self, ReapedProcess};

/// A descriptor that becomes readable when something happens in a directory.
pub(super) fn watch(dir: &Path) -> Result<OwnedFd, StepFailure> {
    let events = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::CLOSE_WRITE;
    inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
        .and_then(|state_watch| inotify::add_watch(&state_watch, dir, events).map(|_| state_watch))
        .map_err(|error| failed(error, "watching the runtime"))
}

impl OciBundle {
    /// Waits until the container runs. Gives the end of the runtime (process `main`) if that came first and nothing went
    /// wrong: a program may be done before one has looked.
    pub(crate) fn started(&self, main: i32) -> Result<Option<ReapedProcess>, StepFailure> {
        use rustix::event::{PollFd, PollFlags};
        loop {
            if self.is_running() {
                return Ok(None);
            }
            while let Ok(Some(reaped)) = system::reap(false) {
                if reaped.pid == main {
                    return self.failure().map_or(Ok(Some(reaped)), Err);
                }
            }
            let mut watched = [PollFd::new(&self.state_watch, PollFlags::IN), PollFd::new(&self.deaths, PollFlags::IN)];
            match rustix::event::poll(&mut watched, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error, "waiting for the runtime")),
            }
            let mut drained = [0_u8; 4096];
            for fd in [&self.state_watch, &self.deaths] {
                while rustix::io::read(fd, &mut drained).is_ok_and(|count| count > 0) {}
            }
        }
    }

    /// What the runtime's log says went wrong.
    pub(crate) fn failure(&self) -> Option<StepFailure> {
        use std::io::Read as _;
        let mut log = Vec::new();
        let file = std::fs::File::open(self.anchor.join("log")).ok()?;
        file.take(verdict::LOG_BYTES_MAX).read_to_end(&mut log).ok()?;
        verdict::failure(&String::from_utf8_lossy(&log))
    }

    fn is_running(&self) -> bool {
        let state = self.anchor.join("state");
        match self.kind {
            // Written after the program was started.
            RuntimeKind::Runc | RuntimeKind::Crun => {
                std::fs::metadata(state.join("pid")).is_ok_and(|file| file.len() > 0)
            }
            // There the number is that of the sentry, long before; but the state is kept in a file.
            RuntimeKind::Runsc => {
                let file = state.join(format!("{NAME}_sandbox:{NAME}.state"));
                let text = std::fs::read(file).unwrap_or_default();
                serde_json::from_slice::<State>(&text).is_ok_and(|state| state.status == "running")
            }
        }
    }
}

/// The part of gVisor's state file that is looked at.
#[derive(serde::Deserialize)]
struct State {
    status: String,
}
