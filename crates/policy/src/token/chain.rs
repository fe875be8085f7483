//! The chain of delegation of one token: as long as it may be, without a circle, alive, and never widening (AUTH-015).
//!
//! What a link does not state is not compared: tokens of other issuers may carry only `sub`, as RFC 8693 has it. A link
//! that states nothing does not cut the chain: what stands below it is compared with what stands above it.

use std::collections::HashSet;

use super::claims::{has_passed, is_date};
use super::{Claims, TokenError, Trust};
use crate::delegation::{Delegator, Rights, first_widening};
use crate::jose::is_printable_name;

/// The links of a token, nearest first, each without those behind it.
pub(super) fn verified(claims: &Claims, trust: &Trust, now_ms: i64) -> Result<Vec<Delegator>, TokenError> {
    let links = flattened(claims, trust.delegation_depth_max)?;
    let (mut subjects, mut tokens) = (HashSet::from([&claims.sub]), HashSet::from([claims.jti.as_str()]));
    let mut nearer = &claims.sub;
    for link in &links {
        let dates = [link.iat, link.exp].into_iter().flatten().all(is_date);
        if !dates || !link.jti.as_deref().is_none_or(is_printable_name) {
            return Err(TokenError::Malformed("a link of `act` has a date or `jti` of another form"));
        }
        // An agent may narrow its own token for one purpose, so the same subject twice in a row is no circle.
        let again = link.sub == *nearer;
        nearer = &link.sub;
        if !(again || subjects.insert(&link.sub)) || !link.jti.as_deref().is_none_or(|jti| tokens.insert(jti)) {
            return Err(TokenError::Cyclic);
        }
    }
    let now = now_ms.div_euclid(1000);
    if links.iter().filter_map(|link| link.exp).any(|exp| has_passed(exp, trust.leeway(), now)) {
        return Err(TokenError::ParentExpired);
    }
    let mut child = claims.rights();
    for link in &links {
        let parent = stated_or(link, &child);
        if let Some(widening) = first_widening(&child, &parent) {
            return Err(TokenError::Widened(widening.to_string()));
        }
        child = parent;
    }
    Ok(links)
}

/// Nested links as a list. Stops counting, and reading, at the limit.
fn flattened(claims: &Claims, max: usize) -> Result<Vec<Delegator>, TokenError> {
    let mut links = Vec::new();
    let mut next = claims.act.as_deref();
    while let Some(link) = next {
        if links.len() == max {
            return Err(TokenError::TooDeep { max });
        }
        next = link.act.as_deref();
        links.push(Delegator {
            sub: link.sub.clone(),
            jti: link.jti.clone(),
            iat: link.iat,
            exp: link.exp,
            tools: link.tools.clone(),
            scopes: link.scopes.clone(),
            limits: link.limits.clone(),
            budget: link.budget.clone(),
            act: None,
        });
    }
    Ok(links)
}

/// The rights of a link, with the child's where it states none: those compare as equal.
fn stated_or(link: &Delegator, child: &Rights) -> Rights {
    Rights {
        tools: link.tools.clone().unwrap_or_else(|| child.tools.clone()),
        scopes: link.scopes.clone().unwrap_or_else(|| child.scopes.clone()),
        limits: link.limits.clone().unwrap_or_else(|| child.limits.clone()),
        budget: link.budget.clone().or_else(|| child.budget.clone()),
        expires_at: link.exp.unwrap_or(child.expires_at),
    }
}
