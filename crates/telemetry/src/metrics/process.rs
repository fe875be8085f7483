//! What the process itself uses, as Linux tells it; nothing elsewhere. (OBS-006)

use std::fmt::Write as _;

/// Ticks of `/proc` in a second: the same on every Linux, whatever its kernel counts in.
const TICKS_PER_SECOND: f64 = 100.0;

/// Lines of OpenMetrics.
pub(super) fn text() -> String {
    let mut lines = String::new();
    let mut say = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let _ = writeln!(lines, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{suffix} {value}");
        }
    };
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    say("process_cpu_seconds", "counter", "Time of processors used.", cpu_seconds(&stat));
    say("process_resident_memory_bytes", "gauge", "Memory in use.", kibibytes(&status, "VmRSS:"));
    say("process_virtual_memory_bytes", "gauge", "Addresses in use.", kibibytes(&status, "VmSize:"));
    say("process_threads", "gauge", "Threads.", number(&status, "Threads:"));
    let files = std::fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    say("process_open_fds", "gauge", "Open files.", files.and_then(|files| u32::try_from(files).ok()).map(f64::from));
    lines
}

/// The name of the program may hold anything, so fields are counted behind its last parenthesis.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    number(status, name).map(|number| number * 1024.0)
}

fn number(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_tells_is_read() {
        assert_eq!(cpu_seconds("7 (a) b) S 1 1 1 0 -1 4 0 0 0 0 150 50 0 0 20"), Some(2.0));
        assert_eq!(kibibytes("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12_288.0));
        assert_eq!(cpu_seconds(""), None);
        assert!(text().contains("process_resident_memory_bytes "));
    }
}
