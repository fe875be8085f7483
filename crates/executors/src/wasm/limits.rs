//! What one call may use, and what it has used: memory, tables, output.
//!
//! Invariants
//! - LIMIT-1: the smallest of manifest, call and server rules; a manifest that asks for more than the server gives is
//!   refused and not cut down (EXEC-004).
//! - LIMIT-2: all memories of a guest count together.
//!
//! Not here: time (`wasm`), CPU (`metered`), network (`outbound`).

use contract::error::{ErrorCode, Refusal};
use ports::resolved_limits::ResolvedLimits;
use wasmtime::ResourceLimiter;

use super::config::WasmConfig;

/// Bytes a guest may hand to one host function, and a result may have before it is even looked at.
pub(super) const HOSTCALL_BYTES_MAX: usize = 33 << 20;
/// Things of the host (files, streams, requests) a guest may hold at once.
pub(super) const HANDLES_MAX: usize = 1_000;

/// The bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) memory_bytes: u64,
    pub(super) cpu_millicores: u64,
    pub(super) table_elements: usize,
}

impl Bounds {
    /// LIMIT-1.
    pub(super) fn of(call: &ResolvedLimits, server: &WasmConfig) -> Result<Self, Refusal> {
        if call.memory_mb > server.memory_mb_max {
            return Err(Refusal::new(
                ErrorCode::E3407,
                format!(
                    "the tool asks for {} MiB of memory, but this server gives a WASM tool at most {}",
                    call.memory_mb, server.memory_mb_max
                ),
            )
            .hint("lower `resource_limits.memory` in the manifest")
            .retryable(false));
        }
        Ok(Self {
            memory_bytes: call.memory_mb.saturating_mul(1 << 20),
            cpu_millicores: call.cpu_millicores,
            table_elements: server.table_elements_max,
        })
    }
}

/// Watches what a guest asks for while it runs.
#[derive(Debug)]
pub(super) struct Limiter {
    bounds: Bounds,
    memory_bytes: u64,
    memory_peak_bytes: u64,
    memory_refused: bool,
    table_refused: bool,
}

/// What the limiter has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub(super) memory_peak_bytes: u64,
    /// The guest has asked for more memory than it may have.
    pub(super) memory_refused: bool,
    /// The guest has asked for a larger table than it may have.
    pub(super) table_refused: bool,
}

impl Limiter {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, memory_bytes: 0, memory_peak_bytes: 0, memory_refused: false, table_refused: false }
    }

    pub(super) fn seen(&self) -> Seen {
        Seen {
            memory_peak_bytes: self.memory_peak_bytes,
            memory_refused: self.memory_refused,
            table_refused: self.table_refused,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current) as u64;
        let total = self.memory_bytes.saturating_add(growth);
        if total > self.bounds.memory_bytes {
            self.memory_refused = true;
            return Ok(false);
        }
        // The guest's own maximum is its own business and no fault of ours.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.memory_bytes = total;
        self.memory_peak_bytes = self.memory_peak_bytes.max(total);
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let fits = desired <= self.bounds.table_elements;
        self.table_refused |= !fits;
        Ok(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_server_gives_is_refused() {
        let server = WasmConfig::default();
        let asked = |memory_mb| ResolvedLimits { memory_mb, cpu_millicores: 500, ..ResolvedLimits::default() };
        let bounds = Bounds::of(&asked(64), &server).unwrap();
        assert_eq!((bounds.memory_bytes, bounds.cpu_millicores), (64 << 20, 500));
        assert_eq!(Bounds::of(&asked(server.memory_mb_max + 1), &server).unwrap_err().code, ErrorCode::E3407);
    }

    #[test]
    fn memories_count_together_and_a_refusal_is_remembered() {
        let bounds = Bounds { memory_bytes: 100, cpu_millicores: 1000, table_elements: 10 };
        let mut limiter = Limiter::new(bounds);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(!limiter.memory_growing(0, 41, None).unwrap(), "a second memory");
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert_eq!(limiter.seen(), Seen { memory_peak_bytes: 100, memory_refused: true, table_refused: false });
        assert!(!limiter.table_growing(10, 11, None).unwrap());
        assert!(limiter.seen().table_refused);
    }
}
