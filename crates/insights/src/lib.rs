//! What can be learned from calls that have ended: the health of tools, use and cost, and what agents want. (OBS-007…011,
//! COST-004, COST-008, ANALYT-002, ANALYT-003)
//!
//! ```text
//!  kernel ─▶ CallInsights::ended(call) ─▶ health windows          (one lock of sixteen)
//!                                     └─▶ tally of use and cost   (one lock of sixteen)
//!  Insights::keep(), every few seconds ─▶ tally ─▶ UsageStore
//!                                      ├▶ health ─▶ alerts ─▶ log, EventAnnouncer
//!                                      └▶ health ─▶ HealthStore
//!  once a day ─▶ versions on their way out ─▶ events ─▶ log, EventAnnouncer
//!  a door ─▶ InsightQueries ─▶ may the asker know? (kernel) ─▶ health, UsageStore
//! ```
//!
//! The kernel knows the port only ([`CallInsights`](ports::call_insights::CallInsights)). Whoever asks what was learned goes
//! through [`InsightQueries`], which asks the kernel who may know what.
//!
//! Nothing here can hold up or fail a call: what cannot be written now is written later, as one batch under the name it
//! was first tried with, and meanwhile the tally grows in place.
//!
//! Invariants
//! - INS-1: a call counts once in use, and its cost with it; a replay counts as a call and costs nothing.
//! - INS-2: at shutdown everything is written that was counted (`flush`), as far as the store lets it.
//!
//! Not here: who is told of alerts and events (`ports::event_announcer`), budgets.

mod alert_notice;
mod deprecation_use;
mod ended_calls;
pub mod health;
mod queries;
mod recommendation;
mod service;
mod tally;

pub use deprecation_use::{EndingVersion, REPORT_EVERY};
pub use queries::{HealthView, InsightQueries, ToolAnalysis, UsageAsked};
pub use recommendation::{Recommendation, RecommendationReason};
pub use service::{FLUSH_EVERY, InsightParts, Insights};
