//! The six phases as types (LIFE-001, DESIGN §2): each consumes what the former made, so leaving one out does not compile.
//!
//! ```text
//! Arrival ─receive▶ Received ─validate▶ Validated ─authorize▶ Authorized ─execute▶ Executed ─verify▶ Verified ─settle▶ Settled ─finish▶ Returned
//! ```
//!
//! The fields of these types are private to their phases and there is no other constructor, not even for tests. A door
//! can therefore get at a result only through [`Returned`], and `Returned` only after all six.
//!
//! Handing a phase's value to the next phase compiles:
//!
//! ```
//! use gantry_kernel::{Kernel, phases::{self, Facts, Validated}};
//! async fn in_order(kernel: &Kernel, facts: &mut Facts, validated: Validated) {
//!     if let Ok(authorized) = phases::authorize(kernel, validated).await {
//!         let _executed = phases::execute(kernel, facts, authorized).await;
//!     }
//! }
//! ```
//!
//! Leaving authorization out does not:
//!
//! ```compile_fail
//! use gantry_kernel::{Kernel, phases::{self, Facts, Validated}};
//! async fn skips_authorize(kernel: &Kernel, facts: &mut Facts, validated: Validated) {
//!     let _executed = phases::execute(kernel, facts, validated).await;
//! }
//! ```
//!
//! Nor does leaving out validation:
//!
//! ```compile_fail
//! use gantry_kernel::{Kernel, phases::{self, Received}};
//! async fn skips_validate(kernel: &Kernel, received: Received) {
//!     let _authorized = phases::authorize(kernel, received).await;
//! }
//! ```
//!
//! Nor returning what was not verified:
//!
//! ```compile_fail
//! use gantry_kernel::{Kernel, phases::{self, Executed, Facts}};
//! fn skips_verify(kernel: &Kernel, facts: Facts, executed: Executed) {
//!     let _returned = phases::finish(kernel, facts, Ok(executed));
//! }
//! ```
//!
//! Nor making up a phase's value, reading a result before its time, or using one value twice:
//!
//! ```compile_fail
//! let _forged = gantry_kernel::phases::Authorized { call: None };
//! ```
//!
//! ```compile_fail
//! fn peeks(executed: gantry_kernel::phases::Executed) -> serde_json::Value {
//!     executed.output.value
//! }
//! ```
//!
//! ```compile_fail
//! use gantry_kernel::{Kernel, phases::{self, Authorized, Facts}};
//! async fn runs_twice(kernel: &Kernel, facts: &mut Facts, authorized: Authorized) {
//!     let _first = phases::execute(kernel, facts, authorized).await;
//!     let _second = phases::execute(kernel, facts, authorized).await;
//! }
//! ```

mod attempts;
mod authorize;
mod conditions;
mod execute;
mod facts;
mod finish;
mod managed_call;
mod offering;
mod opaque_content;
mod reader_mask;
mod receive;
mod settle;
mod shown_output;
mod summary;
mod validate;
mod verify;

pub use authorize::{Authorized, authorize};
pub(crate) use authorize::{authorize_in_theory, context_agrees_with_the_token};
pub use execute::{Executed, execute};
pub(crate) use execute::{note_spent_by_job, takes_place};
pub use facts::Facts;
pub(crate) use facts::status_of;
pub use finish::{Returned, finish};
pub(crate) use managed_call::{may_manage, no_longer_fit};
pub(crate) use offering::{OfferedTool, OfferingAsked, OfferingCall};
pub(crate) use reader_mask::ReaderMask;
pub use receive::{Received, receive};
pub(crate) use receive::{receive_again, receive_in_theory};
pub use settle::{Settled, settle};
pub(crate) use shown_output::ShownWords;
pub(crate) use summary::summarise;
pub(crate) use validate::prepared;
pub use validate::{Validated, validate};
pub(crate) use verify::profile_of_person;
pub use verify::{Verified, verify};
