//! From a bearer credential to a [`Caller`]: the bootstrap admin token, or a capability token.

use contract::error::{ErrorCode, Refusal};
use contract::ids::NameError;
use sha2::{Digest as _, Sha256};

use crate::caller::{Caller, CallerKind};
use crate::grant::{ToolGrant, ToolPattern};
use crate::keys::VerifyingKey;
use crate::role::Role;
use crate::token::{self, TokenError};

/// The subject behind the bootstrap secret.
const ADMIN_SUBJECT: &str = "admin";
/// The zero-configuration tenant (DESIGN §3).
const LOCAL_TENANT: &str = "local";

/// A bearer credential as it came in. Never shown.
#[derive(Clone, Copy)]
pub struct BearerSecret<'a>(pub &'a str);

impl std::fmt::Debug for BearerSecret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerSecret(…)")
    }
}

/// Why nobody was recognised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    #[error("no bearer token was sent")]
    Missing,
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl AuthenticationError {
    /// The row of the error table and what to do.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            Self::Missing | Self::Token(TokenError::Malformed(_) | TokenError::NotYetValid) => ErrorCode::E3203,
            Self::Token(TokenError::Signature | TokenError::UnknownKey) => ErrorCode::E3202,
            Self::Token(TokenError::Expired) => ErrorCode::E3201,
        };
        let refusal = Refusal::new(code, self.to_string());
        match self {
            Self::Missing => refusal.hint(
                "send `Authorization: Bearer <token>`; the admin token is in the data directory, `gantry token mint` makes narrower ones",
            ),
            Self::Token(_) => refusal,
        }
    }
}

/// Recognises callers.
#[derive(Debug)]
pub struct Authenticator {
    admin_digest: [u8; 32],
    keys: Vec<VerifyingKey>,
    admin: Caller,
}

impl Authenticator {
    /// With the bootstrap secret and the keys that tokens may be signed with.
    pub fn new(admin_secret: &str, keys: Vec<VerifyingKey>) -> Result<Self, NameError> {
        let admin = Caller {
            kind: CallerKind::AdminToken,
            subject: ADMIN_SUBJECT.parse()?,
            tenant: LOCAL_TENANT.parse()?,
            roles: vec![Role::Admin],
            tools: vec![ToolGrant { tool_id: ToolPattern::All, version_range: None }],
            scopes: "*".parse().into_iter().collect(),
            user: None,
            session: None,
            token_id: None,
            expires_at_ms: None,
        };
        Ok(Self { admin_digest: digest(admin_secret), keys, admin })
    }

    /// Says who calls. `now_ms` is milliseconds since the epoch.
    pub fn authenticate(
        &self,
        credential: Option<BearerSecret<'_>>,
        now_ms: i64,
    ) -> Result<Caller, AuthenticationError> {
        let BearerSecret(secret) = credential.ok_or(AuthenticationError::Missing)?;
        // Digests are compared, so the time taken says nothing about how much of the secret was right.
        if digest(secret) == self.admin_digest {
            return Ok(self.admin.clone());
        }
        Ok(token::verify(secret, &self.keys, now_ms)?)
    }

    /// The public keys, for the JWK set.
    pub fn keys(&self) -> &[VerifyingKey] {
        &self.keys
    }

    /// The identity of the server's own work, such as publishing its built-in tools.
    pub fn system(&self) -> &Caller {
        &self.admin
    }
}

/// SHA-256 of a credential: what caches and comparisons use in its place.
pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SigningKey;

    #[test]
    fn the_admin_token_is_recognised_and_others_are_classified() {
        let key = SigningKey::from_seed(&[3; 32]);
        let authenticator = Authenticator::new("s3cret", vec![key.verifying_key()]).unwrap();
        let who = authenticator.authenticate(Some(BearerSecret("s3cret")), 0).unwrap();
        assert_eq!(who.kind(), CallerKind::AdminToken);
        let code = |credential| authenticator.authenticate(credential, 0).unwrap_err().refusal().code;
        assert_eq!(code(None), ErrorCode::E3203);
        assert_eq!(code(Some(BearerSecret("s3creT"))), ErrorCode::E3203);
        assert_eq!(format!("{:?}", BearerSecret("s3cret")), "BearerSecret(…)");
    }
}
