//! Control groups behind one seam: memory, CPU, processes and disk of a sandbox, limited and counted.
//!
//! Three kinds of machine: version 2 (what production has), version 1 or both side by side (what many machines still
//! have), and neither (an ordinary user without delegation), where the launcher looks at the processes itself (`launcher::oversight`).
//!
//! Every group of ours lies below a directory named for the launcher that made it, `gantry-<process>-<its start>`. A
//! launcher that starts removes those whose launcher is gone, so a crash of everything leaves nothing for long.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::{BuildStep, StepFailure};
use crate::inside::seccomp::CountedMemory;
use crate::spec::{MountAccess, SandboxLimits, SandboxSpec};
use crate::wire::{FreezeState, GroupUsage};

pub(crate) use self::counters::CgroupCounters;

mod counters;
mod files;
mod v1;
mod v2;

/// What this machine offers.
#[derive(Debug)]
pub(crate) enum CgroupSupport {
    V2(v2::Hierarchy),
    V1(v1::Hierarchy),
    /// Why not.
    Absent(String),
}

/// One sandbox's group.
#[derive(Debug)]
pub(crate) struct SandboxCgroup {
    kind: Kind,
    /// The directories to remove, one per hierarchy.
    dirs: Vec<PathBuf>,
}

#[derive(Debug)]
enum Kind {
    V2(v2::Group),
    V1(v1::Group),
    /// Why there is none.
    None(String),
}

/// How a new process gets into its group.
#[derive(Debug, Default)]
pub(crate) struct CgroupMembership {
    /// Born into it (version 2).
    born_into: Option<OwnedFd>,
    /// Writes itself into these (version 1), opened while there was still the right to.
    lists: Vec<OwnedFd>,
}

impl CgroupSupport {
    /// Looks at this machine and prepares it. `stem` is the directory of this launcher.
    pub(crate) fn prepare(stem: &str) -> Self {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let second = v2::Hierarchy::prepare(&own, &mounts, stem);
        let found = match second {
            Ok(hierarchy) => Ok(Self::V2(hierarchy)),
            Err(no_v2) => match v1::Hierarchy::prepare(&own, &mounts, stem) {
                Ok(hierarchy) => Ok(Self::V1(hierarchy)),
                Err(no_v1) => Err(format!("version 2: {no_v2}; version 1: {no_v1}")),
            },
        };
        found.unwrap_or_else(Self::Absent)
    }

    /// A group without limits yet, and how to get into it. `runtime`: for a container runtime, which wants more of it.
    pub(crate) fn make(&self, name: &str, runtime: bool) -> Result<(SandboxCgroup, CgroupMembership), StepFailure> {
        match self {
            Self::V2(hierarchy) => hierarchy.make(name),
            Self::V1(hierarchy) => hierarchy.make(name, runtime),
            Self::Absent(why) => {
                Ok((SandboxCgroup { kind: Kind::None(why.clone()), dirs: Vec::new() }, CgroupMembership::default()))
            }
        }
    }

    /// Makes it possible to freeze a group whose only member is its first process. Where it cannot be, it is not: asked
    /// to freeze, such a group says that it runs.
    pub(crate) fn make_freezable(&self, group: &mut SandboxCgroup, first: i32) {
        if let (Self::V1(hierarchy), Kind::V1(kind)) = (self, &mut group.kind) {
            group.dirs.extend(hierarchy.make_freezable(kind, first));
        }
    }

    /// Is there no group for any sandbox?
    pub(crate) fn are_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }

    /// Whose memory is counted.
    pub(crate) fn counted_memory(&self) -> CountedMemory {
        if self.are_absent() { CountedMemory::OfProcesses } else { CountedMemory::OfGroup }
    }

    /// Removes everything of this launcher, and of launchers that are gone.
    pub(crate) fn leave(&self) {
        match self {
            Self::V2(hierarchy) => hierarchy.leave(),
            Self::V1(hierarchy) => hierarchy.leave(),
            Self::Absent(_) => {}
        }
    }
}

impl SandboxCgroup {
    /// Gives it the limits of a specification.
    pub(crate) fn limit(&mut self, spec: &SandboxSpec) -> Result<(), StepFailure> {
        let devices = match spec.limits.io_bytes_per_second {
            Some(_) => devices_behind(spec)?,
            None => Vec::new(),
        };
        let limits = crate::oci::group_limits(spec);
        match &mut self.kind {
            Kind::V2(group) => group.limit(&limits, &devices),
            Kind::V1(group) => group.limit(&limits, &devices),
            Kind::None(why) if spec.limits.io_bytes_per_second.is_some() => Err(StepFailure::refused(
                BuildStep::ControlGroup,
                format!("disk bandwidth cannot be limited here: {why}"),
            )),
            Kind::None(_) => Ok(()),
        }
    }

    /// Gives it limits that are likely to be wanted, as far as setting them takes time. So little of the processor that
    /// nobody could get ready with it is not given beforehand.
    pub(crate) fn foresee(&mut self, limits: &SandboxLimits) {
        if let Kind::V1(group) = &mut self.kind
            && limits.cpu_millicores >= READY_MILLICORES_MIN
        {
            // The order tries again, and tells.
            let _ = group.foresee(limits);
        }
    }

    /// The way into it once more, for another sandbox, if it is as good as new. Nobody may be in it.
    pub(crate) fn renewed(&mut self) -> Option<CgroupMembership> {
        match &mut self.kind {
            Kind::V1(group) => group.renew().then(|| v1::membership(&self.dirs).ok())?,
            // One directory, and its counters cannot be set back.
            Kind::V2(_) | Kind::None(_) => None,
        }
    }

    /// Its counters, opened.
    pub(crate) fn counters(&self) -> CgroupCounters {
        match &self.kind {
            Kind::V2(group) => group.counters(),
            Kind::V1(group) => group.counters(),
            Kind::None(_) => CgroupCounters::default(),
        }
    }

    /// What was used so far.
    pub(crate) fn usage(&self) -> GroupUsage {
        self.counters().usage()
    }

    /// Only the processor's part of that.
    pub(crate) fn cpu_micros(&self) -> Option<u64> {
        let cpu = match &self.kind {
            Kind::V2(group) => group.cpu(),
            Kind::V1(group) => group.cpu(),
            Kind::None(_) => return None,
        };
        cpu.cpu_micros()
    }

    /// Counts the peak of memory from now on, where the kernel can.
    pub(crate) fn forget_peak(&self) {
        match &self.kind {
            Kind::V1(group) => group.forget_peak(),
            Kind::V2(_) | Kind::None(_) => {}
        }
    }

    /// Lets its members stand still, or says that they cannot be made to.
    pub(crate) fn freeze(&self) -> FreezeState {
        match &self.kind {
            Kind::V2(group) => group.freeze(),
            Kind::V1(group) => group.freeze(),
            Kind::None(_) => FreezeState::Running,
        }
    }

    /// Lets its members run. Whoever ends a sandbox does this too: in version 1 a frozen process does not even die.
    pub(crate) fn thaw(&self) {
        match &self.kind {
            Kind::V2(group) => group.thaw(),
            Kind::V1(group) => group.thaw(),
            Kind::None(_) => {}
        }
    }

    /// Removes it. Gives itself back if the kernel is not done with it yet.
    pub(crate) fn remove(mut self) -> Option<Self> {
        self.dirs.retain(|dir| match remove_with_children(dir) {
            Ok(()) => false,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        });
        (!self.dirs.is_empty()).then_some(self)
    }
}

impl CgroupMembership {
    /// The group to be born into, if there is such a thing.
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.born_into.as_ref().map(|fd| fd.as_fd())
    }

    /// Goes into the groups one is not born into.
    pub(crate) fn join(&self) -> Result<(), StepFailure> {
        for list in &self.lists {
            rustix::io::write(list, b"0")
                .map_err(|error| StepFailure::new(BuildStep::ControlGroup, error, "joining the group"))?;
        }
        Ok(())
    }
}

/// The name of this launcher's directory.
pub(crate) fn stem() -> String {
    let process = std::process::id();
    format!("{PREFIX}{process}-{}", start_of(process).unwrap_or(0))
}

const PREFIX: &str = "gantry-";

/// The controller of version 1 without which container runtimes do not start.
pub(crate) const FOR_RUNTIMES: &str = "devices";

/// When a process started, in ticks since the machine did: with its number this names it for good.
fn start_of(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may contain anything, so count from the last parenthesis; the start is field 22, the state field 3.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // A process that has ended and was not waited for yet is gone for us: it cleans up nothing any more.
    fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    fields.nth(18)?.parse().ok()
}

/// Removes the directories of launchers that are gone.
fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((process, start)) = name.to_str().and_then(launcher_of) else { continue };
        if start_of(process) != Some(start) {
            remove_tree(&entry.path());
        }
    }
}

fn launcher_of(name: &str) -> Option<(u32, u64)> {
    let (process, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((process.parse().ok()?, start.parse().ok()?))
}

/// A sandbox's directory, with what a container runtime has made in it and not removed.
fn remove_with_children(dir: &Path) -> io::Result<()> {
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        done => return done,
    }
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir(entry.path())?;
        }
    }
    std::fs::remove_dir(dir)
}

/// A launcher's directory with the groups in it. Files of groups cannot be removed and need not be.
fn remove_tree(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // What its launcher had frozen when it died waits for this to follow it.
            v1::thaw(&entry.path());
            // Somebody may still be dying in there; whoever comes next tries again.
            let _ = remove_with_children(&entry.path());
        }
    }
    // Fails exactly if something is left in it, of which the line above has said what becomes.
    let _ = std::fs::remove_dir(dir);
}

/// The disks behind what may be written, as `major:minor`.
fn devices_behind(spec: &SandboxSpec) -> Result<Vec<String>, StepFailure> {
    let mut devices = Vec::new();
    for mount in spec.mounts.iter().filter(|mount| mount.access == MountAccess::Write) {
        let failed = |error| StepFailure::new(BuildStep::ControlGroup, error, mount.source.display().to_string());
        let device = rustix::fs::stat(&mount.source).map_err(failed)?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let here = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        // A limit belongs to the disk, not to its partition.
        let disk = if here.join("partition").is_file() { here.join("../dev") } else { here.join("dev") };
        let Ok(disk) = std::fs::read_to_string(disk) else {
            return Err(StepFailure::refused(
                BuildStep::ControlGroup,
                format!("{} is on no disk whose bandwidth can be limited", mount.source.display()),
            ));
        };
        devices.push(disk.trim().to_owned());
    }
    devices.sort();
    devices.dedup();
    Ok(devices)
}

/// Microseconds of CPU in each [`PERIOD_MICROS`].
fn quota_micros(limits: &SandboxLimits) -> u64 {
    (limits.cpu_millicores.saturating_mul(PERIOD_MICROS) / 1000).max(QUOTA_MICROS_MIN)
}

/// With this much of a core a first process is ready in no time.
const READY_MILLICORES_MIN: u64 = 100;

const PERIOD_MICROS: u64 = 100_000;
/// The kernel takes no less.
const QUOTA_MICROS_MIN: u64 = 1000;

/// Processes the sandbox itself needs: its first.
const OWN_PIDS: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_its_launcher_for_good() {
        let (process, start) = launcher_of(&stem()).unwrap();
        assert_eq!(process, std::process::id());
        assert_eq!(start_of(process), Some(start));
        for other in ["gantry-", "gantry-x-1", "gantry-1", "system.slice", "gantry-1-2-3"] {
            assert_eq!(launcher_of(other), None, "{other}");
        }
    }

    #[test]
    fn only_directories_of_launchers_that_are_gone_are_swept() {
        let base = tempfile::tempdir().unwrap();
        let gone = base.path().join("gantry-1-99999999999");
        std::fs::create_dir_all(gone.join("7")).unwrap();
        std::fs::create_dir(base.path().join(stem())).unwrap();
        std::fs::create_dir(base.path().join("system.slice")).unwrap();
        sweep(base.path());
        assert!(!gone.is_dir());
        assert!(base.path().join(stem()).is_dir());
        assert!(base.path().join("system.slice").is_dir());
    }

    #[test]
    fn thousandths_of_a_core_become_microseconds_in_a_period() {
        let quota = |cpu_millicores| quota_micros(&SandboxLimits { cpu_millicores, ..SandboxLimits::default() });
        assert_eq!([quota(500), quota(1000), quota(4000), quota(1)], [50_000, 100_000, 400_000, 1000]);
    }
}
