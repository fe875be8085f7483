//! The six phases as types (LIFE-001, DESIGN §2): each consumes what the former made, so leaving one out does not compile.
//!
//! ```text
//! IncomingCall ─receive▶ Received ─validate▶ Validated ─authorize▶ Authorized ─execute▶ Executed ─verify▶ Verified ─settle▶ SettledCall ─finish▶ Returned
//! ```
//!
//! The fields of these types are private to their phases and there is no other constructor, not even for tests. A door
//! can therefore get at a result only through [`Returned`], and `Returned` only after all six.
//!
//! Handing a phase's value to the next phase compiles:
//!
//! ```
//! use gantry_kernel::{Kernel, phases::{self, CallFacts, Received}};
//! async fn in_order(kernel: &Kernel, mut facts: CallFacts, received: Received) {
//!     let Ok(validated) = phases::validate(kernel, &mut facts, received).await else { return };
//!     let Ok(authorized) = phases::authorize(kernel, validated).await else { return };
//!     let Ok(executed) = phases::execute(kernel, &mut facts, authorized).await else { return };
//!     let verified = phases::verify(kernel, &facts, executed).await;
//!     let settled = phases::settle(kernel, &mut facts, verified).await;
//!     let _returned = phases::finish(kernel, &mut facts, settled).await;
//! }
//! ```
//!
//! Each of the following misuses is one of these steps with one thing changed, and fails for the reason whose code it carries
//! (a nightly compiler compares the codes). Leaving out authorization does not compile (E0308, mismatched types):
//!
//! ```compile_fail,E0308
//! use gantry_kernel::{Kernel, phases::{self, CallFacts, Validated}};
//! async fn skips_authorize(kernel: &Kernel, facts: &mut CallFacts, validated: Validated) {
//!     let _executed = phases::execute(kernel, facts, validated).await;
//! }
//! ```
//!
//! Nor does leaving out validation:
//!
//! ```compile_fail,E0308
//! use gantry_kernel::{Kernel, phases::{self, Received}};
//! async fn skips_validate(kernel: &Kernel, received: Received) {
//!     let _authorized = phases::authorize(kernel, received).await;
//! }
//! ```
//!
//! Nor settling what was not verified, or returning what was not settled:
//!
//! ```compile_fail,E0308
//! use gantry_kernel::{Kernel, phases::{self, Executed, CallFacts}};
//! async fn skips_verify(kernel: &Kernel, facts: &mut CallFacts, executed: Executed) {
//!     let _settled = phases::settle(kernel, facts, Ok(executed)).await;
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use gantry_kernel::{Kernel, phases::{self, CallFacts, Verified}};
//! async fn skips_settle(kernel: &Kernel, facts: &mut CallFacts, verified: Verified) {
//!     let _returned = phases::finish(kernel, facts, verified).await;
//! }
//! ```
//!
//! Nor making up a phase's value from another (E0451, private fields), reading a result before its time (E0616), or using one
//! value twice (E0382):
//!
//! ```compile_fail,E0451
//! use gantry_kernel::phases::Authorized;
//! fn forges(authorized: Authorized) -> Authorized {
//!     Authorized { ..authorized }
//! }
//! ```
//!
//! ```compile_fail,E0616
//! use gantry_kernel::phases::Executed;
//! fn peeks(executed: Executed) {
//!     let _output = executed.output;
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use gantry_kernel::{Kernel, phases::{self, Authorized, CallFacts}};
//! async fn runs_twice(kernel: &Kernel, facts: &mut CallFacts, authorized: Authorized) {
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
mod offered_call;
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
pub use facts::CallFacts;
pub use facts::status_of;
pub use finish::{Returned, finish};
pub(crate) use managed_call::may_manage;
pub(crate) use offered_call::{OfferedTool, OfferingAsked, OfferingCall};
pub use reader_mask::ReaderMask;
pub use receive::{Received, receive};
pub(crate) use receive::{receive_again, receive_in_theory};
pub use settle::{SettledCall, settle};
pub(crate) use shown_output::ShownWords;
pub(crate) use summary::summarise;
pub(crate) use validate::prepared;
pub use validate::{Validated, validate};
pub(crate) use verify::profile_of_person;
pub use verify::{Verified, verify};
