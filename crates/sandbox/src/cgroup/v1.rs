//! Control groups, version 1, and machines that have both: one tree of directories per controller.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::counters::{CgroupCounters, Counter};
use super::files::{self, number, set, set_if_there};
use super::{CgroupMembership, FOR_RUNTIMES, Kind, OWN_PIDS, PERIOD_MICROS, quota_micros, remove_tree, sweep};
use crate::error::{BuildStep, StepFailure};
use crate::spec::SandboxLimits;
use crate::wire::FreezeState;

/// Without these there are no limits worth the name.
const NEEDED: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];
/// Used if it is there.
const DISK: &str = "blkio";
/// Used if it is there, and only for sandboxes that are to be frozen: every tree costs a start some microseconds.
const FREEZER: &str = "freezer";
const FREEZER_STATE: &str = "freezer.state";

/// Memory that may still be charged to a group for it to be used again: what the kernel keeps in reserve on each processor
/// and frees a moment later. Beyond that, files the last program has read, which the next one should not be charged for.
const RESIDUE_BYTES_MAX: u64 = 1 << 20;

/// The directory of this launcher in each controller's tree.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    stems: BTreeMap<&'static str, PathBuf>,
}

/// One sandbox's directories.
#[derive(Debug)]
pub(super) struct Group {
    dirs: BTreeMap<&'static str, PathBuf>,
    /// The limits it has, but for the disk's.
    limits: Option<SandboxLimits>,
    /// Events of those who had it before: the kernel does not forget them.
    oom_kills_before: u64,
    pids_refused_before: u64,
}

impl Hierarchy {
    /// Finds the controllers and makes the launcher's directory in each, or says which is missing.
    pub(super) fn prepare(own: &str, mountinfo: &str, stem: &str) -> Result<Self, String> {
        let mounts = files::group_mounts(mountinfo);
        let mut stems = BTreeMap::new();
        for controller in NEEDED.into_iter().chain([DISK, FREEZER, FOR_RUNTIMES]) {
            let found = own.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, group) = rest.split_once(':')?;
                controllers.split(',').any(|one| one == controller).then_some(group)
            });
            let mount =
                mounts.iter().find(|mount| mount.kind == "cgroup" && mount.options.iter().any(|o| o == controller));
            let Some(base) = found.zip(mount).and_then(|(group, mount)| files::within(mount, group)) else {
                if [DISK, FREEZER, FOR_RUNTIMES].contains(&controller) {
                    continue;
                }
                return Err(format!("the controller `{controller}` is not there"));
            };
            sweep(&base);
            let dir = base.join(stem);
            match std::fs::create_dir(&dir) {
                Ok(()) => {}
                // Controllers that share a tree share the directory.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                // Without it nothing can be frozen, and all else is as it was.
                Err(_) if controller == FREEZER => continue,
                Err(error) => return Err(format!("no right to make groups of `{controller}` ({error})")),
            }
            stems.insert(controller, dir);
        }
        Ok(Self { stems })
    }

    pub(super) fn make(
        &self,
        name: &str,
        runtime: bool,
    ) -> Result<(super::SandboxCgroup, CgroupMembership), StepFailure> {
        let mut group = super::SandboxCgroup { kind: Kind::None(String::new()), dirs: Vec::new() };
        let mut dirs = BTreeMap::new();
        let wanted = |controller: &str| controller != FREEZER && (runtime || controller != FOR_RUNTIMES);
        for (controller, stem) in self.stems.iter().filter(|(controller, _)| wanted(controller)) {
            let dir = stem.join(name);
            match std::fs::create_dir(&dir) {
                Ok(()) => group.dirs.push(dir.clone()),
                // Controllers that share a tree share the directory.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    group.remove();
                    return Err(StepFailure::new(BuildStep::ControlGroup, error, format!("of `{controller}`")));
                }
            }
            dirs.insert(*controller, dir);
        }
        group.kind = Kind::V1(Group { dirs, limits: None, oom_kills_before: 0, pids_refused_before: 0 });
        match membership(&group.dirs) {
            Ok(membership) => Ok((group, membership)),
            Err(failure) => {
                group.remove();
                Err(failure)
            }
        }
    }

    /// Gives a group a directory in the freezer's tree too, with its first process as member. The new directory.
    pub(super) fn make_freezable(&self, group: &mut Group, first: i32) -> Option<PathBuf> {
        let name = group.dirs.values().next()?.file_name()?;
        let dir = self.stems.get(FREEZER)?.join(name);
        match std::fs::create_dir(&dir) {
            Ok(()) => {}
            // Controllers that share a tree share the directory, and its member is in it.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                group.dirs.insert(FREEZER, dir);
                return None;
            }
            Err(_) => return None,
        }
        if files::write(&dir.join("cgroup.procs"), &first.to_string()).is_ok() {
            group.dirs.insert(FREEZER, dir.clone());
        }
        Some(dir)
    }

    pub(super) fn leave(&self) {
        self.stems.values().for_each(|stem| remove_tree(stem));
    }
}

/// The way into a group.
pub(super) fn membership(dirs: &[PathBuf]) -> Result<CgroupMembership, StepFailure> {
    let open = |dir: &PathBuf| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(dir.join("cgroup.procs"))
            .map(OwnedFd::from)
            .map_err(|error| StepFailure::new(BuildStep::ControlGroup, error, "opening the list of members"))
    };
    let lists = dirs.iter().map(open).collect::<Result<Vec<OwnedFd>, _>>()?;
    Ok(CgroupMembership { born_into: None, lists })
}

impl Group {
    /// Sets the limits of memory, processor and processes, unless it has them.
    pub(super) fn foresee(&mut self, limits: &SandboxLimits) -> Result<(), StepFailure> {
        let same = |had: &SandboxLimits| {
            (had.memory_bytes, had.cpu_millicores, had.pids)
                == (limits.memory_bytes, limits.cpu_millicores, limits.pids)
        };
        if self.limits.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.limits = None;
        if let Some(memory) = self.dirs.get("memory") {
            // The one with the swap included, where it is counted at all, can never be the lower one: off while it changes.
            set_if_there(memory, "memory.memsw.limit_in_bytes", &-1)?;
            set(memory, "memory.limit_in_bytes", &limits.memory_bytes)?;
            set_if_there(memory, "memory.memsw.limit_in_bytes", &limits.memory_bytes)?;
            set_if_there(memory, "memory.swappiness", &0)?;
        }
        if let Some(cpu) = self.dirs.get("cpu") {
            set(cpu, "cpu.cfs_period_us", &PERIOD_MICROS)?;
            set(cpu, "cpu.cfs_quota_us", &quota_micros(limits))?;
        }
        if let Some(pids) = self.dirs.get("pids") {
            set(pids, "pids.max", &(u64::from(limits.pids) + OWN_PIDS))?;
        }
        self.limits = Some(*limits);
        Ok(())
    }

    pub(super) fn limit(&mut self, limits: &SandboxLimits, devices: &[String]) -> Result<(), StepFailure> {
        self.foresee(limits)?;
        let Some(rate) = limits.io_bytes_per_second else { return Ok(()) };
        let Some(disk) = self.dirs.get(DISK) else {
            return if devices.is_empty() {
                Ok(())
            } else {
                Err(StepFailure::refused(BuildStep::ControlGroup, "the controller `blkio` is not there"))
            };
        };
        for device in devices {
            set(disk, "blkio.throttle.read_bps_device", &format!("{device} {rate}"))?;
            set(disk, "blkio.throttle.write_bps_device", &format!("{device} {rate}"))?;
        }
        Ok(())
    }

    /// Only the processor's.
    pub(super) fn cpu(&self) -> CgroupCounters {
        let cpu = self.dirs.get("cpuacct").and_then(|dir| Counter::open(dir, "cpuacct.usage", None));
        CgroupCounters { cpu, cpu_per_micro: 1000, ..CgroupCounters::default() }
    }

    pub(super) fn counters(&self) -> CgroupCounters {
        let (memory, pids) = (self.dirs.get("memory"), self.dirs.get("pids"));
        CgroupCounters {
            memory_peak: memory.and_then(|dir| Counter::open(dir, "memory.max_usage_in_bytes", None)),
            oom_kills: memory.and_then(|dir| Counter::open(dir, "memory.oom_control", Some("oom_kill"))),
            pids_refused: pids.and_then(|dir| Counter::open(dir, "pids.events", Some("max"))),
            oom_kills_before: self.oom_kills_before,
            pids_refused_before: self.pids_refused_before,
            ..self.cpu()
        }
    }

    pub(super) fn freeze(&self) -> FreezeState {
        let Some(dir) = self.dirs.get(FREEZER) else { return FreezeState::Running };
        if files::write(&dir.join(FREEZER_STATE), "FROZEN").is_err() {
            return FreezeState::Running;
        }
        match std::fs::read_to_string(dir.join(FREEZER_STATE)).unwrap_or_default().trim() {
            "FROZEN" => FreezeState::Frozen,
            "FREEZING" => FreezeState::Stopping,
            _ => FreezeState::Running,
        }
    }

    pub(super) fn thaw(&self) {
        if let Some(dir) = self.dirs.get(FREEZER) {
            thaw(dir);
        }
    }

    /// Makes it as good as new, if that can be done. Nobody may be in it.
    pub(super) fn renew(&mut self) -> bool {
        let is_small =
            |dir: &PathBuf| number(dir, "memory.usage_in_bytes").is_some_and(|used| used <= RESIDUE_BYTES_MAX);
        // Limits of the disk stay until somebody takes each of them back, container runtimes leave more than that,
        // and who could be frozen may be.
        if self.dirs.contains_key(FOR_RUNTIMES)
            || self.dirs.contains_key(FREEZER)
            || self.limits.is_none_or(|limits| limits.io_bytes_per_second.is_some())
            || !self.dirs.get("memory").is_some_and(is_small)
        {
            return false;
        }
        let since = self.counters().usage();
        self.oom_kills_before += since.oom_kills;
        self.pids_refused_before += since.pids_refused;
        // Written again, because that gives back what the last program has used of the period.
        let Some((cpu, limits)) = self.dirs.get("cpu").zip(self.limits) else { return false };
        set(cpu, "cpu.cfs_quota_us", &quota_micros(&limits)).is_ok()
    }

    pub(super) fn forget_peak(&self) {
        if let Some(dir) = self.dirs.get("memory") {
            // Where it cannot be set back, the next call is told the peak of all before it: too much, never too little.
            let _ = files::write(&dir.join("memory.max_usage_in_bytes"), "0");
        }
    }
}

/// Thaws a directory of the freezer's tree; in other trees there is no such file.
pub(super) fn thaw(dir: &Path) {
    // Where there is one and this fails, the group is gone already: nothing else refuses to thaw.
    let _ = files::write(&dir.join(FREEZER_STATE), "THAWED");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_controller_says_which() {
        let own = "4:memory:/\n3:cpu,cpuacct:/\n";
        let mounts = "1 2 0:1 / /nowhere/memory rw - cgroup cgroup rw,memory\n";
        let error = Hierarchy::prepare(own, mounts, "gantry-1-1").unwrap_err();
        assert!(error.contains("`memory`") || error.contains("`cpu`"), "{error}");
    }
}
