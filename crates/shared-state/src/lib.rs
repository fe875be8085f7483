//! State that instances share quickly: the change bus, breakers, rate limits, counters, small values, presence; in memory.

#[cfg(feature = "conformance")]
pub mod conformance;
mod memory;
mod memory_state;

pub use memory::MemoryBus;
pub use memory_state::MemoryState;
