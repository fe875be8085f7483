//! The bundle of a container, built where only the runtime sees it: in a tmpfs of the first process's own mount namespace.
//!
//! ```text
//! <anchor>/config.json    what the runtime is to do            <anchor>/state    the runtime's own files, and its number
//! <anchor>/rootfs         places for every mount, own files    <anchor>/seen/N   what is to be seen, opened by us
//! <anchor>/scratch        /tmp and /dev/shm, with their quota  <anchor>/log      what the runtime says went wrong
//! ```
//!
//! Everything is opened before the tmpfs covers anything, as in [`root`]. Symbolic links of an image are made last: until
//! the runtime has changed its root, following one would lead to the machine.
//!
//! Invariant BUNDLE-1: nothing here is written outside the tmpfs.
//!
//! Not here: finding out whether the runtime did what it was told ([`start`]).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, OpenTreeFlags, UnmountFlags};

use super::identity::NOBODY;
use super::root::{self, MountTree, NODEV, NOSUID, READ_ONLY};
use crate::error::{BuildStep, StepFailure};
use crate::oci::config::{BindMount, RuntimeLayout, ScratchPlace, config};
use crate::oci::{ContainerRoot, GvisorPlatform, OciContainer, RuntimeKind};
use crate::spec::{MountAccess, OwnFile, SandboxNetwork, SandboxSpec};
use crate::system;

mod start;

/// A bundle that is ready to be run.
pub(crate) struct OciBundle {
    /// The runtime with its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Where `/tmp` of the program is, if it is ours.
    pub(crate) scratch: Option<PathBuf>,
    anchor: PathBuf,
    kind: RuntimeKind,
    /// Becomes readable when something happens in `state`.
    state_watch: OwnedFd,
    /// Becomes readable when a child ends.
    deaths: OwnedFd,
}

/// Directories that can be covered. `/tmp` last, because a runtime may use it.
const ANCHORS: [&str; 4] = ["/mnt", "/media", "/srv", "/tmp"];
/// Room for the runtime's state, its log, the places for mounts, and own files.
const OPTIONS: [(&str, &str); 3] = [("size", "16m"), ("nr_inodes", "16384"), ("mode", "0755")];
/// What is ours in a root that is an image.
const OURS: [&str; 5] = ["proc", "sys", "dev", "tmp", "run"];
/// Entries in the root of an image.
const ENTRIES_MAX: usize = 256;
/// The name of the container, in a state directory that has no other.
const NAME: &str = "tool";

/// Everything the runtime needs. The process must be in a mount namespace of its own, with mounts that are private.
pub(crate) fn build(
    spec: &SandboxSpec,
    container: &OciContainer,
    rootless: bool,
    limits_by_process: bool,
) -> Result<OciBundle, StepFailure> {
    possible(spec, container, rootless)?;
    let (mut trees, links) = seen(spec, container)?;
    let declared = root::declared_trees(&spec.mounts)?;
    trees.extend(declared.into_iter().zip(spec.mounts.iter().map(|mount| mount.access)));
    trees.sort_by_key(|(tree, _)| tree.target.components().count());

    let anchor = anchor(&container.program)?;
    root::attach(&root::new_tmpfs(&OPTIONS)?, &anchor)?;
    for (name, mode) in [("rootfs", 0o755), ("seen", 0o700), ("state", 0o700), ("scratch", 0o755)] {
        make_dir(&anchor.join(name), mode)?;
    }
    let scratch = if rootless { ScratchPlace::Own } else { prepared_scratch(&anchor, spec.limits.scratch_bytes)? };
    let binds = hang_up(&anchor, &trees)?;
    places(&anchor.join("rootfs"), spec, &trees, &links, rootless)?;
    let layout = RuntimeLayout { rootfs: anchor.join("rootfs"), binds, scratch, limits_by_process };
    write(&anchor.join("config.json"), config(spec, container.kind, &layout).to_string().as_bytes(), 0o600)?;
    if matches!(container.kind, RuntimeKind::Runc | RuntimeKind::Crun) {
        own_groups_only()?;
    }
    let state_watch = start::watch(&anchor.join("state"))?;
    let deaths = system::child_signals().map_err(|error| failed(error, "watching the runtime"))?;
    Ok(OciBundle {
        command: command(container, &anchor, spec.network, rootless)?,
        env: [("PATH".to_owned(), crate::oci::RUNTIME_DIRS.join(":"))].into(),
        scratch: match layout.scratch {
            ScratchPlace::Prepared(path) => Some(path),
            ScratchPlace::Own => None,
        },
        anchor,
        kind: container.kind,
        state_watch,
        deaths,
    })
}

/// What a runtime cannot do as an ordinary user is refused before it half works.
fn possible(spec: &SandboxSpec, container: &OciContainer, rootless: bool) -> Result<(), StepFailure> {
    let refused = |why: String| Err(StepFailure::refused(BuildStep::Runtime, why));
    if !rootless {
        return Ok(());
    }
    match container.kind {
        RuntimeKind::Runc | RuntimeKind::Crun => {
            refused(format!("{} needs root here; run the server as root or use runsc", container.kind.name()))
        }
        RuntimeKind::Runsc if spec.mounts.iter().any(|mount| mount.access == MountAccess::Write) => {
            refused("as an ordinary user gVisor cannot write to declared paths; run the server as root".to_owned())
        }
        RuntimeKind::Runsc => Ok(()),
    }
}

fn anchor(program: &Path) -> Result<PathBuf, StepFailure> {
    let free = |path: &&&str| Path::new(path).is_dir() && !program.starts_with(path);
    ANCHORS
        .iter()
        .find(free)
        .map(PathBuf::from)
        .ok_or_else(|| StepFailure::refused(BuildStep::Runtime, format!("none of {ANCHORS:?} is a directory")))
}

// ------------------------------------------------------------------------------------------------------ what is seen

type Seen = (Vec<(MountTree, MountAccess)>, Vec<(PathBuf, PathBuf)>);

/// The root, entry by entry: trees to mount, and links to make.
fn seen(spec: &SandboxSpec, container: &OciContainer) -> Result<Seen, StepFailure> {
    let (mut trees, mut links) = (Vec::new(), Vec::new());
    match &container.root {
        ContainerRoot::HostSystem => {
            for path in &spec.system {
                match root::system_entry(path)? {
                    Some(root::Entry::Link(to)) => links.push((path.clone(), to)),
                    Some(root::Entry::Tree(tree)) => trees.push((tree, MountAccess::Read)),
                    None => {}
                }
            }
        }
        ContainerRoot::Directory(dir) => {
            for entry in image_entries(dir)? {
                match entry {
                    (path, root::Entry::Link(to)) => links.push((path, to)),
                    (_, root::Entry::Tree(tree)) => trees.push((tree, MountAccess::Read)),
                }
            }
        }
    }
    Ok((trees, links))
}

/// The entries of an image's root. Opened relative to a directory that was reached without a symbolic link.
fn image_entries(dir: &Path) -> Result<Vec<(PathBuf, root::Entry)>, StepFailure> {
    let named = |error: rustix::io::Errno| StepFailure::new(BuildStep::Mount, error, dir.display().to_string());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let image = rustix::fs::openat2(CWD, dir, flags, Mode::empty(), resolve).map_err(named)?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(&image).map_err(named)? {
        let entry = entry.map_err(named)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") || OURS.contains(&name) {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            return Err(StepFailure::refused(
                BuildStep::Mount,
                format!("more than {ENTRIES_MAX} entries in the root of an image"),
            ));
        }
        let target = Path::new("/").join(name);
        let stat = rustix::fs::statat(&image, name, AtFlags::SYMLINK_NOFOLLOW).map_err(named)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(&image, name, Vec::new()).map_err(named)?;
                entries.push((target, root::Entry::Link(PathBuf::from(to.to_string_lossy().into_owned()))));
            }
            kind @ (FileType::Directory | FileType::RegularFile) => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE
                    | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
                let fd = rustix::mount::open_tree(&image, name, flags).map_err(named)?;
                let tree = MountTree { fd, target: target.clone(), is_dir: kind == FileType::Directory };
                root::attributes(&tree, NOSUID | NODEV | READ_ONLY)?;
                entries.push((target, root::Entry::Tree(tree)));
            }
            // Devices, sockets and pipes of an image are nobody's business.
            _ => {}
        }
    }
    Ok(entries)
}

/// Gives every tree a name that the runtime can be told.
fn hang_up(anchor: &Path, trees: &[(MountTree, MountAccess)]) -> Result<Vec<BindMount>, StepFailure> {
    let mut binds = Vec::with_capacity(trees.len());
    for (number, (tree, access)) in trees.iter().enumerate() {
        let source = anchor.join("seen").join(number.to_string());
        if tree.is_dir {
            make_dir(&source, 0o755)?;
        } else {
            write(&source, b"", 0o444)?;
        }
        root::attach(&tree.fd, &source)?;
        binds.push(BindMount { source, target: tree.target.clone(), access: *access });
    }
    Ok(binds)
}

fn prepared_scratch(anchor: &Path, bytes: u64) -> Result<ScratchPlace, StepFailure> {
    let path = anchor.join("scratch");
    root::attach(&root::scratch_tmpfs(bytes)?, &path)?;
    Ok(ScratchPlace::Prepared(path))
}

/// A place for every mount, files of our making, and the links, last.
fn places(
    rootfs: &Path,
    spec: &SandboxSpec,
    trees: &[(MountTree, MountAccess)],
    links: &[(PathBuf, PathBuf)],
    rootless: bool,
) -> Result<(), StepFailure> {
    let inside = |path: &Path| rootfs.join(path.strip_prefix("/").unwrap_or(path));
    let covered = |path: &Path| trees.iter().any(|(tree, _)| tree.target != path && path.starts_with(&tree.target));
    for name in OURS {
        make_dir(&rootfs.join(name), 0o755)?;
    }
    // What lies below another mount has to exist there; the runtime says so if it does not.
    for (tree, _) in trees.iter().filter(|(tree, _)| !covered(&tree.target)) {
        let place = inside(&tree.target);
        if tree.is_dir {
            make_dir(&place, 0o755)?;
        } else {
            make_parents(&place)?;
            write(&place, b"", 0o444)?;
        }
    }
    let brings_etc = trees.iter().map(|(tree, _)| &tree.target).chain(links.iter().map(|(path, _)| path));
    if !brings_etc.into_iter().any(|path| path == Path::new("/etc")) {
        make_dir(&rootfs.join("etc"), 0o755)?;
        for (name, text) in root::OWN_ETC {
            write(&rootfs.join("etc").join(name), text.as_bytes(), 0o444)?;
        }
    }
    for file in &spec.files {
        root::inside_path(&file.path)?;
        if covered(&file.path) {
            return Err(StepFailure::refused(
                BuildStep::Root,
                format!("{} lies in something that is mounted", file.path.display()),
            ));
        }
        own_file(&inside(&file.path), file, rootless)?;
    }
    for (path, to) in links {
        let place = inside(path);
        make_parents(&place)?;
        symlink(to, place).map_err(|error| failed(error, format!("linking {}", path.display())))?;
    }
    Ok(())
}

/// Readable by the program. An ordinary user has nobody to give it to; nobody else is inside.
fn own_file(place: &Path, file: &OwnFile, rootless: bool) -> Result<(), StepFailure> {
    make_parents(place)?;
    write(place, &file.contents, if rootless { 0o444 } else { 0o400 })?;
    let nobody = (!rootless).then_some(NOBODY);
    std::os::unix::fs::chown(place, nobody, nobody).map_err(|error| failed(error, "own files"))
}

// ------------------------------------------------------------------------------------------------------- the runtime

fn command(
    container: &OciContainer,
    anchor: &Path,
    network: SandboxNetwork,
    rootless: bool,
) -> Result<Vec<String>, StepFailure> {
    let text = |path: PathBuf| {
        path.into_os_string()
            .into_string()
            .map_err(|_| StepFailure::refused(BuildStep::Runtime, "the runtime has a path that is no text"))
    };
    let mut command = vec![text(container.program.clone())?, "--root".to_owned(), text(anchor.join("state"))?];
    command.extend(["--log".to_owned(), text(anchor.join("log"))?, "--log-format".to_owned(), "json".to_owned()]);
    if container.kind == RuntimeKind::Runsc {
        let network = match network {
            SandboxNetwork::None => "none",
            // Of the namespace it is started in: ours, with the proxy and nothing else.
            SandboxNetwork::Proxied => "host",
        };
        let platform = match container.platform {
            GvisorPlatform::Systrap => "systrap",
            GvisorPlatform::Ptrace => "ptrace",
        };
        command.extend([
            format!("--network={network}"),
            format!("--platform={platform}"),
            "--ignore-cgroups".to_owned(),
        ]);
        if rootless {
            command.push("--rootless".to_owned());
        }
    }
    let pid_file = text(anchor.join("state").join("pid"))?;
    command.extend(["run", "--pid-file", &pid_file, "--bundle", &text(anchor.to_owned())?, NAME].map(str::to_owned));
    Ok(command)
}

/// Runtimes want to make groups of their own. They see a tree whose root is ours: whatever they make is below it, limited
/// with it and removed with it. Of version 1 they get only the controller without which they do not start.
fn own_groups_only() -> Result<(), StepFailure> {
    const GROUPS: &str = "/sys/fs/cgroup";
    const CGROUP2_MAGIC: i64 = 0x6367_7270;
    let wrong =
        |error: rustix::io::Errno| StepFailure::new(BuildStep::ControlGroup, error, "the groups a runtime sees");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let unified = rustix::fs::statfs(GROUPS).map_err(wrong)?.f_type == CGROUP2_MAGIC;
    rustix::mount::unmount(GROUPS, UnmountFlags::DETACH).map_err(wrong)?;
    if unified {
        return rustix::mount::mount("cgroup2", GROUPS, "cgroup2", flags, None).map_err(wrong);
    }
    rustix::mount::mount("tmpfs", GROUPS, "tmpfs", flags, c"size=64k,mode=0755").map_err(wrong)?;
    let devices = Path::new(GROUPS).join(crate::cgroup::FOR_RUNTIMES);
    make_dir(&devices, 0o755)?;
    rustix::mount::mount("cgroup", &devices, "cgroup", flags, c"devices").map_err(wrong)
}

// ------------------------------------------------------------------------------------------------------------- files

fn make_dir(path: &Path, mode: u32) -> Result<(), StepFailure> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|error| failed(error, format!("making {}", path.display())))
}

fn make_parents(path: &Path) -> Result<(), StepFailure> {
    path.parent().map_or(Ok(()), |parent| make_dir(parent, 0o755))
}

fn write(path: &Path, contents: &[u8], mode: u32) -> Result<(), StepFailure> {
    use std::io::Write as _;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    made.and_then(|mut file| file.write_all(contents))
        .map_err(|error| failed(error, format!("writing {}", path.display())))
}

fn failed(error: impl Into<std::io::Error>, detail: impl Into<String>) -> StepFailure {
    StepFailure::new(BuildStep::Runtime, error, detail)
}
