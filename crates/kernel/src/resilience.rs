//! What keeps a failing service from taking everybody down with it: breakers, limits, retries. (RES-001…020, DESIGN §8.10, §8.11)
//!
//! The machines that an adapter steps, too, are in [`ports::resilience`]. Here is who asks them:
//!
//! - `outcome`: what a result says about the service;
//! - [`retry`]: attempts at one thing;
//! - `guard`: what stands around which tool;
//! - `service`: asking on behalf of a call;
//! - `last_results`: what may be answered while a service is left alone.
//!
//! When in a call that is done is not here (`phases::authorize`, `phases::execute`).

mod follow;
pub(crate) mod guard;
pub(crate) mod last_results;
mod outcome;
pub mod retry;
pub(crate) mod service;

pub use service::{Resilience, ResilienceSettings};
