//! What the layers demand of somebody who reads what an earlier call came to.
//!
//! A reader is asked about as if it called the tool now, but the arguments of the call may be gone. A policy that permits by
//! arguments would then deny every reader, the owner of the call included, who was allowed when the arguments were there. So
//! the owner is not taken for denied where arguments alone may be missing, and every member that any permit of that layer
//! hides is hidden: it sees no more than whoever is allowed. (decision 0093)
//!
//! Invariant RDUTY-1: a forbid that reads no arguments, a layer without any that reads some, and an external engine that says no
//! deny the owner like everybody else.

use contract::error::{ErrorCode, Refusal};
use policy::Obligation;

use super::decisions::{DecisionRequest, delegates, question, unusable};
use super::service::AccessControl;
use super::snapshot::AccessSnapshot;
use super::tool_reach::ReachFacts;

impl AccessControl {
    /// The obligations of a reader. `None`: the layers deny it the tool. `owns` says that the call was its own.
    pub(crate) async fn demanded_of_reader(
        &self,
        snapshot: &AccessSnapshot,
        call: DecisionRequest<'_>,
        owns: bool,
    ) -> Result<Option<Vec<Obligation>>, Refusal> {
        match self.decide(snapshot, call).await {
            Ok(decision) => Ok(Some(decision.obligations.clone())),
            Err(refusal) if refusal.code != ErrorCode::E3206 => Err(refusal),
            // What an engine looks at is not known.
            Err(_) if !owns || self.engine().is_some() => Ok(None),
            Err(_) => self.demanded_without_arguments(snapshot, call),
        }
    }

    fn demanded_without_arguments(
        &self,
        snapshot: &AccessSnapshot,
        call: DecisionRequest<'_>,
    ) -> Result<Option<Vec<Obligation>>, Refusal> {
        let facts = ReachFacts::of(call.tool, call.origin)?;
        let delegates = delegates(&question(call, &facts, self.environment()), call.caller.chain());
        let tenant = snapshot.tenant_policies(call.caller.tenant()).map(|layer| ("tenant", layer));
        let mut demanded = Vec::new();
        for (name, layer) in std::iter::once(("platform", snapshot.platform())).chain(tenant) {
            if layer.record.is_none() {
                continue;
            }
            let policies = layer.policies.as_ref().ok_or_else(|| unusable(name))?;
            for delegate in &delegates {
                let verdict = policies.decide(&delegate.question);
                if verdict.allowed {
                    demanded.extend(verdict.obligations);
                } else if policies.may_lack_arguments(&verdict) {
                    demanded.extend(policies.redactions());
                } else {
                    return Ok(None);
                }
            }
        }
        Ok(Some(demanded))
    }
}
