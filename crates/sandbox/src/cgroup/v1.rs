//! Control groups, version 1, and machines that have both: one tree of directories per controller.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::files::{self, counted, number, set, set_if_there};
use super::{FOR_RUNTIMES, Kind, Membership, OWN_PIDS, PERIOD_MICROS, quota_micros, remove_tree, sweep};
use crate::error::{Step, StepFailure};
use crate::spec::Limits;
use crate::wire::GroupUsage;

/// Without these there are no limits worth the name.
const NEEDED: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];
/// Used if it is there.
const DISK: &str = "blkio";

/// The directory of this launcher in each controller's tree.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    stems: BTreeMap<&'static str, PathBuf>,
}

/// One sandbox's directories.
#[derive(Debug)]
pub(super) struct Group {
    dirs: BTreeMap<&'static str, PathBuf>,
}

impl Hierarchy {
    /// Finds the controllers and makes the launcher's directory in each, or says which is missing.
    pub(super) fn prepare(own: &str, mountinfo: &str, stem: &str) -> Result<Self, String> {
        let mounts = files::group_mounts(mountinfo);
        let mut stems = BTreeMap::new();
        for controller in NEEDED.into_iter().chain([DISK, FOR_RUNTIMES]) {
            let found = own.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, group) = rest.split_once(':')?;
                controllers.split(',').any(|one| one == controller).then_some(group)
            });
            let mount =
                mounts.iter().find(|mount| mount.kind == "cgroup" && mount.options.iter().any(|o| o == controller));
            let Some(base) = found.zip(mount).and_then(|(group, mount)| files::within(mount, group)) else {
                if controller == DISK || controller == FOR_RUNTIMES {
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
                Err(error) => return Err(format!("no right to make groups of `{controller}` ({error})")),
            }
            stems.insert(controller, dir);
        }
        Ok(Self { stems })
    }

    pub(super) fn make(&self, name: &str, runtime: bool) -> Result<(super::Group, Membership), StepFailure> {
        let mut group = super::Group { kind: Kind::None(String::new()), dirs: Vec::new() };
        let mut dirs = BTreeMap::new();
        for (controller, stem) in self.stems.iter().filter(|(controller, _)| runtime || **controller != FOR_RUNTIMES) {
            let dir = stem.join(name);
            match std::fs::create_dir(&dir) {
                Ok(()) => group.dirs.push(dir.clone()),
                // Controllers that share a tree share the directory.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    group.remove();
                    return Err(StepFailure::new(Step::ControlGroup, error, format!("of `{controller}`")));
                }
            }
            dirs.insert(*controller, dir);
        }
        group.kind = Kind::V1(Group { dirs });
        match lists(&group.dirs) {
            Ok(lists) => Ok((group, Membership { born_into: None, lists })),
            Err(failure) => {
                group.remove();
                Err(failure)
            }
        }
    }

    pub(super) fn leave(&self) {
        self.stems.values().for_each(|stem| remove_tree(stem));
    }
}

fn lists(dirs: &[PathBuf]) -> Result<Vec<OwnedFd>, StepFailure> {
    let open = |dir: &PathBuf| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(dir.join("cgroup.procs"))
            .map(OwnedFd::from)
            .map_err(|error| StepFailure::new(Step::ControlGroup, error, "opening the list of members"))
    };
    dirs.iter().map(open).collect()
}

impl Group {
    pub(super) fn limit(&self, limits: &Limits, devices: &[String]) -> Result<(), StepFailure> {
        if let Some(memory) = self.dirs.get("memory") {
            set(memory, "memory.limit_in_bytes", &limits.memory_bytes)?;
            // With the swap included, where it is counted at all.
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
        let Some(rate) = limits.io_bytes_per_second else { return Ok(()) };
        let Some(disk) = self.dirs.get(DISK) else {
            return if devices.is_empty() {
                Ok(())
            } else {
                Err(StepFailure::refused(Step::ControlGroup, "the controller `blkio` is not there"))
            };
        };
        for device in devices {
            set(disk, "blkio.throttle.read_bps_device", &format!("{device} {rate}"))?;
            set(disk, "blkio.throttle.write_bps_device", &format!("{device} {rate}"))?;
        }
        Ok(())
    }

    pub(super) fn usage(&self) -> GroupUsage {
        let from = |controller: &str| self.dirs.get(controller);
        GroupUsage {
            cpu_micros: self.cpu_micros(),
            memory_peak_bytes: from("memory").and_then(|dir| number(dir, "memory.max_usage_in_bytes")),
            oom_kills: from("memory").and_then(|dir| counted(dir, "memory.oom_control", "oom_kill")).unwrap_or(0),
            pids_refused: from("pids").and_then(|dir| counted(dir, "pids.events", "max")).unwrap_or(0),
        }
    }

    pub(super) fn cpu_micros(&self) -> Option<u64> {
        self.dirs.get("cpuacct").and_then(|dir| number(dir, "cpuacct.usage")).map(|nanos| nanos / 1000)
    }

    pub(super) fn forget_peak(&self) {
        if let Some(dir) = self.dirs.get("memory") {
            let _ = files::write(&dir.join("memory.max_usage_in_bytes"), "0");
        }
    }
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
