//! Whose tokens are believed, and how far.

use crate::jose::{Compact, JwsError, KeySet};
use crate::role::Role;

use super::{AUDIENCE, ISSUER, TokenError};

/// How often a token may have been handed on, unless the configuration says otherwise.
pub const DELEGATION_DEPTH_MAX: usize = 5;

/// Everything that verification needs to know besides the token and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// What `aud` must be, or have among others.
    pub audience: String,
    /// How far clocks may differ. Tokens live this much longer and begin this much earlier.
    pub leeway_seconds: u32,
    pub issuers: Vec<Issuer>,
    /// Most links of `act`.
    pub delegation_depth_max: usize,
}

/// Somebody who issues tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// What `iss` must be.
    pub name: String,
    pub keys: KeySet,
    /// The roles that its tokens may give.
    pub roles: Vec<Role>,
}

impl Trust {
    /// In these issuers, with nothing for clocks that differ.
    pub fn new(audience: impl Into<String>, issuers: Vec<Issuer>) -> Self {
        Self { audience: audience.into(), leeway_seconds: 0, issuers, delegation_depth_max: DELEGATION_DEPTH_MAX }
    }

    /// In this server's own keys alone, under the names it has without configuration. They may give every role.
    pub fn own(keys: impl Into<KeySet>) -> Self {
        let issuer = Issuer { name: ISSUER.to_owned(), keys: keys.into(), roles: Role::ALL.to_vec() };
        Self::new(AUDIENCE, vec![issuer])
    }

    /// The issuer of this name.
    pub fn issuer(&self, name: &str) -> Option<&Issuer> {
        self.issuers.iter().find(|issuer| issuer.name == name)
    }

    pub(super) fn leeway(&self) -> i64 {
        i64::from(self.leeway_seconds)
    }

    /// The issuers whose key has signed this. Names of keys are chosen by their owners, so two issuers may have keys of
    /// one name, or may even share a key: then the claims decide, and only among those.
    pub(super) fn signers(&self, compact: &Compact<'_>) -> Result<Vec<&Issuer>, TokenError> {
        let mut worst = JwsError::UnknownKey;
        let mut signers = Vec::new();
        for issuer in &self.issuers {
            let Some(key) = issuer.keys.get(compact.key_id()) else { continue };
            match compact.verify(key) {
                Ok(()) => signers.push(issuer),
                Err(error) if worst != JwsError::Signature => worst = error,
                Err(_) => {}
            }
        }
        if signers.is_empty() { Err(worst.into()) } else { Ok(signers) }
    }
}
