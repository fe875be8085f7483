//! The first process of a sandbox: it waits for everything that ends, tells how the program did, and leaves.
//!
//! When the first process of a process namespace leaves, the kernel ends all the others, whatever they ignore and
//! however often they have forked. So there is nothing to hunt down, here or anywhere else.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use super::bundle::OciBundle;
use crate::cgroup::CgroupCounters;
use crate::system::{self, ReapedProcess};
use crate::wire::{self, EndOfProgram, GroupUsage, LauncherMessage};

/// What a first process holds on to until it leaves.
pub(super) struct Farewell {
    pub(super) owner: OwnedFd,
    pub(super) launcher: OwnedFd,
    /// Those of the control group.
    pub(super) counters: CgroupCounters,
    /// What was on the processor's before the order.
    pub(super) cpu_micros: u64,
    /// The mount namespace, for whoever takes it apart.
    pub(super) mounts: Option<OwnedFd>,
    pub(super) bundle: Option<OciBundle>,
}

impl Farewell {
    /// Waits for the program (process `main` of this namespace), tells, and leaves.
    pub(super) fn wait_and_leave(&self, main: i32) -> ! {
        loop {
            match system::reap(true) {
                Ok(Some(reaped)) if reaped.pid == main => self.tell_and_leave(&reaped),
                Ok(Some(_)) => {}
                // No child left although the program was one: it cannot be waited for, so it cannot be told.
                Ok(None) => system::leave(1),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => system::leave(1),
            }
        }
    }

    /// Tells how the program ended, and leaves.
    pub(super) fn tell_and_leave(&self, reaped: &ReapedProcess) -> ! {
        let (code, signal) = match &self.bundle {
            None => (reaped.code, reaped.signal),
            // The runtime failed while the program ran: how the program ended is not known.
            Some(bundle) if bundle.failure().is_some() => (None, None),
            Some(_) => of_program(reaped),
        };
        let end = EndOfProgram {
            code,
            signal,
            cpu_micros: reaped.cpu_micros,
            memory_peak_bytes: reaped.memory_peak_bytes,
            scratch_full: scratch_is_full(self.bundle.as_ref()),
            alone: is_alone(),
        };
        // LAUNCH-2. If anybody is left, that is for the launcher to tell.
        if end.alone {
            let all = self.counters.usage();
            let cpu_micros = all.cpu_micros.map(|cpu| cpu.saturating_sub(self.cpu_micros));
            let gone = LauncherMessage::Gone { usage: GroupUsage { cpu_micros, ..all }, end: Some(end) };
            // An owner that has let go does not want to know.
            let _ = wire::send(self.owner.as_fd(), &gone, &[]);
        }
        let mounts: Vec<BorrowedFd<'_>> = self.mounts.iter().map(|fd| fd.as_fd()).collect();
        // If nobody listens any more, nobody wants to know.
        let _ = wire::send(self.launcher.as_fd(), &end, &mounts);
        system::leave(0)
    }
}

/// Is there nobody left in this namespace? Whoever has lost its parent is a child of the first process, so having none
/// means just that.
fn is_alone() -> bool {
    loop {
        match system::reap(false) {
            Ok(Some(_)) => {}
            Ok(None) => return !system::has_children(),
            Err(_) => return false,
        }
    }
}

/// Runtimes tell a signal as shells do. A program that exits with such a code is taken at its word.
fn of_program(reaped: &ReapedProcess) -> (Option<i32>, Option<i32>) {
    match reaped.code {
        Some(code @ 129..=192) => (None, Some(code - 128)),
        // A runtime that was ended by a signal tells nothing about the program.
        code => (code, None),
    }
}

/// Less than one file's worth of room.
fn scratch_is_full(bundle: Option<&OciBundle>) -> bool {
    let scratch = match bundle {
        None => Path::new("/tmp"),
        Some(OciBundle { scratch: Some(path), .. }) => path,
        // Of the runtime's own making: nobody can look.
        Some(OciBundle { scratch: None, .. }) => return false,
    };
    rustix::fs::statvfs(scratch).is_ok_and(|room| room.f_bavail == 0 || room.f_favail == 0)
}
