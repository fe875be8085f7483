//! Delegation: user ⊇ agent ⊇ invocation, in tools, versions, scopes, argument limits, budget and lifetime (AUTH-014, AUTH-015).

use contract::ids::Subject;
use serde::{Deserialize, Serialize};

use crate::argument_limit::ArgumentLimit;
use crate::budget::Budget;
use crate::grant::ToolGrant;
use crate::scope::Scope;

/// What somebody may do and until when.
#[derive(Debug, Clone, PartialEq)]
pub struct Rights {
    pub tools: Vec<ToolGrant>,
    pub scopes: Vec<Scope>,
    pub limits: Vec<ArgumentLimit>,
    pub budget: Option<Budget>,
    /// Seconds since the epoch.
    pub expires_at: i64,
}

/// One link of the `act` claim: who handed the token on, and with which rights. Outermost is the nearest delegator.
/// Tokens of other issuers may carry only `sub`, as RFC 8693 has it; what is absent is not compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delegator {
    pub sub: Subject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolGrant>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<Scope>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<ArgumentLimit>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Box<Self>>,
}
