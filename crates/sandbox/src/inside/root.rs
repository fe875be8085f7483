//! The root of the program's own: a small read-only tree in memory, with nothing of the machine but what is mounted in it.
//!
//! ```text
//! /            tmpfs, read-only once built          /usr /lib /bin …   the machine's, read-only
//! /tmp         scratch, the only quota              /dev/shm           the same scratch
//! /dev         null zero full random urandom        /proc              own processes only, read-only
//! /etc         passwd, group, hosts of our making   <declared>         read-only or writable, as declared
//! ```
//!
//! There is no `/sys`, no `/run` but for own files, and of `/proc` only the directories of the sandbox's own processes:
//! `/proc/sys`, `/proc/kcore` and their like do not exist.
//!
//! Everything that is to be seen is opened as a detached tree first, and attached when the new root exists: so nothing
//! that is mounted can hide what has still to be opened. Most of it is the same for all programs and is done before there is
//! an order; declared trees come last, opened by the launcher if it may, so that the machine's root can be left before.
//!
//! Invariants
//! - ROOT-1: every mount is nosuid; all but the five devices are nodev; all but scratch and declared writable ones are
//!   read-only, recursively.
//!
//! Not here: opening what is declared ([`declared`]).

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::error::{BuildStep, StepFailure};
use crate::spec::OwnFile;
use crate::system;

pub(crate) use self::declared::{declared_trees, declared_trees_at_once, opened_trees};

mod declared;

pub(super) const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub(super) const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// The devices a program may open.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// What `/dev` has besides.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Files of our making.
pub(super) const OWN_ETC: [(&str, &str); 5] = [
    ("passwd", "nobody:x:65534:65534:nobody:/tmp:/usr/sbin/nologin\n"),
    ("group", "nogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    // Who answers there, if the program has a network, knows the names that it may reach. Without one nobody does, at once.
    ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n"),
];
/// Room for the tree itself and own files.
const ROOT_OPTIONS: [(&str, &str); 3] = [("size", "4m"), ("nr_inodes", "4096"), ("mode", "0755")];
/// The directory that is covered by the new root while it is built. No tool can have anything below it mounted, so
/// nothing that is still to be opened is hidden.
const ANCHOR: &str = "/proc";
/// Bytes of scratch per file in it.
const SCRATCH_BYTES_PER_FILE: u64 = 4096;

/// Something to attach.
pub(crate) struct MountTree {
    pub(crate) fd: OwnedFd,
    pub(super) target: PathBuf,
    pub(super) is_dir: bool,
}

/// Builds what every program sees: system directories, devices, `/proc`, scratch. The process must be in a mount namespace
/// of its own; its working directory is the new root afterwards.
pub(crate) fn build(system: &[PathBuf], scratch_bytes: u64) -> Result<(), StepFailure> {
    private_mounts()?;
    let mut links = Vec::new();
    let mut trees = Vec::new();
    for path in system {
        match system_entry(path)? {
            Some(Entry::Link(to)) => links.push((path.clone(), to)),
            Some(Entry::Tree(tree)) => trees.push(tree),
            None => {}
        }
    }
    let devices = DEVICES.map(|name| clone_tree(Path::new("/dev").join(name)).map(|fd| (name, fd)));
    // An ordinary user may mount it only while the machine's own one can be seen.
    let proc = file_system("proc", &[("subset", "pid")], PROC_ATTRIBUTES)?;

    attach(&new_tmpfs(&ROOT_OPTIONS)?, Path::new(ANCHOR))?;
    rustix::process::chdir(ANCHOR).map_err(|error| failed(error, "entering the new root"))?;
    build_dev(devices)?;
    etc()?;
    for (path, to) in links {
        make_parent(&path)?;
        symlink(&to, relative(&path)).map_err(|error| failed(error, format!("linking {}", path.display())))?;
    }
    place_all(trees)?;
    make_dir(Path::new("/proc"))?;
    attach(&proc, Path::new("proc"))?;
    scratch(scratch_bytes)
}

/// Makes the new root, which is the working directory, this process's root. The old one is gone.
pub(crate) fn leave_the_machine() -> Result<(), StepFailure> {
    rustix::process::pivot_root(".", ".").map_err(|error| failed(error, "changing the root"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(|error| failed(error, "leaving the old root"))?;
    rustix::process::chdir("/").map_err(|error| failed(error, "entering the root"))
}

/// Adds what this program sees besides.
pub(crate) fn furnish(trees: Vec<MountTree>, files: &[OwnFile]) -> Result<(), StepFailure> {
    place_all(trees)?;
    files.iter().try_for_each(own_file)
}

/// Nothing is added to the root any more.
pub(crate) fn close() -> Result<(), StepFailure> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failed(error, "opening the root"))?;
    system::set_mount_attributes(root.as_fd(), READ_ONLY | NOSUID | NODEV, false)
        .map_err(|error| failed(error, "closing the root"))
}

/// A mount below another one must come after it.
fn place_all(mut trees: Vec<MountTree>) -> Result<(), StepFailure> {
    trees.sort_by_key(|tree| tree.target.components().count());
    trees.iter().try_for_each(place)
}

/// Nothing that is mounted here may be seen outside, nor the other way round.
pub(crate) fn private_mounts() -> Result<(), StepFailure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| failed(error, "making mounts private"))
}

/// Mounts a `/proc` of this process namespace over the machine's, for a runtime that builds its own walls.
pub(crate) fn proc_for_runtime() -> Result<(), StepFailure> {
    let fd = file_system("proc", &[], MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)?;
    attach(&fd, Path::new("/proc"))
}

// ---------------------------------------------------------------------------------------------------- what is seen

pub(super) enum Entry {
    Link(PathBuf),
    Tree(MountTree),
}

/// A system directory: a link stays a link, what is not there is left out.
pub(super) fn system_entry(path: &Path) -> Result<Option<Entry>, StepFailure> {
    inside_path(path)?;
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error, path.display().to_string())),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let to = std::fs::read_link(path).map_err(|error| failed(error, path.display().to_string()))?;
            Ok(Some(Entry::Link(to)))
        }
        kind => {
            let fd = clone_tree(path)?;
            let tree = MountTree { fd, target: path.to_owned(), is_dir: kind == FileType::Directory };
            attributes(&tree, NOSUID | NODEV | READ_ONLY)?;
            Ok(Some(Entry::Tree(tree)))
        }
    }
}

fn clone_tree(path: impl AsRef<Path>) -> Result<OwnedFd, StepFailure> {
    let path = path.as_ref();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    rustix::mount::open_tree(CWD, path, flags).map_err(|error| failed(error, path.display().to_string()))
}

pub(super) fn attributes(tree: &MountTree, attributes: u64) -> Result<(), StepFailure> {
    system::set_mount_attributes(&tree.fd, attributes, true)
        .map_err(|error| failed(error, format!("attributes of {}", tree.target.display())))
}

// ------------------------------------------------------------------------------------------------------- the parts

/// Everything below is relative to the new root, which is the working directory.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// A path inside: absolute, and going down only.
pub(super) fn inside_path(path: &Path) -> Result<(), StepFailure> {
    let mut parts = path.components();
    let rooted = parts.next() == Some(Component::RootDir);
    let down = parts.clone().count() > 0 && parts.all(|part| matches!(part, Component::Normal(_)));
    if rooted && down {
        return Ok(());
    }
    Err(StepFailure::refused(BuildStep::Mount, format!("`{}` is not an absolute path without `..`", path.display())))
}

fn make_dir(path: &Path) -> Result<(), StepFailure> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(relative(path))
        .map_err(|error| failed(error, format!("making {}", path.display())))
}

fn make_parent(path: &Path) -> Result<(), StepFailure> {
    path.parent().filter(|parent| *parent != Path::new("/")).map_or(Ok(()), make_dir)
}

fn make_file(path: &Path, contents: &[u8], mode: u32) -> Result<(), StepFailure> {
    make_parent(path)?;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(relative(path));
    made.and_then(|mut file| file.write_all(contents))
        .map_err(|error| failed(error, format!("writing {}", path.display())))
}

fn place(tree: &MountTree) -> Result<(), StepFailure> {
    if tree.is_dir {
        make_dir(&tree.target)?;
    } else if rustix::fs::lstat(relative(&tree.target)).is_err() {
        make_file(&tree.target, b"", 0o444)?;
    }
    attach(&tree.fd, relative(&tree.target))
}

fn build_dev(devices: [Result<(&str, OwnedFd), StepFailure>; 5]) -> Result<(), StepFailure> {
    make_dir(Path::new("/dev"))?;
    for device in devices {
        let (name, fd) = device?;
        system::set_mount_attributes(&fd, NOSUID | libc::MOUNT_ATTR_NOEXEC, false)
            .map_err(|error| failed(error, "attributes of a device"))?;
        let path = Path::new("/dev").join(name);
        make_file(&path, b"", 0o444)?;
        attach(&fd, relative(&path))?;
    }
    for (name, to) in DEVICE_LINKS {
        symlink(to, Path::new("dev").join(name)).map_err(|error| failed(error, "links of /dev"))?;
    }
    Ok(())
}

/// One quota for `/tmp` and shared memory.
fn scratch(bytes: u64) -> Result<(), StepFailure> {
    let fd = scratch_tmpfs(bytes)?;
    make_dir(Path::new("/tmp"))?;
    make_dir(Path::new("/dev/shm"))?;
    attach(&fd, Path::new("tmp"))?;
    let again = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let shared = rustix::mount::open_tree(CWD, "tmp", again).map_err(|error| failed(error, "shared memory"))?;
    attach(&shared, Path::new("dev/shm"))
}

/// Gives the scratch another size, while it is empty.
pub(crate) fn resize_scratch(bytes: u64) -> Result<(), StepFailure> {
    let resize = || -> Result<(), rustix::io::Errno> {
        let (size, files) = (bytes.to_string(), scratch_files(bytes).to_string());
        let context = rustix::mount::fspick(CWD, "tmp", FsPickFlags::FSPICK_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(context.as_fd(), "size", &*size)?;
        rustix::mount::fsconfig_set_string(context.as_fd(), "nr_inodes", &*files)?;
        rustix::mount::fsconfig_reconfigure(context.as_fd())
    };
    resize().map_err(|error| failed(error, "the size of the scratch"))
}

fn scratch_files(bytes: u64) -> u64 {
    (bytes / SCRATCH_BYTES_PER_FILE).clamp(256, 1 << 20)
}

pub(super) fn scratch_tmpfs(bytes: u64) -> Result<OwnedFd, StepFailure> {
    let (size, files) = (bytes.to_string(), scratch_files(bytes).to_string());
    new_tmpfs(&[("size", &size), ("nr_inodes", &files), ("mode", "1777")])
}

fn etc() -> Result<(), StepFailure> {
    OWN_ETC.iter().try_for_each(|(name, text)| make_file(&Path::new("/etc").join(name), text.as_bytes(), 0o444))
}

/// Readable by the program, which owns it; nobody else is inside.
fn own_file(file: &OwnFile) -> Result<(), StepFailure> {
    inside_path(&file.path)?;
    make_file(&file.path, &file.contents, 0o400)?;
    let nobody = super::identity::is_root().then_some(super::identity::NOBODY);
    std::os::unix::fs::chown(relative(&file.path), nobody, nobody).map_err(|error| failed(error, "own files"))
}

/// Own processes only, and nothing to be written.
const PROC_ATTRIBUTES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
    .union(MountAttrFlags::MOUNT_ATTR_RDONLY);

// ------------------------------------------------------------------------------------------------------------ mounts

pub(super) fn new_tmpfs(options: &[(&str, &str)]) -> Result<OwnedFd, StepFailure> {
    file_system("tmpfs", options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

fn file_system(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, StepFailure> {
    let make = || -> Result<OwnedFd, rustix::io::Errno> {
        let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
        rustix::mount::fsconfig_create(context.as_fd())?;
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    make().map_err(|error| failed(error, format!("a file system of type {kind}")))
}

pub(super) fn attach(fd: &OwnedFd, target: &Path) -> Result<(), StepFailure> {
    rustix::mount::move_mount(fd, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| failed(error, format!("attaching {}", target.display())))
}

fn failed(error: impl Into<std::io::Error>, detail: impl AsRef<OsStr>) -> StepFailure {
    StepFailure::new(BuildStep::Root, error, detail.as_ref().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_inside_are_absolute_and_only_go_down() {
        for good in ["/a", "/a/b.c", "/..a/b"] {
            assert_eq!(inside_path(Path::new(good)), Ok(()), "{good}");
        }
        for bad in ["", "/", "a", "/a/../b", "/..", "./a", "../a"] {
            assert!(inside_path(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
