//! Limits on the arguments of calls, carried in a token: "this agent may refund, but at most 100".
//!
//! A token carries a list and every entry whose pattern names the tool must hold. Delegation only appends, so "the child's
//! list contains the parent's" is the whole proof that nothing was widened.
//!
//! A limit on an argument that the call does not have is not met: what is absent cannot be shown to be within bounds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grant::ToolPattern;

/// One limit: every bound that is there must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentLimit {
    /// Which tools it is about.
    pub tool_id: ToolPattern,
    /// Where in the parameters, as a JSON pointer (RFC 6901): `/amount`.
    pub argument: String,
    /// The value is a number of at least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<serde_json::Number>,
    /// The value is a number of at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<serde_json::Number>,
    /// The value is one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// The value is a string of at most this many characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// The value is a path or URL at or below this one, by the rules of scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
}
