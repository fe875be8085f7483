//! What the launcher knows of a first process: while it waits, and when it has its order.

use std::os::fd::OwnedFd;

use crate::cgroup::Group;
use crate::wire::{self, EndOfProgram, GroupUsage};

/// Longest last word of a first process.
const LAST_WORD_BYTES_MAX: usize = 1024;

/// A first process without an order.
pub(super) struct Spare {
    pub(super) orders: OwnedFd,
    pub(super) pid: i32,
    pub(super) process: OwnedFd,
    pub(super) group: Group,
    /// What its own preparations cost, which is not the program's doing.
    pub(super) cpu_micros: u64,
}

/// One that lives.
pub(super) struct Sandbox {
    /// Absent once nobody listens any more: it is being ended. Not watched then, or the closed socket would keep us busy.
    pub(super) control: Option<OwnedFd>,
    /// Where the first process says its last word.
    pub(super) line: OwnedFd,
    pub(super) process: OwnedFd,
    pub(super) group: Group,
    pub(super) cpu_micros: u64,
}

impl Sandbox {
    pub(super) fn new(control: Option<OwnedFd>, spare: Spare) -> Self {
        let Spare { orders: line, pid: _, process, group, cpu_micros } = spare;
        Self { control, line, process, group, cpu_micros }
    }

    pub(super) fn usage(&self) -> GroupUsage {
        let usage = self.group.usage();
        GroupUsage { cpu_micros: usage.cpu_micros.map(|all| all.saturating_sub(self.cpu_micros)), ..usage }
    }

    /// What the first process said before it left, and its mount namespace.
    pub(super) fn last_word(&self) -> (Option<EndOfProgram>, Vec<OwnedFd>) {
        let mut buffer = [0; LAST_WORD_BYTES_MAX];
        // Does not wait: what is not there by now does not come.
        match wire::receive::<EndOfProgram>(&self.line, &mut buffer) {
            Ok(Some((end, mounts))) => (Some(end), mounts),
            Ok(None) | Err(_) => (None, Vec::new()),
        }
    }
}
