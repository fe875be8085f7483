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
mod qstash;
mod role;
mod scope;
mod token;
mod visibility;

pub use abac::{
    ARGUMENT_PATH_BYTES_MAX, ARGUMENTS_MAX, Case, CaseOutcome, ContextNeeds, DENIED, ExpectationProblem, Expectations,
    Expected, Obligation, ObligationError, OutputSchema, PERMIT_ALL, POLICIES_MAX, POLICY_BYTES_MAX,
    POLICY_TEXT_BYTES_MAX, Policies, PolicyProblem, Position, Question, Risk, SCHEMA, ToolFacts, ToolReach, UNDECIDED,
    Upstream, Verdict,
};
pub use argument_limit::{ArgumentLimit, LimitBreach, LimitError};
pub use authenticator::{AuthenticationError, Authenticator, BearerSecret};
pub use budget::Budget;
pub use call_owner::CallOwner;
pub use caller::{Caller, CallerKind, Warrant};
pub use delegation::{CHAIN_LINKS_MAX, ChainError, Delegator, NarrowingWish, Rights, Widening, first_widening, narrow};
pub use did::{Did, DidDocument, InvalidDidError, did_of_subject};
pub use grant::{ToolGrant, ToolPattern, ToolPatternError};
pub use jose::{Algorithm, KeyError, KeySet, SigningKey, TOKEN_BYTES_MAX, VerifyingKey, key_id};
pub use message_code::{CODE_BYTES, is_message_code, message_code};
pub use qstash::{LIFETIME_MAX_SECONDS as QSTASH_LIFETIME_MAX_SECONDS, QstashClaims, QstashError, QstashReceiver};
pub use role::{Action, Role};
pub use scope::{NetworkError, NetworkPlace, PathError, Place, PlacePort, Scope, ScopeError};
pub use token::{
    AUDIENCE, Audience, Claims, DELEGATION_DEPTH_MAX, ISSUER, Issuer, MintError, MintRequest, Minter, Registered,
    TokenError, Trust, mint, verify, verify_registered,
};
pub use visibility::{
    OverrideError, PolicyOverrides, VisibilityDefault, WhyUnavailable, most_specific, reach, specificity,
};
