//! How much may be done with a token: calls and cost, each optional. Delegation may only lower them.

use serde::{Deserialize, Serialize};

/// A budget. Absent means unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Calls that may be run with this token and everything delegated from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
}
