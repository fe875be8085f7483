//! The registry: which tools there are, in which versions, in which state (REG-001…027).
//!
//! Truth is in the [`RegistryStore`](ports::registry_store::RegistryStore). Calls never go there: they read an
//! immutable [`RegistrySnapshot`] that is swapped atomically after each durable change.

mod follow;
mod match_warnings;
mod quarantine;
mod rules;
mod service;
mod snapshot;
mod turns;

pub use service::{
    ListFilter, ListingEntry, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, RegistrationOutcome, Registry, SEARCH_LIMIT_MAX,
    ToolPage, not_admitted,
};
pub use snapshot::{RegisteredTool, RegistrySnapshot};
