//! The first process of a sandbox: it waits for everything that ends, tells how the program did, and leaves.
//!
//! When the first process of a process namespace leaves, the kernel ends all the others, whatever they ignore and
//! however often they have forked. So there is nothing to hunt down, here or anywhere else.

use std::os::fd::BorrowedFd;

use crate::system;
use crate::wire::{self, EndOfProgram, Word};

/// Waits for the program (process `main` of this namespace), tells, and leaves.
pub(crate) fn wait_and_leave(control: BorrowedFd<'_>, main: i32) -> ! {
    loop {
        match system::reap(true) {
            Ok(Some(reaped)) if reaped.pid == main => {
                let end = EndOfProgram {
                    code: reaped.code,
                    signal: reaped.signal,
                    cpu_micros: reaped.cpu_micros,
                    memory_peak_bytes: reaped.memory_peak_bytes,
                    scratch_full: scratch_is_full(),
                };
                // If nobody listens any more, nobody wants to know.
                let _ = wire::send(control, &Word::Ended(end), &[]);
                system::leave(0);
            }
            Ok(Some(_)) => {}
            // No child left although the program was one: it cannot be waited for, so it cannot be told.
            Ok(None) => system::leave(1),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => system::leave(1),
        }
    }
}

/// Less than one file's worth of room.
fn scratch_is_full() -> bool {
    rustix::fs::statvfs("/tmp").is_ok_and(|room| room.f_bavail == 0 || room.f_favail == 0)
}
