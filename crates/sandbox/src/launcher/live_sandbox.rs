//! What the launcher knows of a first process: while it waits, and when it has its order.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::Signal;

use super::oversight::{Judgement, Oversight};
use crate::cgroup::SandboxCgroup;
use crate::process_tree::ProcessTree;
use crate::spec::SandboxLimits;
use crate::wire::{self, EndOfProgram, GroupUsage};

/// Longest last word of a first process.
const LAST_WORD_BYTES_MAX: usize = 1024;

/// A first process without an order.
pub(super) struct Spare {
    pub(super) orders: OwnedFd,
    pub(super) pid: i32,
    pub(super) process: OwnedFd,
    pub(super) group: SandboxCgroup,
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
    pub(super) group: SandboxCgroup,
    pub(super) cpu_micros: u64,
    /// Where no control group keeps its limits.
    overseen: Option<Overseen>,
}

/// A tree of processes whose limits are kept by looking at it.
struct Overseen {
    tree: ProcessTree,
    oversight: Oversight,
    /// It was ended, for this reason.
    ended: Option<Judgement>,
}

impl Sandbox {
    /// `overseen`: the limits that no control group keeps, and the time.
    pub(super) fn new(control: Option<OwnedFd>, spare: Spare, overseen: Option<(SandboxLimits, Duration)>) -> Self {
        let Spare { orders: line, pid, process, group, cpu_micros } = spare;
        let overseen = overseen.map(|(limits, now)| Overseen {
            tree: ProcessTree::below(pid),
            oversight: Oversight::new(&limits, now),
            ended: None,
        });
        Self { control, line, process, group, cpu_micros, overseen }
    }

    /// When it should be looked at, if at all.
    pub(super) fn due(&self) -> Option<Duration> {
        self.overseen.as_ref().filter(|overseen| overseen.ended.is_none()).map(|overseen| overseen.oversight.due())
    }

    /// Looks at it, and does what follows.
    pub(super) fn look(&mut self, now: Duration) {
        let Some(Overseen { tree, oversight, ended }) = &mut self.overseen else { return };
        let seen = tree.look(oversight.sample_span(now));
        let judgement = oversight.judge(seen, now, || tree.occupied_bytes());
        match judgement {
            Judgement::Fine => {}
            Judgement::Stop => tree.signal(Signal::STOP),
            Judgement::Continue => tree.signal(Signal::CONT),
            Judgement::EndForMemory | Judgement::EndForCpu => {
                *ended = Some(judgement);
                // With its first process everything inside ends. The one failure is that it is gone already.
                let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
            }
        }
    }

    /// Counts the peak of memory from now on, where that can be.
    pub(super) fn forget_peak(&mut self) {
        self.group.forget_peak();
        if let Some(overseen) = &mut self.overseen {
            overseen.oversight.forget_peak();
        }
    }

    pub(super) fn usage(&self) -> GroupUsage {
        if let Some(Overseen { oversight, ended, .. }) = &self.overseen {
            return GroupUsage {
                cpu_micros: Some(oversight.cpu_micros()),
                memory_peak_bytes: Some(oversight.memory_peak_bytes),
                oom_kills: u64::from(*ended == Some(Judgement::EndForMemory)),
                cpu_overruns: u64::from(*ended == Some(Judgement::EndForCpu)),
                pids_refused: 0,
            };
        }
        let usage = self.group.usage();
        GroupUsage { cpu_micros: usage.cpu_micros.map(|all| all.saturating_sub(self.cpu_micros)), ..usage }
    }

    /// The same at its end. What was used since the last look is known of the program itself, if its parent told.
    pub(super) fn usage_at_end(&self, end: Option<&EndOfProgram>) -> GroupUsage {
        let usage = self.usage();
        let Some(end) = end.filter(|_| self.overseen.is_some()) else { return usage };
        GroupUsage {
            cpu_micros: usage.cpu_micros.max(Some(end.cpu_micros)),
            memory_peak_bytes: usage.memory_peak_bytes.max(Some(end.memory_peak_bytes)),
            ..usage
        }
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
