//! The six phases every call passes, and the mechanisms they need. Talks to nothing itself: what it needs from the
//! outside it declares as [`ports`].
//!
//! Start reading at [`Kernel::invoke`]: it is the only way a tool is ever run, whatever the door.

mod administration;
mod catalogue;
mod deadline;
mod identity;
mod invoke;
pub mod phases;
pub mod ports;
mod recorder;
pub mod registry;

pub use administration::{Actor, MintedToken};
pub use catalogue::{Compared, Side};
pub use deadline::SYNC_MAX;
pub use identity::Identity;
pub use invoke::{Arrival, Failed, Kernel, KernelParts};
pub use recorder::{Recorder, RecorderHandle};
