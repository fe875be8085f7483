//! From a bearer credential to a [`Caller`]: the bootstrap admin token, or a capability token.
//!
//! An authenticator is a value. When keys change, a new one is made from it ([`Authenticator::with_trust`]) and takes its
//! place at once, so that no call sees half of a change; the bootstrap part goes along unchanged.
//!
//! Not here: revocation, remembering verified tokens, counting failures (all the kernel's).

use contract::error::{ErrorCode, Refusal};
use contract::ids::NameError;
use sha2::{Digest as _, Sha256};

use crate::caller::{Caller, CallerRecord};
use crate::grant::{ToolGrant, ToolPattern};
use crate::token::{self, TokenError, TokenTrust};

/// The subject behind the bootstrap secret.
pub(crate) const ADMIN_SUBJECT: &str = "admin";
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
        let (code, hint) = match self {
            Self::Missing => (
                ErrorCode::E3203,
                Some(
                    "send `Authorization: Bearer <token>`; the admin token is in the data directory, `gantry token mint` makes narrower ones",
                ),
            ),
            Self::Token(error) => (error.code(), error.hint()),
        };
        let refusal = Refusal::new(code, self.to_string()).caused_by(self.clone());
        match hint {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}

/// Recognises callers.
#[derive(Debug, Clone)]
pub struct Authenticator {
    admin_digest: [u8; 32],
    admin: Caller,
    trust: TokenTrust,
}

impl Authenticator {
    /// With the bootstrap secret, and whose tokens are believed.
    pub fn new(admin_secret: &str, trust: TokenTrust) -> Result<Self, NameError> {
        let everything = ToolGrant { tool_id: ToolPattern::All, version_range: None };
        let admin = Caller::administrator(
            ADMIN_SUBJECT.parse()?,
            LOCAL_TENANT.parse()?,
            vec![everything],
            "*".parse().into_iter().collect(),
        );
        Ok(Self { admin_digest: digest(admin_secret), admin, trust })
    }

    /// The same with other keys.
    #[must_use]
    pub fn with_trust(&self, trust: TokenTrust) -> Self {
        Self { admin_digest: self.admin_digest, admin: self.admin.clone(), trust }
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
        Ok(token::verify(secret, &self.trust, now_ms)?)
    }

    /// Whose tokens are believed.
    pub fn trust(&self) -> &TokenTrust {
        &self.trust
    }

    /// The caller of a record that this server wrote and kept. Whether the caller is still welcome is asked elsewhere.
    pub fn honour(&self, record: CallerRecord) -> Caller {
        record.caller(&self.admin)
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
    use crate::caller::CallerKind;
    use crate::jose::{KeySet, SigningKey};

    #[test]
    fn the_admin_token_is_recognised_and_others_are_classified() {
        let key = SigningKey::from_seed(&[3; 32]);
        let authenticator = Authenticator::new("s3cret", TokenTrust::own(key.verifying_key())).unwrap();
        let who = authenticator.authenticate(Some(BearerSecret("s3cret")), 0).unwrap();
        assert_eq!((who.kind(), who.tenant().as_str()), (CallerKind::AdminToken, "local"));
        assert_eq!(&who, authenticator.system());
        let code = |credential| authenticator.authenticate(credential, 0).unwrap_err().refusal().code;
        assert_eq!(code(None), ErrorCode::E3203);
        assert_eq!(code(Some(BearerSecret("s3creT"))), ErrorCode::E3203);
        assert_eq!(format!("{:?}", BearerSecret("s3cret")), "BearerSecret(…)");
    }

    #[test]
    fn keys_are_replaced_without_the_bootstrap_secret() {
        let authenticator = Authenticator::new("s3cret", TokenTrust::own(KeySet::default())).unwrap();
        let key = SigningKey::from_seed(&[3; 32]);
        let newer = authenticator.with_trust(TokenTrust::own(key.verifying_key()));
        assert!(authenticator.trust().issuers[0].keys.is_empty());
        assert_eq!(newer.trust().issuers[0].keys.len(), 1);
        let who = newer.authenticate(Some(BearerSecret("s3cret")), 0).unwrap();
        assert_eq!(who.kind(), CallerKind::AdminToken);
    }
}
