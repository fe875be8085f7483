//! State that replicas share quickly: the change bus, breakers, rate limits, counters, small values, presence; in memory for
//! one replica, in Redis for several.

#[cfg(feature = "conformance")]
pub mod bus_suite;
#[cfg(feature = "conformance")]
pub mod conformance;
mod falling_back;
#[cfg(feature = "measure")]
pub mod measure;
mod memory;
mod memory_state;
mod redis;

pub use falling_back::{FallbackSettings, FallingBack};
pub use memory::MemoryBus;
pub use memory_state::MemoryState;
pub use redis::{
    LinkState, NotUsable, RedisBus, RedisSettings, RedisSettingsError, RedisState, RedisTrouble, SeenServer, look,
};
