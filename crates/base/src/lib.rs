//! What the standard library leaves to everybody, and what everybody must do alike: casts that saturate, locks whose poison is
//! nothing to ask about, waits that grow, and what a host name is.
//!
//! It is called `base` because every crate may stand on it and it stands on none of ours. It has mechanisms only: nothing here knows
//! a tool, a tenant or a call. Whatever does belongs to `contract`.
//!
//! Not here: time and randomness, which come through ports. A wait is worked out here and waited for elsewhere.

pub mod backoff;
mod casts;
pub mod host_name;
mod locks;

pub use casts::SaturatingFrom;
pub use locks::{MutexExt, RwLockExt};
