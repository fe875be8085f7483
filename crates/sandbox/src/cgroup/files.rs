//! Reading and writing the small files by which the kernel speaks about groups.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{BuildStep, StepFailure};

/// Writes one setting.
pub(super) fn set(dir: &Path, file: &str, value: &dyn std::fmt::Display) -> Result<(), StepFailure> {
    write(&dir.join(file), &value.to_string())
        .map_err(|error| StepFailure::new(BuildStep::ControlGroup, error, format!("setting {file}")))
}

/// Writes a setting that not every kernel has.
pub(super) fn set_if_there(dir: &Path, file: &str, value: &dyn std::fmt::Display) -> Result<(), StepFailure> {
    match write(&dir.join(file), &value.to_string()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StepFailure::new(BuildStep::ControlGroup, error, format!("setting {file}")))
        }
        _ => Ok(()),
    }
}

/// One write to a file that exists: the kernel takes a setting whole or not at all.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write as _;
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// A file that is one number.
pub(super) fn number(dir: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

/// The number beside a word in lines `word number`.
pub(super) fn number_beside(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A mount of control groups: where, which part of the hierarchy, of which type and options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupMount {
    pub(super) point: PathBuf,
    /// The group that is seen at the mount point.
    pub(super) root: PathBuf,
    pub(super) kind: String,
    pub(super) options: Vec<String>,
}

/// All of them in `/proc/self/mountinfo`.
pub(super) fn group_mounts(mountinfo: &str) -> Vec<GroupMount> {
    let one = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let (mut left, mut right) = (left.split(' ').skip(3), right.split(' '));
        let (root, point) = (left.next()?, left.next()?);
        let kind = right.next().filter(|kind| kind.starts_with("cgroup"))?;
        let options = right.nth(1)?;
        Some(GroupMount {
            point: PathBuf::from(point),
            root: PathBuf::from(root),
            kind: kind.to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
        })
    };
    mountinfo.lines().filter_map(one).collect()
}

/// Where a group of `/proc/self/cgroup` is found below a mount.
pub(super) fn within(mount: &GroupMount, group: &str) -> Option<PathBuf> {
    let below = Path::new(group).strip_prefix(&mount.root).ok()?;
    Some(mount.point.join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_groups_are_found_among_others() {
        let text = "25 30 0:23 / /proc rw - proc proc rw\n\
            40 35 0:35 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
            41 35 0:36 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let mounts = group_mounts(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].kind, "cgroup2");
        assert_eq!(mounts[1].options, ["rw", "cpu", "cpuacct"]);
        assert_eq!(within(&mounts[1], "/docker/x/y"), Some("/sys/fs/cgroup/cpu,cpuacct/y".into()));
        assert_eq!(within(&mounts[1], "/other"), None);
    }

    #[test]
    fn counters_are_read_by_their_whole_word() {
        let events = "oom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(number_beside(events, "oom_kill"), Some(2));
        assert_eq!(number_beside(events, "oom"), Some(3));
        assert_eq!(number_beside(events, "max"), None);
    }
}
