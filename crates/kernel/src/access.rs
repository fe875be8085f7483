//! Who may use what, as calls see it: tenants, agents, activations, policies, revocations, in one immutable snapshot that
//! is swapped as a whole, and the decisions remembered under its epoch (DESIGN §2, §8.6, §8.7).
//!
//! ```text
//! change ─▶ store (durable, epoch + 1) ─▶ snapshot swapped ─▶ bus tells the other instances ─▶ they reload
//! call   ─▶ snapshot ─▶ standing, reach ─▶ decision: cache by epoch, else platform policies ∧ tenant policies ∧ engine
//! ```
//!
//! Invariants
//! - ACC-1: a change is in force in this process before it is answered.
//! - ACC-2: a decision made under one epoch is never used under another.
//! - ACC-3: policies that cannot be used deny; they never fall back to something more open.
//!
//! Not here: who is calling (`identity`), which tools there are (`registry`).

mod decisions;
mod reader_duties;
mod service;
mod snapshot;
mod subject_invalidation;
mod tool_reach;

pub(crate) use decisions::{DecisionRequest, PolicyDecision};
pub use service::{AccessControl, AccessParts, AccessSettings};
pub use snapshot::AccessSnapshot;
pub(crate) use snapshot::AgentAccess;
pub(crate) use snapshot::EVERY_AGENT;
