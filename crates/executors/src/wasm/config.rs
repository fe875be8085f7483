//! What the WASM engine of one server may use. Defaults first; every number is a bound, and none has a value for
//! "without bound".

use std::path::PathBuf;
use std::time::Duration;

use fair_places::PlaceBounds;

/// Calls that may wait for a guest, as a multiple of those that run.
const WAITING: usize = 4;

/// Settings of the WASM executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WasmConfig {
    /// Where compiled components are kept between starts. Without it each start compiles anew. The directory is made
    /// with mode 0700, and not used if anybody else could write to it.
    pub cache_dir: Option<PathBuf>,
    /// Compiled components kept on disk; the longest unused goes first. Default 256.
    pub cache_files_max: usize,
    /// Compiled components kept in memory; the longest unused goes first. Default 64, at least 1.
    pub loaded_max: usize,
    /// Calls that run at once, three quarters of them of one tenant at most; more wait for their turn until their deadline,
    /// four times as many in all. Default 64, 1 to 1,000. Each reserves
    /// 16 GiB of address space (not memory), because that is what makes bounds checks free.
    pub calls_max: u32,
    /// Threads that run guests, apart from those that serve requests. Default: one per core.
    pub threads: Option<usize>,
    /// How often a running guest is interrupted: how soon it stops when its time is over, and the slice after which
    /// another guest gets the thread. Default 5 ms, 1 to 10 ms.
    pub tick: Duration,
    /// Largest component file in bytes. Default 64 MiB.
    pub component_bytes_max: u64,
    /// Most memory a manifest may ask for, in MiB. Default 1024, at most 4096. A tool that asks for more is refused
    /// (EXEC-004).
    pub memory_mb_max: u64,
    /// Most elements of one table. Default 65,536.
    pub table_elements_max: usize,
}

impl Default for WasmConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_files_max: 256,
            loaded_max: 64,
            calls_max: 64,
            threads: None,
            tick: Duration::from_millis(5),
            component_bytes_max: 64 << 20,
            memory_mb_max: 1024,
            table_elements_max: 65_536,
        }
    }
}

impl WasmConfig {
    /// The places of guests.
    pub(super) fn places(&self) -> PlaceBounds {
        let capacity = usize::try_from(self.calls_max).unwrap_or(1);
        PlaceBounds { capacity, per_flow: capacity, waiting: capacity.saturating_mul(WAITING) }
    }

    /// Whether every number is in its range.
    ///
    /// # Errors
    /// The first setting that is not.
    pub fn validate(&self) -> Result<(), WasmConfigError> {
        let ranges: [(&'static str, u64, u64, u64); 7] = [
            ("cache_files_max", self.cache_files_max as u64, 1, 100_000),
            ("loaded_max", self.loaded_max as u64, 1, 10_000),
            ("calls_max", u64::from(self.calls_max), 1, 1_000),
            ("threads", self.threads.unwrap_or(1) as u64, 1, 1_024),
            ("component_bytes_max", self.component_bytes_max, 1, 1 << 30),
            ("memory_mb_max", self.memory_mb_max, 1, 4096),
            ("table_elements_max", self.table_elements_max as u64, 1, 10_000_000),
        ];
        for (setting, value, min, max) in ranges {
            if value < min || value > max {
                return Err(WasmConfigError::OutOfRange { setting, value, min, max });
            }
        }
        let (fastest, slowest) = (Duration::from_millis(1), Duration::from_millis(10));
        if self.tick < fastest || self.tick > slowest {
            return Err(WasmConfigError::Tick);
        }
        Ok(())
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WasmConfigError {
    /// A number beyond its range.
    #[error("`{setting}` is {value}, but must be {min} to {max}")]
    OutOfRange { setting: &'static str, value: u64, min: u64, max: u64 },
    /// Too fast costs the machine, too slow lets guests overrun their time.
    #[error("`tick` must be 1 to 10 milliseconds")]
    Tick,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range_and_what_is_not_is_named() {
        assert_eq!(WasmConfig::default().validate(), Ok(()));
        let none = WasmConfig { calls_max: 0, ..WasmConfig::default() };
        assert_eq!(none.validate().unwrap_err().to_string(), "`calls_max` is 0, but must be 1 to 1000");
        let huge = WasmConfig { memory_mb_max: 4097, ..WasmConfig::default() };
        assert!(huge.validate().unwrap_err().to_string().contains("memory_mb_max"));
        let slow = WasmConfig { tick: Duration::from_secs(1), ..WasmConfig::default() };
        assert_eq!(slow.validate(), Err(WasmConfigError::Tick));
    }
}
