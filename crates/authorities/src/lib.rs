//! Asking authorities outside this process: key sets of other issuers, DID documents, policy engines.
//!
//! Each implements one port of the kernel. Everything here is bounded in time and size, follows no redirect, uses no proxy
//! of the environment, and fails closed.
//!
//! - [`KeySetUrl`] and [`KeySetFile`] fetch the keys of another issuer (AUTH-005);
//! - [`DidWeb`] finds out whether a `did:web` has a document, on hosts the operator has listed;
//! - [`AuthorizeEngine`], [`CheckPermissionEngine`] and [`OpaEngine`] ask a policy engine in one of three shapes
//!   (AUTH-006, X-12).
//!
//! All of them share one [`AuthorityClient`] client.
//!
//! Not here: what the answers mean. Keys are read by `policy`, and who is asked when, and how often, is the kernel's.

mod address;
mod bearer_token;
mod did_web;
mod engine;
mod key_set;
mod outbound;

pub use address::AddressError;
pub use bearer_token::{BearerToken, BearerTokenError};
pub use did_web::{DidWeb, HostListError};
pub use engine::{AuthorizeEngine, CheckPermissionEngine, EngineSettings, EngineSetupError, OpaEngine};
pub use key_set::{KeySetFile, KeySetUrl};
pub use outbound::{AuthorityClient, OutboundError};
