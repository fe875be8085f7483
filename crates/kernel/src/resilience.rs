//! What keeps a failing service from taking everybody down with it: breakers, limits, retries. (RES-001…020, DESIGN §8.10, §8.11)
//!
//! The mechanisms are pure machines: state, event and time go in, the next state and what came of it come out. They know no
//! clock, no lock and no network; whoever holds the state ([`crate::ports::shared_state`]) makes each step atomic, in memory
//! or in a server that all replicas share. State and settings are plain data, so that every adapter can keep them.
//!
//! - [`breaker`] with its [`settings`] and the [`window`] it judges by;
//! - [`limiter`]: the generic cell rate algorithm;
//! - [`retry`] and the [`backoff`] between attempts.
//!
//! Not here: what a refusal of one of them means to a call (`phases::execute`).

pub mod backoff;
pub mod breaker;
pub mod limiter;
pub mod settings;
pub mod window;

pub use breaker::{
    Acquired, Admission, Breaker, BreakerEvent, BreakerMode, BreakerSnapshot, Exceeded, IllegalMove, Move, Outcome,
    Permit, Reason, Verdict,
};
pub use limiter::{Quota, QuotaError, Taken};
pub use settings::{BreakerSettings, HalfOpenRule, OpenWait, SettingsDraft, SettingsError, WindowKind};
