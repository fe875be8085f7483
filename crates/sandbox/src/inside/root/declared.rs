//! Opening what a program has declared, as trees that are yet to be attached.
//!
//! The launcher does it if it is root, so that the first process need not see the machine any more; else the first process.
//!
//! Invariant ROOT-2: a declared path is opened without following a symbolic link anywhere in it. Somebody who may write in
//! one place cannot thereby choose what is mounted from another.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;

use super::{MountTree, NODEV, NOSUID, READ_ONLY, attributes, inside_path};
use crate::error::{BuildStep, StepFailure};
use crate::spec::{MountAccess, SandboxMount};

/// What a program declared, opened as it may be used. To be attached.
pub(crate) fn declared_trees(mounts: &[SandboxMount]) -> Result<Vec<MountTree>, StepFailure> {
    mounts.iter().map(|mount| declared_tree(mount, ResolveFlags::empty())).collect()
}

/// The same without ever waiting for a disk or another machine, for the launcher, who serves others meanwhile. `None`: not
/// possible, at the moment.
pub(crate) fn declared_trees_at_once(mounts: &[SandboxMount]) -> Result<Option<Vec<MountTree>>, StepFailure> {
    let mut trees = Vec::with_capacity(mounts.len());
    for mount in mounts {
        match declared_tree(mount, ResolveFlags::CACHED) {
            Ok(tree) => trees.push(tree),
            Err(failure) if failure.errno == libc::EAGAIN => return Ok(None),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Some(trees))
}

/// Trees that somebody else has opened, in the order of `mounts`.
pub(crate) fn opened_trees(mounts: &[SandboxMount], fds: Vec<OwnedFd>) -> Result<Vec<MountTree>, StepFailure> {
    if mounts.len() != fds.len() {
        return Err(StepFailure::refused(BuildStep::Mount, "trees are missing"));
    }
    mounts.iter().zip(fds).map(|(mount, fd)| tree(fd, mount)).collect()
}

fn declared_tree(mount: &SandboxMount, how: ResolveFlags) -> Result<MountTree, StepFailure> {
    inside_path(&mount.target)?;
    let tree = tree(declared(&mount.source, how)?, mount)?;
    let read_only = if mount.access == MountAccess::Read { READ_ONLY } else { 0 };
    attributes(&tree, NOSUID | NODEV | read_only)?;
    Ok(tree)
}

/// ROOT-2.
fn declared(source: &Path, how: ResolveFlags) -> Result<OwnedFd, StepFailure> {
    let named = |error: rustix::io::Errno| StepFailure::new(BuildStep::Mount, error, source.display().to_string());
    let path = rustix::fs::openat2(
        CWD,
        source,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | how,
    )
    .map_err(named)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(&path, "", flags).map_err(named)
}

fn tree(fd: OwnedFd, mount: &SandboxMount) -> Result<MountTree, StepFailure> {
    let source = mount.source.display();
    let kind = rustix::fs::fstat(&fd).map_err(|error| StepFailure::new(BuildStep::Mount, error, source.to_string()))?;
    let is_dir = match FileType::from_raw_mode(kind.st_mode) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        // A socket or a device is a door to somebody, not a file.
        _ => return Err(StepFailure::refused(BuildStep::Mount, format!("{source} is neither file nor directory"))),
    };
    Ok(MountTree { fd, target: mount.target.clone(), is_dir })
}
