//! What a runtime's log says about a container that did not start.
//!
//! Runtimes tell a failure by text alone, so this reads text; it is the one place that does. What is not recognised is a
//! failure of the runtime, never one of the program: the caller can do nothing about it.
//!
//! The log is the runtime's. The program cannot write to it.

use serde_json::Value;

use crate::error::{BuildStep, StepFailure};

/// Bytes of a log that are looked at.
pub(crate) const LOG_BYTES_MAX: u64 = 256 << 10;
/// Characters of a message that are kept.
const DETAIL_CHARS_MAX: usize = 1000;

/// The last thing that went wrong according to a log of JSON lines. `None`: nothing did.
pub(crate) fn failure(log: &str) -> Option<StepFailure> {
    let message = log.lines().rev().find_map(|line| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let level = entry.get("level")?.as_str()?;
        matches!(level, "error" | "fatal").then(|| entry.get("msg")?.as_str().map(str::to_owned))?
    })?;
    Some(told(&message))
}

/// Words by which the runtimes speak of the program, of its directory, and what the system said.
const OF_THE_PROGRAM: [&str; 5] = [
    "error finding executable",
    "creating process: failed to load",
    "exec: \"",
    "executable file `",
    "open executable",
];
const OF_THE_DIRECTORY: [&str; 3] = ["chdir to cwd", "working directory", "error finding cwd"];
const SYSTEM: [(&str, i32); 5] = [
    ("no such file or directory", libc::ENOENT),
    ("executable file not found", libc::ENOENT),
    ("permission denied", libc::EACCES),
    ("is a directory", libc::EACCES),
    ("exec format error", libc::ENOEXEC),
];

fn told(message: &str) -> StepFailure {
    let lower = message.to_lowercase();
    let speaks_of = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let step = if speaks_of(&OF_THE_DIRECTORY) {
        BuildStep::WorkingDirectory
    } else if speaks_of(&OF_THE_PROGRAM) {
        BuildStep::Program
    } else {
        BuildStep::Runtime
    };
    let errno = match step {
        BuildStep::Program | BuildStep::WorkingDirectory => {
            SYSTEM.iter().find(|(words, _)| lower.contains(words)).map_or(0, |(_, errno)| *errno)
        }
        _ => 0,
    };
    StepFailure { step, errno, detail: message.chars().take(DETAIL_CHARS_MAX).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_from_a_runtime_that_fails() {
        let cases = [
            (
                r#"{"msg":"running container: starting container: starting root container: starting sandbox: error finding executable \"nosuch\" in PATH [/usr/bin /bin]: no such file or directory","level":"error"}"#,
                Some((BuildStep::Program, libc::ENOENT)),
            ),
            (
                r#"{"msg":"running container: starting container: starting root container: starting sandbox: creating process: failed to load /x: permission denied","level":"error"}"#,
                Some((BuildStep::Program, libc::EACCES)),
            ),
            (
                r#"{"level":"error","msg":"runc run failed: unable to start container process: exec: \"nosuch\": executable file not found in $PATH"}"#,
                Some((BuildStep::Program, libc::ENOENT)),
            ),
            (
                r#"{"level":"error","msg":"runc run failed: unable to start container process: exec: \"/usr\": permission denied"}"#,
                Some((BuildStep::Program, libc::EACCES)),
            ),
            (
                r#"{"msg":"running container: creating container: cannot create gofer process: fork/exec /proc/self/exe: operation not permitted","level":"error"}"#,
                Some((BuildStep::Runtime, 0)),
            ),
            (
                r#"{"msg":"executable file `nosuch` not found in $PATH: No such file or directory","level":"error"}"#,
                Some((BuildStep::Program, libc::ENOENT)),
            ),
            (r#"{"level":"warning","msg":"something about groups: no such file or directory"}"#, None),
            ("not json\n\n{\"level\":1}", None),
            ("", None),
        ];
        for (log, expected) in cases {
            assert_eq!(failure(log).map(|failure| (failure.step, failure.errno)), expected, "{log}");
        }
    }
}
