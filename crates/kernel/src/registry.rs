//! The registry: which tools there are, in which versions, in which state (REG-001…027).
//!
//! Truth is in the [`RegistryStore`](crate::ports::registry_store::RegistryStore). Calls never go there: they read an
//! immutable [`Snapshot`] that is swapped atomically after each durable change.

mod following;
mod lifecycle;
mod match_warnings;
mod quarantine;
mod rules;
mod service;
mod snapshot;
mod turns;
mod version;

pub use lifecycle::{Lifecycle, LifecycleAction, Notice};
pub use service::{
    ListFilter, Listed, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, Registration, Registry, SEARCH_LIMIT_MAX, ToolPage,
    not_admitted,
};
pub use snapshot::{Snapshot, Tool};
pub use version::ToolVersion;
