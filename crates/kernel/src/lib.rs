//! The six phases every call passes, and the mechanisms they need. Talks to nothing itself: what it needs from the
//! outside it asks of [`ports`].
//!
//! Start reading at [`Kernel::invoke`]: it is the only way a tool is ever run, whatever the door.

mod access;
mod administration;
mod availability;
pub mod background_calls;
mod call_companion;
mod call_trace;
mod catalogue;
pub mod checkpoints;
mod concurrency;
mod deadline;
mod discovery;
mod discretion;
mod hidden_values;
mod identity;
mod invocation_ids;
mod invoke;
mod isolation;
mod ledger;
mod limits;
mod mint;
mod offerings;
pub mod phases;
mod recorder;
pub mod registry;
pub mod resilience;
mod running_jobs;
mod tool_logs;

pub use access::{AccessControl, AccessParts, AccessSettings, AccessSnapshot};
pub use administration::{
    ActivationWish, AuditFound, AuditNext, AuditScope, DelegationRequest, PoliciesView, PolicyVersion,
    ReplacedActivation, RevocationRequest, ServerAct, TenantWish, sees_metrics,
};
pub use availability::{ToolAvailability, ToolKey, WhyUnavailable};
pub use catalogue::{CallerView, CatalogueMark, ComparisonResult, ComparisonSide, VisibilityTier};
pub use checkpoints::{CheckpointPage, CheckpointRetention, Checkpoints};
pub use concurrency::CallBounds;
pub use deadline::SYNC_MAX;
pub use discovery::{CallExplanation, ReachableTool, TenantTool, UnreachableTool};
pub use identity::{ExternalIssuer, Identity, IdentityError, IdentitySettings, Principal};
pub use invoke::{FailedCall, IncomingCall, Kernel, KernelOptions, KernelParts};
pub use isolation::{IsolationDemand, IsolationFacts, IsolationPolicy};
pub use ledger::{LedgerService, MISSING_KEY, RecoveryReport, indeterminate_end};
pub use limits::ResourceEnvelope;
pub use mint::{MintedToken, TokenIssuer, new_token_id_in};
pub use offerings::offering_id;
pub use recorder::{RecordSlot, Recorder, RecorderHandle};
pub use tool_logs::{CALLS_MAX as LOGGED_CALLS_MAX, LoggedCall};
