//! What a probe leaves behind: processes that carry its tag in their command line or in their name.
//!
//! The name as well, because a zombie has no command line any more. The tag is made for one probe of one run, so whatever
//! carries it is ours to end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the end of a process tree may take until it counts as left behind.
const GRACE: Duration = Duration::from_secs(1);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Processes with the tag that are still there after the grace.
pub(crate) fn left_behind(tag: &str) -> Vec<u32> {
    let start = Instant::now();
    loop {
        let found = carrying(tag);
        if found.is_empty() || start.elapsed() > GRACE {
            return found;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Processes with the tag, now.
pub(crate) fn carrying(tag: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        // A process may end while it is looked at; then it does not carry anything.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(tag) || name.contains(tag)
    })
    .collect()
}

/// Ends them, by their ids.
pub(crate) fn end(pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // One that has ended meanwhile is what was wanted.
    let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_tag_and_is_gone_after_its_end() {
        let tag = format!("gxtraces{}", std::process::id());
        let script = "read _";
        let mut child = Command::new("sh").args(["-c", script, &tag]).stdin(Stdio::piped()).spawn().unwrap();
        while carrying(&tag).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(carrying(&tag), [child.id()]);
        end(&[child.id()]);
        child.wait().unwrap();
        assert!(left_behind(&tag).is_empty());
    }
}
