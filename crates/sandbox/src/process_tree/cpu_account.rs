//! The CPU time that a tree of processes has used since the last look, from what the processes tell of themselves.
//!
//! The time of a process is its own while it lives. When its parent waits for it, the parent has it among the times of
//! those it waited for; when nobody waits for it (its parent ignores `SIGCHLD`), the time is nowhere any more. So the sum over
//! those who live can fall although everybody works, and is no measure. What is booked is, per look:
//!
//! - what each process has used itself since the last look;
//! - what parents have got by waiting, less what was booked for those who have vanished;
//! - for who is new and running at least what it could have used if processes like it had come and gone all the time: whoever
//!   lives shorter than a look, and is waited for by nobody, is seen in no other way.
//!
//! The last is a sample: who sleeps at every look escapes it. Invariant ACCOUNT-1: what was booked is never taken back.

use std::collections::HashMap;
use std::time::Duration;

use base::SaturatingFrom as _;

/// A process's number and when it began: numbers are used again.
pub(super) type ProcessIdentity = (i32, u64);

/// What one process tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessTimes {
    pub(super) identity: ProcessIdentity,
    pub(super) is_running: bool,
    pub(super) own_micros: u64,
    pub(super) waited_micros: u64,
}

/// What was booked for a tree.
#[derive(Debug, Default)]
pub(super) struct CpuAccount {
    /// Own and waited times of those who lived at the last look.
    last: HashMap<ProcessIdentity, (u64, u64)>,
    /// Booked for processes that had vanished at the last look, while no parent had got it yet. A look is not atomic: the
    /// parent may have been read just before.
    vanished_micros: u64,
}

impl CpuAccount {
    /// Of a tree whose first process has done this already.
    pub(super) fn after(first: Option<ProcessTimes>) -> Self {
        let last = first.map(|first| (first.identity, (first.own_micros, first.waited_micros)));
        Self { last: last.into_iter().collect(), vanished_micros: 0 }
    }

    /// Books a look, and says what was used since the last one. Who is new and running stands for this `span`.
    pub(super) fn book(&mut self, seen: impl Iterator<Item = ProcessTimes>, span: Duration, processors: u64) -> u64 {
        let mut now = HashMap::with_capacity(self.last.len());
        let (mut known, mut fresh, mut waited, mut fresh_running) = (0_u64, 0_u64, 0_u64, 0_u64);
        for process in seen {
            let ProcessTimes { identity, is_running, own_micros, waited_micros } = process;
            if now.insert(identity, (own_micros, waited_micros)).is_some() {
                continue;
            }
            match self.last.remove(&identity) {
                Some((own, of_others)) => {
                    known = known.saturating_add(own_micros.saturating_sub(own));
                    waited = waited.saturating_add(waited_micros.saturating_sub(of_others));
                }
                None => {
                    fresh = fresh.saturating_add(own_micros);
                    waited = waited.saturating_add(waited_micros);
                    fresh_running += u64::from(is_running);
                }
            }
        }
        let vanished = self.last.values().fold(0_u64, |sum, (own, of_others)| sum.saturating_add(own + of_others));
        let booked_already = self.vanished_micros.saturating_add(vanished);
        // Older ones first: what no parent has got by the next look, no parent will get.
        self.vanished_micros = vanished.min(booked_already.saturating_sub(waited));
        self.last = now;

        let span = u64::saturating_from(span.as_micros());
        let sampled = fresh_running.min(processors).saturating_mul(span);
        let counted = fresh.saturating_add(waited.saturating_sub(booked_already));
        known.saturating_add(counted.max(sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(20);

    fn process(pid: i32, own_ms: u64, waited_ms: u64) -> ProcessTimes {
        let (own_micros, waited_micros) = (own_ms * 1000, waited_ms * 1000);
        ProcessTimes { identity: (pid, 7), is_running: false, own_micros, waited_micros }
    }

    fn running(pid: i32, own_ms: u64) -> ProcessTimes {
        ProcessTimes { is_running: true, ..process(pid, own_ms, 0) }
    }

    /// What each of these looks books, in milliseconds.
    fn booked<const N: usize>(looks: [&[ProcessTimes]; N]) -> [u64; N] {
        let mut account = CpuAccount::after(Some(process(1, 3, 4)));
        looks.map(|seen| account.book(seen.iter().copied(), SPAN, 2) / 1000)
    }

    #[test]
    fn what_was_before_the_program_is_not_its_doing() {
        assert_eq!(booked([&[process(1, 3, 4)], &[process(1, 4, 4)]]), [0, 1]);
    }

    #[test]
    fn a_child_that_is_waited_for_is_booked_once_and_to_its_end() {
        let looks = booked([
            &[process(1, 3, 4), process(2, 10, 0)],
            &[process(1, 3, 4), process(2, 30, 0)],
            // It has used five more, and so has one that nobody saw.
            &[process(1, 3, 44)],
            &[process(1, 3, 44)],
        ]);
        assert_eq!(looks, [10, 20, 10, 0]);
    }

    #[test]
    fn children_whom_nobody_waits_for_are_booked_one_after_the_other() {
        let looks = booked([
            &[process(1, 3, 4), process(2, 500, 0)],
            &[process(1, 3, 4)],
            &[process(1, 3, 4), process(3, 500, 0)],
            &[process(1, 3, 4), process(4, 300, 0)],
        ]);
        assert_eq!(looks, [500, 0, 500, 300]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let again = ProcessTimes { identity: (2, 8), ..process(2, 500, 0) };
        assert_eq!(booked([&[process(1, 3, 4), process(2, 500, 0)], &[process(1, 3, 4), again]]), [500, 500]);
    }

    #[test]
    fn a_parent_that_was_read_before_it_waited_is_not_charged_a_second_time() {
        let looks = booked([&[process(1, 3, 4), process(2, 500, 0)], &[process(1, 3, 4)], &[process(1, 3, 504)]]);
        assert_eq!(looks, [500, 0, 0]);
    }

    #[test]
    fn what_nobody_waited_for_excuses_nothing_later() {
        let looks = booked([
            &[process(1, 3, 4), process(2, 500, 0)],
            &[process(1, 3, 4)],
            &[process(1, 3, 4)],
            &[process(1, 3, 304)],
        ]);
        assert_eq!(looks, [500, 0, 0, 300]);
    }

    #[test]
    fn a_storm_of_short_children_is_charged_by_what_is_seen_running() {
        let looks = booked([
            &[process(1, 3, 4), running(2, 0)],
            &[process(1, 3, 4), running(3, 0), running(4, 0), running(5, 0)],
            // Known by now: its own word counts.
            &[process(1, 3, 4), running(5, 1)],
        ]);
        assert_eq!(looks, [20, 40, 1]);
    }
}
