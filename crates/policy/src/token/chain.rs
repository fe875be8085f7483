//! The chain of delegation of one token: as long as it may be, without a circle, alive, and never widening (AUTH-015).
//!
//! What a link does not state is not compared: tokens of other issuers may carry only `sub`, as RFC 8693 has it. A link
//! that states nothing does not cut the chain: what stands below it is compared with what stands above it.

use std::collections::HashSet;

use super::claims::{has_passed, is_date};
use super::{TokenClaims, TokenError, TokenTrust};
use crate::delegation::{ChainError, Delegator};
use crate::jose::is_printable_name;

/// The links of a token, nearest first, each without those behind it.
pub(super) fn verified(claims: &TokenClaims, trust: &TokenTrust, now_ms: i64) -> Result<Vec<Delegator>, TokenError> {
    let Some(act) = &claims.act else { return Ok(Vec::new()) };
    let max = trust.delegation_depth_max;
    let refused = |error: ChainError| match error {
        ChainError::TooLong => TokenError::TooDeep { max },
        ChainError::Cyclic => TokenError::Cyclic,
        ChainError::Widened { widening, .. } => TokenError::Widened(widening.to_string()),
    };
    let links = act.flatten().map_err(refused)?;
    if links.len() > max {
        return Err(TokenError::TooDeep { max });
    }
    let mut subjects = HashSet::from([&claims.sub]);
    let mut nearer = &claims.sub;
    for link in &links {
        let dates = [link.iat, link.exp].into_iter().flatten().all(is_date);
        if !dates || !link.jti.as_deref().is_none_or(is_printable_name) {
            return Err(TokenError::Malformed("a link of `act` has a date or `jti` of another form"));
        }
        // An agent may narrow its own token for one purpose, so the same subject twice in a row is no circle.
        let again = link.sub == *nearer;
        nearer = &link.sub;
        if !again && !subjects.insert(&link.sub) {
            return Err(TokenError::Cyclic);
        }
    }
    let now = now_ms.div_euclid(1000);
    if links.iter().filter_map(|link| link.exp).any(|exp| has_passed(exp, trust.leeway(), now)) {
        return Err(TokenError::ParentExpired);
    }
    act.verify(&claims.jti, &claims.rights()).map_err(refused)?;
    Ok(links.into_iter().map(alone).collect())
}

/// A link without those behind it.
fn alone(link: &Delegator) -> Delegator {
    Delegator {
        sub: link.sub.clone(),
        iss: link.iss.clone(),
        jti: link.jti.clone(),
        iat: link.iat,
        roles: link.roles.clone(),
        exp: link.exp,
        tools: link.tools.clone(),
        scopes: link.scopes.clone(),
        limits: link.limits.clone(),
        budget: link.budget.clone(),
        act: None,
    }
}
