//! Policies sorted by what their scope names, so that a decision evaluates only those that could hold.
//!
//! A policy whose scope demands `resource == Tool::"x"` cannot hold, nor fail, for another tool: its conditions are not
//! reached. It therefore need not be evaluated for any question that does not name `Tool::"x"`. The same goes for agents,
//! tenants and namespaces.
//!
//! INVARIANT: the findings are those of one set with all policies (`sliced_decisions_are_those_of_the_whole_set`).

use std::collections::HashMap;

use cedar_policy::{
    AuthorizationError, Authorizer, Decision, EntityUid, EvaluationError, Policy, PolicyId, PolicySet, PolicySetError,
    PrincipalConstraint, ResourceConstraint,
};

use super::cost::{Demand, Demands};
use super::facts::Facts;
use super::reads::Reads;

/// All policies, each in exactly one slice.
#[derive(Debug, Default)]
pub(super) struct Slices {
    general: Slice,
    named: HashMap<EntityUid, Slice>,
}

/// Some policies, and what evaluating them asks for.
#[derive(Debug, Default)]
pub(super) struct Slice {
    set: PolicySet,
    pub(super) demands: Demands,
}

impl Slice {
    pub(super) fn add(&mut self, policy: Policy, reads: &Reads, demand: Demand) -> Result<(), Box<PolicySetError>> {
        self.demands.add(reads, demand);
        self.set.add(policy).map_err(Box::new)
    }
}

/// What the policies say about one question.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The permits that hold; incomplete when a forbid holds.
    pub(super) permits: Vec<PolicyId>,
    pub(super) forbids: Vec<PolicyId>,
    pub(super) errors: Vec<(PolicyId, EvaluationError)>,
}

impl Slices {
    pub(super) fn add(&mut self, policy: Policy, reads: &Reads, demand: Demand) -> Result<(), Box<PolicySetError>> {
        let slice = match key(&policy) {
            Some(key) => self.named.entry(key).or_default(),
            None => &mut self.general,
        };
        slice.add(policy, reads, demand)
    }

    /// Asks the slices that could answer.
    pub(super) fn ask(&self, facts: &Facts) -> Findings {
        let mut findings = Findings::default();
        self.relevant(&facts.named).for_each(|slice| findings.add(slice, facts));
        findings
    }

    /// Those that could answer a question about these.
    pub(super) fn relevant<'a>(&'a self, named: &'a [EntityUid]) -> impl Iterator<Item = &'a Slice> {
        let named = named.iter().filter_map(|name| self.named.get(name));
        std::iter::once(&self.general).filter(|slice| !slice.set.is_empty()).chain(named)
    }
}

impl Findings {
    /// Adds what these policies say.
    pub(super) fn add(&mut self, slice: &Slice, facts: &Facts) {
        let response = Authorizer::new().is_authorized(&facts.request, &slice.set, &facts.entities);
        let diagnostics = response.diagnostics();
        let determining = match response.decision() {
            Decision::Allow => &mut self.permits,
            Decision::Deny => &mut self.forbids,
        };
        determining.extend(diagnostics.reason().cloned());
        self.errors.extend(diagnostics.errors().map(|error| match error {
            AuthorizationError::PolicyEvaluationError(error) => (error.policy_id().clone(), error.inner().clone()),
        }));
    }
}

/// The narrowest entity that the scope demands.
fn key(policy: &Policy) -> Option<EntityUid> {
    match (policy.resource_constraint(), policy.principal_constraint()) {
        (ResourceConstraint::Eq(one), _)
        | (_, PrincipalConstraint::Eq(one))
        | (ResourceConstraint::In(one) | ResourceConstraint::IsIn(_, one), _)
        | (_, PrincipalConstraint::In(one) | PrincipalConstraint::IsIn(_, one)) => Some(one),
        (
            ResourceConstraint::Any | ResourceConstraint::Is(_),
            PrincipalConstraint::Any | PrincipalConstraint::Is(_),
        ) => None,
    }
}

#[cfg(test)]
mod tests;
