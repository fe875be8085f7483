//! Making tokens: the signing key in force, and its replacement while tokens are being made.

use contract::hex::lower_hex;
use ports::clock::UnixMillis;
use ports::entropy::{Entropy, new_token_id};
use ports::key_vault::KeyVault;
use std::sync::Arc;

use arc_swap::ArcSwap;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use policy::{MintRequest, SigningKey, TokenClaims, TokenMinter};
use sha2::{Digest as _, Sha256};

/// Bytes of the mark of a tenant in the ids of its tokens.
const MARK_BYTES: usize = 6;

/// A fresh token.
#[derive(Debug)]
pub struct MintedToken {
    pub token: String,
    pub claims: TokenClaims,
}

/// The id of a new token: a UUID and, behind a dot, a mark of the tenant it is for. By the mark a revocation can say whether an
/// id is one of this tenant's, although nobody keeps a list of tokens.
pub fn new_token_id_in(tenant: &TenantId, entropy: &dyn Entropy) -> String {
    let unique = new_token_id(entropy).to_string();
    format!("{unique}.{}", mark_of(tenant, &unique))
}

/// Is this the id of a token that was made for the tenant? Ids of other issuers, and those without a mark, are nobody's.
pub(crate) fn is_token_id_of(tenant: &TenantId, id: &str) -> bool {
    id.rsplit_once('.').is_some_and(|(unique, mark)| mark_of(tenant, unique) == mark)
}

fn mark_of(tenant: &TenantId, unique: &str) -> String {
    let digest = Sha256::new_with_prefix(b"gantry token id\0")
        .chain_update(unique.as_bytes())
        .chain_update(b"\0")
        .chain_update(tenant.as_str().as_bytes())
        .finalize();
    lower_hex(digest.get(..MARK_BYTES).unwrap_or(&digest))
}

/// The mint.
#[derive(Debug)]
pub struct TokenIssuer {
    key: ArcSwap<SigningKey>,
    minter: TokenMinter,
    vault: Arc<dyn KeyVault>,
}

impl TokenIssuer {
    /// With the key that signs now.
    pub fn new(key: SigningKey, minter: TokenMinter, vault: Arc<dyn KeyVault>) -> Self {
        Self { key: ArcSwap::from_pointee(key), minter, vault }
    }

    pub(crate) fn make(
        &self,
        request: &MintRequest,
        entropy: &dyn Entropy,
        now: UnixMillis,
    ) -> Result<MintedToken, Refusal> {
        let token_id = new_token_id_in(&request.tenant, entropy);
        let (token, claims) = self.minter.mint(request, &self.key.load(), token_id, now.0).map_err(|error| {
            Refusal::new(ErrorCode::E3004, error.to_string()).hint("mend the request; no token was made")
        })?;
        Ok(MintedToken { token, claims })
    }

    /// Keeps a new key. It signs only after [`TokenIssuer::use_key`], so that everybody can trust it first.
    pub(crate) async fn keep(&self, key: &SigningKey) -> Result<(), Refusal> {
        self.vault.replace(key).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the signing key was not rotated");
            Refusal::new(ErrorCode::E3001, "the new key could not be kept, so the former one stays in use")
                .hint("look at the server's log and disk, then try again")
                .caused_by(error)
        })
    }

    pub(crate) fn use_key(&self, key: SigningKey) {
        self.key.store(Arc::new(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_token_is_known_again_in_its_tenant_only() {
        #[derive(Debug)]
        struct Sevens;
        impl Entropy for Sevens {
            fn fill(&self, bytes: &mut [u8]) {
                bytes.fill(7);
            }
        }
        let (acme, globex): (TenantId, TenantId) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let id = new_token_id_in(&acme, &Sevens);
        assert!(is_token_id_of(&acme, &id));
        assert!(!is_token_id_of(&globex, &id));
        for other in ["", ".", "x", "07070707-0707-4707-8707-070707070707", "a.b"] {
            assert!(!is_token_id_of(&acme, other), "{other}");
        }
    }
}
