//! What a person says became of a call whose outcome nobody knew.
//!
//! A result that is said to have come of it is what repeated calls are answered with, so it has to be one that the tool could
//! have given: it is checked like the tool's own answer.
//!
//! Not here: the job of such a call (`jobs::resolving`).

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use policy::Action;
use serde_json::{Value, json};

use super::kept::{Kept, did_not_happen};
use super::recovery::no_such;
use crate::administration::Actor;
use crate::invoke::Kernel;
use crate::ports::audit_sink::{AuditAction, AuditRecord};
use crate::ports::ledger::{EntryState, Intent, Resolved, Settlement};
use crate::registry::ToolVersion;

/// Longest schema that a refusal shows.
const SCHEMA_CHARS_MAX: usize = 500;

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
        if let Some(result) = &happened {
            let entry = self.parts.books.ledger().find(&tenant, invocation).await.map_err(|error| error.refusal())?;
            self.could_have_answered(&entry.ok_or_else(|| no_such(invocation))?.intent, result)?;
        }
        let slot = self.parts.recorder.reserve().await?;
        let (state, word, kept) = match happened {
            Some(result) => (EntryState::Done, "it happened", Kept::Resolved { result }),
            None => (EntryState::FailedClean, "it did not happen", Kept::failure(&did_not_happen())),
        };
        let settlement = Settlement { state, outcome: kept.write() };
        let resolved = self.parts.books.ledger().resolve(&tenant, invocation, settlement).await;
        match resolved.map_err(|error| error.refusal())? {
            Resolved::Done => {
                let record = self.act(actor, &caller, AuditAction::InvocationResolved, None, Some(word.into()));
                slot.record_durably(AuditRecord { invocation_id: Some(invocation), ..record }).await
            }
            Resolved::NotFound => Err(no_such(invocation)),
            Resolved::NotUnknown(state) => Err(Refusal::new(
                ErrorCode::E3908,
                format!("the outcome of `{invocation}` is not unknown: it is {}", state.as_str()),
            )
            .hint("nothing was changed")),
        }
    }

    /// Is this something that the tool could have answered? Of a version that is gone nobody knows, and nobody can call it.
    fn could_have_answered(&self, intent: &Intent, result: &Value) -> Result<(), Refusal> {
        let registry = self.registry().snapshot();
        let tool = registry.find(&intent.tenant, intent.tool.as_str()).and_then(|tool| tool.version(&intent.version));
        let Some(tool) = tool else { return Ok(()) };
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
        Err(refusal.hint(result_wanted(tool)).details(json!({ "errors": violations })))
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
