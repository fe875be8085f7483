//! The six phases every call passes, and the mechanisms they need. Talks to nothing itself: what it needs from the
//! outside it declares as [`ports`].
//!
//! Start reading at [`Kernel::invoke`]: it is the only way a tool is ever run, whatever the door.

mod access;
mod administration;
mod attendant;
mod availability;
mod catalogue;
pub mod checkpoints;
mod computation;
mod concurrency;
pub mod crew;
mod deadline;
mod discovery;
mod discretion;
mod fair_places;
pub mod health;
mod hidden_values;
mod identity;
pub mod inbound_jobs;
pub mod insights;
mod invocation_ids;
mod invoke;
mod isolation;
pub mod jobs;
pub mod journey;
pub mod latency;
mod ledger;
mod limits;
mod mint;
mod offerings;
pub mod permissions;
pub mod phases;
pub mod ports;
mod recorder;
pub mod registry;
pub mod resilience;
mod tool_logs;
pub mod webhooks;

pub use access::{Access, AccessParts, AccessSettings, AccessSnapshot};
pub use administration::{
    ActivationWish, Actor, AuditFound, AuditNext, AuditScope, DelegationRequest, PoliciesView, PolicyVersion,
    ReplacedActivation, RevocationRequest, ServerAct, TenantWish, sees_metrics,
};
pub use availability::{Availability, ToolKey, WhyUnavailable};
pub use catalogue::{CatalogueMark, Compared, Side, Tier};
pub use checkpoints::{CheckpointPage, CheckpointRetention, Checkpoints};
pub use computation::{Computations, NotComputed};
pub use deadline::SYNC_MAX;
pub use discovery::{Explanation, Reachable, TenantTool, Unreachable};
pub use fair_places::{FairPlaces, Full, Place, PlaceBounds, PlaceUsage};
pub use identity::{ExternalIssuer, Identity, IdentityError, IdentitySettings, Principal};
pub use invoke::{Arrival, Failed, Kernel, KernelParts};
pub use isolation::{IsolationDemand, IsolationFacts, IsolationPolicy};
pub use ledger::{Bookkeeper, MISSING_KEY, Recovered, indeterminate_end};
pub use limits::{ResolvedLimits, ResourceEnvelope};
pub use mint::{Mint, MintedToken, new_token_id_in};
pub use offerings::offering_id;
pub use recorder::{Recorder, RecorderHandle, Slot as RecordSlot};
pub use tool_logs::{CALLS_MAX as LOGGED_CALLS_MAX, LoggedCall};
