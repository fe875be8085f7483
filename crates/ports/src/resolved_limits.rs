//! What one call may use, as its executor is told it. A value and no port.
//!
//! Not here: how the numbers come about (`kernel::limits`), and keeping them (the executors).

/// What one call may use. An executor keeps all of it or says that it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedLimits {
    /// Thousandths of a core.
    pub cpu_millicores: u64,
    /// MiB.
    pub memory_mb: u64,
    /// Megabits a second; `None` is no bound.
    pub network_mbps: Option<u64>,
    /// MiB of scratch space.
    pub scratch_mb: u64,
    /// Bytes of the result as JSON. The kernel counts them once, when the result is verified; an executor need not read on
    /// beyond them.
    pub result_bytes: u64,
    /// The caller itself has asked for one of them and relies on it: an executor that keeps no limits must refuse.
    pub asked_by_caller: bool,
}

impl Default for ResolvedLimits {
    /// What a call has that nobody has said anything about.
    fn default() -> Self {
        Self {
            cpu_millicores: 1_000,
            memory_mb: 512,
            network_mbps: Some(100),
            scratch_mb: 1_024,
            result_bytes: 1 << 20,
            asked_by_caller: false,
        }
    }
}
