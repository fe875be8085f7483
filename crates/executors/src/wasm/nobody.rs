//! Whose rights a guest has over files: nobody's, as a process tool has.
//!
//! WASI opens files for a guest with the rights of the thread it runs on. If Gantry is root these would be root's, and a
//! declared directory would show what no process tool could read in it. So the threads that guests and their file work
//! run on give those rights up when they start, each for itself, which is what credentials on Linux are: the rest of the
//! server keeps its own.
//!
//! Only the *effective* identity changes. The real and the saved one stay root's, so that another process of nobody can
//! neither signal such a thread (and with it the server) nor look into it.
//!
//! If Gantry is an ordinary user, a process tool is that user outside of its namespace, and so is a guest.
//!
//! Invariants
//! - NOBODY-1: a thread that could not give up its rights is remembered, and from then on no guest is given a directory.
//!
//! Not here: which directories ([`grants`](super::grants)); the directory itself is opened by the server, as it mounts it
//! for a process, so what stands above it need not be readable by nobody.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Who has no files.
const NOBODY: u32 = 65534;

/// Whether all threads for guests are nobody's. Clones know together.
#[derive(Debug, Clone, Default)]
pub(super) struct Nobody {
    failed: Arc<AtomicBool>,
}

impl Nobody {
    /// To be called first on every thread that may work for a guest.
    pub(super) fn become_it(&self) {
        if let Err(error) = give_rights_up() {
            tracing::error!(%error, "a thread for WASM guests keeps rights over files that guests must not have; no directory is given to guests");
            self.failed.store(true, Ordering::Release);
        }
    }

    /// NOBODY-1.
    pub(super) fn is_kept(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }
}

/// For the calling thread, and those it starts.
fn give_rights_up() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(None, Gid::from_raw(NOBODY), None)?;
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(NOBODY), None)?;
    }
    // Also of an ordinary user, who may have been given some.
    let none = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_thread_and_those_it_starts_lose_what_only_root_may_and_the_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("private");
        std::fs::write(&file, "text").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let nobody = Nobody::default();
        let (theirs, path) = (nobody.clone(), file.clone());
        let read = std::thread::spawn(move || {
            theirs.become_it();
            let again = theirs.clone();
            let child = std::thread::spawn(move || {
                again.become_it();
                std::fs::read(path).is_ok()
            });
            child.join().unwrap()
        });
        // An ordinary user's guests may read what that user may.
        assert_eq!(read.join().unwrap(), !rustix::process::geteuid().is_root());
        assert!(nobody.is_kept());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text", "this thread is who it was");
    }
}
