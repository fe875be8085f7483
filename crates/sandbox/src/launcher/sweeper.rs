//! The sweeper: a process that lets go of mount namespaces whose sandboxes are gone.
//!
//! Whoever drops the last hold on a mount namespace takes it apart, and the kernel makes that one wait for the whole
//! machine (a grace period). Neither the caller of a sandbox nor the launcher should be that one. So the first process of a
//! sandbox hands its namespace over with its last word, and it ends here.
//!
//! Invariants
//! - SWEEP-1: what waits here is bounded by the socket; what finds no room is let go at once, by the launcher.
//! - SWEEP-2: it ends with the launcher, however that ends. Namespaces need no one to end with the last who holds them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::Signal;

use crate::system::{self, CloneSide};
use crate::wire;

/// The launcher's end of the sweeper.
pub(super) struct Sweeper {
    line: Option<OwnedFd>,
}

impl Sweeper {
    /// Without one, the launcher does it itself.
    pub(super) fn start() -> Self {
        Self { line: Self::try_start().ok() }
    }

    fn try_start() -> io::Result<OwnedFd> {
        let (line, theirs) = wire::pair()?;
        rustix::io::ioctl_fionbio(&line, true)?;
        match system::clone(0, None)? {
            CloneSide::Parent { .. } => Ok(line),
            CloneSide::Child => {
                drop(line);
                sweep(theirs)
            }
        }
    }

    pub(super) fn let_go(&self, namespace: OwnedFd) {
        // SWEEP-1: a full or closed line leaves it to the drop.
        if let Some(line) = &self.line {
            let _ = wire::send(line.as_fd(), &(), &[namespace.as_fd()]);
        }
        drop(namespace);
    }
}

fn sweep(line: OwnedFd) -> ! {
    // A name is for people who look at processes, and nothing depends on it.
    let _ = rustix::thread::set_name(c"gantry-sweeper");
    let ready = rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(io::Error::from)
        .and_then(|()| system::move_to(line, 0))
        .and_then(|line| system::close_from(1).map(|()| line));
    let Ok(line) = ready else { system::leave(1) };
    let mut buffer = [0; 16];
    loop {
        match wire::receive::<()>(&line, &mut buffer) {
            Ok(Some((_, namespaces))) => drop(namespaces),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => system::leave(0),
        }
    }
}
