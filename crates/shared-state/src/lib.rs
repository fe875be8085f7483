//! State that instances share quickly: so far the change bus, in memory.

mod memory;

pub use memory::MemoryBus;
