//! The machine in general words: what a reader needs to judge the numbers, and nothing that identifies it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// Cores, memory and system, for example `2 cores, 24 GiB memory, linux x86_64`.
pub(super) fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| kibibytes(&text, "MemTotal:"));
    let memory = memory.map(|kib| format!(", {} GiB memory", kib.div_ceil(1 << 20))).unwrap_or_default();
    format!("{cores} cores{memory}, {} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// A temporary folder beside the builds, because a folder for temporary files may be in memory and forgive every sync to disk.
pub(super) fn folder_on_disk(gantry: &Path, prefix: &str) -> Result<tempfile::TempDir> {
    let place = gantry.parent().unwrap_or(gantry);
    tempfile::Builder::new().prefix(prefix).tempdir_in(place).context("no temporary folder")
}

/// Resident memory of a process in MiB.
pub(super) fn resident_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "status", "VmRSS:")
}

/// The proportional share of a process in MiB: what it shares with others is divided among them, so that shares add up.
pub(super) fn proportional_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "smaps_rollup", "Pss:")
}

fn memory_mib(pid: u32, file: &str, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(file))
        .context("the memory of the process cannot be read")?;
    let kib = kibibytes(&text, name).context("the system does not tell the memory of a process")?;
    Ok(u32::try_from(kib).map_or(f64::MAX, f64::from) / 1024.0)
}

/// The share of all cores that others use, 0 to 1, looked at for `time` while nothing of ours runs.
pub(super) async fn busy_share(time: Duration) -> Result<f64> {
    let look = || std::fs::read_to_string("/proc/stat").context("the system does not tell how busy it is");
    let before = look()?;
    tokio::time::sleep(time).await;
    share(&before, &look()?).context("the system's account of its time cannot be understood")
}

/// The share of time between two looks that was not idle.
fn share(before: &str, after: &str) -> Option<f64> {
    let ((idle_before, all_before), (idle_after, all_after)) = (ticks(before)?, ticks(after)?);
    let all = u32::try_from(all_after.checked_sub(all_before)?).ok()?;
    let idle = u32::try_from(idle_after.checked_sub(idle_before)?).ok()?;
    (all > 0).then(|| 1.0 - f64::from(idle) / f64::from(all))
}

/// Idle and all ticks of the line `cpu user nice system idle iowait irq softirq steal …`. Waiting for disks is idle.
fn ticks(text: &str) -> Option<(u64, u64)> {
    let numbers = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // What comes after the eighth number is counted in the first two already.
    let numbers: Vec<u64> = numbers.split_whitespace().take(8).map_while(|number| number.parse().ok()).collect();
    Some((numbers.get(3)? + numbers.get(4)?, numbers.iter().sum()))
}

/// The number in a line such as `VmRSS:     12345 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_what_the_system_tells() {
        let text = "Name:\tgantry\nVmPeak:\t  99 kB\nVmRSS:\t   20480 kB\n";
        assert_eq!(kibibytes(text, "VmRSS:"), Some(20_480));
        assert_eq!(kibibytes(text, "VmSwap:"), None);
    }

    #[test]
    fn the_busy_share_is_what_was_not_idle_between_two_looks() {
        let look = |busy: u64, idle: u64| format!("cpu  {busy} 0 0 {idle} 0 0 0 0 99 99\ncpu0 1 2 3 4\n");
        for (busy, idle, expected) in [(0, 200, 0.0), (50, 150, 0.25), (200, 0, 1.0)] {
            let found = share(&look(1000, 5000), &look(1000 + busy, 5000 + idle)).unwrap();
            assert!((found - expected).abs() < 0.001, "{busy} {idle}: {found}");
        }
        assert_eq!(share(&look(1, 1), &look(1, 1)), None);
        assert_eq!(share("nonsense", "nonsense"), None);
    }
}
