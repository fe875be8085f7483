//! Telling a program in a sandbox to end: SIGTERM to it and to everything it has started.
//!
//! To all of them, because many servers are started by something else (`npx`, a shell) that does not pass the signal on. The
//! first process of a sandbox is none of the program's and would not take the signal anyway; who is below it is read from
//! `/proc`. What is missed here is ended with the sandbox a moment later.
//!
//! Invariants
//! - UTREE-1: nothing outside the sandbox gets the signal. Numbers of processes are used again, so a process is first held by
//!   a descriptor and then found below the first process once more; and that one is alive before and after.
//! - UTREE-2: at most [`PROCESSES_MAX`] processes are looked at.

use std::collections::HashSet;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Processes of one sandbox that are told; a sandbox may have fewer.
const PROCESSES_MAX: usize = 4_096;

/// Tells them all, and answers how many. `first` gives the number of the sandbox's first process for as long as that lives.
pub(super) fn terminate(first: impl Fn() -> Option<u32>) -> usize {
    let Some(root) = first() else { return 0 };
    let held = below(root).into_iter().filter_map(|number| {
        let pid = Pid::from_raw(i32::try_from(number).ok()?)?;
        Some((number, pidfd_open(pid, PidfdFlags::empty()).ok()?))
    });
    let held: Vec<_> = held.collect();
    let still: HashSet<u32> = below(root).into_iter().collect();
    // UTREE-1.
    if first() != Some(root) {
        return 0;
    }
    let told = held.iter().filter(|(number, _)| still.contains(number));
    told.filter(|(_, process)| pidfd_send_signal(process, Signal::TERM).is_ok()).count()
}

/// Everything below a process, itself not among it.
fn below(root: u32) -> Vec<u32> {
    let mut found = children(root);
    let mut next = 0;
    while let Some(number) = found.get(next).copied()
        && found.len() < PROCESSES_MAX
    {
        found.extend(children(number));
        next += 1;
    }
    found.truncate(PROCESSES_MAX);
    found
}

/// Of every thread of it. One that is gone has none.
fn children(number: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "trees to be told are not started by anybody else here")]
    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn all_below_are_told_and_whoever_stands_above_is_not() {
        // A shell that waits for a second one, which waits for a third program.
        let script = "sh -c 'sleep 600 & echo $!; wait' & wait";
        let mut first = shell(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(first.stdout.take().unwrap());
        lines.read_line(&mut told).unwrap();
        let last: u32 = told.trim().parse().unwrap();
        let root = first.id();
        assert!(below(root).contains(&last), "{:?}", below(root));
        assert_eq!(terminate(|| None), 0, "nobody is there");
        assert_eq!(terminate(|| Some(root)), 2);
        // Its output ends when the last of them has.
        told.clear();
        assert_eq!(lines.read_line(&mut told).unwrap(), 0, "{told}");
        let status = first.wait().unwrap();
        assert_eq!(status.signal(), None, "the first one was not told: {status}");
    }

    #[test]
    fn a_first_process_that_is_gone_in_between_saves_everybody() {
        let looks = std::cell::Cell::new(0);
        let mut child = shell("cat; exit 7").stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        let once = || {
            looks.set(looks.get() + 1);
            (looks.get() == 1).then_some(own)
        };
        assert_eq!(terminate(once), 0);
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(7), "it was not told");
    }
}
