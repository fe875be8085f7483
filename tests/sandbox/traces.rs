//! What is on the machine: processes by their marker, and everything that belongs to one server.
//!
//! A marker is a word that nobody else has in a command line. Children that only fork inherit it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Gantry, PATIENCE, wait_for};

/// What a launcher keeps waiting, once it has had an order: sandboxes, of two processes each.
const SPARES: usize = 3;
const SPARE_PROCESSES: usize = 2;
/// The launcher itself, and what sweeps up behind it.
const LAUNCHER_PROCESSES: usize = 2;
/// Groups without members that a launcher keeps at most, to use them again; each stands in up to six trees.
const EMPTIES_MAX: usize = 16;
const TREES_MAX: usize = 6;

/// A word that no other process has.
pub(crate) fn marker() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("gantry-test-marker-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The processes that carry the marker.
pub(crate) fn carriers(marker: &str) -> Vec<u32> {
    let carries = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == marker.as_bytes()))
    };
    processes().into_iter().filter(carries).collect()
}

pub(crate) fn wait_until_gone(marker: &str) {
    wait_for("the end of every process of the tool", || carriers(marker).is_empty().then_some(()));
}

/// Waits without holding up the request that starts them.
pub(super) async fn until_there(marker: &str, count: usize) {
    let start = Instant::now();
    while carriers(marker).len() < count {
        assert!(start.elapsed() < PATIENCE, "the tool's processes did not start in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The parent and the name of a process.
fn stat(pid: u32) -> Option<(u32, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    Some((rest.split_whitespace().nth(1)?.parse().ok()?, name))
}

/// The launcher of a server, once it has one.
pub(super) fn launcher(gantry: &Gantry) -> u32 {
    wait_for("the launcher", || {
        let is_it =
            |pid: &u32| stat(*pid).is_some_and(|(parent, name)| parent == gantry.pid() && name == "gantry-launcher");
        processes().into_iter().find(is_it)
    })
}

/// All processes below one, however deep.
pub(super) fn descendants(of: u32) -> BTreeSet<u32> {
    let all: Vec<(u32, u32)> = processes().into_iter().filter_map(|pid| Some((pid, stat(pid)?.0))).collect();
    let mut found = BTreeSet::from([of]);
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            found.remove(&of);
            return found;
        }
        found.extend(more);
    }
}

/// The control groups that a launcher has made, in every hierarchy.
pub(super) fn groups(launcher: u32) -> BTreeSet<PathBuf> {
    const DEPTH_MAX: usize = 6;
    fn walk(dir: &Path, depth: usize, ours: bool, prefix: &str, found: &mut BTreeSet<PathBuf>) {
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let ours = ours || entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
            if ours {
                found.insert(entry.path());
            }
            if depth < DEPTH_MAX {
                walk(&entry.path(), depth + 1, ours, prefix, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), 0, false, &format!("gantry-{launcher}-"), &mut found);
    found
}

/// How many groups of a launcher have members. Those without are few.
fn inhabited(launcher: u32) -> usize {
    let all = groups(launcher);
    let has_members = |dir: &&PathBuf| {
        std::fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|members| !members.trim().is_empty())
    };
    let inhabited = all.iter().filter(has_members).count();
    assert!(all.len() - inhabited <= (EMPTIES_MAX + 1) * TREES_MAX, "groups are left behind: {all:?}");
    inhabited
}

/// Everything that calls could leave behind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Traces {
    descendants: usize,
    /// How many have members; those of waiting processes have new names each time.
    groups: usize,
    mounts: [usize; 2],
    descriptors: [usize; 2],
    namespaces: usize,
    files: BTreeSet<PathBuf>,
}

impl Traces {
    /// Is there nothing but the launcher, the processes it keeps waiting, and a group for each of those?
    pub(super) fn is_quiet(&self) -> bool {
        self.descendants == LAUNCHER_PROCESSES + SPARES * SPARE_PROCESSES
    }

    /// As they are now. `files` are the directories in which files could be left.
    pub(super) fn of(gantry: &Gantry, files: &[&Path]) -> Self {
        let both = [gantry.pid(), launcher(gantry)];
        let [server, launcher] = both;
        let lines = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap().lines().count();
        let below = descendants(server);
        let mut kept = BTreeSet::new();
        files.iter().for_each(|dir| kept.extend(below_dir(dir)));
        Self {
            descendants: below.len(),
            groups: inhabited(launcher),
            mounts: both.map(lines),
            descriptors: both.map(|pid| descriptors(pid, gantry)),
            namespaces: below.iter().flat_map(|pid| namespaces(*pid)).collect::<BTreeSet<_>>().len(),
            files: kept,
        }
    }
}

/// Open descriptors of a process, without the connections of the server's clients: those stay for the client's next
/// request, as long as both sides like.
fn descriptors(pid: u32, gantry: &Gantry) -> usize {
    let port: u16 = gantry.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let connections = connections(port);
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    targets.filter(|target| !connections.iter().any(|connection| target.to_str() == Some(connection))).count()
}

/// The sockets of connections to a local port, as links to them read.
fn connections(port: u16) -> Vec<String> {
    const LISTENS: &str = "0A";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")) && row[3] != LISTENS);
    ours.map(|row| format!("socket:[{}]", row[9])).collect()
}

fn namespaces(pid: u32) -> Vec<PathBuf> {
    let links = std::fs::read_dir(format!("/proc/{pid}/ns")).into_iter().flatten().flatten();
    links.filter_map(|link| std::fs::read_link(link.path()).ok()).collect()
}

fn below_dir(dir: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    let deeper: Vec<PathBuf> = entries.iter().filter(|path| path.is_dir()).flat_map(|path| below_dir(path)).collect();
    entries.into_iter().chain(deeper).collect()
}
