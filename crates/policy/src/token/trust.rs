//! Whose tokens are believed, and how far.

use crate::jose::{CompactToken, JwsError, KeySet};
use crate::role::Role;

use super::{AUDIENCE, ISSUER, TokenError};

/// How often a token may have been handed on, unless the configuration says otherwise.
pub const DELEGATION_DEPTH_MAX: usize = 5;

/// Everything that verification needs to know besides the token and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTrust {
    /// What `aud` must be, or have among others.
    pub audience: String,
    /// How far clocks may differ. Tokens live this much longer and begin this much earlier.
    pub leeway_seconds: u32,
    pub issuers: Vec<TokenIssuerKeys>,
    /// Most links of `act`.
    pub delegation_depth_max: usize,
}

/// Somebody who issues tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIssuerKeys {
    /// What `iss` must be.
    pub name: String,
    pub keys: KeySet,
    /// The roles that its tokens may give.
    pub roles: Vec<Role>,
}

impl TokenIssuerKeys {
    /// Is everybody an agent whom it speaks of? A person has no role, or another one; who leaves `roles` out must not pass for one.
    pub(crate) fn gives_agents_only(&self) -> bool {
        self.roles.iter().all(|role| *role == Role::Agent)
    }
}

impl TokenTrust {
    /// In these issuers, with nothing for clocks that differ.
    pub fn new(audience: impl Into<String>, issuers: Vec<TokenIssuerKeys>) -> Self {
        Self { audience: audience.into(), leeway_seconds: 0, issuers, delegation_depth_max: DELEGATION_DEPTH_MAX }
    }

    /// In this server's own keys alone, under the names it has without configuration. They may give every role.
    pub fn own(keys: impl Into<KeySet>) -> Self {
        let issuer = TokenIssuerKeys { name: ISSUER.to_owned(), keys: keys.into(), roles: Role::ALL.to_vec() };
        Self::new(AUDIENCE, vec![issuer])
    }

    /// The issuer of this name.
    pub fn issuer(&self, name: &str) -> Option<&TokenIssuerKeys> {
        self.issuers.iter().find(|issuer| issuer.name == name)
    }

    pub(super) fn leeway(&self) -> i64 {
        i64::from(self.leeway_seconds)
    }

    /// The issuers whose key has signed this. Names of keys are chosen by their owners, so two issuers may have keys of
    /// one name, or may even share a key: then the claims decide, and only among those.
    pub(super) fn signers(&self, compact: &CompactToken<'_>) -> Result<Vec<&TokenIssuerKeys>, TokenError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::{SigningKey, VerifyingKey};
    use crate::token::verify_registered;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    /// A token under a name of one's choice, as other issuers give them.
    fn token(key: &SigningKey, issuer: &str) -> String {
        let part = |text: String| URL_SAFE_NO_PAD.encode(text);
        let signed = format!(
            "{}.{}",
            part(r#"{"alg":"EdDSA","kid":"1"}"#.to_owned()),
            part(format!(r#"{{"iss":"{issuer}","aud":"gantry","exp":60}}"#))
        );
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn issuer(name: &str, key: &SigningKey) -> TokenIssuerKeys {
        let mut jwk = key.verifying_key().to_jwk();
        jwk["kid"] = "1".into();
        let key: VerifyingKey = crate::jose::read_jwk(&jwk, None).unwrap();
        TokenIssuerKeys { name: name.to_owned(), keys: key.into(), roles: Vec::new() }
    }

    #[test]
    fn issuers_may_use_one_name_for_their_keys_and_still_speak_for_themselves_only() {
        let (a, b, c) =
            (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]), SigningKey::from_seed(&[3; 32]));
        // The third shares its key with the first.
        let trust = TokenTrust::new(AUDIENCE, vec![issuer("a", &a), issuer("b", &b), issuer("a2", &a)]);
        let issued_by = |key, name| {
            verify_registered(&token(key, name), &trust, 0).map(|registered| registered.issuer.name.clone())
        };
        assert_eq!(issued_by(&a, "a").as_deref(), Ok("a"));
        assert_eq!(issued_by(&b, "b").as_deref(), Ok("b"));
        assert_eq!(issued_by(&a, "a2").as_deref(), Ok("a2"));
        assert_eq!(issued_by(&a, "b"), Err(TokenError::WrongIssuer));
        assert_eq!(issued_by(&b, "a"), Err(TokenError::WrongIssuer));
        assert_eq!(issued_by(&c, "a"), Err(TokenError::Signature));
        let nobody = TokenTrust::new(AUDIENCE, Vec::new());
        assert_eq!(verify_registered(&token(&a, "a"), &nobody, 0).unwrap_err(), TokenError::UnknownKey);
    }
}
