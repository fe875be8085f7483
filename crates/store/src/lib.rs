//! Durable truth: adapters of the kernel's storage ports. (STORE-001…007, DESIGN §4, §5)
//!
//! [`sqlite`] is the embedded default, [`postgres`] what many instances share. Types of the database driver stop in this crate: what goes in and out are the
//! kernel's own. What all adapters must do alike is in the `conformance` suite (a feature), which runs against every
//! adapter and against the in-memory fake that other crates test with. What benches ask of it is in `measure` (a feature).
//!
//! Not here: the rules of the registry (kernel), anything that calls need while they run (they read a snapshot).

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "measure")]
pub mod measure;
#[cfg(feature = "conformance")]
pub mod memory;
pub mod postgres;
mod records;
mod schema_step;
mod search;
pub mod sqlite;
mod steps;
mod stored_row;
mod time;
pub mod transfer;

pub use steps::SchemaSteps;
