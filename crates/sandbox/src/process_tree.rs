//! The processes of a sandbox as `/proc` shows them: what they use together, where no control group counts it.
//!
//! Whoever loses its parent inside becomes a child of the sandbox's first process, so the children of that process, their
//! children and so on are everything there is. A look is not atomic: who forks meanwhile is seen by the next one.
//!
//! Not here: what of it is new since the last look ([`cpu_account`]), and what follows from the numbers
//! (`launcher::oversight`).

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use self::cpu_account::{CpuAccount, ProcessTimes};
use crate::system;

mod cpu_account;
mod kernel_buffers;

/// Most processes of one sandbox that are looked at; more than any limit of processes lets it have.
const PROCESSES_MAX: usize = 32_768;
/// How often a look is repeated while processes are being signalled that may fork.
const SIGNAL_ROUNDS: usize = 4;

/// What the processes of a tree use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TreeUsage {
    /// CPU time since the last look: of those that live, and of those that have ended meanwhile.
    pub(crate) used_micros: u64,
    /// Resident now, with what is shared counted for everybody who shares it: never too little.
    pub(crate) resident_bytes: u64,
    /// The scratch space that is in use, which is memory too.
    pub(crate) scratch_bytes: u64,
    /// What the kernel holds for them in sockets and pipes, or may.
    pub(crate) buffer_bytes: u64,
}

/// A tree, found by its first process.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    first: i32,
    account: CpuAccount,
}

/// One process, as its `stat` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    /// It runs, or would if there were a processor for it.
    is_running: bool,
    /// Its own CPU time, in ticks of the system.
    own_ticks: u64,
    /// That of those it has waited for.
    waited_ticks: u64,
    /// When it began, in ticks: with its number, its identity.
    began_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn times(&self, pid: i32) -> ProcessTimes {
        ProcessTimes {
            identity: (pid, self.began_ticks),
            is_running: self.is_running,
            own_micros: micros(self.own_ticks),
            waited_micros: micros(self.waited_ticks),
        }
    }
}

impl ProcessTree {
    /// Below this first process, counted from now on.
    pub(crate) fn below(first: i32) -> Self {
        let before = stat(first).map(|stat| stat.times(first));
        Self { first, account: CpuAccount::after(before) }
    }

    /// What it uses, and what it has used since the last look; who is new and running stands for this `span`.
    pub(crate) fn look(&mut self, span: Duration) -> TreeUsage {
        // A parent before its children: a child that is waited for meanwhile is missing before its time is with the parent.
        let first = stat(self.first).map(|stat| stat.times(self.first));
        let members = self.members();
        let seen = first.into_iter().chain(members.iter().map(|(pid, stat)| stat.times(*pid)));
        let page = system::page_bytes();
        let resident = members.iter().map(|(_, stat)| stat.resident_pages.saturating_mul(page));
        TreeUsage {
            used_micros: self.account.book(seen, span, system::processors()),
            resident_bytes: resident.fold(0, u64::saturating_add),
            scratch_bytes: scratch_of(&members),
            buffer_bytes: self.buffer_bytes(&members),
        }
    }

    /// What it really occupies: shared pages once, what was swapped out, the scratch space and what the kernel holds. Takes longer than
    /// [`look`](Self::look). Where the kernel does not tell, what is resident counts.
    ///
    /// Who ends while others are looked at leaves them its part of what they share, so some is counted twice. The second of
    /// two looks does not see that again; the smaller one counts.
    pub(crate) fn occupied_bytes(&self) -> u64 {
        self.occupied_at_once().min(self.occupied_at_once())
    }

    fn occupied_at_once(&self) -> u64 {
        let members = self.members();
        let page = system::page_bytes();
        let occupied = |(pid, _): &(i32, Stat)| {
            // Who has no memory any more is ending, whatever it had when it was found.
            let resident = || stat(*pid).map_or(0, |stat| stat.resident_pages.saturating_mul(page));
            proportional_bytes(*pid).unwrap_or_else(resident)
        };
        let held: u64 = members.iter().map(occupied).fold(0, u64::saturating_add);
        held.saturating_add(scratch_of(&members)).saturating_add(self.buffer_bytes(&members))
    }

    fn buffer_bytes(&self, members: &[(i32, Stat)]) -> u64 {
        let pids: Vec<i32> = members.iter().map(|(pid, _)| *pid).collect();
        kernel_buffers::held_bytes(self.first, &pids)
    }

    /// Sends a signal to everything but the first process. Stopped processes do not fork, so a few rounds reach all.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut signalled: Vec<i32> = Vec::new();
        for _ in 0..SIGNAL_ROUNDS {
            let mut fresh = 0;
            for (pid, stat) in self.members() {
                if signalled.contains(&pid) {
                    continue;
                }
                fresh += 1;
                signalled.push(pid);
                if let Some(process) = pinned(pid, stat.parent) {
                    // The one failure is that it is gone already.
                    let _ = rustix::process::pidfd_send_signal(&process, signal);
                }
            }
            if fresh == 0 {
                return;
            }
        }
    }

    /// Everything below the first process.
    fn members(&self) -> Vec<(i32, Stat)> {
        let mut found: Vec<(i32, Stat)> = Vec::new();
        let mut waiting = children(self.first);
        while let Some(pid) = waiting.pop() {
            if found.len() >= PROCESSES_MAX {
                break;
            }
            let Some(stat) = stat(pid) else { continue };
            found.push((pid, stat));
            waiting.extend(children(pid));
        }
        found
    }
}

/// A handle on a process that cannot become another's: its number is looked at once more after the handle was taken.
fn pinned(pid: i32, parent: i32) -> Option<OwnedFd> {
    let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (stat(pid)?.parent == parent).then_some(process)
}

/// The children of a process, of all its threads.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    let mut told = false;
    for thread in threads.flatten() {
        if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
            told = true;
            found.extend(text.split_whitespace().filter_map(|number| number.parse::<i32>().ok()));
        }
    }
    if told { found } else { children_by_search(pid) }
}

/// The same on kernels that do not list children: everybody is asked for its parent.
fn children_by_search(pid: i32) -> Vec<i32> {
    let everybody = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = everybody.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| stat(*number).is_some_and(|stat| stat.parent == pid)).collect()
}

fn stat(pid: i32) -> Option<Stat> {
    parsed(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name may contain anything, so fields are counted from the last parenthesis: the state is field 3, the parent 4, the
/// times of itself 14 and 15 and of its children 16 and 17, its beginning 22, what is resident 24.
fn parsed(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        is_running: *fields.first()? == "R",
        own_ticks: number(14)?.saturating_add(number(15)?),
        waited_ticks: number(16)?.saturating_add(number(17)?),
        began_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

fn micros(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / system::ticks_per_second()
}

/// What a process holds, with shared pages divided among those who share them.
fn proportional_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines: HashMap<&str, u64> = text.lines().filter_map(kilobytes).collect();
    Some((lines.get("Pss")? + lines.get("SwapPss").copied().unwrap_or(0)).saturating_mul(1024))
}

/// `Pss:    123 kB`.
fn kilobytes(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.split_once(':')?;
    Some((name, rest.trim().strip_suffix("kB")?.trim().parse().ok()?))
}

/// The scratch space, as the first of these sees it who is inside. The child of the first process may be a container runtime,
/// which is not.
fn scratch_of(members: &[(i32, Stat)]) -> u64 {
    members.iter().find_map(|(pid, _)| scratch_bytes(*pid)).unwrap_or(0)
}

/// The scratch space as a process inside sees it. Who is still in the machine's root, or stays there, has none.
fn scratch_bytes(pid: i32) -> Option<u64> {
    let (theirs, ours) = (rustix::fs::stat(format!("/proc/{pid}/root/")).ok()?, rustix::fs::stat("/").ok()?);
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) {
        return None;
    }
    let room = rustix::fs::statvfs(format!("/proc/{pid}/root/tmp")).ok()?;
    Some(room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_does_not_move_the_fields() {
        let line = "7 (a ) b (c) S 3 7 7 0 -1 4194304 100 0 0 0 5 6 7 8 20 0 1 0 123 1000000 250 18446744073709551615";
        let expected = Stat {
            parent: 3,
            is_running: false,
            own_ticks: 11,
            waited_ticks: 15,
            began_ticks: 123,
            resident_pages: 250,
        };
        assert_eq!(parsed(line), Some(expected));
        assert_eq!(parsed("7 (cut) S 3"), None);
        assert_eq!(parsed(""), None);
    }

    #[test]
    fn sizes_are_read_from_their_lines() {
        assert_eq!(kilobytes("Pss:                 123 kB"), Some(("Pss", 123)));
        assert_eq!(kilobytes("00400000-ffffffff ---p 00000000 00:00 0    [rollup]"), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a child")]
    fn a_tree_is_everything_below_its_first_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        // A child with a child, which tells when it is there.
        let mut shell = std::process::Command::new("/bin/sh")
            .args(["-c", "sh -c 'echo there; exec sleep 100' & wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut told).unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        assert!(children(own).contains(&pid) && children_by_search(own).contains(&pid));
        let mut tree = ProcessTree::below(pid);
        assert_eq!(tree.members().len(), 1);
        assert!(tree.look(Duration::ZERO).resident_bytes > 0);
        assert!(tree.occupied_bytes() > 0);
        tree.signal(Signal::KILL);
        shell.wait().unwrap();
        assert_eq!(ProcessTree::below(pid).look(Duration::ZERO), TreeUsage::default());
    }
}
