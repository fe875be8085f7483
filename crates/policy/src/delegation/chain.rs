//! The chain of a delegated token: the `act` claim of RFC 8693, with the rights that each link had.
//!
//! Every link repeats what its token allowed, so that a token can be judged without fetching those above it. The signature
//! covers the whole chain, but an issuer may err and a key may be stolen: the chain is compared at each use.
//!
//! Invariants
//! - CHN-1: a chain has at most [`CHAIN_LINKS_MAX`] links and no token twice; other chains are refused, not cut, because
//!   whoever looks at a part of a chain lets the rest go unchecked.
//! - CHN-2: what a link does not say is not a gap in the proof: the next link above that says it is compared instead.

use contract::ids::Subject;
use serde::{Deserialize, Serialize};

use super::{DelegatedRights, RightsWidening, longer_life, missing_limit, wider_budget, wider_scope, wider_tool};
use crate::argument_limit::ArgumentLimit;
use crate::budget::CallBudget;
use crate::grant::ToolGrant;
use crate::role::Role;
use crate::scope::PermissionScope;

/// Most links of a chain. User, agent, sub-agents and invocation fit; a longer one is a mistake or a trick.
pub const CHAIN_LINKS_MAX: usize = 10;

/// One link of the `act` claim: who handed the token on, and with which rights. Outermost is the nearest delegator.
/// Tokens of other issuers may carry only `sub`, as RFC 8693 has it; what is absent is not compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delegator {
    pub sub: Subject,
    /// Who issued the token that was handed on: its `jti` is unique there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// What the delegator was to this server; what is forbidden to a role stays forbidden when the role is left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Role>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolGrant>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<PermissionScope>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<ArgumentLimit>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<CallBudget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Box<Self>>,
}

/// Why a chain was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChainError {
    #[error("the chain of delegation has more than {CHAIN_LINKS_MAX} links")]
    TooLong,
    #[error("the chain of delegation names one token twice")]
    Cyclic,
    #[error("the token has more rights than `{delegator}` had, who handed it on: {widening}")]
    Widened { delegator: Subject, widening: Box<RightsWidening> },
}

impl Delegator {
    /// The link for a token that is now handed on: whose it is, its id, when it was issued, what it allows, and the chain
    /// it has itself.
    pub fn of(sub: Subject, jti: String, iat: i64, rights: &DelegatedRights, act: Option<Self>) -> Self {
        Self {
            sub,
            iss: None,
            jti: Some(jti),
            iat: Some(iat),
            roles: None,
            exp: Some(rights.expires_at),
            tools: Some(rights.tools.clone()),
            scopes: Some(rights.scopes.clone()),
            limits: Some(rights.limits.clone()),
            budget: rights.budget.clone(),
            act: act.map(Box::new),
        }
    }

    /// The links, nearest first.
    pub fn flatten(&self) -> Result<Vec<&Self>, ChainError> {
        let mut links: Vec<&Self> = Vec::new();
        let mut next = Some(self);
        while let Some(link) = next {
            if links.len() == CHAIN_LINKS_MAX {
                return Err(ChainError::TooLong);
            }
            if link.jti.is_some() && links.iter().any(|other| other.jti == link.jti) {
                return Err(ChainError::Cyclic);
            }
            links.push(link);
            next = link.act.as_deref();
        }
        Ok(links)
    }

    /// Is a token with this id and these rights no wider than any link of its chain, and each link no wider than those
    /// above it?
    pub fn verify(&self, jti: &str, rights: &DelegatedRights) -> Result<(), ChainError> {
        let links = self.flatten()?;
        if links.iter().any(|link| link.jti.as_deref() == Some(jti)) {
            return Err(ChainError::Cyclic);
        }
        // What the links so far have said last about each part.
        let mut tools = &rights.tools;
        let mut scopes = &rights.scopes;
        let mut limits = &rights.limits;
        let mut budget = rights.budget.as_ref();
        let mut end = rights.expires_at;
        for link in links {
            let widening = link.tools.as_ref().and_then(|above| wider_tool(tools, above));
            let widening = widening.or_else(|| link.scopes.as_ref().and_then(|above| wider_scope(scopes, above)));
            let widening = widening.or_else(|| link.limits.as_ref().and_then(|above| missing_limit(limits, above)));
            let widening = widening.or_else(|| wider_budget(budget, link.budget.as_ref()));
            let widening = widening.or_else(|| link.exp.and_then(|above| longer_life(end, above)));
            if let Some(widening) = widening {
                return Err(ChainError::Widened { delegator: link.sub.clone(), widening: Box::new(widening) });
            }
            tools = link.tools.as_ref().unwrap_or(tools);
            scopes = link.scopes.as_ref().unwrap_or(scopes);
            limits = link.limits.as_ref().unwrap_or(limits);
            budget = link.budget.as_ref().or(budget);
            end = link.exp.unwrap_or(end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(scope: &str, calls: Option<u64>, expires_at: i64) -> DelegatedRights {
        DelegatedRights {
            tools: vec![],
            scopes: vec![scope.parse().unwrap()],
            limits: vec![],
            budget: calls.map(|calls| CallBudget { calls: Some(calls) }),
            expires_at,
        }
    }

    fn link(jti: &str, rights: &DelegatedRights, act: Option<Delegator>) -> Delegator {
        Delegator::of(format!("sub_of_{jti}").parse().unwrap(), jti.into(), 1, rights, act)
    }

    fn bare(sub: &str, act: Option<&Delegator>) -> Delegator {
        serde_json::from_value(serde_json::json!({ "sub": sub, "act": act })).unwrap()
    }

    #[test]
    fn a_chain_is_read_from_the_nearest_link_on() {
        let user = link("t1", &rights("a:*", None, 9), None);
        let agent = link("t2", &rights("a:b", None, 9), Some(user));
        let names: Vec<_> = agent.flatten().unwrap().iter().map(|link| link.sub.as_str()).collect();
        assert_eq!(names, ["sub_of_t2", "sub_of_t1"]);
    }

    #[test]
    fn chains_that_are_too_long_or_turn_in_circles_are_refused_whole() {
        let chain = |links: usize| (0..links).fold(None, |act, _| Some(bare("x", act.as_ref()))).unwrap();
        assert_eq!(chain(CHAIN_LINKS_MAX).flatten().unwrap().len(), CHAIN_LINKS_MAX);
        assert_eq!(chain(CHAIN_LINKS_MAX + 1).flatten(), Err(ChainError::TooLong));

        let all = rights("a:*", None, 9);
        let circle = link("t1", &all, Some(link("t2", &all, Some(link("t1", &all, None)))));
        assert_eq!(circle.flatten(), Err(ChainError::Cyclic));
        assert_eq!(link("t1", &all, None).verify("t1", &all), Err(ChainError::Cyclic));
        assert_eq!(link("t1", &all, None).verify("t2", &all), Ok(()));
    }

    #[test]
    fn every_link_is_compared_with_what_is_above_it() {
        let user = rights("a:*", Some(10), 100);
        let agent = rights("a:b:*", Some(5), 50);
        let call = rights("a:b:c", Some(1), 50);
        let chain = |agent: &DelegatedRights| link("agent", agent, Some(link("user", &user, None)));
        assert_eq!(chain(&agent).verify("call", &call), Ok(()));
        for (agent, call, delegator) in [
            (&agent, rights("a:x", Some(1), 50), "sub_of_agent"),
            (&agent, rights("a:b:c", Some(6), 50), "sub_of_agent"),
            (&agent, rights("a:b:c", None, 50), "sub_of_agent"),
            (&agent, rights("a:b:c", Some(1), 51), "sub_of_agent"),
            (&rights("b:*", Some(5), 50), rights("b:c", Some(1), 50), "sub_of_user"),
            (&rights("a:b", Some(11), 50), rights("a:b", Some(1), 50), "sub_of_user"),
            (&rights("a:b", Some(5), 101), rights("a:b", Some(1), 50), "sub_of_user"),
        ] {
            match chain(agent).verify("call", &call) {
                Err(ChainError::Widened { delegator: found, .. }) => assert_eq!(found.as_str(), delegator),
                other => panic!("{agent:?} {call:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_link_that_says_nothing_does_not_hide_those_above_it() {
        let user = link("user", &rights("a:b", Some(3), 100), None);
        let chain = bare("broker", Some(&user));
        assert_eq!(chain.verify("call", &rights("a:b", Some(3), 100)), Ok(()));
        for wider in [rights("a:*", Some(3), 100), rights("a:b", Some(4), 100), rights("a:b", Some(3), 101)] {
            assert!(matches!(chain.verify("call", &wider), Err(ChainError::Widened { .. })), "{wider:?}");
        }
        assert_eq!(bare("stranger", None).verify("call", &rights("*", None, i64::MAX)), Ok(()));
    }
}
