//! Making tokens: the signing key in force, and its replacement while tokens are being made.

use std::sync::Arc;

use arc_swap::ArcSwap;
use contract::error::{ErrorCode, Refusal};
use policy::{Claims, MintRequest, Minter, SigningKey};

use crate::ports::clock::UnixMillis;
use crate::ports::entropy::{Entropy, new_token_id};
use crate::ports::key_vault::KeyVault;

/// A fresh token.
#[derive(Debug)]
pub struct MintedToken {
    pub token: String,
    pub claims: Claims,
}

/// The mint.
#[derive(Debug)]
pub struct Mint {
    key: ArcSwap<SigningKey>,
    minter: Minter,
    vault: Arc<dyn KeyVault>,
}

impl Mint {
    /// With the key that signs now.
    pub fn new(key: SigningKey, minter: Minter, vault: Arc<dyn KeyVault>) -> Self {
        Self { key: ArcSwap::from_pointee(key), minter, vault }
    }

    pub(crate) fn make(
        &self,
        request: &MintRequest,
        entropy: &dyn Entropy,
        now: UnixMillis,
    ) -> Result<MintedToken, Refusal> {
        let token_id = new_token_id(entropy).to_string();
        let (token, claims) = self.minter.mint(request, &self.key.load(), token_id, now.0).map_err(|error| {
            Refusal::new(ErrorCode::E3004, error.to_string()).hint("mend the request; no token was made")
        })?;
        Ok(MintedToken { token, claims })
    }

    /// Keeps a new key. It signs only after [`Mint::use_key`], so that everybody can trust it first.
    pub(crate) async fn keep(&self, key: &SigningKey) -> Result<(), Refusal> {
        self.vault.replace(key).await.map_err(|error| {
            tracing::error!(%error, "the signing key was not rotated");
            Refusal::new(ErrorCode::E3001, "the new key could not be kept, so the former one stays in use")
                .hint("look at the server's log and disk, then try again")
        })
    }

    pub(crate) fn use_key(&self, key: SigningKey) {
        self.key.store(Arc::new(key));
    }
}
