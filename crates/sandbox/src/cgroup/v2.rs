//! Control groups, version 2: one tree, and a group has either members or children with controllers, never both.
//!
//! So the server itself must move out of the way once: it and its launcher go into a leaf of their own, and the
//! controllers are switched on for the group they were in. That group has to be theirs alone (`Delegate=yes` of a
//! systemd unit, or a container's own root).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::counters::{CgroupCounters, Counter};
use super::files::{self, set, set_if_there};
use super::{CgroupMembership, Kind, OWN_PIDS, PERIOD_MICROS, quota_micros, remove_tree, sweep};
use crate::error::{BuildStep, StepFailure};
use crate::spec::SandboxLimits;
use crate::wire::FreezeState;

/// Without these there are no limits worth the name.
const NEEDED: [&str; 3] = ["memory", "cpu", "pids"];
/// The leaf for the server and its launcher.
const SERVER_LEAF: &str = "gantry-server";

/// The directory of this launcher.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    stem: PathBuf,
}

/// One sandbox's directory.
#[derive(Debug)]
pub(super) struct Group {
    dir: PathBuf,
}

impl Hierarchy {
    /// Prepares the group this process is in, or says what is missing.
    pub(super) fn prepare(own: &str, mountinfo: &str, stem: &str) -> Result<Self, String> {
        let group = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or("not mounted")?;
        let mounts = files::group_mounts(mountinfo);
        let mount = mounts.iter().find(|mount| mount.kind == "cgroup2").ok_or("not mounted")?;
        // Already in the leaf, if this is the second launcher of one server.
        let group = group.strip_suffix(SERVER_LEAF).unwrap_or(group);
        let base = files::within(mount, group).ok_or("this process's group is not visible here")?;
        let processes = [
            std::process::id(),
            rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get().cast_unsigned()),
        ];
        Self::prepare_at(&base, stem, &processes)
    }

    fn prepare_at(base: &Path, stem: &str, processes: &[u32]) -> Result<Self, String> {
        let offered = std::fs::read_to_string(base.join("cgroup.controllers")).map_err(|error| error.to_string())?;
        let missing: Vec<&str> =
            NEEDED.into_iter().filter(|name| !offered.split_whitespace().any(|one| one == *name)).collect();
        if !missing.is_empty() {
            return Err(format!("the controllers {} are not offered to this group", missing.join(", ")));
        }
        sweep(base);
        let leaf = base.join(SERVER_LEAF);
        let make = |dir: &Path| match std::fs::create_dir(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(format!("no right to make groups ({error})"))
            }
            _ => Ok(()),
        };
        make(&leaf)?;
        for process in processes.iter().filter(|process| **process != 0) {
            files::write(&leaf.join("cgroup.procs"), &process.to_string())
                .map_err(|error| format!("the server cannot move into a leaf of its group ({error})"))?;
        }
        let io = if offered.split_whitespace().any(|one| one == "io") { " +io" } else { "" };
        let wanted = format!("+memory +cpu +pids{io}");
        let switch_on = |dir: &Path| {
            files::write(&dir.join("cgroup.subtree_control"), &wanted).map_err(|error| {
                format!("controllers cannot be switched on; is the group shared with others? ({error})")
            })
        };
        switch_on(base)?;
        let stem = base.join(stem);
        make(&stem)?;
        switch_on(&stem)?;
        Ok(Self { stem })
    }

    pub(super) fn make(&self, name: &str) -> Result<(super::SandboxCgroup, CgroupMembership), StepFailure> {
        let dir = self.stem.join(name);
        std::fs::create_dir(&dir)
            .map_err(|error| StepFailure::new(BuildStep::ControlGroup, error, "making the group"))?;
        let group = super::SandboxCgroup { kind: Kind::V2(Group { dir: dir.clone() }), dirs: vec![dir.clone()] };
        match std::fs::File::open(&dir) {
            Ok(opened) => Ok((group, CgroupMembership { born_into: Some(OwnedFd::from(opened)), lists: Vec::new() })),
            Err(error) => {
                group.remove();
                Err(StepFailure::new(BuildStep::ControlGroup, error, "opening the group"))
            }
        }
    }

    pub(super) fn leave(&self) {
        remove_tree(&self.stem);
    }
}

fn limit(dir: &Path, limits: &SandboxLimits, devices: &[String]) -> Result<(), StepFailure> {
    set(dir, "memory.max", &limits.memory_bytes)?;
    set_if_there(dir, "memory.swap.max", &0)?;
    set(dir, "cpu.max", &format!("{} {PERIOD_MICROS}", quota_micros(limits)))?;
    set(dir, "pids.max", &(u64::from(limits.pids) + OWN_PIDS))?;
    if let Some(rate) = limits.io_bytes_per_second {
        for device in devices {
            set(dir, "io.max", &format!("{device} rbps={rate} wbps={rate}"))?;
        }
    }
    Ok(())
}

impl Group {
    pub(super) fn limit(&self, limits: &SandboxLimits, devices: &[String]) -> Result<(), StepFailure> {
        limit(&self.dir, limits, devices)
    }

    /// Only the processor's.
    pub(super) fn cpu(&self) -> CgroupCounters {
        let cpu = Counter::open(&self.dir, "cpu.stat", Some("usage_usec"));
        CgroupCounters { cpu, cpu_per_micro: 1, ..CgroupCounters::default() }
    }

    pub(super) fn counters(&self) -> CgroupCounters {
        CgroupCounters {
            memory_peak: Counter::open(&self.dir, "memory.peak", None),
            oom_kills: Counter::open(&self.dir, "memory.events", Some("oom_kill")),
            pids_refused: Counter::open(&self.dir, "pids.events", Some("max")),
            ..self.cpu()
        }
    }

    pub(super) fn freeze(&self) -> FreezeState {
        if files::write(&self.dir.join("cgroup.freeze"), "1").is_err() {
            return FreezeState::Running;
        }
        let events = std::fs::read_to_string(self.dir.join("cgroup.events")).unwrap_or_default();
        match files::number_beside(&events, "frozen") {
            Some(1) => FreezeState::Frozen,
            _ => FreezeState::Stopping,
        }
    }

    pub(super) fn thaw(&self) {
        // Fails only if the group is gone. One that stays frozen answers no call and is ended at its deadline, which here
        // reaches the frozen too.
        let _ = files::write(&self.dir.join("cgroup.freeze"), "0");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::wire::GroupUsage;

    /// A directory tree with the files a kernel would make, because few machines that run tests offer version 2.
    fn tree(controllers: &str) -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(base.path().join("cgroup.subtree_control"), "").unwrap();
        for dir in [SERVER_LEAF, "gantry-1-1"] {
            fs::create_dir(base.path().join(dir)).unwrap();
            fs::write(base.path().join(dir).join("cgroup.procs"), "").unwrap();
            fs::write(base.path().join(dir).join("cgroup.subtree_control"), "").unwrap();
        }
        base
    }

    #[test]
    fn the_server_moves_to_a_leaf_and_the_controllers_are_switched_on() {
        let base = tree("cpuset cpu io memory pids\n");
        // The launcher directory must be that of a living process, or it would be swept.
        let stem = super::super::stem();
        fs::create_dir(base.path().join(&stem)).unwrap();
        fs::write(base.path().join(&stem).join("cgroup.subtree_control"), "").unwrap();
        Hierarchy::prepare_at(base.path(), &stem, &[7, 0]).unwrap();
        let read = |path: &str| fs::read_to_string(base.path().join(path)).unwrap();
        assert_eq!(read("gantry-server/cgroup.procs"), "7");
        assert_eq!(read("cgroup.subtree_control"), "+memory +cpu +pids +io");
        assert_eq!(read(&format!("{stem}/cgroup.subtree_control")), "+memory +cpu +pids +io");
    }

    #[test]
    fn a_group_without_the_controllers_says_which_are_missing() {
        let base = tree("cpuset cpu\n");
        let error = Hierarchy::prepare_at(base.path(), "gantry-1-1", &[]).unwrap_err();
        assert_eq!(error, "the controllers memory, pids are not offered to this group");
    }

    #[test]
    fn limits_are_written_in_the_kernels_words_and_usage_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["memory.max", "memory.swap.max", "cpu.max", "pids.max", "io.max"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let limits =
            SandboxLimits { memory_bytes: 1 << 20, pids: 9, io_bytes_per_second: Some(5), ..SandboxLimits::default() };
        limit(dir.path(), &limits, &["8:0".to_owned()]).unwrap();
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cpu.max"), "50000 100000");
        assert_eq!(read("pids.max"), "10");
        assert_eq!(read("io.max"), "8:0 rbps=5 wbps=5");
        fs::write(dir.path().join("cpu.stat"), "usage_usec 1234\nuser_usec 1000\n").unwrap();
        fs::write(dir.path().join("memory.peak"), "4096\n").unwrap();
        fs::write(dir.path().join("memory.events"), "oom 1\noom_kill 1\n").unwrap();
        fs::write(dir.path().join("pids.events"), "max 3\n").unwrap();
        let usage = Group { dir: dir.path().to_owned() }.counters().usage();
        let expected = GroupUsage {
            cpu_micros: Some(1234),
            memory_peak_bytes: Some(4096),
            oom_kills: 1,
            cpu_overruns: 0,
            pids_refused: 3,
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn a_group_is_frozen_when_the_kernel_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group { dir: dir.path().to_owned() };
        assert_eq!(group.freeze(), FreezeState::Running, "kernels before 5.2 have no freezer here");
        fs::write(dir.path().join("cgroup.freeze"), "0").unwrap();
        for (events, stillness) in
            [("populated 1\nfrozen 0\n", FreezeState::Stopping), ("populated 1\nfrozen 1\n", FreezeState::Frozen)]
        {
            fs::write(dir.path().join("cgroup.events"), events).unwrap();
            assert_eq!(group.freeze(), stillness);
            assert_eq!(fs::read_to_string(dir.path().join("cgroup.freeze")).unwrap(), "1");
        }
        group.thaw();
        assert_eq!(fs::read_to_string(dir.path().join("cgroup.freeze")).unwrap(), "0");
    }
}
