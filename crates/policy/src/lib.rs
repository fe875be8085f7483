//! Who may do what: tokens, grants, roles, scopes. Pure decisions: keys, time and randomness are handed in.
//!
//! A [`Caller`] can only be had from an [`Authenticator`], so code that holds one holds a verified identity.

mod authenticator;
mod caller;
mod grant;
mod keys;
mod role;
mod scope;
mod token;

pub use authenticator::{AuthenticationError, Authenticator, BearerSecret};
pub use caller::{Caller, CallerKind};
pub use grant::{ToolGrant, ToolPattern, ToolPatternError};
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub use role::{Action, Role};
pub use scope::{Scope, ScopeError};
pub use token::{AUDIENCE, Claims, ISSUER, MintError, MintRequest, TOKEN_BYTES_MAX, TokenError, mint, verify};
