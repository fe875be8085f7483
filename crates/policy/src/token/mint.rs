//! Making tokens with this server's own key.

use contract::ids::{Subject, TenantId};

use super::{AUDIENCE, ISSUER, TokenAudience, TokenClaims};
use crate::argument_limit::ArgumentLimit;
use crate::budget::CallBudget;
use crate::delegation::Delegator;
use crate::did::{InvalidDidError, did_of_subject};
use crate::grant::ToolGrant;
use crate::jose::{self, SigningKey, TOKEN_BYTES_MAX};
use crate::role::Role;
use crate::scope::PermissionScope;

/// Shortest and longest life of a token.
const TTL_SECONDS: std::ops::RangeInclusive<u64> = 1..=31_536_000;

/// In whose name and for whom tokens are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMinter {
    pub issuer: String,
    pub audience: String,
}

/// What a new token should say.
#[derive(Debug, Clone, PartialEq)]
pub struct MintRequest {
    pub sub: Subject,
    pub tenant: TenantId,
    pub roles: Vec<Role>,
    pub tools: Vec<ToolGrant>,
    pub scopes: Vec<PermissionScope>,
    pub user_did: Option<Subject>,
    pub session_id: Option<String>,
    pub ttl_seconds: u64,
    pub limits: Vec<ArgumentLimit>,
    pub budget: Option<CallBudget>,
    /// Who hands it on. Whether it is narrower than theirs is the business of whoever asks; verification checks it.
    pub act: Option<Box<Delegator>>,
}

/// Why a token was not minted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    #[error("ttl_seconds must be between {} and {}", TTL_SECONDS.start(), TTL_SECONDS.end())]
    Ttl,
    #[error("the token would be longer than {TOKEN_BYTES_MAX} bytes: name fewer tools or scopes")]
    TooLong,
    #[error("`{member}` looks like a DID and is none: {why}")]
    Subject { member: &'static str, why: InvalidDidError },
}

impl Default for TokenMinter {
    fn default() -> Self {
        Self { issuer: ISSUER.to_owned(), audience: AUDIENCE.to_owned() }
    }
}

impl TokenMinter {
    /// Mints a token. `token_id` must be unique; `now_ms` is milliseconds since the epoch.
    pub fn mint(
        &self,
        request: &MintRequest,
        key: &SigningKey,
        token_id: String,
        now_ms: i64,
    ) -> Result<(String, TokenClaims), MintError> {
        if !TTL_SECONDS.contains(&request.ttl_seconds) {
            return Err(MintError::Ttl);
        }
        for (member, subject) in [("sub", Some(&request.sub)), ("user_did", request.user_did.as_ref())] {
            if let Some(subject) = subject {
                did_of_subject(subject).map_err(|why| MintError::Subject { member, why })?;
            }
        }
        let now = now_ms.div_euclid(1000);
        let claims = TokenClaims {
            iss: self.issuer.clone(),
            aud: TokenAudience::One(self.audience.clone()),
            sub: request.sub.clone(),
            exp: now.saturating_add_unsigned(request.ttl_seconds),
            nbf: now,
            iat: now,
            jti: token_id,
            tenant: request.tenant.clone(),
            roles: request.roles.clone(),
            tools: request.tools.clone(),
            scopes: request.scopes.clone(),
            user_did: request.user_did.clone(),
            session_id: request.session_id.clone(),
            limits: request.limits.clone(),
            budget: request.budget.clone(),
            act: request.act.clone(),
        };
        // Claims are plain data: there is nothing in them that JSON cannot have.
        let payload = serde_json::to_vec(&claims).unwrap_or_default();
        let token = jose::write(&payload, key);
        if token.len() > TOKEN_BYTES_MAX { Err(MintError::TooLong) } else { Ok((token, claims)) }
    }
}

/// Mints a token in the names this server has without configuration.
pub fn mint(
    request: &MintRequest,
    key: &SigningKey,
    token_id: String,
    now_ms: i64,
) -> Result<(String, TokenClaims), MintError> {
    TokenMinter::default().mint(request, key, token_id, now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{TokenError, TokenTrust, verify};

    const NOW: i64 = 1_800_000_000_000;

    fn request() -> MintRequest {
        MintRequest {
            sub: "did:example:ann".parse().unwrap(),
            tenant: "acme".parse().unwrap(),
            roles: vec![Role::Agent],
            tools: vec![ToolGrant { tool_id: "demo.*".parse().unwrap(), version_range: None }],
            scopes: vec!["tool:*".parse().unwrap()],
            user_did: None,
            session_id: None,
            ttl_seconds: 60,
            limits: Vec::new(),
            budget: Some(CallBudget { calls: Some(3) }),
            act: None,
        }
    }

    #[test]
    fn a_minted_token_verifies_until_the_second_it_expires() {
        let key = SigningKey::from_seed(&[1; 32]);
        let (token, claims) = mint(&request(), &key, "t-1".into(), NOW).unwrap();
        let trust = TokenTrust::own(key.verifying_key());
        let caller = verify(&token, &trust, NOW).unwrap();
        assert_eq!((caller.subject().as_str(), caller.token_id()), ("did:example:ann", Some("t-1")));
        assert_eq!(caller.issuer(), Some(ISSUER));
        assert_eq!((caller.issued_at(), caller.budget()), (Some(NOW / 1000), request().budget.as_ref()));
        assert_eq!(caller.rights(), claims.rights());
        assert!(verify(&token, &trust, claims.exp * 1000 - 1).is_ok());
        assert_eq!(verify(&token, &trust, claims.exp * 1000), Err(TokenError::Expired));
        assert_eq!(verify(&token, &trust, NOW - 1000), Err(TokenError::NotYetValid));
    }

    #[test]
    fn a_delegated_token_carries_its_chain_nearest_first() {
        let key = SigningKey::from_seed(&[1; 32]);
        let (_, parent) = mint(&request(), &key, "p-1".into(), NOW).unwrap();
        let user = Delegator {
            iss: None,
            roles: None,
            sub: "did:example:user".parse().unwrap(),
            jti: None,
            iat: None,
            exp: None,
            tools: None,
            scopes: None,
            limits: None,
            budget: None,
            act: None,
        };
        let agent = Delegator {
            sub: "did:example:agent".parse().unwrap(),
            jti: Some(parent.jti),
            tools: Some(parent.tools),
            scopes: Some(parent.scopes),
            act: Some(Box::new(user.clone())),
            ..user.clone()
        };
        let request = MintRequest { act: Some(Box::new(agent.clone())), ..request() };
        let (token, _) = mint(&request, &key, "c-1".into(), NOW).unwrap();
        let caller = verify(&token, &TokenTrust::own(key.verifying_key()), NOW).unwrap();
        assert_eq!(caller.chain(), [Delegator { act: None, ..agent }, user]);
    }

    #[test]
    fn the_names_of_issuer_and_audience_can_be_chosen() {
        let key = SigningKey::from_seed(&[1; 32]);
        let minter = TokenMinter { issuer: "https://g.example".into(), audience: "tools".into() };
        let (token, _) = minter.mint(&request(), &key, "t-1".into(), NOW).unwrap();
        let mut trust = TokenTrust::own(key.verifying_key());
        assert_eq!(verify(&token, &trust, NOW), Err(TokenError::WrongIssuer));
        trust.issuers[0].name.clone_from(&minter.issuer);
        assert_eq!(verify(&token, &trust, NOW), Err(TokenError::WrongAudience));
        trust.audience.clone_from(&minter.audience);
        assert!(verify(&token, &trust, NOW).is_ok());
    }

    #[test]
    fn lifetimes_outside_the_range_and_endless_lists_are_not_minted() {
        let key = SigningKey::from_seed(&[1; 32]);
        for ttl in [0, 31_536_001] {
            let request = MintRequest { ttl_seconds: ttl, ..request() };
            assert_eq!(mint(&request, &key, "t".into(), NOW).unwrap_err(), MintError::Ttl);
        }
        let request = MintRequest { tools: vec![request().tools[0].clone(); 2_000], ..request() };
        assert_eq!(mint(&request, &key, "t".into(), NOW).unwrap_err(), MintError::TooLong);
    }
}
