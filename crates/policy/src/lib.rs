//! Who may do what: tokens, grants, roles, scopes. Pure decisions: keys, time and randomness are handed in.
//!
//! A [`Caller`] can only be had from an [`Authenticator`], so code that holds one holds a verified identity.

mod abac;
mod argument_limit;
mod authenticator;
mod budget;
mod call_owner;
mod caller;
mod delegation;
mod did;
mod grant;
pub mod jose;
mod message_code;
mod role;
mod scope;
mod token;
mod visibility;

pub use abac::{
    ARGUMENT_PATH_BYTES_MAX, ARGUMENTS_MAX, CaseOutcome, ContextNeeds, DENIED, ExpectationProblem, ExpectedDecision,
    Obligation, ObligationError, OutputSchema, POLICIES_MAX, POLICY_BYTES_MAX, POLICY_TEXT_BYTES_MAX, Policies,
    PolicyCase, PolicyExpectations, PolicyProblem, PolicyQuestion, PolicyUpstream, PolicyVerdict, Risk, SCHEMA,
    SourcePosition, ToolFacts, ToolReach, UNDECIDED,
};
pub use argument_limit::{ArgumentLimit, LimitBreach, LimitError};
pub use authenticator::{AuthenticationError, Authenticator, BearerSecret};
pub use budget::CallBudget;
pub use call_owner::CallOwner;
pub use caller::{Caller, CallerKind, CallerRecord};
pub use delegation::{
    CHAIN_LINKS_MAX, ChainError, DelegatedRights, Delegator, NarrowingRequest, RightsWidening, first_widening, narrow,
};
pub use did::{Did, DidDocument, InvalidDidError, did_of_subject};
pub use grant::{ToolGrant, ToolPattern, ToolPatternError};
pub use jose::{KeyError, KeySet, SignatureAlgorithm, SigningKey, TOKEN_BYTES_MAX, VerifyingKey, key_id};
pub use message_code::{CODE_BYTES, is_message_code, message_code};
pub use role::{Action, Role};
pub use scope::{NetworkError, NetworkPlace, PathError, PermissionScope, PlacePort, ScopeError, ScopeTarget};
pub use token::{
    AUDIENCE, DELEGATION_DEPTH_MAX, ISSUER, MintError, MintRequest, TokenAudience, TokenClaims, TokenError,
    TokenIssuerKeys, TokenMinter, TokenTrust, VerifiedClaims, mint, verify, verify_registered,
};
pub use visibility::{
    OverrideError, PolicyOverrides, VisibilityDefault, WhyUnavailable, most_specific, reach, specificity,
};
