//! The machines that keep a failing service from taking everybody down with it: breakers and limits.
//! (RES-001…020, DESIGN §8.10, §8.11)
//!
//! They are pure: state, event and time go in, the next state and what came of it come out. They know no clock, no lock and no
//! network; whoever holds the state ([`crate::shared_state`]) makes each step atomic, in memory or in a server that all replicas
//! share. State and settings are plain data, so that every adapter can keep them.
//!
//! - [`breaker`] with its [`settings`] and the [`window`] it judges by;
//! - [`limiter`]: the generic cell rate algorithm;
//! - [`guard`]: what stands around the calls of one version of a tool.
//!
//! Not here: the waits between attempts (`base::backoff`), which tool has which, when in a call they are asked, and what counts as a failure (`kernel::resilience`).

pub mod breaker;
pub mod guard;
pub mod limiter;
pub mod settings;
pub mod window;

pub use breaker::{
    AcquireOutcome, Breaker, BreakerAdmission, BreakerEvent, BreakerMode, BreakerPermit, BreakerReason,
    BreakerSnapshot, BreakerVerdict, ExceededThreshold, GuestTag, IllegalMove, ManualMove, PermittedOutcome,
};
pub use limiter::{QuotaError, QuotaOutcome, RateQuota};
pub use settings::{BreakerSettings, CanaryShare, HalfOpenRule, OpenWait, SettingsDraft, SettingsError, WindowKind};
