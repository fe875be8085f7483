//! Who acts when it is no tool call: what every administrative act recognises its caller by. A value and no port.
//!
//! Not here: recognising, and what a role may do (`kernel::administration`).

use std::net::IpAddr;

use contract::ids::TraceId;
use policy::BearerSecret;

/// Who does what nobody's token stands behind: jobs that are no calls, and what the server does by itself (ASYNC-009). It calls no
/// tools.
pub const SYSTEM_SUBJECT: &str = "system:jobs";

/// Who acts, from where, and in which trace.
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    pub credential: Option<BearerSecret<'a>>,
    /// Where it comes from, for the limit on failed authentications.
    pub source: Option<IpAddr>,
    pub trace_id: TraceId,
}
