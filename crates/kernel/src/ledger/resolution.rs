//! What a person says became of a call whose outcome nobody knew.
//!
//! A result that is said to have come of it is what repeated calls are answered with, so it has to be one that the tool could
//! have given: it is checked like the tool's own answer, and what `output_policy` hides of that is hidden of it before it is kept.
//!
//! Not here: the job of such a call (`jobs::resolution`).

use std::sync::Arc;

use contract::envelope::Truncation;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::ledger::{EntryState, Intent, ResolveOutcome, Settlement};
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use super::kept_outcome::{KeptOutcome, did_not_happen};
use super::recovery::no_such;
use crate::invoke::Kernel;
use crate::phases::profile_of_person;

/// Longest schema that a refusal shows.
const SCHEMA_CHARS_MAX: usize = 500;
/// What stands in place of a result of which nothing may be shown.
const WITHHELD: &str = "[REDACTED]";

impl Kernel {
    /// Says what became of a call whose outcome is unknown: a person has looked. With a result it happened, and the result
    /// is what repeated calls get; without one it did not, and its key is free again.
    pub async fn resolve_invocation(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        invocation: InvocationId,
        happened: Option<Value>,
    ) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::ManageJobs).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        let happened = match happened {
            None => None,
            Some(result) => {
                let entry = self.parts.books.ledger().find(&tenant, invocation).await;
                let intent = entry.map_err(|error| error.refusal())?.ok_or_else(|| no_such(invocation))?.intent;
                self.could_have_answered(&intent, &result)?;
                Some(self.shown_of_person(&intent, result).await?)
            }
        };
        let slot = self.parts.recorder.reserve().await?;
        let (state, word, kept) = match happened {
            Some((result, truncation)) => {
                (EntryState::Done, "it happened", KeptOutcome::Resolved { result, truncation })
            }
            None => (EntryState::FailedClean, "it did not happen", KeptOutcome::failure(&did_not_happen())),
        };
        let settlement = Settlement { state, outcome: kept.write() };
        let resolved = self.parts.books.ledger().resolve(&tenant, invocation, settlement).await;
        match resolved.map_err(|error| error.refusal())? {
            ResolveOutcome::Done => {
                let record = self.act(actor, &caller, AuditAction::InvocationResolved, None, Some(word.into()));
                slot.record_durably(AuditRecord { invocation_id: Some(invocation), ..record }).await
            }
            ResolveOutcome::NotFound => Err(no_such(invocation)),
            ResolveOutcome::NotUnknown(state) => Err(Refusal::new(
                ErrorCode::E3908,
                format!("the outcome of `{invocation}` is not unknown: it is {}", state.as_str()),
            )
            .hint("nothing was changed")),
        }
    }

    /// Is this something that the tool could have answered? Of a version that is gone nobody knows, and nobody can call it.
    fn could_have_answered(&self, intent: &Intent, result: &Value) -> Result<(), Refusal> {
        let Some(tool) = self.tool_of(intent) else { return Ok(()) };
        let Err(violations) = tool.result_schema()?.check(result) else { return Ok(()) };
        let what = match violations.first() {
            Some(first) if first.path.is_empty() => first.message.clone(),
            Some(first) => format!("{}: {}", first.path, first.message),
            None => "it is not allowed".to_owned(),
        };
        let refusal = Refusal::new(
            ErrorCode::E3301,
            format!("the result is not one that `{}` {} could have given: {what}", tool.id, tool.version),
        );
        Err(refusal.hint(result_wanted(&tool)).details(json!({ "errors": violations })))
    }

    /// What is shown and kept of a result that a person has given. What is to be hidden in the answer of a version that is gone
    /// nobody knows, so nothing of it is.
    pub(super) async fn shown_of_person(
        &self,
        intent: &Intent,
        result: Value,
    ) -> Result<(Value, Option<Truncation>), Refusal> {
        match self.tool_of(intent) {
            Some(tool) => profile_of_person(self, &tool, &intent.tenant, result).await,
            None => Ok((WITHHELD.into(), None)),
        }
    }

    fn tool_of(&self, intent: &Intent) -> Option<Arc<ToolVersion>> {
        let registry = self.registry().snapshot();
        registry.find(&intent.tenant, intent.tool.as_str())?.version(&intent.version).map(Arc::clone)
    }
}

fn result_wanted(tool: &ToolVersion) -> String {
    let schema = tool.manifest.result_schema.to_string();
    let schema =
        if schema.chars().count() > SCHEMA_CHARS_MAX { "`result_schema` of the tool".to_owned() } else { schema };
    format!(
        "nothing was changed; give the answer that the tool would have given (`--result JSON`), which fits {schema}"
    )
}
