//! What keeps a failing service from taking everybody down with it: breakers, limits, retries. (RES-001…020, DESIGN §8.10, §8.11)
//!
//! The mechanisms are pure machines: state, event and time go in, the next state and what came of it come out. They know no
//! clock, no lock and no network; whoever holds the state ([`crate::ports::shared_state`]) makes each step atomic, in memory
//! or in a server that all replicas share. State and settings are plain data, so that every adapter can keep them.
//!
//! - [`breaker`] with its [`settings`] and the [`window`] it judges by;
//! - [`outcome`]: what a result says about the service;
//! - [`limiter`]: the generic cell rate algorithm;
//! - [`retry`] and the [`backoff`] between attempts.
//!
//! What stands around which tool is worked out in `guard`; `service` asks on behalf of a call; `last_results` has what may be
//! answered while a service is left alone. When in a call that is done is
//! not here (`phases::authorize`, `phases::execute`).

pub mod backoff;
pub mod breaker;
mod follow;
pub(crate) mod guard;
pub(crate) mod last_results;
pub mod limiter;
pub mod outcome;
pub mod retry;
pub(crate) mod service;
pub mod settings;
pub mod window;

pub use breaker::{
    AcquireOutcome, Breaker, BreakerAdmission, BreakerEvent, BreakerMode, BreakerPermit, BreakerReason,
    BreakerSnapshot, BreakerVerdict, ExceededThreshold, GuestTag, IllegalMove, ManualMove, PermittedOutcome,
};
pub use limiter::{QuotaError, QuotaOutcome, RateQuota};
pub use service::{Resilience, ResilienceSettings};
pub use settings::{BreakerSettings, CanaryShare, HalfOpenRule, OpenWait, SettingsDraft, SettingsError, WindowKind};
