//! State that replicas share quickly: the change bus, in memory for one replica and over Redis for several.

#[cfg(feature = "conformance")]
pub mod bus_suite;
mod memory;
mod redis;

pub use memory::MemoryBus;
pub use redis::{RedisBus, RedisSettings, RedisSettingsError, RedisState, Standing, Trouble};
