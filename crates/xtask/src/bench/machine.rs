//! The machine in general words: what a reader needs to judge the numbers, and nothing that identifies it.

use std::path::Path;

use anyhow::{Context, Result};

/// Cores, memory and system, for example `2 cores, 24 GiB memory, linux x86_64`.
pub(super) fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| kibibytes(&text, "MemTotal:"));
    let memory = memory.map(|kib| format!(", {} GiB memory", kib.div_ceil(1 << 20))).unwrap_or_default();
    format!("{cores} cores{memory}, {} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Resident memory of a process in MiB.
pub(super) fn resident_mib(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))
        .context("the memory of the process cannot be read")?;
    let kib = kibibytes(&text, "VmRSS:").context("the system does not tell the resident memory of a process")?;
    let mib = u32::try_from(kib).map_or(f64::MAX, f64::from) / 1024.0;
    Ok(mib)
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
}
