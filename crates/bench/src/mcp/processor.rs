//! The processor time a process has used.

use std::path::Path;

use anyhow::{Context, Result};

/// Ticks of the system's account in a second; the same on every Linux we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of all threads, in user and system mode, without children.
pub(super) fn seconds(pid: u32) -> Result<f64> {
    let file = Path::new("/proc").join(pid.to_string()).join("stat");
    let text = std::fs::read_to_string(file).context("the processor time of the process cannot be read")?;
    let ticks = ticks(&text).context("the system's account of a process cannot be understood")?;
    Ok(f64::from(ticks) / TICKS_PER_SECOND)
}

/// `pid (name) state …`: the 14th and 15th of all, where the name may contain anything.
fn ticks(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut numbers = rest.split_whitespace().skip(11).map(str::parse::<u32>);
    Some(numbers.next()?.ok()? + numbers.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added_whatever_the_process_is_called() {
        let stat = "42 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(ticks("42 (a) S 1"), None);
        assert!(seconds(std::process::id()).unwrap() >= 0.0);
    }
}
