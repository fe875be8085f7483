//! Who may do what: tokens, grants, roles, scopes. Pure decisions: keys, time and randomness are handed in.
//!
//! A [`Caller`] can only be had from an [`Authenticator`], so code that holds one holds a verified identity.

mod abac;
mod argument_limit;
mod authenticator;
mod budget;
mod caller;
mod delegation;
mod grant;
mod keys;
mod role;
mod scope;
mod token;
mod visibility;

pub use abac::{
    ARGUMENT_PATH_BYTES_MAX, ARGUMENTS_MAX, Case, CaseOutcome, ContextNeeds, DENIED, ExpectationProblem, Expectations,
    Expected, Obligation, ObligationError, PERMIT_ALL, POLICIES_MAX, POLICY_BYTES_MAX, POLICY_TEXT_BYTES_MAX, Policies,
    PolicyProblem, Position, Question, Risk, SCHEMA, ToolFacts, UNDECIDED, Verdict,
};
pub use argument_limit::ArgumentLimit;
pub use authenticator::{AuthenticationError, Authenticator, BearerSecret};
pub use budget::Budget;
pub use caller::{Caller, CallerKind};
pub use delegation::{Delegator, Rights};
pub use grant::{ToolGrant, ToolPattern, ToolPatternError};
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub use role::{Action, Role};
pub use scope::{Scope, ScopeError};
pub use token::{AUDIENCE, Claims, ISSUER, MintError, MintRequest, TOKEN_BYTES_MAX, TokenError, mint, verify};
pub use visibility::{PolicyOverrides, VisibilityDefault, WhyUnavailable, reach};
