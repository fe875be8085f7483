//! Limits over all processes of a sandbox together, where no control group keeps them: the launcher looks at the tree now and
//! then, and acts.
//!
//! | limit | how it is kept |
//! |---|---|
//! | memory | a tree that occupies more is ended, as the kernel would end it |
//! | CPU | a tree that has used more than its share is stopped until the share has caught up; one that runs on although it was stopped is ended |
//!
//! Looks come every [`LOOK_MIN`] while something happens, and more rarely while nothing does, up to [`LOOK_MAX`]. Memory that
//! comes and goes between two looks is not seen: each process is therefore bounded by itself too (`inside::limits`), and calls
//! that take memory which belongs to no process are not on the list (`seccomp`), but for sockets and pipes, which are counted. What is known of the CPU time of processes
//! that come and go is with `process_tree::cpu_account`.
//!
//! The judgement is a function of numbers; the launcher performs it.

use std::time::Duration;

use base::SaturatingFrom as _;

use crate::process_tree::TreeUsage;
use crate::spec::SandboxLimits;

/// Between two looks at a busy tree.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(20);
/// Between two looks at a quiet one.
pub(super) const LOOK_MAX: Duration = Duration::from_millis(160);
/// CPU time that a tree may save up while it does nothing, as a part of its share of this span.
const SAVINGS: Duration = Duration::from_millis(100);
/// CPU time a tree may use altogether while it is stopped. Stopping takes a moment, and times are counted in ticks; more
/// than this is somebody who has himself continued.
const STOPPED_USE_MAX: Duration = Duration::from_secs(1);

/// What is to be done about a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing.
    Fine,
    /// It has used its share: stop it, again if it is stopped already.
    Stop,
    /// Its share has caught up.
    Continue,
    /// It occupies too much memory: end it.
    EndForMemory,
    /// It cannot be held back: end it.
    EndForCpu,
}

/// What is known of one tree.
#[derive(Debug)]
pub(super) struct Oversight {
    memory_bytes: u64,
    /// Microseconds of CPU per second.
    share: u64,
    /// What is left of the share; below zero it owes.
    credit_micros: i64,
    cpu_micros: u64,
    stopped: bool,
    stopped_use_micros: u64,
    /// When it was looked at last, and when it should be again, since some fixed moment.
    looked_at: Duration,
    due: Duration,
    pause: Duration,
    pub(super) memory_peak_bytes: u64,
}

impl Oversight {
    /// Of a tree that begins now.
    pub(super) fn new(limits: &SandboxLimits, now: Duration) -> Self {
        let share = limits.cpu_millicores.saturating_mul(1000);
        Self {
            memory_bytes: limits.memory_bytes,
            share,
            credit_micros: earned(share, SAVINGS),
            cpu_micros: 0,
            stopped: false,
            stopped_use_micros: 0,
            looked_at: now,
            due: now + LOOK_MIN,
            pause: LOOK_MIN,
            memory_peak_bytes: 0,
        }
    }

    /// When it should be looked at.
    pub(super) fn due(&self) -> Duration {
        self.due
    }

    /// The time that a process which is seen for the first time stands for. While processes come and go looks are this near to
    /// each other; a look that came late for another reason blames nobody.
    pub(super) fn sample_span(&self, now: Duration) -> Duration {
        now.saturating_sub(self.looked_at).min(LOOK_MIN)
    }

    pub(super) fn cpu_micros(&self) -> u64 {
        self.cpu_micros
    }

    /// Judges what was seen. `occupied` takes long, and is asked only if it matters.
    pub(super) fn judge(&mut self, seen: TreeUsage, now: Duration, occupied: impl FnOnce() -> u64) -> Judgement {
        let used = seen.used_micros;
        self.cpu_micros = self.cpu_micros.saturating_add(used);
        let span = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        // Something happens: it works, it grows near its limit, or it is stopped.
        let resident = seen.resident_bytes.saturating_add(seen.scratch_bytes).saturating_add(seen.buffer_bytes);
        let stirs = used > 0 || self.stopped || resident > self.memory_bytes / 2;
        self.pause = if stirs { LOOK_MIN } else { (self.pause * 2).min(LOOK_MAX) };
        self.due = now + self.pause;

        // What is resident counts shared pages often: an upper bound, which is enough below the limit.
        let held = if resident > self.memory_bytes { occupied() } else { resident };
        self.memory_peak_bytes = self.memory_peak_bytes.max(held);
        if held > self.memory_bytes {
            return Judgement::EndForMemory;
        }
        // Saved after it was spent: a look that comes late takes nothing from who has kept to its share meanwhile.
        let credit = self.credit_micros.saturating_add(earned(self.share, span));
        let left = credit.saturating_sub(i64::saturating_from(used));
        self.credit_micros = left.min(earned(self.share, SAVINGS));
        if self.stopped {
            self.stopped_use_micros = self.stopped_use_micros.saturating_add(used);
            if u128::from(self.stopped_use_micros) > STOPPED_USE_MAX.as_micros() {
                return Judgement::EndForCpu;
            }
        }
        match (self.credit_micros < 0, self.stopped) {
            (true, _) => {
                self.stopped = true;
                Judgement::Stop
            }
            (false, true) => {
                self.stopped = false;
                Judgement::Continue
            }
            (false, false) => Judgement::Fine,
        }
    }

    /// Counts the peak of memory from now on.
    pub(super) fn forget_peak(&mut self) {
        self.memory_peak_bytes = 0;
    }
}

/// The CPU time that a share gives in a span.
fn earned(share: u64, span: Duration) -> i64 {
    let micros = u128::from(share) * span.as_micros() / 1_000_000;
    i64::saturating_from(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn oversight(cpu_millicores: u64) -> Oversight {
        Oversight::new(
            &SandboxLimits { memory_bytes: 100 * MB, cpu_millicores, ..SandboxLimits::default() },
            Duration::ZERO,
        )
    }

    /// So much used since the last look, and so much resident.
    fn seen(used_ms: u64, resident_mb: u64) -> TreeUsage {
        TreeUsage { used_micros: used_ms * 1000, resident_bytes: resident_mb * MB, ..TreeUsage::default() }
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn memory_that_is_only_shared_ends_nobody_and_memory_that_is_held_does() {
        let mut tree = oversight(1000);
        let never = || panic!("not asked below the limit");
        assert_eq!(tree.judge(seen(0, 90), at(20), never), Judgement::Fine);
        assert_eq!(tree.judge(seen(0, 900), at(40), || 99 * MB), Judgement::Fine);
        assert_eq!(tree.memory_peak_bytes, 99 * MB);
        assert_eq!(
            tree.judge(TreeUsage { scratch_bytes: 20 * MB, ..seen(0, 90) }, at(60), || 110 * MB),
            Judgement::EndForMemory
        );
    }

    #[test]
    fn what_the_kernel_holds_for_a_tree_is_memory_of_the_tree() {
        let mut tree = oversight(1000);
        let full = TreeUsage { buffer_bytes: 99 * MB, ..seen(0, 5) };
        assert_eq!(tree.judge(full, at(20), || 104 * MB), Judgement::EndForMemory);
    }

    #[test]
    fn one_core_is_never_stopped_by_one_busy_process() {
        let mut tree = oversight(1000);
        for look in 1..500 {
            assert_eq!(tree.judge(seen(20, 1), at(look * 20), || 0), Judgement::Fine);
        }
    }

    #[test]
    fn a_busy_tree_gets_its_share_and_no_more() {
        let mut tree = oversight(250);
        let (mut cpu, mut stopped) = (0, false);
        for look in 1..=1000 {
            // Two processes on two cores, whenever they may.
            let used = if stopped { 0 } else { 40 };
            cpu += used;
            match tree.judge(seen(used, 1), at(look * 20), || 0) {
                Judgement::Stop => stopped = true,
                Judgement::Continue => stopped = false,
                Judgement::Fine => {}
                other => panic!("{other:?}"),
            }
        }
        // A quarter of twenty seconds, and what one look too late costs.
        assert!((4_900..=5_100).contains(&cpu), "{cpu}");
    }

    #[test]
    fn who_runs_on_although_stopped_is_ended() {
        let mut tree = oversight(250);
        let judged = (1..200).map(|look| tree.judge(seen(20, 1), at(look * 20), || 0));
        let judged: Vec<Judgement> = judged.collect();
        assert_eq!(judged.iter().filter(|judged| **judged == Judgement::Continue).count(), 0);
        assert!(judged.contains(&Judgement::EndForCpu));
    }

    #[test]
    fn a_launcher_that_was_late_blames_nobody() {
        let mut tree = oversight(500);
        // Ten seconds without a look, in which two cores were busy.
        assert_eq!(tree.judge(seen(20_000, 1), at(10_000), || 0), Judgement::Stop);
        assert_eq!(tree.judge(seen(0, 1), at(20_000), || 0), Judgement::Stop);
        assert_eq!(tree.judge(seen(0, 1), at(45_000), || 0), Judgement::Continue);
    }

    #[test]
    fn a_quiet_tree_is_looked_at_more_rarely() {
        let mut tree = oversight(1000);
        let mut now = Duration::ZERO;
        for _ in 0..10 {
            now = tree.due();
            tree.judge(seen(0, 1), now, || 0);
        }
        assert_eq!(tree.due() - now, LOOK_MAX);
        tree.judge(seen(10, 1), tree.due(), || 0);
        assert_eq!(tree.due() - tree.looked_at, LOOK_MIN);
    }
}
