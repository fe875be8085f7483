//! Recognising callers at the speed of a hash: a token's signature is checked once and remembered by the token's digest
//! until it expires (DESIGN §7). Expiry is checked every time; a remembered token never outlives itself.

use std::sync::Arc;

use contract::error::Refusal;
use policy::{Authenticator, BearerSecret, Caller};
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

use crate::ports::clock::UnixMillis;

/// Remembered tokens; the least used make room.
const REMEMBERED_MAX: usize = 10_000;

/// The kernel's sense of who is calling.
#[derive(Debug)]
pub struct Identity {
    authenticator: Authenticator,
    remembered: Cache<[u8; 32], Arc<Caller>>,
}

impl Identity {
    /// With a way to recognise callers.
    pub fn new(authenticator: Authenticator) -> Self {
        Self { authenticator, remembered: Cache::new(REMEMBERED_MAX) }
    }

    /// Says who calls, or why nobody was recognised.
    pub fn recognise(&self, credential: Option<BearerSecret<'_>>, now: UnixMillis) -> Result<Arc<Caller>, Refusal> {
        let Some(BearerSecret(secret)) = credential else {
            return self.authenticate(credential, now).map(Arc::new);
        };
        // An over-long credential is refused by the authenticator; hashing it first would be work for an attacker.
        if secret.len() > policy::TOKEN_BYTES_MAX {
            return self.authenticate(credential, now).map(Arc::new);
        }
        let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        if let Some(caller) = self.remembered.get(&digest) {
            if caller.expires_at_ms().is_none_or(|end| now.0 < end) {
                return Ok(caller);
            }
            self.remembered.remove(&digest);
        }
        let caller = Arc::new(self.authenticate(credential, now)?);
        self.remembered.insert(digest, Arc::clone(&caller));
        Ok(caller)
    }

    /// The authenticator itself, for its keys and the server's own identity.
    pub fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    fn authenticate(&self, credential: Option<BearerSecret<'_>>, now: UnixMillis) -> Result<Caller, Refusal> {
        self.authenticator.authenticate(credential, now.0).map_err(|error| error.refusal())
    }
}
